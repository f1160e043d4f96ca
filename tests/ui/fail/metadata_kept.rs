//! Metadata reads the memory of its module, which may go away after the callback.
use corprof::{metadata::MetadataImport, prelude::*};

fn ask(cx: &InNoGc<'_>, module: ModuleId) -> Result<MetadataImport<'static>> {
    cx.metadata(module)
}

fn main() {}

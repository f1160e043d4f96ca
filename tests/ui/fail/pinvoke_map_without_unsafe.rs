//! Managed code that calls the method would call any native function.
use corprof::metadata::{MetadataEmit, MethodDef, ModuleRef};
use corprof::prelude::*;
use corprof::sys;

fn map(emit: &MetadataEmit<'_>, method: MethodDef, library: ModuleRef) -> Result<()> {
    emit.define_pinvoke_map(method, sys::CorPinvokeMap::empty(), "free", library)
}

fn main() {}

//! What lies where in the runtime's memory, as the runtime itself says it, and a reader of memory that cannot fault.

// `descriptor.rs` reads what the runtime exports for debuggers, with the reader of `memory.rs`.

pub(crate) mod descriptor;
pub(crate) mod memory;

use std::ffi::CStr;

use windows_core::Interface;

use crate::session::Info;
use crate::system;

use descriptor::Descriptor;
use memory::word;

/// The address of what the runtime's library exports under this name.
pub(crate) fn exported(info: &Info, name: &CStr) -> Option<usize> {
    let interface = info.first_version("runtime_layout").ok()?;
    // The first entry of the interface's table of functions is in the runtime's library.
    let code = word(interface.as_raw().addr()).and_then(word)?;
    system::symbol_beside(code, name)
}

/// What the runtime says of its own layout; none before .NET 9.
pub(crate) fn descriptor(info: &Info) -> Option<Descriptor> {
    exported(info, descriptor::SYMBOL).and_then(Descriptor::read)
}

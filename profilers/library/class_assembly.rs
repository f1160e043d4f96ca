//! What profilers with heap snapshots share: the assembly of a class.

use corprof::prelude::*;

/// The assembly of the runtime itself.
pub(crate) const CORE_LIBRARY: &str = "System.Private.CoreLib";

/// The assembly that defines a class, or the elements of an array.
pub(crate) fn assembly(cx: &InNoGc<'_>, mut class: ClassId) -> Option<String> {
    while let Some(array) = cx.array_class(class).ok()? {
        class = array.element?;
    }
    let module = match cx.class_info(class) {
        Ok(info) => info.module,
        // .NET 11 has classes without metadata: those of suspended methods, which it derives from one of its core
        // library.
        Err(error) if error.code() == corprof::sys::CORPROF_E_DATAINCOMPLETE => {
            return Some(CORE_LIBRARY.to_owned());
        }
        Err(_) => return None,
    };
    Some(cx.assembly_info(cx.module_info(module).ok()?.assembly?).ok()?.name)
}

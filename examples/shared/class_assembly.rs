//! What examples with heap snapshots share: the assembly of a class.

use corprof::prelude::*;

/// The assembly that defines a class, or the elements of an array.
pub(crate) fn assembly(cx: &InCallback<'_>, mut class: ClassId) -> Option<String> {
    while let Some(array) = cx.array_class(class).ok()? {
        class = array.element?;
    }
    let module = cx.class_info(class).ok()?.module;
    Some(cx.assembly_info(cx.module_info(module).ok()?.assembly?).ok()?.name)
}

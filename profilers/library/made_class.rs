//! For what a compiler has made a class of objects on the heap.

use corprof::metadata::{MetadataImport, TypeDef};
use corprof::prelude::*;
use corprof_export::Relative;

/// The name of a method that tells for what a compiler has made the class, or the class of the array's elements:
/// `<Load>b__0` of a closure. None for other classes.
pub(crate) fn telling_method(cx: &InNoGc<'_>, mut class: ClassId) -> Option<String> {
    while let Some(array) = cx.array_class(class).ok()? {
        class = array.element?;
    }
    let info = cx.class_info(class).ok()?;
    let metadata = cx.metadata(info.module).ok()?;
    let name = metadata.type_def(info.token).ok()?.name;
    let outer = metadata.enclosing_class(info.token).ok().flatten();
    corprof_export::telling_method(&name, |relative| {
        let class = match relative {
            Relative::Itself => Some(info.token),
            Relative::Outer => outer,
            Relative::Sibling(name) => outer.and_then(|outer| metadata.find_type_def(name, Some(outer)).ok()?),
        };
        class.and_then(|class| names_of_methods(&metadata, class)).unwrap_or_default()
    })
}

fn names_of_methods(metadata: &MetadataImport<'_>, class: TypeDef) -> Option<Vec<String>> {
    let methods = metadata.methods(class).ok()?;
    Some(methods.into_iter().filter_map(|method| Some(metadata.method(method).ok()?.name)).collect())
}

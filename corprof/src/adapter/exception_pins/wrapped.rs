//! The object inside a `RuntimeWrappedException`: a thrown object that is not an exception, as IL or C++ can throw.

use std::sync::OnceLock;

use crate::context::InNoGc;
use crate::id::{ClassId, ModuleId, ObjectId};
use crate::metadata::TypeDef;

const NAME: &str = "System.Runtime.CompilerServices.RuntimeWrappedException";

/// The search for the core library gives up after this many base classes, `Object` included.
const MOST_BASES: usize = 1000;

/// The class and its layout. None of it changes: the core library is never unloaded.
#[derive(Default)]
pub(super) struct Wrapper {
    /// Its definition; none if it could not be found.
    definition: OnceLock<Option<(ModuleId, TypeDef)>>,
    /// Set when the first one is thrown: the class, and the offset of its field from the start of its objects.
    layout: OnceLock<(usize, usize)>,
}

impl Wrapper {
    /// The object that `exception` wraps, if it is such an exception. `cx` belongs to the callback that received
    /// `exception`.
    pub(super) fn object_in<'gc>(&self, cx: &InNoGc<'_>, exception: ObjectId<'gc>) -> Option<ObjectId<'gc>> {
        let mut class = 0;
        // SAFETY: the object is alive while its id is; the call writes one id and keeps nothing (fact: still, outputs).
        let code =
            unsafe { cx.first_version("GetClassFromObject").ok()?.GetClassFromObject(exception.as_raw(), &mut class) };
        if code.is_err() {
            return None;
        }
        let (wrapper, offset) = match self.layout.get() {
            Some(&layout) => layout,
            None => self.find_layout(cx, class)?,
        };
        if class != wrapper {
            return None;
        }
        // SAFETY: the object is of the class with this layout, so it has a reference there; it does not move while its
        // id lives. The runtime sets the field before it throws. The field's object does not move either (test: live
        // filters::an_exception_that_meets_a_filter_is_the_one_that_was_thrown).
        unsafe { ObjectId::from_raw(std::ptr::with_exposed_provenance::<usize>(exception.as_raw() + offset).read()) }
    }

    /// The layout, if `class` is the class.
    fn find_layout(&self, cx: &InNoGc<'_>, class: usize) -> Option<(usize, usize)> {
        let class = ClassId::from_raw(class)?;
        // The class cannot be unloaded while an object of it exists.
        let found = cx.runtime().ask_class(class).ok()?;
        let definition = match self.definition.get() {
            Some(definition) => *definition,
            // No lock is held meanwhile: several threads may find the definition at once.
            None => *self.definition.get_or_init({
                let definition = find_definition(cx, class);
                move || definition
            }),
        };
        if definition != Some((found.module, found.token)) {
            return None;
        }
        let layout = cx.class_layout(class).ok()?;
        // The one field that it adds to those of an exception.
        let [field] = layout.fields[..] else { return None };
        Some(*self.layout.get_or_init(|| (class.as_raw(), field.offset as usize)))
    }
}

/// The definition of the class: in the module of the class that all others derive from.
fn find_definition(cx: &InNoGc<'_>, class: ClassId) -> Option<(ModuleId, TypeDef)> {
    let mut info = cx.runtime().ask_class(class).ok()?;
    for _ in 0..MOST_BASES {
        let Some(parent) = info.parent else {
            let definition = cx.metadata(info.module).ok()?.find_type_def(NAME, None).ok()??;
            return Some((info.module, definition));
        };
        info = cx.runtime().ask_class(parent).ok()?;
    }
    None
}

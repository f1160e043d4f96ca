//! The object inside a `RuntimeWrappedException`: what IL or C++ has thrown that is no exception.

use std::sync::OnceLock;

use crate::context::InCallback;
use crate::id::{ClassId, ModuleId, ObjectId};
use crate::metadata::TypeDef;

const NAME: &str = "System.Runtime.CompilerServices.RuntimeWrappedException";

/// How many base classes an exception has at most, `Object` included, before the search for the core library gives up.
const MOST_BASES: usize = 1000;

/// What is known of the class. All of it stays as it is: the core library is never unloaded.
#[derive(Default)]
pub(super) struct Wrapper {
    /// Where it is defined; none if that could not be found out.
    definition: OnceLock<Option<(ModuleId, TypeDef)>>,
    /// From the first time that one is thrown: the class, and how far its field is from the start of its objects.
    layout: OnceLock<(usize, usize)>,
}

impl Wrapper {
    /// The object that `exception` wraps, if it is such an exception. `cx` is that of the callback that handed `exception` out.
    pub(super) fn object_in<'gc>(&self, cx: &InCallback<'_>, exception: ObjectId<'gc>) -> Option<ObjectId<'gc>> {
        let mut class = 0;
        // SAFETY: the object is alive while its id is; the call writes one id and keeps nothing.
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
        // SAFETY: the object is of the class that the layout is of, so it has a reference there; nobody moves it while its id
        // lives. The runtime sets the field before it throws.
        // The field's object moves no more than the exception does.
        unsafe { ObjectId::from_raw(std::ptr::with_exposed_provenance::<usize>(exception.as_raw() + offset).read()) }
    }

    /// The layout, if `class` is the class.
    fn find_layout(&self, cx: &InCallback<'_>, class: usize) -> Option<(usize, usize)> {
        let class = ClassId::from_raw(class)?;
        // It cannot die while an object of it is there.
        let found = cx.runtime().ask_class(class).ok()?;
        let definition = match self.definition.get() {
            Some(definition) => *definition,
            // No lock is held meanwhile: several threads may find it out at once.
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

/// Where the class is defined: in the module of the class that all others derive from.
fn find_definition(cx: &InCallback<'_>, class: ClassId) -> Option<(ModuleId, TypeDef)> {
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

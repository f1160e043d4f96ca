//! Classes.

use corprof_sys as sys;

use crate::buffer::read_short_list;
use crate::error::{E_INVALIDARG, Error, Result, S_FALSE};
use crate::generated::contract::contract;
use crate::id::{ClassId, ModuleId};
use crate::info::Info;
use crate::metadata::TypeDef;

/// Where a class is defined, and with which type arguments.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ClassInfo {
    /// The module whose metadata defines it.
    pub module: ModuleId,
    /// Its definition there.
    pub token: TypeDef,
    /// The class it derives from.
    pub parent: Option<ClassId>,
    /// Its type arguments, those of the classes around it first.
    pub type_args: Vec<ClassId>,
}

/// What an array is made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ArrayClass {
    /// The kind of its elements.
    pub element_type: sys::CorElementType,
    /// The class of its elements.
    pub element: Option<ClassId>,
    /// The number of dimensions.
    pub rank: u32,
}

impl Info {
    /// Where `class` is defined, and with which type arguments.
    #[doc = contract!(GetClassIDInfo2)]
    ///
    /// `CORPROF_E_CLASSID_IS_ARRAY`: ask [`array_class`](Self::array_class) instead. `CORPROF_E_CLASSID_IS_COMPOSITE`: a
    /// pointer or by-ref has no definition.
    #[doc(alias = "GetClassIDInfo2")]
    #[doc(alias = "GetClassIDInfo")]
    #[inline]
    pub fn class_info(&self, class: ClassId) -> Result<ClassInfo> {
        let held = self.hold(class, "GetClassIDInfo2")?;
        let info = self.ask_class(class)?;
        if self.alive().is_unloading_possible() {
            info.parent.iter().chain(&info.type_args).for_each(|&class| self.note_class(class));
        }
        drop(held); // They are alive as long as it is, so they are noted before.
        Ok(info)
    }

    /// As [`class_info`](Self::class_info), for a class that cannot die meanwhile, and for no user's eyes.
    #[inline]
    pub(crate) fn ask_class(&self, class: ClassId) -> Result<ClassInfo> {
        const CALL: &str = "GetClassIDInfo2";
        let info = self.as_version::<sys::ICorProfilerInfo2>(CALL)?;
        let (mut module, mut token, mut parent) = (0, 0, 0);
        let ask = |room, count: *mut u32, start| {
            // SAFETY: the call writes the three locals, the count, and at most `room` type arguments.
            unsafe { info.GetClassIDInfo2(class.as_raw(), &mut module, &mut token, &mut parent, room, count, start) }
        };
        let type_args = read_short_list(CALL, ask, ClassId::from_raw)?;
        Ok(ClassInfo {
            module: ModuleId::from_raw(module).ok_or(Error::new(E_INVALIDARG, CALL))?,
            token: TypeDef(token),
            parent: ClassId::from_raw(parent),
            type_args,
        })
    }

    /// What `class` is an array of, or nothing if it is none.
    #[doc = contract!(IsArrayClass)]
    #[doc(alias = "IsArrayClass")]
    pub fn array_class(&self, class: ClassId) -> Result<Option<ArrayClass>> {
        let held = self.hold(class, "IsArrayClass")?;
        let array = self.ask_array(class)?;
        array.and_then(|array| array.element).into_iter().for_each(|class| self.note_class(class));
        drop(held); // The element is alive as long as it is, so it is noted before.
        Ok(array)
    }

    /// As [`array_class`](Self::array_class), for a class that cannot die meanwhile, and for no user's eyes.
    pub(crate) fn ask_array(&self, class: ClassId) -> Result<Option<ArrayClass>> {
        const CALL: &str = "IsArrayClass";
        let (mut element_type, mut element, mut rank) = (sys::CorElementType::default(), 0, 0);
        // SAFETY: the call writes the three locals and keeps nothing.
        let code = unsafe { self.as_raw().IsArrayClass(class.as_raw(), &mut element_type, &mut element, &mut rank) };
        Error::check(code, CALL)?;
        Ok((code != S_FALSE).then(|| ArrayClass { element_type, element: ClassId::from_raw(element), rank }))
    }
}

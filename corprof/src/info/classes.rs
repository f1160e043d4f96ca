//! Classes.

use corprof_sys as sys;
use windows_core::HRESULT;

use crate::alive::dead;
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

const CLASS_INFO: &str = "GetClassIDInfo2";

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
        if !self.alive().is_unloading_possible() {
            // As `function_info`: most have no type arguments.
            match self.ask_class_into(class, &mut []) {
                Ok((info, 0)) => return Ok(info),
                Ok(_) => {}
                Err(code) => return Err(Error::new(code, CLASS_INFO)),
            }
        }
        match self.class_info_rarely(class) {
            Ok(ClassInfo { module, token, parent, type_args }) => Ok(ClassInfo { module, token, parent, type_args }),
            Err(sys::COR_E_OBJECTDISPOSED) => Err(dead::<ClassId>(CLASS_INFO)),
            Err(code) => Err(Error::new(code, CLASS_INFO)),
        }
    }

    /// As [`class_info`](Self::class_info), for any class.
    #[cold]
    fn class_info_rarely(&self, class: ClassId) -> Result<ClassInfo, HRESULT> {
        let held = self.hold(class, CLASS_INFO).map_err(|error| error.code())?;
        let info = self.ask_class(class)?;
        info.parent.iter().chain(&info.type_args).for_each(|&class| self.note_class(class));
        drop(held); // They are alive as long as it is, so they are noted before.
        Ok(info)
    }

    /// As [`class_info`](Self::class_info), for a class that cannot die meanwhile, and for no user's eyes.
    pub(crate) fn ask_class(&self, class: ClassId) -> Result<ClassInfo, HRESULT> {
        let ask = |type_args: &mut [_]| self.ask_class_into(class, type_args);
        let (info, type_args) = read_short_list(ask, ClassId::from_raw)?;
        Ok(ClassInfo { type_args, ..info })
    }

    /// All but the type arguments, which are written as far as there is room for them; and how many there are.
    #[inline]
    fn ask_class_into(&self, class: ClassId, type_args: &mut [sys::ClassID]) -> Result<(ClassInfo, usize), HRESULT> {
        let info = self.as_version::<sys::ICorProfilerInfo2>(CLASS_INFO).map_err(|error| error.code())?;
        let (mut module, mut token, mut parent, mut count) = (0, 0, 0, 0);
        // SAFETY: the class is in memory: nothing can be unloaded, or the caller holds it, or a callback about it is under way. The
        // call writes the locals, and at most as many type arguments as there is room for.
        let code = unsafe {
            info.GetClassIDInfo2(
                class.as_raw(),
                &mut module,
                &mut token,
                &mut parent,
                u32::try_from(type_args.len()).unwrap_or(u32::MAX),
                &mut count,
                type_args.as_mut_ptr(),
            )
        };
        if code.is_err() {
            return Err(code);
        }
        let info = ClassInfo {
            module: ModuleId::from_raw(module).ok_or(E_INVALIDARG)?,
            token: TypeDef::from_raw(token),
            parent: ClassId::from_raw(parent),
            type_args: Vec::new(),
        };
        Ok((info, count as usize))
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
        // SAFETY: the class is in memory, as for `ask_class_into`; the call writes the three locals and keeps nothing.
        let code =
            unsafe { self.first_version().IsArrayClass(class.as_raw(), &mut element_type, &mut element, &mut rank) };
        Error::check(code, CALL)?;
        Ok((code != S_FALSE).then(|| ArrayClass { element_type, element: ClassId::from_raw(element), rank }))
    }
}

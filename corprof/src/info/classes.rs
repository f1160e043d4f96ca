//! Classes.

use corprof_sys as sys;
use windows_core::HRESULT;

use crate::error::{Error, Result};
use crate::generated::contract::contract;
use crate::id::ClassId;
use crate::info::Info;
use crate::session::liveness::dead;
use crate::session::{ArrayClass, CLASS_INFO, ClassInfo};

impl Info {
    /// The definition of `class`, with its type arguments.
    #[doc = contract!(GetClassIDInfo2)]
    ///
    /// `CORPROF_E_CLASSID_IS_ARRAY`: ask [`array_class`](Self::array_class) instead. `CORPROF_E_CLASSID_IS_COMPOSITE`:
    /// a pointer or by-ref has no definition. `CORPROF_E_DATAINCOMPLETE`: the class has no metadata, as those that .NET
    /// 11 makes for methods that it suspends itself (runtime async).
    #[doc(alias = "GetClassIDInfo2")]
    #[doc(alias = "GetClassIDInfo")]
    #[inline]
    pub fn class_info(&self, class: ClassId) -> Result<ClassInfo> {
        if !self.liveness().is_unloading_possible() {
            // As in `function_info`: most classes have no type arguments.
            match self.runtime().ask_class_into(class, &mut []) {
                Ok((info, 0)) => return Ok(info),
                Ok(_) => {}
                Err(code) => return Err(Error::new(code, CLASS_INFO).about_class()),
            }
        }
        self.class_info_slow(class).map_err(|code| match code {
            sys::COR_E_OBJECTDISPOSED => dead::<ClassId>(CLASS_INFO),
            code => Error::new(code, CLASS_INFO).about_class(),
        })
    }

    /// Like [`class_info`](Self::class_info), for any class.
    #[cold]
    fn class_info_slow(&self, class: ClassId) -> Result<ClassInfo, HRESULT> {
        let held = self.pin(class, CLASS_INFO).map_err(|error| error.code())?;
        let info = self.runtime().ask_class(class)?;
        info.parent.iter().chain(&info.type_args).for_each(|&class| self.note_class(class));
        drop(held); // Held until they are recorded: they live as long as it.
        Ok(info)
    }

    /// The shape of `class` if it is an array; otherwise none.
    #[doc = contract!(IsArrayClass)]
    #[doc(alias = "IsArrayClass")]
    pub fn array_class(&self, class: ClassId) -> Result<Option<ArrayClass>> {
        let held = self.pin(class, "IsArrayClass")?;
        let array = self.runtime().ask_array(class)?;
        array.and_then(|array| array.element).into_iter().for_each(|class| self.note_class(class));
        drop(held); // Held until the element is recorded: it lives as long as it.
        Ok(array)
    }
}

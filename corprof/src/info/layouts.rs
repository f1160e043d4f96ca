//! Layouts of objects: the fields of a class, and the parts of a string or a boxed value.

use corprof_sys as sys;

use crate::context::InNoGc;
use crate::error::{Error, Result};
use crate::ffi::buffer::read_blank_list;
use crate::generated::contract::contract;
use crate::id::ClassId;
use crate::info::Info;
use crate::metadata::FieldDef;

/// The layout of a class.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ClassLayout {
    /// The size of its objects in bytes, without the object header; for a value type the size of the value.
    pub size: u32,
    /// The instance fields that it declares itself. Inherited fields are in the layout of its parent.
    pub fields: Vec<FieldOffset>,
}

/// The offset of a field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct FieldOffset {
    /// The field.
    pub field: FieldDef,
    /// The offset in bytes from the address that an [`ObjectId`](crate::id::ObjectId) is; in a value type, from the
    /// start of the value.
    pub offset: u32,
}

/// The offsets of the parts of a string, from the address that its [`ObjectId`](crate::id::ObjectId) is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct StringLayout {
    /// The offset of its length: a 32-bit number of UTF-16 units.
    pub length_offset: u32,
    /// The offset of its text: that many units, and a NUL.
    pub buffer_offset: u32,
}

impl Info {
    /// The layout of `class`.
    #[doc = contract!(GetClassLayout)]
    ///
    /// `E_INVALIDARG`: the class is an array, a string or a type variable, or has been unloaded.
    /// `CORPROF_E_DATAINCOMPLETE`: it has no metadata, as those that .NET 11 makes for methods that it suspends itself
    /// (runtime async).
    #[doc(alias = "GetClassLayout")]
    pub fn class_layout(&self, class: ClassId) -> Result<ClassLayout> {
        const CALL: &str = "GetClassLayout";
        let class = self.pin(class, CALL)?;
        const BLANK: sys::COR_FIELD_OFFSET = sys::COR_FIELD_OFFSET { ridOfField: 0, ulOffset: 0 };
        let info = self.as_version::<sys::ICorProfilerInfo2>(CALL)?;
        let mut size = 0;
        let fields = read_blank_list(CALL, BLANK, |room, count, start| {
            // SAFETY: the class is pinned; the call writes the size, the count, and at most `room` fields
            // (fact: pinned, outputs).
            unsafe { info.GetClassLayout(class.as_raw(), start, room, count, &mut size) }
        })
        .map_err(Error::about_class)?;
        let fields = fields
            .iter()
            .map(|field| FieldOffset { field: FieldDef::from_raw(field.ridOfField), offset: field.ulOffset });
        Ok(ClassLayout { size, fields: fields.collect() })
    }
}

impl InNoGc<'_> {
    /// The offsets of the length and the text of a string.
    #[doc = contract!(GetStringLayout2)]
    #[doc(alias = "GetStringLayout2")]
    #[doc(alias = "GetStringLayout")]
    pub fn string_layout(&self) -> Result<StringLayout> {
        const CALL: &str = "GetStringLayout2";
        let info = self.as_version::<sys::ICorProfilerInfo3>(CALL)?;
        let mut length_offset = 0;
        let mut buffer_offset = 0;
        // SAFETY: the call writes the two locals and keeps nothing (fact: outputs).
        let code = unsafe { info.GetStringLayout2(&mut length_offset, &mut buffer_offset) };
        Error::check(code, CALL)?;
        Ok(StringLayout { length_offset, buffer_offset })
    }

    /// The offset of the value in an object that boxes a value of `class`.
    #[doc = contract!(GetBoxClassLayout)]
    ///
    /// `E_INVALIDARG`: the class is not a value type, or has been unloaded.
    #[doc(alias = "GetBoxClassLayout")]
    pub fn box_class_layout(&self, class: ClassId) -> Result<u32> {
        const CALL: &str = "GetBoxClassLayout";
        let class = self.pin(class, CALL)?;
        let info = self.as_version::<sys::ICorProfilerInfo2>(CALL)?;
        let mut offset = 0;
        // SAFETY: the class is pinned; the call writes one number and keeps nothing (fact: pinned, outputs).
        let code = unsafe { info.GetBoxClassLayout(class.as_raw(), &mut offset) };
        Error::check(code, CALL)?;
        Ok(offset)
    }
}

//! How objects lie in memory: where the fields of a class are, and the parts of a string or a boxed value.

use corprof_sys as sys;

use crate::context::InCallback;
use crate::error::{Error, Result};
use crate::ffi::buffer::read_blank_list;
use crate::generated::contract::contract;
use crate::id::ClassId;
use crate::info::Info;
use crate::metadata::FieldDef;

/// Where the fields of a class are.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ClassLayout {
    /// The size of its objects in bytes, without the object header; for a value type that of the value.
    pub size: u32,
    /// The instance fields that it declares itself. Those that it inherits are in the layout of its parent.
    pub fields: Vec<FieldOffset>,
}

/// Where a field is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct FieldOffset {
    /// The field.
    pub field: FieldDef,
    /// How far it is from the address that an [`ObjectId`](crate::id::ObjectId) is; in a value type, from the start of the value.
    pub offset: u32,
}

/// Where the parts of a string are, counted from the address that its [`ObjectId`](crate::id::ObjectId) is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct StringLayout {
    /// Where its length is: a 32-bit number of UTF-16 units.
    pub length_offset: u32,
    /// Where its text begins: that many units, and a NUL.
    pub buffer_offset: u32,
}

impl Info {
    /// Where the fields of `class` are.
    #[doc = contract!(GetClassLayout)]
    ///
    /// `E_INVALIDARG`: the class is an array, a string or a type variable, or is no longer there.
    #[doc(alias = "GetClassLayout")]
    pub fn class_layout(&self, class: ClassId) -> Result<ClassLayout> {
        const CALL: &str = "GetClassLayout";
        let class = self.pin(class, CALL)?;
        const BLANK: sys::COR_FIELD_OFFSET = sys::COR_FIELD_OFFSET { ridOfField: 0, ulOffset: 0 };
        let info = self.as_version::<sys::ICorProfilerInfo2>(CALL)?;
        let mut size = 0;
        let fields = read_blank_list(CALL, BLANK, |room, count, start| {
            // SAFETY: the call writes the size, the count, and at most `room` fields.
            unsafe { info.GetClassLayout(class.as_raw(), start, room, count, &mut size) }
        })?;
        let fields = fields
            .iter()
            .map(|field| FieldOffset { field: FieldDef::from_raw(field.ridOfField), offset: field.ulOffset });
        Ok(ClassLayout { size, fields: fields.collect() })
    }
}

impl InCallback<'_> {
    /// Where the length and the text of a string are.
    #[doc = contract!(GetStringLayout2)]
    #[doc(alias = "GetStringLayout2")]
    #[doc(alias = "GetStringLayout")]
    pub fn string_layout(&self) -> Result<StringLayout> {
        const CALL: &str = "GetStringLayout2";
        let info = self.as_version::<sys::ICorProfilerInfo3>(CALL)?;
        let (mut length_offset, mut buffer_offset) = (0, 0);
        // SAFETY: the call writes the two locals and keeps nothing.
        let code = unsafe { info.GetStringLayout2(&mut length_offset, &mut buffer_offset) };
        Error::check(code, CALL)?;
        Ok(StringLayout { length_offset, buffer_offset })
    }

    /// How far the value is from the start of an object that boxes a value of `class`.
    #[doc = contract!(GetBoxClassLayout)]
    ///
    /// `E_INVALIDARG`: the class is no value type, or is no longer there.
    #[doc(alias = "GetBoxClassLayout")]
    pub fn box_class_layout(&self, class: ClassId) -> Result<u32> {
        const CALL: &str = "GetBoxClassLayout";
        let class = self.pin(class, CALL)?;
        let info = self.as_version::<sys::ICorProfilerInfo2>(CALL)?;
        let mut offset = 0;
        // SAFETY: the call writes one number and keeps nothing.
        let code = unsafe { info.GetBoxClassLayout(class.as_raw(), &mut offset) };
        Error::check(code, CALL)?;
        Ok(offset)
    }
}

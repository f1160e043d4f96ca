//! Objects. An [`ObjectId`] is handed out only by callbacks in which the runtime answers these.

use crate::context::InCallback;
use crate::error::{E_INVALIDARG, Error, Result};
use crate::generated::contract::contract;
use crate::id::{ClassId, ObjectId};

impl InCallback<'_> {
    /// The class of `object`.
    #[doc = contract!(GetClassFromObject)]
    #[doc(alias = "GetClassFromObject")]
    pub fn class_of(&self, object: ObjectId<'_>) -> Result<ClassId> {
        const CALL: &str = "GetClassFromObject";
        let mut class = 0;
        // SAFETY: the object is alive while its id is; the call writes one id and keeps nothing.
        let code = unsafe { self.as_raw().GetClassFromObject(object.as_raw(), &mut class) };
        Error::check(code, CALL)?;
        ClassId::from_raw(class).ok_or(Error::new(E_INVALIDARG, CALL))
    }
}

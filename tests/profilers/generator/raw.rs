//! The one call of the matrix that is not safe, as a safe profiler makes it.

use corprof::edit::EditError;
use corprof::prelude::*;

use super::facts::{Known, NOTHING_YET};

/// Gives a function the body that it has.
pub(super) fn set_own_body(cx: &mut InCallback<'_>, known: &Known) -> Result<()> {
    let body = cx.edit_method(known.module, known.method, |_| Ok(())).map_err(|error| match error {
        EditError::Runtime(error) => error,
        _ => NOTHING_YET,
    })?;
    cx.set_checked_body(&body)
}

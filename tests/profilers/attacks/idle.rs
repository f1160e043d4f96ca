//! Does nothing: what corprof itself costs the application.

use corprof::prelude::*;

/// Has no callback.
#[derive(Profiler, Default)]
#[profiler(clsid = "7B6E2C10-0F53-4D6B-9D2B-6C0A5B1E1291", no_export)]
pub(crate) struct Idle;

#[callbacks]
impl Callbacks for Idle {}

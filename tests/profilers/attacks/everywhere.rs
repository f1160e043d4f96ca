//! Edits every method that is compiled, those of the runtime's own library as well, so that many read all their values.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use corprof::prelude::*;

use super::hot::{COUNTS, edit, seed};

static EDITED: AtomicU64 = AtomicU64::new(0);
static REFUSED: AtomicU64 = AtomicU64::new(0);

/// Without precompiled code, all that runs is compiled.
#[derive(Profiler, Default)]
#[profiler(clsid = "7B6E2C10-0F53-4D6B-9D2B-6C0A5B1E12E0", no_export)]
pub(crate) struct Everywhere;

#[callbacks]
impl Callbacks for Everywhere {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        cx.add_events(EventMask::DISABLE_ALL_NGEN_IMAGES)?;
        Ok(Self)
    }

    fn jit_compilation_started(&self, cx: &mut InCallback<'_>, function: FunctionId, _is_safe_to_block: bool) {
        let Ok(info) = cx.function_info(function) else { return };
        // The same method has the same edit in each run of a seed.
        let seed = (seed() << 32 | u64::from(info.token.as_raw())).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        match cx.edit_once(function, |open| edit(open, seed)) {
            Ok(true) => _ = EDITED.fetch_add(1, Relaxed),
            Ok(false) => {}
            Err(_) => _ = REFUSED.fetch_add(1, Relaxed),
        }
    }

    fn jit_compilation_finished(
        &self,
        cx: &mut InCallback<'_>,
        function: FunctionId,
        status: Result<()>,
        _is_safe_to_block: bool,
    ) {
        if let Err(error) = status {
            eprintln!("attacks| {} was not compiled: {error}", cx.names().function(function));
        }
    }

    fn shutdown(&self, _cx: &mut InCallback<'_>) {
        let [edited, refused, probes, values] =
            [&EDITED, &REFUSED, &COUNTS.probes, &COUNTS.values].map(|count| count.load(Relaxed));
        eprintln!("attacks| edited={edited} refused={refused} probes={probes} values={values}");
    }
}

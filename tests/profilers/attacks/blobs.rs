//! Signatures made up: what is refused is counted, and the application survives the rest.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use corprof::edit::CallCounter;
use corprof::prelude::*;
use fastrand::Rng;

use super::made_up::{define_nonsense, some_type};

static CALLS: CallCounter = CallCounter::new();

/// Gives each method of `Empty` random local variables, and defines random signatures beside them.
#[derive(Profiler)]
#[profiler(clsid = "7B6E2C10-0F53-4D6B-9D2B-6C0A5B1E1231", no_export)]
pub(crate) struct Blobs {
    random: Mutex<Rng>,
    edited: AtomicU64,
    refused: AtomicU64,
    defined: AtomicU64,
}

impl Default for Blobs {
    fn default() -> Self {
        let seed = std::env::var("ATTACKS_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_default();
        eprintln!("attacks| ATTACKS_SEED={seed}");
        let random = Mutex::new(Rng::with_seed(seed));
        Self { random, edited: AtomicU64::new(0), refused: AtomicU64::new(0), defined: AtomicU64::new(0) }
    }
}

#[callbacks]
impl Callbacks for Blobs {
    fn jit_compilation_started(&self, cx: &mut InCallback<'_>, function: FunctionId, _is_safe_to_block: bool) {
        if !cx.names().function(function).starts_with("Empty.M") {
            return;
        }
        let edited = cx.edit_once(function, |edit| {
            let mut random = self.random.lock().unwrap();
            self.defined.fetch_add(define_nonsense(&mut random, edit.emit()), Relaxed);
            for _ in 0..random.usize(1..4) {
                edit.add_local(some_type(&mut random, 6))?;
            }
            edit.count_calls(&CALLS)
        });
        let count = if edited.is_ok() { &self.edited } else { &self.refused };
        count.fetch_add(1, Relaxed);
    }

    fn shutdown(&self, _cx: &mut InCallback<'_>) {
        let [edited, refused, defined] = [&self.edited, &self.refused, &self.defined].map(|count| count.load(Relaxed));
        eprintln!("attacks| edited={edited} refused={refused} defined={defined} ran={}", CALLS.get());
    }
}

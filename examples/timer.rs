//! Times the calls of all methods, and prints the twenty that took the most processor time.

use std::sync::Arc;

use corprof::calls::CallProfiler;
use corprof::prelude::*;

#[derive(Profiler)]
#[profiler(clsid = "4E1A5A0C-7C1B-4C55-9C55-5D0E2E0C7E07")]
struct Timer {
    times: Arc<CallProfiler>,
}

#[callbacks]
impl Callbacks for Timer {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        let times = Arc::new(CallProfiler::new());
        cx.hooks(Arc::clone(&times)).install()?;
        Ok(Self { times })
    }

    fn shutdown(&self, _cx: &mut InCallback<'_>) {
        eprintln!("{:>12} {:>9}  method", "time", "calls");
        for (method, totals) in self.times.tree().functions().into_iter().take(20) {
            eprintln!("{:>12.1?} {:>9}  {method}", totals.cpu, totals.calls);
        }
    }
}

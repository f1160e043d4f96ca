//! Keeps methods with probes from being inlined. In a caller that native code calls, the inserted call would bring the
//! thread back into cooperative mode (see `convention.rs`).

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard};

use crate::context::InCallback;
use crate::error::Result;
use crate::event_mask::EventMask;
use crate::id::{FunctionId, ModuleId};
use crate::info::Info;
use crate::lock::unpoisoned;
use crate::metadata::MethodDef;
use crate::session::{Interests, MethodKey, Observer};
use crate::suspension;

/// The methods whose replaced bodies have probes. The runtime itself inlines no body of a ReJIT request.
#[derive(Default)]
struct ProbedMethods(Mutex<HashSet<MethodKey>>);

impl ProbedMethods {
    fn methods(&self) -> MutexGuard<'_, HashSet<MethodKey>> {
        suspension::forbid("the lock of the probed methods");
        unpoisoned(self.0.lock())
    }
}

impl Observer for ProbedMethods {
    fn interests(&self) -> Interests {
        Interests::COMPILATIONS | Interests::MODULES
    }

    unsafe fn may_inline(&self, info: &Info, _caller: usize, function: FunctionId) -> bool {
        // Also of a profiler that has retired: its probes stay in the code.
        let Some(method) = info.runtime().method_in_callback(function) else { return true };
        !self.methods().contains(&method)
    }

    fn module_gone(&self, module: usize) {
        self.methods().retain(|(of, _)| *of != module);
    }
}

impl InCallback<'_> {
    /// From now on no compiler inlines the method. Call it before the runtime has the body with the probe: compilers
    /// read a body before they ask whether they may inline it.
    pub(in crate::edit) fn keep_apart(&mut self, module: ModuleId, method: MethodDef) -> Result<()> {
        self.add_lasting_events(EventMask::MONITOR_JIT_COMPILATION)?;
        let probed: &ProbedMethods = self.extension();
        probed.methods().insert((module.as_raw(), method.as_raw()));
        Ok(())
    }
}

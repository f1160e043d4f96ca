//! What the instrumentation hears of callbacks.

use std::sync::Arc;

use corprof_sys as sys;
use windows_core::HRESULT;

use crate::args::FunctionControl;
use crate::error::Error;
use crate::id::{FunctionId, ModuleId, ReJitId};
use crate::session::{Info, Interests, MethodKey as Key, Observer};

use super::queue::Command;
use super::shared_state::Shared;

impl Observer for Arc<Shared> {
    fn interests(&self) -> Interests {
        Interests::MODULES | Interests::REJITS
    }

    fn module_loaded(&self, module: usize) {
        self.push([Command::ModuleLoaded(module)]);
    }

    fn module_load_ends(&self, info: &Info) {
        let _waits = info.inlinings().waits();
        self.wait_at_module_load();
    }

    fn module_unloading(&self, module: usize) {
        let states = self.request_table().module_gone(module);
        states.iter().for_each(|state| state.unloaded());
        // It drops the edits, and tells those of which nothing was requested.
        self.push([Command::ModuleGone(module)]);
    }

    fn rejit_parameters(&self, key: Key, control: &sys::ICorProfilerFunctionControl, is_sole: bool) {
        let (module, method) = key;
        let body = self.request_table().body(key);
        match body {
            Some(Some(body)) => {
                // Without a body the method's own is compiled.
                if let Err(error) = FunctionControl::of(control, module, method).set_checked_body(&body) {
                    let states = self.request_table().clients(key);
                    states.iter().for_each(|state| state.failed(error));
                    self.nudge();
                }
            }
            Some(None) => {}
            None if is_sole => {
                let lifeline = ModuleId::from_raw(module).and_then(|module| self.lifeline(module));
                if let Some(lifeline) = lifeline {
                    self.request_table().caller(key, lifeline);
                }
            }
            None => {}
        }
    }

    fn rejit_started(&self, method: Key, function: FunctionId, rejit: ReJitId) {
        self.note_compiling(method, function, rejit);
    }

    fn rejit_finished(&self, method: Key, function: FunctionId, rejit: ReJitId, status: HRESULT) {
        self.note_compiled(method, function, rejit, Error::check(status, "ReJITCompilationFinished"));
    }

    fn rejit_failed(&self, method: Key, status: HRESULT) {
        let states = self.request_table().clients(method);
        states.iter().for_each(|state| state.failed(Error::new(status, "ReJITError")));
        self.nudge();
    }
}

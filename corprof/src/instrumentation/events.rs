//! The runtime's questions and answers: see [`RejitSlot`].

use corprof_sys as sys;
use windows_core::HRESULT;

use crate::args::FunctionControl;
use crate::error::Error;
use crate::id::{FunctionId, ModuleId, ReJitId};
use crate::session::RejitSlot;

use super::books::{Key, Shared};
use super::queue::Command;

impl RejitSlot for Shared {
    fn module_loaded(&self, module: usize) {
        self.push([Command::ModuleLoaded(module)]);
    }

    fn wait_at_module_load(&self) {
        Shared::wait_at_module_load(self);
    }

    fn module_gone(&self, module: usize) {
        let states = self.books().module_gone(module);
        states.iter().for_each(|state| state.unloaded());
        // It drops the edits, and tells those of which nothing was requested.
        self.push([Command::ModuleGone(module)]);
    }

    fn parameters(&self, module: usize, method: u32, control: &sys::ICorProfilerFunctionControl, is_sole: bool) {
        let key = (module, method);
        let body = self.books().body(key);
        match body {
            Some(Some(body)) => {
                // Without a body the method's own is compiled.
                if let Err(error) = FunctionControl::of(control, module, method).set_checked_body(&body) {
                    let states = self.books().clients(key);
                    states.iter().for_each(|state| state.failed(error));
                    self.nudge();
                }
            }
            Some(None) => {}
            None if is_sole => {
                let lifeline = ModuleId::from_raw(module).and_then(|module| self.lifeline(module));
                if let Some(lifeline) = lifeline {
                    self.books().caller(key, lifeline);
                }
            }
            None => {}
        }
    }

    fn compiling(&self, method: Key, function: FunctionId, rejit: ReJitId) {
        self.note_compiling(method, function, rejit);
    }

    fn compiled(&self, method: Key, function: FunctionId, rejit: ReJitId, status: HRESULT) {
        self.note_compiled(method, function, rejit, Error::check(status, "ReJITCompilationFinished"));
    }

    fn failed(&self, method: Key, status: HRESULT) {
        let states = self.books().clients(method);
        states.iter().for_each(|state| state.failed(Error::new(status, "ReJITError")));
        self.nudge();
    }
}

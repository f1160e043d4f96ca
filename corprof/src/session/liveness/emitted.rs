//! What the application has emitted into a module that can be unloaded: the bodies of its methods and the data of its
//! fields.
//!
//! The runtime frees these before it reports that the module begins to unload (`ReflectionModule::Destruct` in
//! ceeload.cpp). Of what it reports, only the beginning of the unload of the *assembly* comes earlier. So the calls that
//! read them pin them in addition to the module, and that callback waits for such calls, and ends them.

use corprof_sys as sys;

use super::table::State;
use super::{Info, Liveness, Pinned, begin_life, end};
use crate::error::{Error, Result};
use crate::id::ModuleId;

impl Info {
    /// Pins what was emitted into a pinned module.
    ///
    /// # Errors
    /// `COR_E_OBJECTDISPOSED` if its assembly has begun to unload.
    pub(crate) fn pin_emitted(&self, module: ModuleId, call: &'static str) -> Result<Pinned<'_, ModuleId>> {
        let liveness = self.liveness();
        let entry = liveness.if_unloading(&liveness.emitted, module.as_raw());
        if entry.is_none_or(|entry| entry.begin_use(&[State::Dead])) {
            return Ok(Pinned { id: module, entry });
        }
        Err(Error::new(sys::COR_E_OBJECTDISPOSED, call).about(
            "a module that was emitted",
            "the bodies and the data in it went when its assembly began to unload: ask before \
             `assembly_unload_started` returns",
        ))
    }
}

impl Liveness {
    /// A module was loaded at this address. Call it under the lock of the records.
    pub(super) fn begin_emitted(&self, module: usize, is_emitted: bool) {
        if is_emitted {
            begin_life(&self.emitted, module, State::Mortal);
        } else if self.emitted.get(module).is_some() {
            begin_life(&self.emitted, module, State::Immortal);
        }
    }

    /// An assembly begins to unload, and the profiler has handled the callback.
    pub(crate) fn assembly_going(&self, assembly: usize) {
        let module = self.records().emitted.remove(&assembly);
        if let Some(entry) = module.and_then(|module| self.emitted.get(module)) {
            end(entry, State::Dead, "a call about the code of an assembly that is unloaded");
        }
    }
}

//! Which sessions of EventPipe there are.
//!
//! The runtime knows a session by its address, and looks whether there is one only when it is stopped: a provider that is added
//! to a session of before is written into memory that has been freed (ep.c, `ep_add_provider_to_session`).

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use corprof_sys as sys;

use crate::error::{Error, Result};
use crate::id::EventPipeSessionId;

/// The sessions that this profiler has started and not stopped.
#[derive(Default)]
pub(crate) struct Sessions(RwLock<Vec<u64>>);

/// A session that is not stopped while this lives.
pub(super) struct Running<'a>(RwLockReadGuard<'a, Vec<u64>>);

impl Sessions {
    fn write(&self) -> RwLockWriteGuard<'_, Vec<u64>> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn started(&self, session: EventPipeSessionId) {
        self.write().push(session.as_raw());
    }

    /// Notes that the session ends, after waiting for the calls that use it; an error if it has ended already.
    pub(super) fn end(&self, session: EventPipeSessionId, call: &'static str) -> Result<()> {
        let mut running = self.write();
        let at = running.iter().position(|&id| id == session.as_raw()).ok_or(Self::gone(call))?;
        running.swap_remove(at);
        Ok(())
    }

    /// Keeps the session from being stopped; an error if it has been.
    pub(super) fn hold(&self, session: EventPipeSessionId, call: &'static str) -> Result<Running<'_>> {
        let running = Running(self.0.read().unwrap_or_else(PoisonError::into_inner));
        if running.0.contains(&session.as_raw()) { Ok(running) } else { Err(Self::gone(call)) }
    }

    /// At Shutdown: the runtime ends all sessions by itself.
    pub(crate) fn end_all(&self) {
        self.write().clear();
    }

    fn gone(call: &'static str) -> Error {
        Error::new(sys::COR_E_OBJECTDISPOSED, call).about("session", "the session has been stopped: start another")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_there_until_it_is_stopped() {
        let (sessions, id) = (Sessions::default(), EventPipeSessionId(8));
        assert!(sessions.hold(id, "X").is_err());
        sessions.started(id);
        assert!(sessions.hold(id, "X").is_ok());
        sessions.end(id, "X").unwrap();
        let error = sessions.hold(id, "X").map(|_| ()).unwrap_err();
        assert_eq!(error.code(), sys::COR_E_OBJECTDISPOSED);
        assert_eq!(sessions.end(id, "X"), Err(error));
        sessions.started(id);
        sessions.end_all();
        assert!(sessions.hold(id, "X").is_err());
    }
}

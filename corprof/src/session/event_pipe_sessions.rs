//! Which sessions of EventPipe there are.
//!
//! The runtime knows a session by its address, and looks whether there is one only when it is stopped: a provider that is added
//! to a session of before is written into memory that has been freed (ep.c, `ep_add_provider_to_session`).
//!
//! Nobody waits for a call about a session: that call may wait for a collection, and the collection for whoever waits, as some
//! callbacks are made in cooperative mode (suspension rule 3). A session that is stopped while it is used is stopped by whoever
//! uses it last.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

use corprof_sys as sys;

use crate::error::{Error, Result};
use crate::id::EventPipeSessionId;
use crate::lock::unpoisoned;

/// The sessions that this profiler has started and not stopped.
#[derive(Default)]
pub(crate) struct Sessions(Mutex<HashMap<u64, Session>>);

#[derive(Default)]
struct Session {
    /// The calls about it that are under way.
    uses: usize,
    /// The last of them is to stop it.
    is_to_stop: bool,
}

impl Sessions {
    /// Held for single changes, never across a call into the runtime.
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Session>> {
        unpoisoned(self.0.lock())
    }

    pub(crate) fn started(&self, session: EventPipeSessionId) {
        self.lock().insert(session.as_raw(), Session::default());
    }

    /// Notes that the session ends, and answers whether the caller is to stop it: else the last call about it does. An error
    /// if it has ended already.
    pub(crate) fn end(&self, session: EventPipeSessionId, call: &'static str) -> Result<bool> {
        let mut sessions = self.lock();
        match sessions.get_mut(&session.as_raw()).filter(|known| !known.is_to_stop) {
            None => Err(Self::gone(call)),
            Some(known) if known.uses > 0 => {
                known.is_to_stop = true;
                Ok(false)
            }
            Some(_) => {
                sessions.remove(&session.as_raw());
                Ok(true)
            }
        }
    }

    /// Keeps the session from being stopped until [`end_use`](Self::end_use); an error if it has been.
    pub(crate) fn begin_use(&self, session: EventPipeSessionId, call: &'static str) -> Result<()> {
        let mut sessions = self.lock();
        let known = sessions.get_mut(&session.as_raw()).filter(|known| !known.is_to_stop).ok_or(Self::gone(call))?;
        known.uses += 1;
        Ok(())
    }

    /// Answers whether the caller is to stop the session now.
    #[must_use]
    pub(crate) fn end_use(&self, session: EventPipeSessionId) -> bool {
        let mut sessions = self.lock();
        let Some(known) = sessions.get_mut(&session.as_raw()) else { return false };
        known.uses = known.uses.saturating_sub(1);
        let is_last = known.is_to_stop && known.uses == 0;
        if is_last {
            sessions.remove(&session.as_raw());
        }
        is_last
    }

    /// At Shutdown: the runtime ends all sessions by itself.
    pub(crate) fn end_all(&self) {
        self.lock().clear();
    }

    /// Before a detach: the sessions that are there, for whoever stops them.
    pub(crate) fn take(&self) -> Vec<u64> {
        self.lock().drain().map(|(session, _)| session).collect()
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
        assert!(sessions.begin_use(id, "X").is_err());
        sessions.started(id);
        assert_eq!(sessions.begin_use(id, "X"), Ok(()));
        assert!(!sessions.end_use(id));
        assert_eq!(sessions.end(id, "X"), Ok(true));
        let error = sessions.begin_use(id, "X").unwrap_err();
        assert_eq!(error.code(), sys::COR_E_OBJECTDISPOSED);
        assert_eq!(sessions.end(id, "X"), Err(error));
        sessions.started(id);
        sessions.end_all();
        assert!(sessions.begin_use(id, "X").is_err());
    }

    #[test]
    fn the_last_use_of_a_session_that_is_stopped_meanwhile_stops_it() {
        let (sessions, id) = (Sessions::default(), EventPipeSessionId(8));
        sessions.started(id);
        assert_eq!([sessions.begin_use(id, "X"), sessions.begin_use(id, "X")], [Ok(()), Ok(())]);
        assert_eq!(sessions.end(id, "X"), Ok(false));
        assert!(sessions.end(id, "X").is_err(), "it has ended for everybody");
        assert!(sessions.begin_use(id, "X").is_err());
        assert!(!sessions.end_use(id), "there is another");
        assert!(sessions.end_use(id));
        assert!(!sessions.end_use(id), "once");
    }
}

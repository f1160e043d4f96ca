//! A second session of the async source beside the one that is read: each start and each end of it has all threads write
//! what they hold.

use std::time::Duration;

use anyhow::Result;
use corprof_diagnostics::{Client, EventPipeSession, Provider, SessionConfig};

/// The time limit for its end.
const PATIENCE: Duration = Duration::from_secs(5);

/// The session, by turns.
#[derive(Debug, Default)]
pub(crate) struct SecondSession {
    session: Option<EventPipeSession>,
}

impl SecondSession {
    /// Starts it, or ends it. `provider` is of a level without events.
    ///
    /// # Errors
    /// If the process cannot be asked.
    pub(crate) fn toggle(&mut self, client: &Client, provider: Provider) -> Result<()> {
        let Some(mut session) = self.session.take() else {
            let config = SessionConfig::new([provider]).with_buffer_mb(1);
            self.session = Some(client.start_session(&config)?);
            return Ok(());
        };
        session.set_read_timeout(Some(PATIENCE));
        session.stop()?;
        std::io::copy(&mut session, &mut std::io::sink())?;
        Ok(())
    }
}

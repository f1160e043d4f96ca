//! A session of counters, read by a thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use corprof_diagnostics::{Client, SessionConfig};
use corprof_nettrace::{FormatErrorKind, Reader};

use super::news::News;

/// The time between two checks for the end.
const POLL: Duration = Duration::from_millis(200);
/// The time limit for the runtime to start the session: a loaded machine is slow, and nobody waits for it.
const START: Duration = Duration::from_secs(120);
/// The time limit for the runtime to end the session. The connection is closed then, which ends it as well.
const END: Duration = Duration::from_secs(10);

/// The session. Dropping this value ends it.
#[derive(Debug)]
pub(crate) struct Session {
    news: Receiver<anyhow::Result<News>>,
    is_over: Arc<AtomicBool>,
}

impl Session {
    /// Starts a session. An error of the session is news, too.
    pub(crate) fn start(client: Client, config: SessionConfig) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let is_over_there = Arc::clone(&is_over);
        let (sender, news) = channel();
        thread::spawn(move || {
            if let Err(error) = read(client, &config, &sender, &is_over_there) {
                let _ = sender.send(Err(error)); // nobody may listen any more
            }
        });
        Self { news, is_over }
    }

    /// The next news within this time. The process has ended, or an error has come, if there is no session any more.
    pub(crate) fn next(&self, limit: Duration) -> Result<anyhow::Result<News>, RecvTimeoutError> {
        self.news.recv_timeout(limit)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        let end = Instant::now() + END;
        // The thread may still wait for the start. The end of this command then closes the connection.
        while self.next(end.saturating_duration_since(Instant::now())).is_ok() {}
    }
}

/// Reads the session until the process ends or the command does.
fn read(
    client: Client,
    config: &SessionConfig,
    news: &Sender<anyhow::Result<News>>,
    is_over: &AtomicBool,
) -> anyhow::Result<()> {
    let mut session = client.with_timeout(START).start_session(config)?;
    session.set_read_timeout(Some(POLL));
    let mut reader = Reader::new(session);
    let mut asked: Option<Instant> = None;
    loop {
        match reader.next_event() {
            Ok(None) => return Ok(()),
            Ok(Some(event)) => {
                if let Some(known) = News::of(&event.decoded()) {
                    let _ = news.send(Ok(known)); // nobody listens at the end
                }
            }
            Err(error) if error.is_timeout() => {}
            // The process has ended, which the command sees by itself.
            Err(corprof_nettrace::Error::Format(error)) if error.kind == FormatErrorKind::Truncated => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        match asked {
            None if is_over.load(Ordering::Relaxed) => {
                reader.get_mut().stop()?;
                asked = Some(Instant::now());
            }
            // The connection is closed now, which ends the session as well.
            Some(since) if since.elapsed() > END => return Ok(()),
            _ => {}
        }
    }
}

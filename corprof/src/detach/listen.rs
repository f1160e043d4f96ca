//! Detaches on request of another process, such as `corprof detach PID`.

use std::io::{self, Write};
use std::time::Duration;

use crate::context::InCallback;
use crate::system;

use super::Detacher;

/// What a client writes; [`NAME`] and the answers are known to `corprof-cli/src/detach.rs`, too.
const REQUEST: &[u8] = b"detach\n";
/// The name of the socket or pipe, before the process id.
const NAME: &str = "corprof-detach-";
/// The time between two looks for a client.
const POLL: Duration = Duration::from_millis(100);

impl Detacher {
    /// From now on the command `corprof detach PID` detaches this profiler. Call it once.
    ///
    /// A thread of the profiler listens on a socket `corprof-detach-PID` in the folder for temporary files, which only
    /// this user can connect to, or on a named pipe on Windows. It ends with the profiler.
    ///
    /// # Errors
    /// `AddrInUse`: a profiler of this process listens already. Other errors of the system: the folder for temporary
    /// files cannot be written, or there can be no further thread.
    pub fn listen(&self, cx: &InCallback<'_>) -> io::Result<()> {
        let mut listener = system::Listener::new(&format!("{NAME}{}", std::process::id()))?;
        let detacher = self.clone();
        cx.spawn_profiler_thread("listens for a detach", move |cx| {
            while cx.wait(POLL).is_continue() {
                let Some(mut client) = listener.accept(REQUEST) else { continue };
                // If it fails, the client sees its connection end without an answer. If the client has gone, nobody
                // reads.
                let _ = detacher.detach_then(move |result| {
                    let answer = match result {
                        Ok(()) => "detached".to_owned(),
                        Err(error) => format!("stays: {error}"),
                    };
                    let _ = client.write_all(answer.as_bytes());
                });
            }
        })
    }
}

//! The connections that runtimes have made to a port of ours.

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use uuid::Uuid;

use crate::deadline::Deadline;
use crate::ipc::Advertise;
use crate::transport::{Listener, Stream};

/// The time limit for a new connection to identify itself. Runtimes do so at once.
const INTRODUCTION: Duration = Duration::from_millis(500);

/// The time that a thread listens before it checks the connections that others have accepted.
const SLICE: Duration = Duration::from_millis(20);

/// The limit of connections kept for later, and of runtimes remembered as known. A runtime with a dropped connection
/// connects again.
const MOST: usize = 1024;

/// The listener, and the connections that have been made and not been used.
#[derive(Debug)]
pub(crate) struct Connections {
    listener: Listener,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<(Advertise, Stream)>,
    known: VecDeque<Uuid>,
}

impl State {
    /// A runtime that was not returned yet. Its connection stays open.
    fn next_unknown(&mut self) -> Option<Advertise> {
        let mut runtimes = self.waiting.iter().map(|(advertise, _)| *advertise);
        let unknown = runtimes.find(|advertise| !self.known.contains(&advertise.cookie))?;
        push_bounded(&mut self.known, unknown.cookie);
        Some(unknown)
    }

    /// The newest connection of a runtime; older ones are of no use any more.
    fn take(&mut self, cookie: Uuid) -> Option<Stream> {
        let mut newest = None;
        let mut others = VecDeque::with_capacity(self.waiting.len());
        for (advertise, stream) in self.waiting.drain(..) {
            if advertise.cookie == cookie {
                newest = Some(stream);
            } else {
                others.push_back((advertise, stream));
            }
        }
        self.waiting = others;
        newest
    }
}

fn push_bounded<T>(queue: &mut VecDeque<T>, value: T) {
    if queue.len() >= MOST {
        queue.pop_front();
    }
    queue.push_back(value);
}

impl Connections {
    pub(crate) fn new(listener: Listener) -> Self {
        Self { listener, state: Mutex::default() }
    }

    /// The socket, or the pipe.
    pub(crate) fn path(&self) -> &Path {
        self.listener.path()
    }

    /// The next runtime that connects for the first time.
    pub(crate) fn next_unknown(&self, deadline: Deadline) -> io::Result<Advertise> {
        self.wait(deadline, State::next_unknown)
    }

    /// A connection of this runtime.
    pub(crate) fn take(&self, cookie: Uuid, deadline: Deadline) -> io::Result<Stream> {
        self.wait(deadline, |state| state.take(cookie))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Accepts connections until `wanted` accepts one of them. Several threads may call this.
    fn wait<T>(&self, deadline: Deadline, mut wanted: impl FnMut(&mut State) -> Option<T>) -> io::Result<T> {
        loop {
            if let Some(found) = wanted(&mut self.state()) {
                return Ok(found);
            }
            let slice = Deadline::after(deadline.left_at_most(SLICE)?);
            let mut stream = match self.listener.accept(slice) {
                Ok(stream) => stream,
                Err(error) if error.kind() == io::ErrorKind::TimedOut => continue,
                Err(error) => return Err(error),
            };
            let mut bytes = [0; Advertise::SIZE];
            // One that says nothing, or something else, is not a runtime, and is closed.
            let introduction = Deadline::after(deadline.left_at_most(INTRODUCTION)?);
            let read = stream.read_exact(&mut bytes, introduction);
            if let (Ok(()), Ok(advertise)) = (read, Advertise::decode(&bytes)) {
                push_bounded(&mut self.state().waiting, (advertise, stream));
            }
        }
    }
}

//! Event sessions: their configuration, and the trace as it comes.

use std::io::{self, Read};
use std::time::Duration;

use corprof_events::{KeywordSet, Level};

use crate::client::{Client, read_reply, unsupported};
use crate::deadline::Deadline;
use crate::error::{Error, Result};
use crate::ipc::{Command, Payload};
use crate::transport::Stream;

/// Which events of a provider, by their numbers, besides keywords and level.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EventFilter {
    /// These and no others. From .NET 10 on.
    Only(Vec<u32>),
    /// All but these. From .NET 10 on.
    Except(Vec<u32>),
}

/// A provider of events that a session listens to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Provider {
    name: String,
    keywords: u64,
    level: Level,
    arguments: Option<String>,
    filter: Option<EventFilter>,
}

impl Provider {
    /// The runtime's own provider.
    pub const RUNTIME: &str = "Microsoft-Windows-DotNETRuntime";

    /// The events of the provider `name` that belong to one of the groups in `keywords`, a bit each, or to none.
    #[must_use]
    pub fn new(name: impl Into<String>, keywords: u64, level: Level) -> Self {
        Self { name: name.into(), keywords, level, arguments: None, filter: None }
    }

    /// The runtime's own events of this set. Sets are put together by `|`.
    ///
    /// A set that [forces collections](KeywordSet::forces_collections) has the runtime collect when the session starts,
    /// and .NET 8 once more when it ends.
    #[must_use]
    pub fn runtime(set: KeywordSet) -> Self {
        Self::new(Self::RUNTIME, set.keywords().bits(), set.level())
    }

    /// With arguments for the provider, `KEY=VALUE;KEY=VALUE`.
    #[must_use]
    pub fn with_arguments(mut self, arguments: impl Into<String>) -> Self {
        self.arguments = Some(arguments.into());
        self
    }

    /// With only some of these events. From .NET 10 on.
    #[must_use]
    pub fn with_filter(mut self, filter: EventFilter) -> Self {
        self.filter = Some(filter);
        self
    }
}

/// Which older methods and modules the runtime reports at the end of a session: without them, addresses in stacks
/// have no names.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Rundown {
    /// Nothing.
    #[default]
    None,
    /// The runtime's default: some megabytes, and some hundred milliseconds at the end.
    Default,
    /// The events of these keywords of `Microsoft-Windows-DotNETRuntimeRundown`. From .NET 9 on.
    Keywords(u64),
}

/// What becomes of events that a thread writes while the session's buffer is full.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FullBuffer {
    /// They are lost (`corprof_nettrace::Stats::lost`), and the application runs on.
    #[default]
    Drop,
    /// None is lost: the thread waits until the session has been read on. An application whose session nobody reads
    /// stands still until the session is stopped or dropped. From .NET 11 on.
    Wait,
    /// The thread waits on a runtime that can do so; elsewhere the events are lost. [`EventPipeSession::drops_events`]
    /// tells which.
    WaitIfPossible,
}

/// The configuration of a session.
///
/// ```
/// use corprof_diagnostics::{KeywordSet, Level, Provider, SessionConfig};
///
/// let requests = Provider::new("Microsoft.AspNetCore.Hosting", u64::MAX, Level::Informational);
/// let config = SessionConfig::new([Provider::runtime(KeywordSet::GC | KeywordSet::CONTENTION), requests]);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SessionConfig {
    providers: Vec<Provider>,
    buffer_mb: u32,
    rundown: Rundown,
    stacks: bool,
    full_buffer: FullBuffer,
}

impl SessionConfig {
    /// The events of these providers, with stacks, without a rundown, and with at most 64 MB of the process's memory
    /// for unread events.
    #[must_use]
    pub fn new(providers: impl IntoIterator<Item = Provider>) -> Self {
        Self {
            providers: providers.into_iter().collect(),
            buffer_mb: 64,
            rundown: Rundown::None,
            stacks: true,
            full_buffer: FullBuffer::Drop,
        }
    }

    /// With this much of the process's memory, in MB, for events that have not been read. When that is full, events are
    /// lost, or their threads wait ([`with_full_buffer`](Self::with_full_buffer)).
    #[must_use]
    pub fn with_buffer_mb(mut self, megabytes: u32) -> Self {
        self.buffer_mb = megabytes;
        self
    }

    /// With this rule for events that are written while the buffer is full.
    #[must_use]
    pub fn with_full_buffer(mut self, rule: FullBuffer) -> Self {
        self.full_buffer = rule;
        self
    }

    /// With a rundown at its end.
    #[must_use]
    pub fn with_rundown(mut self, rundown: Rundown) -> Self {
        self.rundown = rundown;
        self
    }

    /// Without stacks: writing an event costs less. From .NET 9 on.
    #[must_use]
    pub fn without_stacks(mut self) -> Self {
        self.stacks = false;
        self
    }

    /// The oldest command that can start the session, so that all capable runtimes accept it; the option that needs it;
    /// and the first runtime that has it.
    fn command(&self) -> (Command, &'static str, &'static str) {
        if self.full_buffer != FullBuffer::Drop {
            (Command::COLLECT_TRACING_6, "a session without loss of events", ".NET 11")
        } else if self.providers.iter().any(|provider| provider.filter.is_some()) {
            (Command::COLLECT_TRACING_5, "choosing events by their numbers", ".NET 10")
        } else if matches!(self.rundown, Rundown::Keywords(_)) {
            (Command::COLLECT_TRACING_4, "a choice of rundown events", ".NET 9")
        } else if !self.stacks {
            (Command::COLLECT_TRACING_3, "a session without stacks", ".NET 9")
        } else {
            (Command::COLLECT_TRACING_2, "a session of events", ".NET 8")
        }
    }

    fn payload(&self, command: Command) -> Vec<u8> {
        const TO_THIS_CONNECTION: u32 = 0;
        const NETTRACE: u32 = 1;
        /// The runtime's keywords for [`Rundown::Default`] (`ep_default_rundown_keyword`).
        const DEFAULT_RUNDOWN: u64 = 0x8002_0139;
        const WRITERS_WAIT: u32 = 1;
        let is_newest = [Command::COLLECT_TRACING_5, Command::COLLECT_TRACING_6].contains(&command);
        let mut payload = Payload::default();
        if is_newest {
            payload.u32(TO_THIS_CONNECTION);
        }
        payload.u32(self.buffer_mb).u32(NETTRACE);
        if is_newest || command == Command::COLLECT_TRACING_4 {
            payload.u64(match self.rundown {
                Rundown::None => 0,
                Rundown::Default => DEFAULT_RUNDOWN,
                Rundown::Keywords(keywords) => keywords,
            });
        } else {
            payload.u8((self.rundown != Rundown::None).into());
        }
        if command != Command::COLLECT_TRACING_2 {
            payload.u8(self.stacks.into());
        }
        payload.count(self.providers.len());
        for provider in &self.providers {
            payload.u64(provider.keywords).u32(provider.level as u32).string(&provider.name);
            match &provider.arguments {
                Some(arguments) => payload.string(arguments),
                None => payload.count(0),
            };
            if is_newest {
                let (only, events) = match &provider.filter {
                    Some(EventFilter::Only(events)) => (1, events.as_slice()),
                    Some(EventFilter::Except(events)) => (0, events.as_slice()),
                    None => (0, &[][..]),
                };
                payload.u8(only).count(events.len());
                for event in events {
                    payload.u32(*event);
                }
            }
        }
        if command == Command::COLLECT_TRACING_6 {
            payload.u32(WRITERS_WAIT);
        }
        payload.finish()
    }
}

/// A session of events that a runtime sends as a `.nettrace`.
///
/// `corprof_nettrace::Reader` reads it. A session that is dropped ends: the runtime finds the connection
/// closed.
///
/// ```no_run
/// use corprof_nettrace::Reader;
/// use corprof_diagnostics::{KeywordSet, Process, Provider, SessionConfig};
///
/// let config = SessionConfig::new([Provider::runtime(KeywordSet::GC)]);
/// let session = Process::open(4711)?.client().start_session(&config)?;
/// let mut reader = Reader::new(session);
/// let mut count = 0;
/// while let Some(event) = reader.next_event()? {
///     println!("{}", event.decoded().name());
///     count += 1;
///     if count == 100 {
///         reader.get_mut().stop()?; // and read on to the end
///     }
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct EventPipeSession {
    stream: Stream,
    id: u64,
    client: Client,
    read_timeout: Option<Duration>,
    /// The connection on which the answer to the request to stop will come.
    stopping: Option<Stream>,
    is_stopped: bool,
    drops_events: bool,
    /// Bytes of the trace that came before the first read.
    ahead: Vec<u8>,
    /// How many of them have been read.
    taken: usize,
}

const STOP: &str = "stop the session";

/// How long [`Client::start_session`] waits at most for the session to record events.
const LONGEST_START: Duration = Duration::from_secs(1);

impl Client {
    /// Starts a session of events. They come as a `.nettrace`, by the session's [`Read`](std::io::Read).
    ///
    /// The session records what happens after this call has returned, unless the runtime takes longer than a second to
    /// turn it on.
    ///
    /// # Errors
    /// If the runtime refuses or does not answer in time; [`Unsupported`](Error::Unsupported) names the parts of
    /// `config` that need a newer runtime.
    pub fn start_session(&self, config: &SessionConfig) -> Result<EventPipeSession> {
        EventPipeSession::start(self, config)
    }

    /// Stops a session and waits until the runtime has sent all of it. Another thread must read it meanwhile, or this
    /// times out. [`EventPipeSession::stop`] needs no other thread.
    ///
    /// # Errors
    /// If the runtime does not answer in time, or not properly. That there is no such session is not an error.
    pub fn stop_session(&self, id: u64) -> Result<()> {
        self.ask(STOP, Command::STOP_TRACING, &id.to_le_bytes(), self.timeout()).map(drop)
    }
}

impl EventPipeSession {
    /// How long a read waits, if nothing else is said.
    pub const DEFAULT_READ_TIMEOUT: Duration = Duration::from_secs(60);

    fn start(client: &Client, config: &SessionConfig) -> Result<Self> {
        const ACTION: &str = "start a session of events";
        let bad = |what| Err(Error::BadRequest { action: ACTION, what });
        if config.providers.is_empty() || config.providers.iter().any(|provider| provider.name.is_empty()) {
            return bad("a session needs at least one provider, and each provider a name");
        }
        if config.buffer_mb == 0 {
            return bad("a session needs a buffer of at least 1 MB");
        }
        let asked = match Self::ask(client, config, ACTION) {
            Err(Error::Unsupported { .. }) if config.full_buffer == FullBuffer::WaitIfPossible => {
                let config = config.clone().with_full_buffer(FullBuffer::Drop);
                return Self::start(client, &config);
            }
            asked => asked,
        };
        let (stream, payload) = asked?;
        let id = payload.first_chunk().map(|id| u64::from_le_bytes(*id));
        let id = id.ok_or(Error::BadReply { action: ACTION, what: "it does not name the session" })?;
        let mut session = Self {
            stream,
            id,
            client: client.clone(),
            read_timeout: Some(Self::DEFAULT_READ_TIMEOUT),
            stopping: None,
            is_stopped: false,
            drops_events: config.full_buffer == FullBuffer::Drop,
            ahead: Vec::new(),
            taken: 0,
        };
        session.settle();
        Ok(session)
    }

    /// Waits until the session records events, or for [`LONGEST_START`].
    ///
    /// .NET 11 answers before it has turned the session on, and what the application does in the next 100 ms may be
    /// lost. The thread that answers does one thing after the other: once it has answered a second question, whatever
    /// it says, it is done with the first. Meanwhile the session is read, because its start may be a collection that
    /// waits for a reader.
    fn settle(&mut self) {
        /// The most that is read ahead.
        const MOST: usize = 16 << 20;
        const TURN: Duration = Duration::from_millis(1);
        let end = Deadline::after(LONGEST_START.min(self.client.timeout()));
        let question = self.client.send("wait for the session", Command::PROCESS_INFO, &[], end, LONGEST_START);
        let Ok(mut question) = question else { return };
        let mut part = [0; 16 << 10];
        while end.left().is_ok() && self.ahead.len() < MOST {
            match self.stream.read(&mut part, Deadline::after(TURN)) {
                Ok(0) => return,
                Ok(read) => self.ahead.extend_from_slice(part.get(..read).unwrap_or_default()),
                Err(error) if error.kind() == io::ErrorKind::TimedOut => {}
                Err(_) => return,
            }
            let answer = question.read(&mut part, Deadline::after(TURN));
            if !answer.is_err_and(|error| error.kind() == io::ErrorKind::TimedOut) {
                return;
            }
        }
    }

    fn ask(client: &Client, config: &SessionConfig, action: &'static str) -> Result<(Stream, Vec<u8>)> {
        let (command, what, needs) = config.command();
        let asked = client.ask(action, command, &config.payload(command), client.timeout());
        unsupported(asked, what, needs)
    }

    /// Whether events are lost while its buffer is full: see [`FullBuffer`].
    #[must_use]
    pub fn drops_events(&self) -> bool {
        self.drops_events
    }

    /// Its number in the runtime, for [`Client::stop_session`] on another thread.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.id
    }

    /// How long a read waits for bytes, [`DEFAULT_READ_TIMEOUT`](Self::DEFAULT_READ_TIMEOUT) at first. Then it fails
    /// with [`TimedOut`](io::ErrorKind::TimedOut), and can be tried again: an application in which nothing happens
    /// writes no events. `None` waits for ever.
    pub fn set_read_timeout(&mut self, timeout: Option<Duration>) {
        self.read_timeout = timeout;
    }

    /// Asks the runtime to stop, and does not wait: it sends its remaining events, and the rundown if one was
    /// requested, so read the session to its end, where the runtime's answer is checked.
    ///
    /// # Errors
    /// If the runtime could not be asked. A second request does nothing.
    pub fn stop(&mut self) -> Result<()> {
        if self.stopping.is_none() && !self.is_stopped {
            let timeout = self.client.timeout();
            let deadline = Deadline::after(timeout);
            let stream = self.client.send(STOP, Command::STOP_TRACING, &self.id.to_le_bytes(), deadline, timeout)?;
            self.stopping = Some(stream);
        }
        Ok(())
    }

    /// At the end of the trace: the answer to the request to stop, if there was one.
    fn finish(&mut self) -> Result<()> {
        let Some(mut stream) = self.stopping.take() else { return Ok(()) };
        self.is_stopped = true;
        let timeout = self.client.timeout();
        read_reply(&mut stream, STOP, Deadline::after(timeout), timeout).map(drop)
    }
}

impl Read for EventPipeSession {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if let Some(ahead) = self.ahead.get(self.taken..).filter(|ahead| !ahead.is_empty()) {
            let count = ahead.len().min(buffer.len());
            for (to, from) in buffer.iter_mut().zip(ahead) {
                *to = *from;
            }
            self.taken += count;
            if self.taken == self.ahead.len() {
                self.ahead = Vec::new();
                self.taken = 0;
            }
            return Ok(count);
        }
        let deadline = self.read_timeout.map_or(Deadline::never(), Deadline::after);
        let read = self.stream.read(buffer, deadline)?;
        if read == 0 && !buffer.is_empty() {
            self.finish().map_err(io::Error::other)?;
        }
        Ok(read)
    }
}

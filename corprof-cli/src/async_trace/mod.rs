//! What the async operations of a process do, as the runtime of .NET 11 tells it: of a running process, over the
//! diagnostics port, or of a `.nettrace` that somebody has recorded.
//!
//! `names` says what a chain of methods is called, `awaits` in which line a method awaits, `spread` holds many
//! durations in little memory, `started` starts an application to be listened to, `second_session` has threads tell what
//! they hold.

mod awaits;
mod names;
mod second_session;
mod spread;
mod started;

use std::ffi::OsString;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use corprof_async::trace::{ACTIVITY_ARGUMENTS, ACTIVITY_PROVIDER, QUEUE_PROVIDER, TraceEvent, classify};
use corprof_async::{
    ANSWER_TIME, Activity, Decoder, EndpointNames, LogicalStacks, PROVIDER, QUESTION_INTERVAL, Step, time_when_late,
};
use corprof_diagnostics::{Client, EventPipeSession, Level, Process, Provider, Rundown, SessionConfig};
use corprof_nettrace::events::Provider as EventProvider;
use corprof_nettrace::events::universal::ProcessSymbol;
use corprof_nettrace::{Event, FormatErrorKind, Reader};

pub(crate) use self::awaits::{Await, Awaits};
pub(crate) use self::names::{Names, Place, file};
pub(crate) use self::second_session::SecondSession;
pub(crate) use self::spread::Spread;

use self::started::Started;

use crate::attach_request::leave_alone_if_stopped;
use crate::contents;
use crate::exit::{Failure, Outcome};
use crate::inspect;
use crate::options::{self, seconds};
use crate::signals::Signals;
use crate::trace_methods::{Methods, RUNDOWN_WITH_IL};

/// The keywords of the async source for creations, runs and waits with their places. Without unwinds (0x10, 0x4000)
/// the runtime tells no end of what an exception ends.
const OPERATIONS: u64 = 0xF4DD;
/// The keyword of activities.
const ACTIVITIES: u64 = 0x2;
/// The keyword of the thread pool's queue.
const QUEUE: u64 = 0x2;
/// The first runtime that tells.
pub(crate) const FIRST: u32 = 11;
/// How late a thread that is never idle may tell what it did.
pub(crate) const LATEST: Duration = Duration::from_secs(15);

/// How often stacks forget what is older than that while this time goes by.
const RELEASES: u64 = 16;
/// The time that one read waits for events.
const POLL: Duration = Duration::from_millis(100);
/// The time limit for the runtime to end the session.
const PATIENCE: Duration = Duration::from_secs(120);

/// Where the operations are told.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Source {
    /// A running process.
    Process(u32),
    /// A `.nettrace`.
    File(PathBuf),
}

impl Source {
    /// A process id, or the path of a file.
    fn parse(text: &str) -> Result<Self, String> {
        if let Ok(pid) = text.parse() {
            return Ok(Self::Process(pid));
        }
        let path = Path::new(text);
        if path.is_file() {
            return Ok(Self::File(path.to_owned()));
        }
        Err("there is no such file: give a process id, as `corprof ps` lists them, or a .nettrace file".to_owned())
    }
}

/// Whom to listen to, and for how long.
#[derive(Debug, clap::Args)]
pub(crate) struct Listened {
    /// The process, as `corprof ps` numbers it, or a .nettrace file
    #[arg(value_name = "PID|FILE", value_parser = Source::parse, required_unless_present = "command", conflicts_with = "command")]
    source: Option<Source>,

    /// End after this many seconds [default: until Ctrl-C, or the end of the application]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    duration: Option<f64>,

    /// An environment variable for the application that a command starts. Repeatable
    #[arg(long, value_name = "NAME=VALUE", requires = "command")]
    env: Vec<String>,

    #[command(flatten)]
    pub(crate) names: options::Names,

    /// The command that starts an application: it is listened to from its first request on
    #[arg(value_name = "COMMAND", last = true, num_args = 1..)]
    command: Vec<OsString>,
}

/// The order of rows with times, the largest first.
#[derive(Debug, Clone, Copy, Default, clap::ValueEnum)]
pub(crate) enum Sort {
    /// By the time of all together
    #[default]
    Total,
    /// By the mean
    Mean,
    /// By the 99th percentile
    P99,
}

impl Sort {
    pub(crate) fn key(self, total: f64, mean: f64, p99: f64) -> f64 {
        match self {
            Self::Total => total,
            Self::Mean => mean,
            Self::P99 => p99,
        }
    }
}

/// Who wants to know.
pub(crate) trait Listener {
    /// Something happened to an operation. The steps of several threads come in any order.
    fn step(&mut self, step: Step);
    /// An activity began or ended.
    fn activity(&mut self, _thread: u64, _ticks: u64, _is_start: bool, _activity: Activity) {}
    /// Work was put into the queue of the thread pool.
    fn work_queued(&mut self, ticks: u64, work: u64);
    /// A thread took work from there.
    fn work_taken(&mut self, ticks: u64, thread: u64, work: u64);
    /// What has ended before does not count: threads hold what they have done since an earlier session.
    fn begin(&mut self, _at: u64) {}
    /// What ends later does not count: not all of it is told before the session ends.
    fn end(&mut self, at: u64);
    /// The application has ended by itself, and its threads have told what they did only up to these times.
    fn cut_off(&mut self, _known_until: &dyn Fn(u64) -> u64) {}
    /// Nothing from before this time will come any more.
    fn release(&mut self, until: u64);
}

/// A trace that was read to its end.
#[derive(Debug)]
pub(crate) struct Traced {
    /// The process and its command line, or the file.
    pub(crate) title: String,
    pub(crate) pid: Option<u32>,
    pub(crate) methods: Methods,
    /// The ticks of a second.
    pub(crate) frequency: f64,
    /// How long was listened, in seconds.
    pub(crate) seconds: f64,
    /// Whether async operations were told, activities, and what is in the queue of the thread pool.
    pub(crate) tells_operations: bool,
    tells_activities: bool,
    pub(crate) tells_queue: bool,
    /// Events that the runtime has dropped.
    pub(crate) lost: u64,
    /// Buffers that could not be decoded.
    pub(crate) damaged: u64,
}

impl Traced {
    /// Milliseconds from ticks.
    #[allow(clippy::cast_precision_loss, reason = "times of hours")]
    pub(crate) fn milliseconds(&self, ticks: u64) -> f64 {
        ticks as f64 * 1e3 / self.frequency
    }

    /// Says on standard error what is missing.
    pub(crate) fn warn(&self) {
        if self.lost > 0 {
            eprintln!("corprof: the runtime has dropped {} events: what they told is missing", self.lost);
        }
        if self.damaged > 0 {
            eprintln!("corprof: {} buffers of the trace cannot be decoded: what they told is missing", self.damaged);
        }
    }
}

/// Follows what is told, for this long or until Ctrl-C; a file and an application to their end. Then `answer` prints
/// what was found out. After Ctrl-C, an application ends when it has.
///
/// # Errors
/// If the process or the file is not there, or tells nothing of async operations, or the application is not started.
pub(crate) fn follow<L: Listener>(
    listened: &Listened,
    with_activities: bool,
    mut listener: L,
    answer: impl FnOnce(L, &Traced) -> Result<(), Failure>,
) -> Outcome {
    let duration = listened.duration.map(Duration::from_secs_f64);
    let traced = match &listened.source {
        None => return of_application(listened, with_activities, duration, listener, answer),
        Some(Source::File(path)) => of_file(path, with_activities, &mut listener)?,
        Some(Source::Process(pid)) => of_process(*pid, with_activities, duration, &mut listener)?,
    };
    answer(listener, &traced)?;
    Ok(ExitCode::SUCCESS)
}

/// Starts an application, and listens to it from its start.
fn of_application<L: Listener>(
    listened: &Listened,
    with_activities: bool,
    duration: Option<Duration>,
    mut listener: L,
    answer: impl FnOnce(L, &Traced) -> Result<(), Failure>,
) -> Outcome {
    let mut started = Started::start(&listened.command, options::given(&listened.env)?)?;
    let runtime = started.runtime()?;
    let mut target = Target {
        pid: u32::try_from(runtime.advertise().pid).unwrap_or_default(),
        client: runtime.client(),
        is_starting: true,
        with_activities,
    };
    let traced = target.listen(duration, &mut listener, || started.is_to_stop());
    let traced = traced.and_then(|traced| answer(listener, &traced));
    match traced {
        Ok(()) => started.finish(),
        Err(failure) => {
            // Without a session it still waits for its first managed code.
            if target.is_starting {
                started.kill();
            } else {
                started.finish()?;
            }
            Err(failure)
        }
    }
}

fn of_file(path: &Path, with_activities: bool, listener: &mut impl Listener) -> Result<Traced> {
    let traced = read(path, listener)?;
    ensure!(
        traced.tells_operations || with_activities && traced.tells_activities,
        "{} tells nothing of async operations: record it on .NET 11 or later with the provider {PROVIDER}:0xF4DD:4 \
         (dotnet-trace collect --providers), or by corprof record --events activity",
        path.display()
    );
    Ok(traced)
}

/// Hands out what a file tells. Answers with whether it tells of async operations.
///
/// # Errors
/// If it cannot be read.
pub(crate) fn replay(path: &Path, listener: &mut impl Listener) -> Result<bool> {
    read(path, listener).map(|traced| traced.tells_operations)
}

fn read(path: &Path, listener: &mut impl Listener) -> Result<Traced> {
    let file = contents::of(path)?;
    let mut follower = Follower::new(listener);
    let mut reader = Reader::new(BufReader::new(file));
    follower.begin(&mut reader).with_context(|| format!("{} is not a .nettrace", path.display()))?;
    loop {
        match reader.next_event() {
            Ok(None) => break,
            Ok(Some(event)) => follower.take(&event),
            Err(corprof_nettrace::Error::Format(error)) if error.kind == FormatErrorKind::Truncated => {
                eprintln!("corprof: the file ends within an event: what comes before counts");
                break;
            }
            Err(error) => return Err(error).with_context(|| format!("cannot read on in {}", path.display())),
        }
    }
    let lost = reader.stats().lost;
    Ok(follower.finish(path.display().to_string(), None, lost))
}

fn of_process(
    pid: u32,
    with_activities: bool,
    duration: Option<Duration>,
    listener: &mut impl Listener,
) -> Result<Traced, Failure> {
    leave_alone_if_stopped(pid)?;
    let process = Process::open(pid)?;
    let signals = Signals::catch().context("cannot catch signals")?;
    let mut target = Target { pid, client: &process.client(), is_starting: false, with_activities };
    target.listen(duration, listener, || signals.is_interrupted())
}

/// A process that is listened to.
struct Target<'c> {
    pid: u32,
    client: &'c Client,
    /// Whether it waits before its first managed code, for the session.
    is_starting: bool,
    with_activities: bool,
}

impl Target<'_> {
    fn listen(
        &mut self,
        duration: Option<Duration>,
        listener: &mut impl Listener,
        mut is_interrupted: impl FnMut() -> bool,
    ) -> Result<Traced, Failure> {
        let Self { pid, client, .. } = *self;
        let info = client.process_info()?;
        // There is nothing in the process that could be asked, and without this everybody would wait for nothing.
        let older = info.clr_major().filter(|major| *major < FIRST);
        if let Some(major) = older.filter(|_| !self.with_activities) {
            return Err(anyhow!(
                "process {pid} runs on .NET {major}: .NET {FIRST} is the first that tells of async operations. `corprof tasks {pid}` \
                 shows what is pending now and what it awaits, and `corprof requests {pid}` how long requests take"
            )
            .into());
        }
        // The trace begins later: what is over by the end must not be after it.
        let begun = Instant::now();
        let mut session =
            client.start_session(&self.config()).context("cannot start the session of async operations")?;
        // A process that ends takes its command line with it.
        let title = inspect::title(pid);
        session.set_read_timeout(Some(PATIENCE));
        let asks = self.is_starting && older.is_none();
        if self.is_starting {
            client.resume_runtime().context("cannot let the application go on")?;
            self.is_starting = false;
        }
        let mut reader = Reader::new(session);
        let mut follower = Follower::new(listener);
        follower.begin(&mut reader)?;
        reader.get_mut().set_read_timeout(Some(POLL));
        let until = duration.map_or_else(|| "until Ctrl-C".to_owned(), |time| format!("for {} s", time.as_secs_f64()));
        eprintln!("corprof: listening to process {pid} {until}");
        let mut live = Live { reader, follower, is_over: false, asker: Asker::new(client), asks };
        live.read(&mut is_interrupted, duration)?;
        live.follower.end(begun.elapsed());
        if live.is_over {
            live.follower.cut_off();
        }
        live.asks = false;
        if older.is_none() {
            live.flush()?;
        }
        if !live.is_over {
            // A process that ends just now has sent the rest.
            let _ = live.reader.get_mut().stop();
        }
        eprintln!("corprof: reading the names of methods");
        live.read(&mut is_interrupted, Some(PATIENCE))?;
        if live.follower.buffers == 0 && live.follower.activities == 0 {
            return Err(anyhow!(
                "process {pid} has told nothing of async operations or requests: there were none, it waits at its start (`corprof \
                 resume`), it has ended before its threads had written what they hold, or event sources are turned off \
                 (System.Diagnostics.Tracing.EventSource.IsSupported)"
            )
            .into());
        }
        let lost = live.reader.stats().lost;
        Ok(live.follower.finish(title, Some(pid), lost))
    }

    fn config(&self) -> SessionConfig {
        let activities =
            Provider::new(ACTIVITY_PROVIDER, ACTIVITIES, Level::Verbose).with_arguments(ACTIVITY_ARGUMENTS);
        let queue = Provider::new(QUEUE_PROVIDER, QUEUE, Level::Verbose);
        let mut providers = vec![operations(), queue];
        providers.extend(self.with_activities.then_some(activities));
        SessionConfig::new(providers).with_buffer_mb(64).with_rundown(Rundown::Keywords(RUNDOWN_WITH_IL))
    }
}

/// The source of operations.
fn operations() -> Provider {
    Provider::new(PROVIDER, OPERATIONS, Level::Informational)
}

/// Has the threads of an application tell what they hold.
struct Asker<'c> {
    client: &'c Client,
    second: SecondSession,
    asked: Instant,
    /// How long the process took to take the last question.
    late: Duration,
}

impl<'c> Asker<'c> {
    fn new(client: &'c Client) -> Self {
        Self { client, second: SecondSession::default(), asked: Instant::now(), late: Duration::ZERO }
    }

    /// Whether they may be asked again: asked more often, those that rest do not answer.
    fn is_due(&self) -> bool {
        self.asked.elapsed() >= time_when_late(QUESTION_INTERVAL, self.late)
    }

    fn ask(&mut self) -> Result<()> {
        self.asked = Instant::now();
        let answer = self.second.toggle(self.client, Provider::new(PROVIDER, OPERATIONS, Level::Error));
        self.late = self.asked.elapsed();
        answer
    }
}

/// A session that is read.
struct Live<'l, L> {
    reader: Reader<EventPipeSession>,
    follower: Follower<'l, L>,
    /// The process or the session has ended.
    is_over: bool,
    asker: Asker<'l>,
    /// Whether threads are asked from time to time: what they hold when the application ends by itself is lost, and one
    /// that is never idle holds it for many seconds.
    asks: bool,
}

impl<L: Listener> Live<'_, L> {
    /// Reads what comes until the end, for this long, or until an interrupt.
    fn read(&mut self, mut is_interrupted: impl FnMut() -> bool, limit: Option<Duration>) -> Result<()> {
        let begin = Instant::now();
        while !self.is_over && !is_interrupted() && limit.is_none_or(|limit| begin.elapsed() < limit) {
            self.step()?;
        }
        Ok(())
    }

    fn step(&mut self) -> Result<()> {
        if self.asks && self.asker.is_due() {
            // An application that ends just now is not asked.
            let _ = self.asker.ask();
        }
        match self.reader.next_event() {
            Ok(None) => self.is_over = true,
            Ok(Some(event)) => self.follower.take(&event),
            Err(error) if error.is_timeout() => {}
            Err(corprof_nettrace::Error::Format(error)) if error.kind == FormatErrorKind::Truncated => {
                eprintln!("corprof: the process has ended: the names of its methods are missing");
                self.is_over = true;
            }
            Err(error) => return Err(error).context("cannot read on"),
        }
        Ok(())
    }

    /// Has all threads write what they hold, and reads that.
    fn flush(&mut self) -> Result<()> {
        if self.is_over {
            return Ok(());
        }
        match self.asker.ask() {
            Ok(()) => self.read_answers(),
            Err(error) if self.follower.buffers == 0 => bail!(error),
            // What has come is worth more than the last second.
            Err(_) => Ok(()),
        }
    }

    /// Reads until all threads have had the time to answer. How late the process is shows in its answers to questions
    /// that need no time: there may be no events that would show it.
    fn read_answers(&mut self) -> Result<()> {
        let asked = Instant::now();
        let mut late = Duration::ZERO;
        while !self.is_over && asked.elapsed() < time_when_late(ANSWER_TIME, late) {
            self.read(|| false, Some(POLL))?;
            let question = Instant::now();
            let _ = self.asker.client.process_info(); // only its time counts
            late = late.max(question.elapsed());
        }
        Ok(())
    }
}

/// Takes the events one by one.
struct Follower<'l, L> {
    listener: &'l mut L,
    decoder: Decoder,
    stacks: LogicalStacks,
    methods: Methods,
    frequency: f64,
    /// The begin of the trace, in ticks.
    started: u64,
    /// The times of the first and the last event of these sources.
    first: Option<u64>,
    last: u64,
    /// What is older the stacks have forgotten.
    released: u64,
    /// When the session was asked to end.
    ended: Option<u64>,
    buffers: u64,
    activities: u64,
    endpoints: EndpointNames,
    damaged: u64,
    tells_queue: bool,
}

impl<'l, L: Listener> Follower<'l, L> {
    fn new(listener: &'l mut L) -> Self {
        Self {
            listener,
            decoder: Decoder::new(),
            stacks: LogicalStacks::new(),
            methods: Methods::default(),
            frequency: 1e9,
            started: 0,
            first: None,
            last: 0,
            released: 0,
            ended: None,
            buffers: 0,
            activities: 0,
            endpoints: EndpointNames::default(),
            damaged: 0,
            tells_queue: false,
        }
    }

    /// Reads the beginning of the trace.
    fn begin<R: Read>(&mut self, reader: &mut Reader<R>) -> Result<()> {
        let trace = reader.trace()?;
        #[allow(clippy::cast_precision_loss, reason = "10 MHz or 1 GHz")]
        let frequency = trace.ticks_per_second as f64;
        self.frequency = frequency;
        self.started = trace.started_ticks;
        self.listener.begin(trace.started_ticks);
        Ok(())
    }

    fn take(&mut self, event: &Event<'_>) {
        let decoded = event.decoded();
        if [EventProvider::RUNTIME, EventProvider::RUNDOWN].contains(&decoded.provider()) {
            self.methods.event(&decoded, event.ticks());
            return;
        }
        if let Ok(symbol) = decoded.decode::<ProcessSymbol<'_>>() {
            self.methods.symbol(&symbol);
            return;
        }
        match classify(event) {
            Some(TraceEvent::Buffer { payload, written }) => {
                self.buffers += 1;
                let listener = &mut *self.listener;
                match self.decoder.decode(payload) {
                    Ok(buffer) => self.stacks.take_buffer(&buffer, written, |step| listener.step(step)),
                    Err(_) => self.damaged += 1,
                }
                self.advance(written);
            }
            Some(TraceEvent::RequestEnds { thread, endpoint }) => self.endpoints.request_ends(thread, endpoint),
            Some(TraceEvent::Activity { thread, ticks, is_start, mut activity }) => {
                self.activities += 1;
                if !is_start {
                    self.endpoints.complete(thread, &mut activity);
                }
                self.listener.activity(thread, ticks, is_start, activity);
                self.advance(ticks);
            }
            // There are too many of these to release something at each. They come at once, when buffers are held back.
            Some(TraceEvent::WorkQueued { ticks, work }) => {
                self.note(ticks);
                self.listener.work_queued(ticks, work);
            }
            Some(TraceEvent::WorkTaken { ticks, thread, work }) => {
                self.note(ticks);
                self.tells_queue = true;
                self.listener.work_taken(ticks, thread, work);
            }
            _ => {}
        }
    }

    fn note(&mut self, ticks: u64) {
        self.first.get_or_insert(ticks);
        self.last = self.last.max(ticks);
    }

    /// What is older than the latest that may come is over.
    fn advance(&mut self, ticks: u64) {
        self.note(ticks);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "seconds in ticks")]
        let latest = (LATEST.as_secs_f64() * self.frequency) as u64;
        let until = self.last.saturating_sub(latest);
        self.listener.release(until);
        // This goes through all that is held, which is too much for each event.
        if until.saturating_sub(self.released) > latest / RELEASES {
            self.released = until;
            self.stacks.release(until);
        }
    }

    /// What ends from now on does not count: at least this time after the begin of the trace.
    fn end(&mut self, passed: Duration) {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "seconds in ticks")]
        let ticks = (passed.as_secs_f64() * self.frequency) as u64;
        // Threads may not have told yet what they did last.
        let now = self.last.max(self.started + ticks);
        self.ended = Some(now);
        self.listener.end(now);
    }

    /// The application has ended by itself.
    fn cut_off(&mut self) {
        let stacks = &self.stacks;
        self.listener.cut_off(&|thread| stacks.known_until(thread));
    }

    fn finish(self, title: String, pid: Option<u32>, lost: u64) -> Traced {
        self.listener.release(u64::MAX);
        let Self { methods, frequency, damaged, tells_queue, .. } = self;
        let tells_operations = self.buffers > 0;
        let tells_activities = self.activities > 0;
        // Of a file it is known only what is in it.
        let [begin, end] = match self.ended {
            Some(ended) => [self.started, ended],
            None => [self.first.unwrap_or(self.last), self.last],
        };
        #[allow(clippy::cast_precision_loss, reason = "times of hours")]
        let seconds = end.saturating_sub(begin) as f64 / frequency;
        Traced {
            title,
            pid,
            methods,
            frequency,
            seconds,
            tells_operations,
            tells_activities,
            tells_queue,
            lost,
            damaged,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_a_process_or_a_file() {
        assert_eq!(Source::parse("4711"), Ok(Source::Process(4711)));
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().to_str().unwrap();
        assert_eq!(Source::parse(path), Ok(Source::File(file.path().to_owned())));
        assert!(Source::parse("no-such.nettrace").unwrap_err().contains("process id"));
    }

    struct Nobody;

    impl Listener for Nobody {
        fn step(&mut self, _: Step) {}
        fn work_queued(&mut self, _: u64, _: u64) {}
        fn work_taken(&mut self, _: u64, _: u64, _: u64) {}
        fn end(&mut self, _: u64) {}
        fn release(&mut self, _: u64) {}
    }

    #[test]
    fn a_file_of_another_kind_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "no trace").unwrap();
        let error = of_file(file.path(), true, &mut Nobody).unwrap_err();
        assert!(format!("{error:#}").contains("is not a .nettrace"), "{error:#}");
    }
}

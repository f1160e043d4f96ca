//! Samples of stacks over the diagnostics port, by the runtime's own sample profiler: for a process that has another
//! profiler.
//!
//! Each millisecond the runtime suspends all managed threads, and writes a stack of each as an event. So threads stop
//! at safe points, and whether a thread works or waits is not known: only whether it was in managed code, or in native
//! code, where it may do either. The names of methods come by a rundown, which lists all code of the process, and by
//! the events of code that is compiled meanwhile.
//!
//! `async_callers` finds the methods that await those that run; `profile` makes a profile of the samples.

mod async_callers;
mod profile;
mod questions;
mod standstill;

use std::collections::{HashMap, HashSet};
use std::mem;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use corprof_async::trace::{TraceEvent, classify};
use corprof_async::{LogicalFrame, MethodTable, Origin};
use corprof_diagnostics::{
    Client, EventFilter, EventPipeSession, KeywordSet, Level, ProcessInfo, Provider, Rundown, SessionConfig,
};
use corprof_export::STARTED_BY;
use corprof_nettrace::events::{Provider as EventProvider, Value};
use corprof_nettrace::{Event, FormatErrorKind, Reader};

use crate::async_trace;
use crate::signals::Signals;
use crate::trace_methods::{Change, Method, Methods, RUNDOWN};
pub(crate) use async_callers::AsyncCallers;
pub(crate) use profile::{Kind, profile, thread_name};
use questions::{Questions, TraceClock};
use standstill::Standstill;

/// What is said wherever samples of this kind are shown.
pub(crate) const LIMITS: &str = "by EventPipe: threads stop at safe points, waits are not told from work";

/// The time that one read waits for events.
const POLL: Duration = Duration::from_millis(50);
/// The time limit for a rundown.
const PATIENCE: Duration = Duration::from_secs(120);
/// The frames of a stack: the runtime leaves out what is further out.
pub(crate) const MOST_FRAMES: usize = 100;
/// Stands for those.
pub(crate) const MISSING: &str = "[outer frames are missing]";
/// Stands for code that no method has.
pub(crate) const UNKNOWN: &str = "[unknown code]";
/// How long a sample waits at most for its callers, if they are wanted soon.
const LONGEST: Duration = Duration::from_secs(4);
/// How long the end of a session waits for them at most.
const LAST_ANSWER: Duration = Duration::from_secs(15);
/// Keywords of the runtime's provider for the same events of code that comes and goes.
const CODE: u64 = 0x8 | 0x10 | 0x20;
/// The keyword for suspensions, and the numbers of the events that are wanted then: suspensions, methods and modules.
/// There are others with this keyword, for each 100 KB that are allocated.
const SUSPENSIONS: u64 = 0x1;
const WANTED: [u32; 6] = [3, 8, 9, 143, 144, 152];
/// The value of a sample of managed code.
const MANAGED: u64 = 2;

/// The beginnings of the names of methods in which threads that return from native code stop for a suspension.
const POLLS: [&str; 2] = ["System.Threading.Thread.PollGC", "System.Threading.Thread.<PollGC>"];
/// The beginnings of the names of methods by which the runtime calls managed code.
const OF_THE_RUNTIME: [&str; 5] = [
    "System.Environment.CallEntryPoint(",
    "System.Runtime.CompilerServices.InitHelpers.CallClassConstructor(",
    "System.Runtime.EH.RhThrowEx(",
    "System.Runtime.EH.RhThrowHwEx(",
    "System.Diagnostics.Tracing.EventPipeEventProvider.Callback(",
];

/// Prints that samples come this way, and why.
pub(crate) fn announce(why: &anyhow::Error) {
    let why = format!("{why:#}");
    let why: Vec<&str> = why.lines().map(str::trim).collect();
    eprintln!("corprof: no profiler can attach, so the runtime samples the threads itself: {}", why.join("; "));
}

/// Whether samples get the methods that await those that run, if the runtime tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Callers {
    /// Their stacks are those of the threads.
    Physical,
    /// They do at the end.
    AtEnd,
    /// They do some seconds later, for which threads are asked all the time.
    Soon,
}

/// A sample of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sample {
    /// The system's thread id.
    pub(crate) thread: u64,
    /// When it was taken, since the begin.
    pub(crate) at: Duration,
    /// The same in ticks of the trace.
    pub(crate) ticks: u64,
    /// The number of its round, the first is 1.
    pub(crate) round: u64,
    /// The time since the round before.
    pub(crate) weight: Duration,
    /// Whether the runtime says that the thread was in managed code.
    is_managed: bool,
    /// Its stack: a number for [`Gathered::stack`].
    pub(crate) stack: usize,
    /// Whether that ends with the method that was resumed and those that await it.
    pub(crate) has_callers: bool,
}

/// What a session has brought so far.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    pub(crate) samples: Vec<Sample>,
    /// The innermost frame first.
    stacks: Vec<Rc<[LogicalFrame]>>,
    numbers: HashMap<Rc<[LogicalFrame]>, usize>,
    methods: Methods,
    callers: Option<AsyncCallers>,
    /// How many of the samples have their callers.
    joined: usize,
    rounds: Rounds,
    standstill: Standstill,
    /// The time of the session whose samples count: without what the session itself makes the process do at its begin
    /// and end.
    begin: Duration,
    end: Option<Duration>,
}

/// Groups samples into the rounds in which the runtime takes them: a thread has one sample in each.
#[derive(Debug, Default)]
struct Rounds {
    count: u64,
    threads: HashSet<u64>,
    begin: Duration,
    /// Between the beginnings of the last two rounds.
    length: Duration,
}

impl Rounds {
    /// The weight of the next sample.
    fn add(&mut self, thread: u64, at: Duration) -> Duration {
        if self.count == 0 || self.threads.contains(&thread) {
            self.threads.clear();
            self.count += 1;
            self.length = at.saturating_sub(self.begin);
            self.begin = at;
        }
        self.threads.insert(thread);
        self.length
    }
}

impl Gathered {
    /// Takes an event. Returns whether it is a sample.
    fn take(&mut self, event: &Event<'_>) -> bool {
        if let Some(callers) = &mut self.callers
            && let Some(TraceEvent::Buffer { payload, written }) = classify(event)
        {
            callers.take(payload, written);
            return false;
        }
        let decoded = event.decoded();
        if decoded.provider() != EventProvider::SAMPLE_PROFILER {
            if let Some(at) = self.counted(event) {
                self.standstill.event(event, at);
            }
            if self.methods.event(&decoded, event.ticks()) == Change::Freed {
                // From now on the same addresses may mean other methods.
                self.numbers.clear();
            }
            return false;
        }
        let Some(thread) = event.os_thread_id() else { return true };
        let Some(at) = self.counted(event) else { return true };
        let weight = self.rounds.add(thread, at);
        let addresses = event.stack().addresses().enumerate();
        // The address of a caller is the one it returns to, which may be behind its end.
        let addresses = addresses.map(|(depth, address)| address.saturating_sub(u64::from(depth > 0)));
        let frames = addresses.map(|address| LogicalFrame { address, state: 0, origin: Origin::Physical });
        let number = self.number_of(frames.collect());
        let is_managed = decoded.field("Type").and_then(Value::as_u64) == Some(MANAGED);
        let (ticks, round) = (event.ticks(), self.rounds.count);
        let has_callers = false;
        self.samples.push(Sample { thread, at, ticks, round, weight, is_managed, stack: number, has_callers });
        true
    }

    fn number_of(&mut self, stack: Rc<[LogicalFrame]>) -> usize {
        *self.numbers.entry(stack).or_insert_with_key(|stack| {
            self.stacks.push(Rc::clone(stack));
            self.stacks.len() - 1
        })
    }

    /// Gives the next samples the callers that await them, up to the first that is not due: no more will be told.
    fn join(&mut self, is_due: impl Fn(&AsyncCallers, &Sample) -> bool) {
        let Some(mut callers) = self.callers.take() else { return };
        while let Some(&sample) = self.samples.get(self.joined).filter(|sample| is_due(&callers, sample)) {
            let physical = self.stacks.get(sample.stack).map(Rc::clone).unwrap_or_default();
            let stack = callers.join(sample.thread, sample.ticks, &physical, &self.methods).map(Rc::from);
            let stack = stack.map(|stack| self.number_of(stack));
            if let (Some(sample), Some(stack)) = (self.samples.get_mut(self.joined), stack) {
                sample.stack = stack;
                sample.has_callers = true;
            }
            self.joined += 1;
        }
        self.callers = Some(callers);
    }

    /// All threads have told what they ran up to this time.
    fn answered(&mut self, until: u64) {
        if let Some(callers) = &mut self.callers {
            callers.answered(until);
        }
    }

    /// No sample from before will be joined.
    fn forget_callers(&mut self, until: u64) {
        if let Some(callers) = &mut self.callers {
            callers.forget(until);
        }
    }

    /// The samples that are as they stay: others wait for their callers.
    pub(crate) fn settled(&self) -> &[Sample] {
        let count = if self.callers.is_some() { self.joined } else { self.samples.len() };
        self.samples.get(..count).unwrap_or_default()
    }

    /// When an event was written, if it counts.
    fn counted(&self, event: &Event<'_>) -> Option<Duration> {
        let at = event.since_start().checked_sub(self.begin)?;
        self.end.is_none_or(|end| at <= end).then_some(at)
    }

    /// The share of the time for which the sampler has had the application stand still. Unknown before .NET 10.
    pub(crate) fn standstill(&self) -> Option<f64> {
        let duration = self.duration().as_secs_f64();
        self.standstill.sum().filter(|_| duration > 0.0).map(|sum| sum.as_secs_f64() / duration)
    }

    /// Forgets the settled samples, but not the methods.
    pub(crate) fn forget(&mut self) {
        self.samples.drain(..self.settled().len());
        self.joined = 0;
        self.numbers.clear();
        let stacks = mem::take(&mut self.stacks);
        let mut samples = mem::take(&mut self.samples);
        let mut renumbered = HashMap::new();
        for sample in &mut samples {
            let stack = stacks.get(sample.stack).map(Rc::clone).unwrap_or_default();
            sample.stack = *renumbered.entry(sample.stack).or_insert_with(|| self.number_of(stack));
        }
        self.samples = samples;
    }

    /// How often the runtime has sampled all threads.
    pub(crate) fn rounds(&self) -> u64 {
        self.rounds.count
    }

    /// The time from the begin to the end, or to the last round.
    pub(crate) fn duration(&self) -> Duration {
        self.end.unwrap_or(self.rounds.begin)
    }

    /// Whether a thread ran managed code. If not, it was in native code, or waited there, until the suspension or just
    /// before.
    pub(crate) fn is_managed(&self, sample: &Sample) -> bool {
        let innermost = self.stacks.get(sample.stack).and_then(|stack| stack.first());
        let innermost = innermost.and_then(|frame| self.methods.at(frame.address, sample.ticks));
        let is_poll = innermost.is_some_and(|method| POLLS.iter().any(|poll| method.name.starts_with(poll)));
        sample.is_managed && !is_poll
    }

    /// Whether the runtime tells which methods await others, and that is wanted.
    pub(crate) fn tells_callers(&self) -> bool {
        self.callers.is_some()
    }

    /// Whether a suspended method was resumed on the stack of a sample.
    pub(crate) fn is_resumed(&self, sample: &Sample) -> bool {
        let resumes = |name| MethodTable::resumes(name) || MethodTable::wrapper_index(name).is_some();
        self.stack(sample).flatten().any(|method| resumes(method.name))
    }

    /// Whether there is code on the stacks that no method has.
    pub(crate) fn has_unknown_code(&self) -> bool {
        self.samples.iter().any(|sample| self.stack(sample).any(|method| method.is_none()))
    }

    /// Whether outer frames of a sample are missing.
    pub(crate) fn is_cut(&self, sample: &Sample) -> bool {
        let is_physical = |frame: &LogicalFrame| frame.origin == Origin::Physical;
        let stack = self.stacks.get(sample.stack);
        stack.is_some_and(|stack| stack.len() >= MOST_FRAMES && stack.iter().all(is_physical))
    }

    /// The methods on the stack of a sample, the innermost first; none for code that no method has.
    pub(crate) fn stack(&self, sample: &Sample) -> impl Iterator<Item = Option<Method<'_>>> {
        self.frames(sample).map(|(_, method)| method)
    }

    /// The names of these methods, with what stands for those that are not known, and for who started others.
    pub(crate) fn names(&self, sample: &Sample) -> Vec<&str> {
        let mut names = Vec::new();
        let mut has_creators = false;
        for (origin, method) in self.frames(sample) {
            if origin == Origin::Creator && !has_creators {
                has_creators = true;
                names.push(STARTED_BY);
            }
            names.push(method.map_or(UNKNOWN, |method| method.name));
        }
        names
    }

    /// The same, each with why it is there.
    pub(crate) fn frames(&self, sample: &Sample) -> impl Iterator<Item = (Origin, Option<Method<'_>>)> {
        let ticks = sample.ticks;
        let frames = self.stacks.get(sample.stack).into_iter().flat_map(|stack| stack.iter());
        let methods = frames.map(move |frame| (frame.origin, self.methods.at(frame.address, ticks)));
        methods.filter(|(_, method)| !method.is_some_and(|method| is_of_the_runtime(method.name)))
    }
}

/// A session of samples.
#[derive(Debug)]
pub(crate) struct Sampling {
    client: Client,
    rundown: Rundown,
    reader: Reader<EventPipeSession>,
    clock: TraceClock,
    is_over: bool,
    callers: Callers,
    /// If callers are wanted, and the runtime tells them.
    questions: Option<Questions>,
    pub(crate) gathered: Gathered,
}

impl Sampling {
    /// Starts a session, and learns the names of all methods.
    ///
    /// # Errors
    /// If the runtime refuses or does not answer.
    pub(crate) fn start(client: &Client, info: &ProcessInfo, callers: Callers) -> Result<Self> {
        // .NET 8 and older report all of their events at the end, or none.
        let rundown = if info.clr_major().is_some_and(|major| major >= 9) {
            Rundown::Keywords(RUNDOWN)
        } else {
            Rundown::Default
        };
        let samples = Provider::new(EventProvider::SAMPLE_PROFILER.name(), u64::MAX, Level::Informational);
        let code = if info.clr_major().is_some_and(|major| major >= 10) {
            let filter = EventFilter::Only(WANTED.to_vec());
            Provider::new(Provider::RUNTIME, CODE | SUSPENSIONS, Level::Verbose).with_filter(filter)
        } else {
            Provider::new(Provider::RUNTIME, CODE, Level::Verbose)
        };
        let has_callers =
            callers != Callers::Physical && info.clr_major().is_some_and(|major| major >= async_trace::FIRST);
        let source = has_callers.then(|| async_callers::provider(Level::Informational));
        let config = SessionConfig::new([samples, code].into_iter().chain(source)).with_rundown(rundown);
        let requested = Instant::now();
        let mut session = client.start_session(&config).context("cannot start the runtime's sample profiler")?;
        let clock = TraceClock::new(requested);
        session.set_read_timeout(Some(POLL));
        let reader = Reader::new(session);
        let gathered = Gathered { callers: has_callers.then(AsyncCallers::new), ..Gathered::default() };
        let questions = has_callers.then(Questions::new);
        let client = client.clone();
        let mut sampling = Self { client, rundown, reader, clock, is_over: false, callers, questions, gathered };
        // Now and not only at the end, for the process may be killed; and after the session has begun, so that no
        // method falls between.
        sampling.learn_methods()?;
        sampling.gathered.begin = clock.at_most();
        Ok(sampling)
    }

    /// Has the runtime list all methods, by a second session.
    ///
    /// # Errors
    /// If that fails.
    pub(crate) fn learn_methods(&mut self) -> Result<()> {
        let config = SessionConfig::new([Provider::runtime(KeywordSet::PROFILER)]);
        let config = config.with_rundown(self.rundown);
        let mut session = self.client.start_session(&config)?;
        session.set_read_timeout(Some(PATIENCE));
        session.stop()?;
        let begin = Instant::now();
        let mut reader = Reader::new(session);
        while let Some(event) = reader.next_event()? {
            self.gathered.methods.event(&event.decoded(), event.ticks());
            ensure!(begin.elapsed() < PATIENCE, "the runtime does not end the list of its methods within {PATIENCE:?}");
        }
        Ok(())
    }

    /// Reads what comes for this long, or to the end of the session.
    ///
    /// # Errors
    /// If the session fails. The end of the process is none.
    pub(crate) fn read(&mut self, time: Duration) -> Result<()> {
        let begin = Instant::now();
        while !self.is_over && begin.elapsed() < time {
            match self.reader.next_event() {
                Ok(None) => self.is_over = true,
                Ok(Some(event)) => {
                    let is_sample = self.gathered.take(&event);
                    if let Some(questions) = self.questions.as_mut().filter(|_| is_sample) {
                        questions.sampled(event.since_start());
                    }
                }
                Err(error) if error.is_timeout() => {}
                // The process has ended.
                Err(corprof_nettrace::Error::Format(error)) if error.kind == FormatErrorKind::Truncated => {
                    self.is_over = true;
                }
                Err(error) => return Err(error).context("cannot read on"),
            }
        }
        self.join_early()
    }

    /// Gives samples their callers once all that their threads held must have come.
    fn join_early(&mut self) -> Result<()> {
        let Some(last) = self.gathered.samples.last().map(|sample| sample.ticks) else { return Ok(()) };
        let Some(questions) = &mut self.questions else { return Ok(()) };
        let ticks_per_second = self.reader.trace()?.ticks_per_second;
        let before = |time: Duration| last.saturating_sub(time.as_secs().saturating_mul(ticks_per_second));
        if self.is_over {
            self.gathered.join(|_, _| true);
            return Ok(());
        }
        if self.callers == Callers::AtEnd {
            let until = before(async_trace::LATEST);
            self.gathered.answered(until);
            self.gathered.join(|_, sample| sample.ticks <= until);
            self.gathered.forget_callers(until);
            return Ok(());
        }
        if questions.is_due() {
            questions.ask(&self.client, self.clock)?;
        }
        self.take_answers()?;
        let oldest = before(LONGEST);
        self.gathered
            .join(|callers, sample| sample.ticks <= oldest || callers.is_told(sample.thread, sample.ticks, oldest));
        self.gathered.forget_callers(oldest);
        Ok(())
    }

    /// Has all threads write which methods they ran.
    fn ask_for_callers(&mut self) -> Result<()> {
        // From now on nobody else asks: the answer would come later.
        self.callers = Callers::AtEnd;
        let Some(questions) = self.questions.as_mut().filter(|_| !self.is_over) else { return Ok(()) };
        if questions.ask(&self.client, self.clock).is_err() {
            // The last seconds have no callers, and what has come is worth more.
            return Ok(());
        }
        let begin = Instant::now();
        while !self.is_over && begin.elapsed() < LAST_ANSWER {
            self.read(POLL)?;
            self.take_answers()?;
            if !self.questions.as_ref().is_some_and(Questions::awaits_an_answer) {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Notes up to which time all threads have told what they ran.
    fn take_answers(&mut self) -> Result<()> {
        let Some(until) = self.questions.as_mut().and_then(Questions::answered) else { return Ok(()) };
        let trace = self.reader.trace()?;
        let ticks = until.as_nanos() * u128::from(trace.ticks_per_second) / 1_000_000_000;
        let ticks = u64::try_from(ticks).unwrap_or(u64::MAX);
        self.gathered.answered(trace.started_ticks.saturating_add(ticks));
        Ok(())
    }

    /// Ends the session, and reads the rest of it.
    ///
    /// # Errors
    /// If the session fails, or does not end before Ctrl-C.
    pub(crate) fn finish(&mut self, signals: &Signals) -> Result<()> {
        self.gathered.end = Some(self.clock.at_least().saturating_sub(self.gathered.begin));
        self.ask_for_callers()?;
        if !self.is_over {
            // A process that ends just now has sent the rest.
            let _ = self.reader.get_mut().stop();
        }
        let begin = Instant::now();
        while !self.is_over {
            ensure!(begin.elapsed() < PATIENCE, "the runtime does not end the session within {PATIENCE:?}");
            ensure!(!signals.is_interrupted(), "interrupted again, before the runtime had sent all samples");
            self.read(POLL)?;
        }
        // Where a thread has not told what it ran, that may be something else than what it told last.
        self.gathered.join(|_, _| true);
        Ok(())
    }

    /// Whether the session has ended.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over
    }

    /// How many events the runtime has dropped, of samples or of methods.
    pub(crate) fn lost(&self) -> u64 {
        self.reader.stats().lost
    }
}

/// Whether this is a frame of the runtime's own: the profilers do not show these either
/// (`profilers/library/own_frames.rs`).
pub(crate) fn is_of_the_runtime(name: &str) -> bool {
    POLLS.iter().chain(&OF_THE_RUNTIME).any(|beginning| name.starts_with(beginning))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_has_one_sample_of_each_thread() {
        let mut rounds = Rounds::default();
        let mut weight = |thread, at| rounds.add(thread, Duration::from_millis(at)).as_millis();
        assert_eq!([weight(1, 5), weight(2, 5)], [5, 5]);
        assert_eq!([weight(2, 7), weight(1, 7), weight(3, 8)], [2, 2, 2], "the first thread has ended");
        assert_eq!(weight(3, 20), 13);
        assert_eq!(rounds.count, 3);
    }

    #[test]
    fn samples_that_wait_for_their_callers_keep_their_stacks() {
        let mut gathered = Gathered { callers: Some(AsyncCallers::new()), ..Gathered::default() };
        for (ticks, address) in [(1, 0x100), (2, 0x200), (3, 0x100), (4, 0x300)] {
            let stack = gathered.number_of([LogicalFrame { address, state: 0, origin: Origin::Physical }].into());
            let [at, weight] = [Duration::from_nanos(ticks), Duration::ZERO];
            let sample =
                Sample { thread: 1, at, ticks, round: ticks, weight, is_managed: true, stack, has_callers: false };
            gathered.samples.push(sample);
        }
        gathered.join(|_, sample| sample.ticks <= 2);
        assert_eq!(gathered.settled().len(), 2);
        gathered.forget();
        let addresses = gathered.samples.iter().map(|sample| gathered.stacks[sample.stack][0].address);
        assert_eq!(addresses.collect::<Vec<_>>(), [0x100, 0x300]);
        assert!(gathered.settled().is_empty());
        gathered.join(|_, _| true);
        gathered.forget();
        assert!(gathered.samples.is_empty() && gathered.stacks.is_empty());
    }
}

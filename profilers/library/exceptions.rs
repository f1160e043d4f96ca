//! Counts exceptions by class, by the code that throws, and by the method that catches, with their messages. When it is
//! asked (`question`), it answers with these rows. With EXCEPTIONS_SHOW=tree it also prints each exception as it
//! happens; for a command that has attached it, into a file that ends in `.calls`.
//!
//! In the tree, each exception has the number of its thread in front: the functions that the search for a handler
//! visits, the filters it runs, the function that will catch; then the unwound functions, the finally blocks, and the
//! catch. An exception thrown inside a filter, finally or catch block is indented below it; `throw;` throws a new one.
//! An unhandled exception ends the process without a summary: then a command has the draft of a moment before.
//!
//! Where the thrower runs in a resumed async method, a row has the methods that await it (`async_callers`).
//!
//! The thrower is the innermost method of the application. The message is the one that the exception object holds: what
//! a class composes in its property `Message` is not there. Reading takes longer than throwing, so not all are read.
//!
//! The runtime does not report everything. The following holds for .NET 10 and .NET 8 (x64):
//! - A finally or catch block that another exception leaves has no end: see `may_be_over`.
//! - An exception that goes from managed code into the runtime has no end either. The exception of a static constructor
//!   is unwound, then a TypeInitializationException is thrown.
//! - An exception that leaves a filter is unwound up to the filter, which then declines.
//! - A function whose finally block throws is unwound twice, once for each exception.
//!
//! The framework has frames of its own: managed code of `MethodInfo.Invoke` catches the method's exception and throws a
//! TargetInvocationException. On .NET 10 managed code runs static constructors (`InitHelpers.InitClassSlow`), and is
//! searched and unwound like other functions.

mod summary;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fs::File;
use std::hash::Hash;
use std::io::{BufWriter, Write, stderr};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use corprof::args::EventPipeEvent;
use corprof::prelude::*;
use corprof::sampler::ticks;
use corprof::sync::Mutex;
use corprof_export::SourceLines;
use corprof_profilers::settings::Settings;
use corprof_profilers::table::EXCEPTIONS;

use crate::async_callers::{AsyncSource, Later, LaterCallers, StackFrame, WantedCallers, this_thread};
use crate::code_frames::{CodeFrame, CodeFrames, Spelling};
use crate::own_frames::{is_of_framework, is_of_the_runtime};
use crate::question::{Asker, answer_with_callers, keep_drafts};

use summary::Summary;

const THROWN: &str = "thrown";
const CATCH: &str = "catch in";

/// The most rows; what is thrown beyond them counts by its class alone.
const MOST_ROWS: usize = 10_000;
/// The most different messages of a row.
const MOST_MESSAGES: usize = 10;
/// The most different callers of a row.
const MOST_CALLERS: usize = 10;
/// The most characters of a message.
const LONGEST_MESSAGE: usize = 200;
/// The share of the time in which messages are read, and how long they may be read at first.
const READING_SHARE: u32 = 20;
const READING_AT_FIRST: Duration = Duration::from_millis(100);
/// The interval between drafts while exceptions are caught.
const DRAFTS: Duration = Duration::from_millis(100);
/// The interval at which it looks for one that is not: that ends the process within some milliseconds.
const OPEN: Duration = Duration::from_millis(5);
/// The most frames that are looked at for a thrower.
const DEPTH: usize = 200;

/// The profiler.
#[derive(Profiler)]
#[profiler(clsid = "4E1A5A0C-7C1B-4C55-9C55-5D0E2E0C7A03", no_export)]
pub struct Exceptions {
    start: Instant,
    top: usize,
    /// Nanoseconds for which messages were read.
    read: AtomicU64,
    code: CodeFrames,
    /// Where the tree goes, if it is wanted.
    tree: Option<Tree>,
    state: Arc<Mutex<State>>,
    hears: AsyncSource,
    callers: Arc<Mutex<LaterCallers>>,
    asker: Asker,
}

/// Where the tree goes.
enum Tree {
    StandardError,
    File(Mutex<BufWriter<File>>),
}

#[derive(Default)]
struct State {
    threads: BTreeMap<Option<ThreadId>, Thread>,
    /// The number of threads so far, and the number of the next thread.
    threads_seen: usize,
    rows: HashMap<Kind, Counts>,
    /// How often something has changed that the answer shows.
    changes: u64,
}

struct Thread {
    number: usize,
    /// The active exceptions. Each was thrown inside a block that runs for the one before it.
    exceptions: Vec<Exception>,
}

struct Exception {
    /// The filter, finally or catch block that runs for it.
    block: Option<Block>,
    /// Either no block runs, or an exception thrown in the block has unwound the block's function. The runtime does not
    /// report whether that exception left the block, and so ended this one, or was caught inside.
    may_be_over: bool,
    /// What is counted when the method is known that will catch it, or when it is over.
    thrown: Option<Thrown>,
}

#[derive(Clone, Copy)]
struct Block {
    kind: &'static str,
    function: FunctionId,
}

/// Exceptions that are counted together.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Kind {
    class: Name,
    thrower: Option<CodeFrame>,
    /// The method of the framework that has thrown, called by the thrower.
    framework: Option<CodeFrame>,
    catcher: Catcher,
}

#[derive(Clone, PartialEq, Eq, Hash)]
enum Catcher {
    Method(CodeFrame),
    /// Nobody, or the runtime itself.
    NoMethod,
    /// None was found before the answer.
    Open,
}

impl Catcher {
    fn frame(&self) -> Option<&CodeFrame> {
        if let Self::Method(frame) = self { Some(frame) } else { None }
    }
}

/// An exception that was thrown.
#[derive(Clone)]
struct Thrown {
    kind: Kind,
    message: Message,
    /// None if no async method may be on the stack.
    caller: Option<Caller>,
}

/// Who has called the thrower, in async code.
#[derive(Clone)]
struct Caller {
    /// The methods below the thrower, the innermost first.
    below: Vec<Name>,
    /// How many frames the thrower and those above it are.
    above: usize,
    later: Later,
}

impl Caller {
    /// The names of the callers, if the thrower runs in a resumed method.
    fn names(&self) -> Option<Vec<Name>> {
        let found = self.later.found()?;
        let below = found.physical.saturating_sub(self.above);
        let physical = self.below.get(..below).unwrap_or(&self.below);
        Some([physical, &found.names].concat())
    }
}

#[derive(Clone)]
enum Message {
    Text(String),
    None,
    Unread,
}

#[derive(Clone, Default)]
struct Counts {
    count: u64,
    messages: HashMap<String, u64>,
    others: u64,
    unread: u64,
    /// Those that may not be known yet.
    pending: VecDeque<Caller>,
    /// The others.
    callers: HashMap<Vec<Name>, u64>,
    other_callers: u64,
}

impl Counts {
    fn add(&mut self, message: Message, caller: Option<Caller>) {
        self.count += 1;
        self.pending.extend(caller);
        self.take_known();
        let text = match message {
            Message::Text(text) => text,
            Message::None => return,
            Message::Unread => {
                self.unread += 1;
                return;
            }
        };
        self.others += count_up(&mut self.messages, MOST_MESSAGES, text, 1);
    }

    fn merge(&mut self, other: Self) {
        self.count += other.count;
        self.others += other.others;
        self.unread += other.unread;
        self.other_callers += other.other_callers;
        for (text, count) in other.messages {
            self.others += count_up(&mut self.messages, MOST_MESSAGES, text, count);
        }
        for (names, count) in other.callers {
            self.other_callers += count_up(&mut self.callers, MOST_CALLERS, names, count);
        }
    }

    /// Counts the callers that are known by now.
    fn take_known(&mut self) {
        while self.pending.front().is_some_and(|caller| caller.later.is_known())
            && let Some(caller) = self.pending.pop_front()
        {
            let Some(names) = caller.names() else { continue };
            self.other_callers += count_up(&mut self.callers, MOST_CALLERS, names, 1);
        }
    }
}

/// Adds to a count, of which there are at most so many; what there is no room for is returned.
fn count_up<K: Eq + Hash>(counts: &mut HashMap<K, u64>, most: usize, key: K, count: u64) -> u64 {
    if let Some(known) = counts.get_mut(&key) {
        *known += count;
        return 0;
    }
    if counts.len() >= most {
        return count;
    }
    counts.insert(key, count);
    0
}

impl State {
    fn thread(&mut self, id: Option<ThreadId>) -> &mut Thread {
        self.threads.entry(id).or_insert_with(|| {
            let number = self.threads_seen;
            self.threads_seen += 1;
            Thread { number, exceptions: Vec::new() }
        })
    }

    /// Counts an exception, with the method that will catch it.
    fn count(&mut self, thrown: Thrown, catcher: Catcher) {
        self.changes += 1;
        count(&mut self.rows, thrown, catcher);
    }

    /// Counts exceptions that are over. Those that were caught are counted before.
    fn end(&mut self, over: impl IntoIterator<Item = Exception>) {
        for thrown in over.into_iter().filter_map(|exception| exception.thrown) {
            self.count(thrown, Catcher::NoMethod);
        }
    }

    /// Whether an exception was thrown whose catcher is not known: so it is for a moment of each.
    fn has_open(&self) -> bool {
        let mut last = self.threads.values().filter_map(|thread| thread.exceptions.last());
        last.any(|exception| exception.thrown.is_some())
    }

    /// The rows with all that was thrown so far: what has not ended yet counts as it is.
    fn rows(&self) -> HashMap<Kind, Counts> {
        let mut rows = self.rows.clone();
        for thread in self.threads.values() {
            for (at, exception) in thread.exceptions.iter().enumerate() {
                let Some(thrown) = &exception.thrown else { continue };
                let is_last = at + 1 == thread.exceptions.len();
                count(&mut rows, thrown.clone(), if is_last { Catcher::Open } else { Catcher::NoMethod });
            }
        }
        rows
    }
}

/// Counts an exception among the others of its kind.
fn count(rows: &mut HashMap<Kind, Counts>, thrown: Thrown, catcher: Catcher) {
    let Thrown { mut kind, message, caller } = thrown;
    kind.catcher = catcher;
    if rows.len() >= MOST_ROWS && !rows.contains_key(&kind) {
        kind = Kind { thrower: None, framework: None, catcher: Catcher::NoMethod, ..kind };
    }
    rows.entry(kind).or_default().add(message, caller);
}

impl Exceptions {
    fn start(cx: &mut InCallback<'_>, settings: &Settings, hears: AsyncSource, asker: Asker) -> Result<Self, BoxError> {
        let show = settings.of("EXCEPTIONS_SHOW");
        let is_tree = show.word(&[("summary", false), ("tree", true)])?;
        if is_tree && asker.is_json() {
            return Err(show.error("the tree is text: give EXCEPTIONS_FORMAT=text").into());
        }
        let top = settings.of("EXCEPTIONS_TOP").number()?;
        let tree = match asker.file(".calls") {
            _ if !is_tree || crate::sdk::is_tool() => None,
            Some(file) => Some(Tree::File(Mutex::new(BufWriter::new(File::create(file)?)))),
            None => Some(Tree::StandardError),
        };
        cx.add_events(EventMask::ENABLE_STACK_SNAPSHOT)?;
        let callers = Arc::<Mutex<LaterCallers>>::default();
        answer_with_callers(cx, &asker, LaterCallers::work(&callers, &hears))?;
        let state = Arc::<Mutex<State>>::default();
        keep_drafts(cx, &asker, OPEN, drafts(&state, &asker, top))?;
        Ok(Self {
            start: Instant::now(),
            top,
            read: AtomicU64::new(0),
            code: CodeFrames::spelt(Spelling::of(settings)),
            tree,
            state,
            hears,
            callers,
            asker,
        })
    }

    /// Updates the exceptions of the current thread, then prints the event if there is a tree.
    fn step(
        &self,
        cx: &InNoGc<'_>,
        event: &'static str,
        name: impl FnOnce() -> Name,
        update: impl FnOnce(&mut Vec<Exception>) -> Vec<Exception>,
    ) {
        // No lock is held while the runtime is asked.
        let name = self.tree.is_some().then(|| self.code.named(name()).shown(None));
        let id = cx.current_thread().unwrap_or(None);
        let mut state = self.state.lock(cx);
        let thread = state.thread(id);
        let over = update(&mut thread.exceptions);
        let number = thread.number;
        let depth = (2 * thread.exceptions.len()).saturating_sub(if event == THROWN { 2 } else { 1 });
        if event == THROWN {
            state.changes += 1;
        }
        state.end(over);
        let (Some(tree), Some(name)) = (&self.tree, name) else { return };
        // A single write, because the application writes to the same stream.
        let line = format!("{number:>4} {:indent$}{event} {name}\n", "", indent = 2 * depth);
        let _ = match tree {
            Tree::StandardError => stderr().write_all(line.as_bytes()),
            Tree::File(file) => file.lock(cx).write_all(line.as_bytes()),
        };
    }

    fn enter_block(&self, cx: &InNoGc<'_>, kind: &'static str, function: FunctionId) {
        self.step(
            cx,
            kind,
            || cx.names().csharp().function(function),
            |exceptions| {
                let thrown = exceptions.pop().and_then(|exception| exception.thrown);
                exceptions.push(Exception { block: Some(Block { kind, function }), may_be_over: false, thrown });
                Vec::new()
            },
        );
    }

    /// The innermost block of this kind has ended, and with it all exceptions thrown inside.
    fn leave_block(&self, cx: &InNoGc<'_>, kind: &'static str) {
        let id = cx.current_thread().unwrap_or(None);
        let mut state = self.state.lock(cx);
        let Some(Thread { exceptions, .. }) = state.threads.get_mut(&id) else { return };
        let is_of_kind = |exception: &Exception| exception.block.is_some_and(|block| block.kind == kind);
        let Some(at) = exceptions.iter().rposition(is_of_kind) else { return };
        let over: Vec<Exception> = exceptions.drain(at + 1..).collect();
        let Some(left) = exceptions.pop() else { return };
        let ended = if kind == CATCH {
            // A catch ends its exception; the others go on.
            left.thrown
        } else {
            exceptions.push(Exception { block: None, may_be_over: true, thrown: left.thrown });
            None
        };
        // If an exception had left that catch block already, then it is the block around it that has ended now.
        if let Some(around) = exceptions.last_mut() {
            around.may_be_over |= left.may_be_over;
        }
        state.end(over);
        if let Some(thrown) = ended {
            state.count(thrown, Catcher::NoMethod);
        }
    }

    /// What is known of an exception when it is thrown.
    fn thrown(&self, cx: &InNoGc<'_>, object: ObjectId<'_>) -> Thrown {
        let class = cx.class_of(object).map_or("?".into(), |class| cx.names().csharp().class(class));
        let (thrower, framework, caller) = self.thrower(cx);
        let kind = Kind { class, thrower, framework, catcher: Catcher::NoMethod };
        Thrown { kind, message: self.message(cx, object), caller }
    }

    /// The frame that will catch the exception which the current thread throws.
    fn catcher(&self, cx: &InNoGc<'_>, function: FunctionId) -> CodeFrame {
        let name = cx.names().csharp().function(function);
        let mut frame = None;
        // There are no lines of the framework's methods. Where the runtime cannot walk, the line is not known.
        if !is_of_framework(&name) {
            let mut depth = 0;
            let _ = cx.walk_own_stack(|found| {
                depth += 1;
                if found.function() == Some(function) {
                    frame = Some(self.code.frame(cx, function, found.ip(), false));
                }
                if frame.is_none() && depth < DEPTH { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            });
        }
        frame.unwrap_or_else(|| self.code.named(name))
    }

    /// The innermost frame of the application, the framework's method that has thrown for it, and the callers.
    fn thrower(&self, cx: &InNoGc<'_>) -> (Option<CodeFrame>, Option<CodeFrame>, Option<Caller>) {
        let mut frames = Vec::new();
        let mut own = None;
        // In states in which the runtime cannot walk, the thrower is not known.
        let _ = cx.walk_own_stack(|frame| {
            let Some(function) = frame.function() else { return ControlFlow::Continue(()) };
            let name = cx.names().csharp().function(function);
            // The runtime throws by managed code of its own.
            if name.starts_with("System.Runtime.EH.") || is_of_the_runtime(cx, function, &name) {
                return ControlFlow::Continue(());
            }
            if own.is_none() && !is_of_framework(&name) {
                own = Some(frames.len());
                if !self.hears.is_wanted() {
                    frames.push((function, frame.ip(), name));
                    return ControlFlow::Break(());
                }
            }
            frames.push((function, frame.ip(), name));
            if frames.len() < DEPTH { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        let place = own.unwrap_or(0);
        let Some((function, ip, _)) = frames.get(place) else { return (None, None, None) };
        let thrower = self.code.frame(cx, *function, *ip, false);
        let framework = frames.first().filter(|_| place > 0).map(|(_, _, name)| self.code.named(name.clone()));
        (Some(thrower), framework, self.caller(cx, &frames, place + 1))
    }

    /// Who has called the thrower, which is the last of so many frames.
    fn caller(&self, cx: &InNoGc<'_>, frames: &[(FunctionId, usize, Name)], above: usize) -> Option<Caller> {
        let stack: Box<[StackFrame]> =
            frames.iter().map(|(function, _, name)| StackFrame::of(*function, name)).collect();
        let thread = this_thread(cx).filter(|_| self.hears.is_wanted())?;
        let later = LaterCallers::of(&self.callers, cx, thread, ticks(), stack);
        let below = frames.iter().skip(above).map(|(_, _, name)| name.clone());
        (!later.is_known() || later.found().is_some()).then(|| Caller { below: below.collect(), above, later })
    }

    /// The message that the object holds, if there is time to read it.
    fn message(&self, cx: &InNoGc<'_>, object: ObjectId<'_>) -> Message {
        let begin = Instant::now();
        let spent = Duration::from_nanos(self.read.load(Ordering::Relaxed));
        if spent > READING_AT_FIRST + begin.saturating_duration_since(self.start) / READING_SHARE {
            return Message::Unread;
        }
        let message = match cx.value(object) {
            Ok(exception) => exception.reference("_message").and_then(|text| text_of(cx, text)),
            Err(_) => return Message::Unread,
        };
        self.read.fetch_add(begin.elapsed().as_nanos() as u64, Ordering::Relaxed);
        message.map_or(Message::None, Message::Text)
    }
}

/// The beginning of a string of the application.
fn text_of(cx: &InNoGc<'_>, object: ObjectId<'_>) -> Option<String> {
    let value = cx.value(object).ok()?;
    let text = value.string()?;
    let units = text.as_utf16();
    let mut shown: String = char::decode_utf16(units.iter().copied())
        .take(LONGEST_MESSAGE)
        .map(|unit| unit.unwrap_or(char::REPLACEMENT_CHARACTER))
        .collect();
    if shown.encode_utf16().count() < units.len() {
        shown.push('…');
    }
    Some(shown)
}

/// What the summary is so far, each time that it has changed.
fn drafts(
    state: &Arc<Mutex<State>>,
    asker: &Asker,
    top: usize,
) -> impl FnMut(&mut ProfilerThread<'_>) -> Option<Summary> + use<> {
    let state = Arc::clone(state);
    let asker = asker.clone();
    let mut lines = SourceLines::new();
    let mut drafted = 0;
    let mut last = Instant::now();
    move |cx| {
        let rows = {
            let state = state.lock(cx);
            let is_due = state.has_open() || last.elapsed() >= DRAFTS;
            if state.changes == drafted || !is_due {
                return None;
            }
            drafted = state.changes;
            state.rows()
        };
        last = Instant::now();
        Some(Summary::of(rows, &mut lines, asker.seconds(), top))
    }
}

#[callbacks]
impl Callbacks for Exceptions {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        let settings = Settings::of_environment(&EXCEPTIONS)?;
        let asker = Asker::of_start(cx, &settings)?;
        let hears = AsyncSource::of_start(cx, WantedCallers::read(&settings)?, true)?;
        Self::start(cx, &settings, hears, asker)
    }

    fn initialize_for_attach(cx: &mut InAttach<'_>, data: &[u8]) -> Result<Self, BoxError> {
        let settings = Settings::of_attach(&EXCEPTIONS, data)?;
        let asker = Asker::of_attach(cx, &settings)?;
        let hears = AsyncSource::of_attach(cx, WantedCallers::read(&settings)?)?;
        Self::start(cx, &settings, hears, asker)
    }

    fn jit_compilation_started(&self, cx: &mut InCallback<'_>, _function: FunctionId, _is_safe_to_block: bool) {
        self.hears.compiling(cx);
    }

    fn event_pipe_event_delivered(&self, cx: &InNoGc<'_>, event: EventPipeEvent<'_>) {
        self.hears.take(cx, &event);
    }

    fn exception_thrown(&self, cx: &InNoGc<'_>, object: ObjectId<'_>) {
        // What is thrown then is followed without being counted.
        let thrown = (!self.asker.is_over()).then(|| self.thrown(cx, object));
        let name = || cx.class_of(object).map_or("?".into(), |class| cx.names().csharp().class(class));
        self.step(cx, THROWN, name, |exceptions| {
            let mut over = Vec::new();
            while let Some(last) = exceptions.pop_if(|last| last.may_be_over) {
                over.push(last);
            }
            exceptions.push(Exception { block: None, may_be_over: true, thrown });
            over
        });
    }

    fn exception_search_function_enter(&self, cx: &mut InCallback<'_>, function: FunctionId) {
        if self.tree.is_some() {
            self.step(cx, "search", || cx.names().csharp().function(function), |_| Vec::new());
        }
    }

    fn exception_search_filter_enter(&self, cx: &mut InCallback<'_>, function: FunctionId) {
        self.enter_block(cx, "filter", function);
    }

    fn exception_search_filter_leave(&self, cx: &mut InCallback<'_>) {
        self.leave_block(cx, "filter");
    }

    fn exception_search_catcher_found(&self, cx: &mut InCallback<'_>, function: FunctionId) {
        let mut thrown = None;
        self.step(
            cx,
            "caught in",
            || cx.names().csharp().function(function),
            |exceptions| {
                thrown = exceptions.last_mut().and_then(|last| last.thrown.take());
                Vec::new()
            },
        );
        if let Some(thrown) = thrown {
            let catcher = self.catcher(cx, function);
            self.state.lock(cx).count(thrown, Catcher::Method(catcher));
        }
    }

    fn exception_unwind_function_enter(&self, cx: &InNoGc<'_>, function: FunctionId) {
        self.step(
            cx,
            "unwind",
            || cx.names().csharp().function(function),
            |exceptions| {
                // The exception is the last; the one whose block it was thrown in may end with that block's function.
                let around = exceptions.iter_mut().rev().skip(1).find(|around| !around.may_be_over);
                if let Some(around) = around {
                    around.may_be_over = around.block.is_some_and(|block| block.function == function);
                }
                Vec::new()
            },
        );
    }

    fn exception_unwind_finally_enter(&self, cx: &InNoGc<'_>, function: FunctionId) {
        self.enter_block(cx, "finally", function);
    }

    fn exception_unwind_finally_leave(&self, cx: &InNoGc<'_>) {
        self.leave_block(cx, "finally");
    }

    fn exception_catcher_enter(&self, cx: &InNoGc<'_>, function: FunctionId, _thrown: Option<ObjectId<'_>>) {
        self.enter_block(cx, CATCH, function);
    }

    fn exception_catcher_leave(&self, cx: &mut InCallback<'_>) {
        self.leave_block(cx, CATCH);
    }

    fn thread_destroyed(&self, cx: &mut InCallback<'_>, thread: ThreadId) {
        let mut state = self.state.lock(cx);
        if let Some(thread) = state.threads.remove(&Some(thread)) {
            state.end(thread.exceptions);
        }
    }

    fn shutdown(&self, cx: &mut InCallback<'_>) {
        if let Some(Tree::File(file)) = &self.tree {
            // If the folder is gone, so is the reader.
            let _ = file.lock(cx).flush();
        }
        let notes: Vec<String> = self.callers.lock(cx).finish(cx).into_iter().collect();
        // Files are read without the lock, for which threads that throw would wait.
        let rows = self.state.lock(cx).rows();
        let summary = Summary::of(rows, &mut SourceLines::new(), self.asker.seconds(), self.top);
        self.asker.report(&notes, &summary, &[]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_caught_yet_is_told_from_what_nobody_catches() {
        let thrown = || {
            let kind = Kind { class: "A".into(), thrower: None, framework: None, catcher: Catcher::NoMethod };
            Exception {
                block: None,
                may_be_over: true,
                thrown: Some(Thrown { kind, message: Message::None, caller: None }),
            }
        };
        let mut state = State::default();
        // The outer one was thrown before, and has not been seen to end.
        state.thread(None).exceptions.extend([thrown(), thrown()]);
        state.end([thrown()]);
        let summary = Summary::of(state.rows(), &mut SourceLines::new(), 1.0, 10);
        let mut rows: Vec<_> = summary.kinds.iter().map(|row| (row.is_open, row.count)).collect();
        rows.sort_unstable();
        assert_eq!(rows, [(false, 2), (true, 1)]);
        assert!(summary.kinds.iter().all(|row| row.catcher.is_none()));
    }
}

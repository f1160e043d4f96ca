//! The async callers of stacks: who awaits the method that a thread has resumed, and who started it. Both are gone
//! from the thread's stack.
//!
//! Where the runtime tells of async operations (.NET 11), it does so after the fact, by a session (`session`): a stack
//! of async code waits until that has come (`held_stacks`); what it leaves open the IL tells (`il_calls`). Elsewhere a
//! probe of the profiler's own knows it at once (`probe`), in applications that start with it, and after an attach if it
//! may stay: it changes code, and a profiler that has done so cannot detach. What is to be done for that all the time is
//! done on a thread of the profiler (`work`). For one look at an application that hangs both are too late: the objects
//! of the async methods tell there (`standing`).

use std::sync::Arc;
use std::time::{Duration, Instant};

use corprof::args::EventPipeEvent;
use corprof::id::Inert;
use corprof::inlined_frames::InlinedMethod;
use corprof::prelude::*;
use corprof_async::MethodTable;
use corprof_export::STARTED_BY;
use corprof_profilers::settings::{SettingError, Settings};

use held_stacks::HeldStacks;
pub(crate) use held_stacks::method_at;
pub(crate) use later::{Later, LaterCallers};
pub(crate) use probe::Machine;
use probe::{AsyncProbe, ProbeCallers};
use session::Inbox;
pub(crate) use session::tells_operations;
pub(crate) use standing::StandingCallers;
pub(crate) use work::{AsyncWork, Joins};

use crate::own_frames::is_of_the_runtime;

mod held_stacks;
mod il_calls;
mod lateness;
mod later;
mod probe;
mod session;
mod standing;
mod work;

/// Why the callers are unknown after an attach to a runtime that does not tell.
const NOT_AFTER_ATTACH: &str = "this runtime does not tell of async operations, so that the application has to start \
                                with the profiler, or --async-probe has to be given";

/// How long a stack waits at most. Threads are asked each second for what they hold.
const LONGEST: Duration = Duration::from_secs(4);

/// The thread of a stack: the runtime's, on a thread of the system.
pub(crate) type ThreadKey = (Inert<ThreadId>, Option<u32>);

/// What a method is for async stacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Role {
    /// Any other.
    #[default]
    Other,
    /// `Continuation_Wrapper_N`, by which the runtime calls what it resumes.
    Wrapper(u8),
    /// Code of the runtime's between the two.
    Stub,
    /// `MoveNext` of a state machine, perhaps one of an async method.
    StateMachine,
    /// `MoveNext` of a box, by which the thread pool and completed methods have a suspended method go on.
    Box,
}

impl Role {
    /// That of the method with this name, spelt as in C#.
    pub(crate) fn of(name: &str) -> Self {
        const WRAPPER: &str = "System.Runtime.CompilerServices.AsyncProfiler.ContinuationWrapper.Continuation_Wrapper_";
        if let Some(rest) = name.strip_prefix(WRAPPER) {
            let digits = rest.split('(').next().unwrap_or_default();
            return digits.parse().map_or(Self::Other, Self::Wrapper);
        }
        if name.starts_with("<stub ") {
            return Self::Stub;
        }
        if MethodTable::resumes(name) {
            return Self::Box;
        }
        if name.ends_with(".MoveNext()") { Self::StateMachine } else { Self::Other }
    }
}

/// A frame of a stack.
#[derive(Debug, Clone)]
pub(crate) enum StackFrame {
    Managed(FunctionId, Role, TraceAddress),
    /// By its name.
    Native(Arc<str>, TraceAddress),
    /// A method that has no frame, as the compiler has put it into its caller.
    Inlined(Arc<InlinedMethod>, TraceAddress),
}

/// The address of a frame in a recording; 0 without one.
pub(crate) type TraceAddress = u64;

/// A stack that may have to wait for its callers, and what it is the stack of.
pub(crate) struct Waiting<T> {
    pub(crate) thread: ThreadKey,
    /// When the thread had this stack, by the clock of events.
    pub(crate) ticks: u64,
    /// The same by the clock of waits.
    pub(crate) at: Instant,
    /// The innermost first.
    pub(crate) frames: Box<[StackFrame]>,
    pub(crate) what: T,
}

impl StackFrame {
    /// That of a method with this name.
    pub(crate) fn of(function: FunctionId, name: &str) -> Self {
        Self::Managed(function, Role::of(name), 0)
    }
}

impl<T> Waiting<T> {
    /// Whether a resumed method may be on the stack.
    fn may_be_async(&self) -> bool {
        let is_async =
            |frame: &StackFrame| matches!(frame, StackFrame::Managed(_, Role::Wrapper(_) | Role::StateMachine, _));
        self.frames.iter().any(is_async)
    }

    /// Whether a state machine was resumed on the stack, where the runtime does not tell.
    fn is_resumed(&self) -> bool {
        self.frames.iter().any(|frame| matches!(frame, StackFrame::Managed(_, Role::Box, _)))
    }

    /// A stack that a thread had just now.
    pub(crate) fn new(thread: ThreadKey, ticks: u64, frames: Box<[StackFrame]>, what: T) -> Self {
        Self { thread, ticks, at: Instant::now(), frames, what }
    }

    /// Whether it may wait no longer.
    fn has_waited_long(&self) -> bool {
        self.at.elapsed() >= LONGEST
    }
}

/// A stack with its callers.
pub(crate) struct Joined<'a> {
    /// Its physical frames.
    pub(crate) physical: &'a [StackFrame],
    /// The methods that await these, the innermost first.
    pub(crate) awaiting: Vec<Caller>,
    /// The methods that started these.
    pub(crate) creators: Vec<Caller>,
}

impl<'a> Joined<'a> {
    /// Whether something is known that is not on the stack.
    pub(crate) fn has_callers(&self) -> bool {
        !self.awaiting.is_empty() || !self.creators.is_empty()
    }

    /// The names of the methods that are not on the stack, the innermost first, with [`STARTED_BY`] where it belongs.
    pub(crate) fn names(&self, cx: &InNoGc<'_>) -> Vec<Name> {
        let mut names: Vec<Name> = self.awaiting.iter().filter_map(|caller| caller.name(cx)).collect();
        if !self.creators.is_empty() {
            names.push(STARTED_BY.into());
        }
        names.extend(self.creators.iter().filter_map(|caller| caller.name(cx)));
        names
    }

    /// A stack as its thread has it.
    fn physical(frames: &'a [StackFrame]) -> Self {
        Self { physical: frames, awaiting: Vec::new(), creators: Vec::new() }
    }
}

/// The calling thread; none if the runtime does not know it.
pub(crate) fn this_thread(cx: &InNoGc<'_>) -> Option<ThreadKey> {
    let thread = cx.current_thread().ok()??;
    Some((thread.into(), cx.os_thread_id(thread).ok()))
}

/// A method that is not on the stack.
pub(crate) enum Caller {
    Function(FunctionId),
    Machine(Machine),
    /// Unknown code.
    Unknown,
}

impl Caller {
    /// Its name; none of the runtime's own.
    fn name(&self, cx: &InNoGc<'_>) -> Option<Name> {
        match self {
            Self::Function(function) => {
                let name = cx.names().csharp().function(*function);
                Some(name.clone()).filter(|name| !is_of_the_runtime(cx, *function, name))
            }
            Self::Machine(machine) => Some((*machine.name).into()),
            Self::Unknown => Some("[unknown code]".into()),
        }
    }
}

impl From<Option<FunctionId>> for Caller {
    fn from(function: Option<FunctionId>) -> Self {
        function.map_or(Self::Unknown, Self::Function)
    }
}

/// Which callers a resumed method is to have: the setting that ends in `_STACKS`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WantedCallers {
    /// Those on the stack of its thread.
    Physical,
    /// Those that await it.
    Awaiting,
    /// The same, and after an attach code may be changed for them.
    AwaitingByProbe,
}

impl WantedCallers {
    /// What is set for a profiler.
    pub(crate) fn read(settings: &Settings) -> Result<Self, SettingError> {
        let words = [("async", Self::Awaiting), ("probe", Self::AwaitingByProbe), ("physical", Self::Physical)];
        let setting = settings.profiler().stacks();
        setting.map_or(Ok(Self::Physical), |setting| settings.of(setting.variable).word(&words))
    }

    /// Whether these are those that await it.
    pub(crate) fn are_awaiting(self) -> bool {
        self != Self::Physical
    }

    /// The same where other hooks are set: a process has hooks of one kind.
    pub(crate) fn without_probe(self) -> Self {
        if self == Self::AwaitingByProbe { Self::Awaiting } else { self }
    }
}

/// What a profiler has by which it hears of async operations.
#[derive(Clone, Default)]
pub(crate) struct AsyncSource {
    /// Whether callers are wanted.
    is_wanted: bool,
    inbox: Arc<Inbox>,
    /// What finds async operations by itself.
    probe: Option<Arc<AsyncProbe>>,
    /// Why there is no probe.
    refused: Option<Arc<str>>,
}

impl AsyncSource {
    /// For a profiler that starts with the application, before it has other hooks or `MONITOR_JIT_COMPILATION`. Sets
    /// the hooks of the probe if they are allowed: a process has hooks of one kind.
    pub(crate) fn of_start(cx: &mut InInitialize<'_>, wanted: WantedCallers, may_hook: bool) -> Result<Self> {
        // The probe turns it on again.
        cx.remove_events(EventMask::MONITOR_JIT_COMPILATION)?;
        let is_wanted = wanted.are_awaiting();
        let installed = (is_wanted && may_hook).then(|| AsyncProbe::install(cx));
        let (probe, refused) = match installed {
            Some(Ok(probe)) => (Some(probe), None),
            Some(Err(error)) => (None, Some(error.to_string().into())),
            None => (None, None),
        };
        Ok(Self { is_wanted, inbox: Arc::default(), probe, refused })
    }

    /// For a profiler that is attached. With a probe it cannot detach any more: whoever asks for one has to know
    /// whether the runtime tells of operations.
    pub(crate) fn of_attach(cx: &mut InAttach<'_>, wanted: WantedCallers) -> Result<Self> {
        // The probe turns it on again.
        cx.remove_events(EventMask::MONITOR_JIT_COMPILATION)?;
        let (probe, refused) = if wanted == WantedCallers::AwaitingByProbe {
            match AsyncProbe::install_after_attach(cx) {
                Ok(probe) => (Some(probe), None),
                Err(error) => (None, Some(error.to_string().into())),
            }
        } else {
            (None, Some(NOT_AFTER_ATTACH.into()))
        };
        Ok(Self { is_wanted: wanted.are_awaiting(), inbox: Arc::default(), probe, refused })
    }

    /// Whether callers are wanted.
    pub(crate) fn is_wanted(&self) -> bool {
        self.is_wanted
    }

    /// Keeps an event, if it tells of async operations. To be called for each.
    pub(crate) fn take(&self, cx: &InNoGc<'_>, event: &EventPipeEvent<'_>) {
        if self.is_wanted {
            self.inbox.take(cx, event);
        }
    }

    /// To be called when a method is compiled: the probe finds out then what it cannot find out at other times.
    pub(crate) fn compiling(&self, cx: &mut InCallback<'_>) {
        if let Some(probe) = &self.probe {
            probe.learn_later(cx);
        }
    }
}

/// The callers of stacks, as far as they are known, and the stacks that wait for that.
pub(crate) struct Callers<T> {
    knower: Knower<T>,
    /// Why nobody knows them.
    refused: Option<Arc<str>>,
    /// How many stacks have lacked them for that.
    without: u64,
}

/// Who knows callers.
enum Knower<T> {
    Nobody,
    Runtime(Box<HeldStacks<T>>),
    Probe(ProbeCallers),
}

impl<T> Default for Callers<T> {
    fn default() -> Self {
        Self { knower: Knower::Nobody, refused: None, without: 0 }
    }
}

impl<T> Callers<T> {
    /// Adds a stack: `then` takes it with its callers, at once if they are known or nobody will know them, otherwise
    /// when it is settled.
    pub(crate) fn add(&mut self, cx: &InNoGc<'_>, stack: Waiting<T>, then: impl FnOnce(&Waiting<T>, &Joined<'_>)) {
        match &mut self.knower {
            Knower::Runtime(held) if held.holds(stack.thread) || stack.may_be_async() => held.push(stack),
            Knower::Probe(probe) => {
                let joined = probe.join(cx, &stack);
                then(&stack, &joined);
            }
            Knower::Runtime(_) => then(&stack, &Joined::physical(&stack.frames)),
            Knower::Nobody => {
                self.without += u64::from(stack.is_resumed());
                then(&stack, &Joined::physical(&stack.frames));
            }
        }
    }

    /// Has `then` take the waiting stacks whose time has come; all of them with `is_last`.
    pub(crate) fn settle(&mut self, cx: &InNoGc<'_>, is_last: bool, mut then: impl FnMut(&Waiting<T>, &Joined<'_>)) {
        let Knower::Runtime(held) = &mut self.knower else { return };
        held.take_buffers(cx);
        while let Some(stack) = held.next_due(is_last) {
            let can_wait = !is_last && !stack.has_waited_long();
            let Some(joined) = held.join(cx, &stack, can_wait) else {
                held.put_back(stack);
                break;
            };
            then(&stack, &joined);
        }
    }

    /// The time of the oldest stack that waits, in ticks.
    pub(crate) fn oldest(&self) -> Option<u64> {
        if let Knower::Runtime(held) = &self.knower { held.oldest() } else { None }
    }

    /// Whether stacks wait.
    pub(crate) fn is_waiting(&self) -> bool {
        matches!(&self.knower, Knower::Runtime(held) if held.is_waiting())
    }

    /// What a reader of the stacks should know.
    pub(crate) fn note(&self, cx: &InNoGc<'_>) -> Option<String> {
        match &self.knower {
            Knower::Runtime(held) => held.note(cx),
            Knower::Probe(probe) => probe.note(),
            Knower::Nobody if self.without == 0 => None,
            Knower::Nobody => {
                let why = self.refused.as_ref()?;
                Some(format!("Async callers are not known of {} stacks in resumed methods: {why}", self.without))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_of_async_stacks_are_known_by_their_names() {
        let wrapper = "System.Runtime.CompilerServices.AsyncProfiler.ContinuationWrapper.Continuation_Wrapper_";
        for (name, role) in [
            (format!("{wrapper}7(System.Runtime.CompilerServices.Continuation, ref byte)"), Role::Wrapper(7)),
            (format!("{wrapper}31"), Role::Wrapper(31)),
            (format!("{wrapper}x()"), Role::Other),
            ("Shop.Truth.<BurnAsync>d__5.MoveNext()".to_owned(), Role::StateMachine),
            ("Shop.Truth.MoveNext(int)".to_owned(), Role::Other),
            (
                "System.Runtime.CompilerServices.AsyncTaskMethodBuilder<long>.AsyncStateMachineBox<Shop.<Load>d__2>\
                 .MoveNext(System.Threading.Thread)"
                    .to_owned(),
                Role::Box,
            ),
            (
                "System.Runtime.CompilerServices.AsyncTaskMethodBuilder<int>.AsyncStateMachineBox<Shop.<Load>d__2>\
                 .ExecuteFromThreadPool(System.Threading.Thread)"
                    .to_owned(),
                Role::Box,
            ),
            (
                "System.Runtime.CompilerServices.AsyncTaskMethodBuilder<int>.AsyncStateMachineBox<Shop.<Load>d__2>\
                 .MoveNext()"
                    .to_owned(),
                Role::Box,
            ),
            (
                "System.Runtime.CompilerServices.AsyncTaskMethodBuilder<int>.AsyncStateMachineBox<Shop.<Load>d__2>\
                 .ExecutionContextCallback(object)"
                    .to_owned(),
                Role::Other,
            ),
            (
                "System.Runtime.CompilerServices.PoolingAsyncValueTaskMethodBuilder<int>.StateMachineBox<Shop.<Read>d__3>\
                 .MoveNext()"
                    .to_owned(),
                Role::Box,
            ),
            (
                "System.Runtime.CompilerServices.PoolingAsyncValueTaskMethodBuilder<int>.StateMachineBox<Shop.<Read>d__3>\
                 .System.Threading.IThreadPoolWorkItem.Execute()"
                    .to_owned(),
                Role::Box,
            ),
        ] {
            assert_eq!(Role::of(&name), role, "{name}");
        }
    }
}

//! What the thread of the instrumentation, the clients and the runtime's callbacks share.
//!
//! Nobody calls the runtime or the user's code while holding one of the locks, not even to drop an edit: callbacks take
//! them on application threads.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use crate::edit::CheckedBody;
use crate::error::Error;
use crate::id::{FunctionId, ModuleId, ReJitId};
use crate::lock::unpoisoned;
use crate::session::MethodKey as Key;
use crate::session::liveness::{Lifeline, Liveness};
use crate::session::profiler_threads::{self, ProfilerThreads};
use crate::suspension;

use super::outcome::{Preparation, State};
use super::queue::{Command, Queue};

pub(super) struct Shared {
    liveness: Arc<Liveness>,
    threads: Arc<ProfilerThreads>,
    queue: Mutex<Queue>,
    request_table: Mutex<RequestTable>,
    /// How long callbacks about loaded modules wait, in milliseconds.
    patience: AtomicU64,
}

/// What the runtime was asked for.
#[derive(Default)]
pub(super) struct RequestTable {
    /// The requests for each method, the newest last.
    requests: BTreeMap<Key, Vec<Request>>,
    /// The methods that nobody has asked for, and that were recompiled because an instrumented one was inlined into
    /// them.
    callers: BTreeMap<Key, Caller>,
    /// Counts the rounds of the thread.
    round: u64,
}

/// One request for one method.
struct Request {
    /// None: the body that the method was loaded with.
    body: Option<CheckedBody>,
    /// The clients whose edits the body has.
    states: Vec<Arc<State>>,
    is_asked: bool,
    /// The numbers of its code: several if the runtime asked for an earlier request when this one was already noted.
    rejits: Vec<ReJitId>,
}

/// A recompiled caller.
pub(super) struct Caller {
    pub(super) lifeline: Lifeline,
    /// The round in which it was last recompiled: a method that was requested later is not the reason.
    pub(super) round: u64,
}

/// How many requests of one method are remembered: code of older ones may still be compiled.
const REMEMBERED: usize = 4;

impl Shared {
    pub(super) fn new(liveness: Arc<Liveness>, threads: Arc<ProfilerThreads>) -> Self {
        let queue = Mutex::default();
        let request_table = Mutex::default();
        Self { liveness, threads, queue, request_table, patience: AtomicU64::new(0) }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        suspension::forbid("the queue of the instrumentation");
        unpoisoned(self.queue.lock())
    }

    pub(super) fn request_table(&self) -> MutexGuard<'_, RequestTable> {
        suspension::forbid("the requests of the instrumentation");
        unpoisoned(self.request_table.lock())
    }

    /// The lifeline of a module; none if it is gone.
    pub(super) fn lifeline(&self, module: ModuleId) -> Option<Lifeline> {
        Lifeline::to(&self.liveness, module, "Instrumentation::edit").ok()
    }

    /// Has those look again that wait for an outcome.
    pub(super) fn nudge(&self) {
        self.threads.nudge();
    }

    /// Queues commands. When the thread has ended, they are refused, and dropped here.
    pub(super) fn push(&self, commands: impl IntoIterator<Item = Command>) {
        // The user's iterator may be behind it.
        let commands: Vec<Command> = commands.into_iter().collect();
        let refused = {
            let mut queue = self.queue();
            if queue.is_closed {
                Some(commands)
            } else {
                queue.asked += commands.len() as u64;
                queue.commands.extend(commands);
                None
            }
        };
        match refused {
            Some(refused) => refused.iter().for_each(Command::stopped),
            None => self.nudge(),
        }
    }

    /// The next commands, when there are some; none when the thread should end.
    pub(super) fn take(&self) -> Option<Vec<Command>> {
        const LONG: Duration = Duration::from_secs(3600);
        loop {
            if self.threads.sleep_until(LONG, || !self.queue().commands.is_empty()) {
                return None;
            }
            let commands = std::mem::take(&mut self.queue().commands);
            if !commands.is_empty() {
                return Some(commands);
            }
        }
    }

    /// So many commands are done.
    pub(super) fn done(&self, count: u64) {
        self.queue().done += count;
        self.nudge();
    }

    /// The thread ends: later commands are refused. Returns those that are still queued.
    pub(super) fn close(&self) -> Vec<Command> {
        let rest = {
            let mut queue = self.queue();
            queue.is_closed = true;
            std::mem::take(&mut queue.commands)
        };
        self.nudge();
        rest
    }

    pub(super) fn set_patience(&self, longest: Duration) {
        let millis = u64::try_from(longest.as_millis()).unwrap_or(u64::MAX);
        self.patience.store(millis, Ordering::Relaxed);
    }

    /// Waits until all that was asked for so far is done, as long as [`set_patience`](Self::set_patience) says.
    pub(super) fn wait_at_module_load(&self) {
        let longest = Duration::from_millis(self.patience.load(Ordering::Relaxed));
        // The thread itself would wait for ever, and others of the profiler's may be what it waits for.
        if longest.is_zero() || profiler_threads::is_current() {
            return;
        }
        let _ = self.wait_until_done(longest);
    }

    /// Waits until all that was asked for so far is done, for `longest` at most.
    pub(super) fn wait_until_done(&self, longest: Duration) -> Preparation {
        let asked = self.queue().asked;
        self.threads.sleep_until(longest, || {
            let queue = self.queue();
            queue.done >= asked || queue.is_closed
        });
        let queue = self.queue();
        if queue.done >= asked {
            Preparation::Done
        } else if queue.is_closed || self.threads.is_stopping() {
            Preparation::Stopped
        } else {
            Preparation::TimedOut
        }
    }
}

impl RequestTable {
    /// Begins a round of the thread, and returns its number.
    pub(super) fn begin_round(&mut self) -> u64 {
        self.round += 1;
        self.round
    }

    /// Notes a request that is about to be made.
    pub(super) fn request(&mut self, key: Key, body: Option<CheckedBody>, states: Vec<Arc<State>>, now: Instant) {
        states.iter().for_each(|state| state.requested(now));
        self.callers.remove(&key);
        let requests = self.requests.entry(key).or_default();
        // The runtime has not asked for the last one yet, and will not: it asks once for both.
        requests.retain(|request| request.is_asked);
        if requests.len() >= REMEMBERED {
            requests.remove(0);
        }
        requests.push(Request { body, states, is_asked: false, rejits: Vec::new() });
    }

    /// The runtime asks for the body of a method. None: nobody has requested it. `Some(None)`: the method's own.
    pub(super) fn body(&mut self, key: Key) -> Option<Option<CheckedBody>> {
        let newest = self.requests.get_mut(&key)?.last_mut()?;
        newest.is_asked = true;
        newest.states.iter().for_each(|state| state.taken());
        Some(newest.body.clone())
    }

    /// A caller of an instrumented method is recompiled.
    pub(super) fn caller(&mut self, key: Key, lifeline: Lifeline) {
        let round = self.round;
        self.callers.insert(key, Caller { lifeline, round });
    }

    /// Takes the callers that were recompiled because of methods of which none is instrumented any more. `oldest` is
    /// the round of the oldest request that is still in effect.
    pub(super) fn take_callers(&mut self, oldest: Option<u64>) -> Vec<(Key, Lifeline)> {
        let mut free = Vec::new();
        self.callers.retain(|key, caller| {
            let is_kept = oldest.is_some_and(|oldest| caller.round >= oldest);
            if !is_kept {
                free.push((*key, caller.lifeline.clone()));
            }
            is_kept
        });
        free
    }

    /// The method is reverted.
    pub(super) fn reverted(&mut self, key: Key) {
        self.requests.remove(&key);
    }

    /// The clients whose edits are in the code with this number.
    pub(super) fn compiled(&mut self, key: Key, rejit: ReJitId) -> Vec<Arc<State>> {
        let Some(requests) = self.requests.get_mut(&key) else { return Vec::new() };
        if let Some(known) = requests.iter().find(|request| request.rejits.contains(&rejit)) {
            return known.states.clone();
        }
        // Numbers grow from request to request, and the runtime asks for the body before it compiles.
        let later = requests.iter().position(|request| request.rejits.iter().any(|known| *known > rejit));
        let until = later.unwrap_or(requests.len());
        let newest = requests.iter_mut().take(until).rev().find(|request| request.is_asked);
        newest.map_or_else(Vec::new, |request| {
            request.rejits.push(rejit);
            request.states.clone()
        })
    }

    /// The clients of the newest request.
    pub(super) fn clients(&self, key: Key) -> Vec<Arc<State>> {
        let newest = self.requests.get(&key).and_then(|requests| requests.last());
        newest.map_or_else(Vec::new, |newest| newest.states.clone())
    }

    /// The module goes: returns the clients of its methods.
    pub(super) fn module_gone(&mut self, module: usize) -> Vec<Arc<State>> {
        drop(take_module(&mut self.callers, module));
        let gone = take_module(&mut self.requests, module);
        gone.into_values().flatten().flat_map(|request| request.states).collect()
    }
}

/// Takes the methods of one module out of a map.
pub(super) fn take_module<V>(methods: &mut BTreeMap<Key, V>, module: usize) -> BTreeMap<Key, V> {
    let mut taken = methods.split_off(&(module, 0));
    if let Some(next) = module.checked_add(1) {
        methods.append(&mut taken.split_off(&(next, 0)));
    }
    taken
}

impl Shared {
    /// A function is about to be compiled from a requested body.
    pub(super) fn note_compiling(&self, key: Key, function: FunctionId, rejit: ReJitId) {
        let states = self.request_table().compiled(key, rejit);
        let failed = states.iter().filter(|state| state.compiling(function, rejit)).count();
        if failed > 0 {
            self.nudge();
        }
    }

    /// A function was compiled from a requested body, or the runtime says why not.
    pub(super) fn note_compiled(&self, key: Key, function: FunctionId, rejit: ReJitId, result: Result<(), Error>) {
        let states = self.request_table().compiled(key, rejit);
        states.iter().for_each(|state| state.compiled(function, rejit, result));
        if !states.is_empty() {
            self.nudge();
        }
    }
}

impl Command {
    /// The thread will not do it.
    pub(super) fn stopped(&self) {
        match self {
            Self::Edit(_, client) | Self::Replace(_, _, client) => client.state.stopped(),
            Self::Select(..) | Self::Leave(..) | Self::LeaveAll(..) | Self::ModuleLoaded(_) | Self::ModuleGone(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Outcome;
    use super::*;
    use crate::metadata::MethodDef;

    const KEY: Key = (8, 0x0600_0001);

    fn client() -> Arc<State> {
        Arc::new(State::new(ModuleId::from_raw(8).unwrap(), MethodDef::from_raw(KEY.1)))
    }

    fn request(request_table: &mut RequestTable) -> Arc<State> {
        let state = client();
        request_table.request(KEY, None, vec![Arc::clone(&state)], Instant::now());
        state
    }

    fn is_of(states: &[Arc<State>], state: &Arc<State>) -> bool {
        matches!(states, [only] if Arc::ptr_eq(only, state))
    }

    #[test]
    fn several_threads_may_wait_in_vain() {
        let shared = Shared::new(Arc::new(Liveness::of_runtime(u16::MAX - 2)), ProfilerThreads::new("Waits"));
        shared.push([Command::ModuleGone(8)]);
        let wait = |_| assert!(matches!(shared.wait_until_done(Duration::from_micros(1)), Preparation::TimedOut));
        std::thread::scope(|scope| {
            (0..3).for_each(|_| _ = scope.spawn(|| (0..3_000).for_each(wait)));
        });
    }

    #[test]
    fn code_belongs_to_the_request_that_it_was_compiled_for() {
        let mut request_table = RequestTable::default();
        assert!(request_table.body(KEY).is_none() && request_table.compiled(KEY, ReJitId(1)).is_empty());
        let first = request(&mut request_table);
        assert!(request_table.compiled(KEY, ReJitId(1)).is_empty(), "the runtime has not asked for the body");
        assert!(matches!(request_table.body(KEY), Some(None)));
        assert!(is_of(&request_table.compiled(KEY, ReJitId(1)), &first));
        let second = request(&mut request_table);
        assert!(is_of(&request_table.clients(KEY), &second));
        assert!(is_of(&request_table.compiled(KEY, ReJitId(1)), &first), "another tier of the first");
        request_table.body(KEY);
        assert!(is_of(&request_table.compiled(KEY, ReJitId(3)), &second));
        assert!(is_of(&request_table.compiled(KEY, ReJitId(2)), &first), "numbers grow");
        // Nobody called the method in between: the runtime asks for the newest body only.
        let third = request(&mut request_table);
        let fourth = request(&mut request_table);
        request_table.body(KEY);
        assert!(is_of(&request_table.compiled(KEY, ReJitId(4)), &fourth));
        assert!(matches!(third.outcome(), Outcome::Waiting { is_taken: false, .. }));
        assert!(matches!(fourth.outcome(), Outcome::Waiting { is_taken: true, .. }));
    }

    #[test]
    fn callers_are_free_when_no_older_request_is_in_effect() {
        let liveness = Arc::new(Liveness::of_runtime(0));
        let lifeline = Lifeline::to(&liveness, ModuleId::from_raw(8).unwrap(), "X").unwrap();
        let mut request_table = RequestTable::default();
        assert_eq!(request_table.begin_round(), 1);
        request_table.caller((8, 2), lifeline.clone());
        assert_eq!(request_table.begin_round(), 2);
        assert!(request_table.take_callers(Some(1)).is_empty(), "the method of round 1 may be the reason");
        let free: Vec<Key> = request_table.take_callers(Some(2)).into_iter().map(|(key, _)| key).collect();
        assert_eq!(free, [(8, 2)]);
        request_table.caller((8, 2), lifeline.clone());
        request_table.caller((9, 2), lifeline);
        assert!(request_table.module_gone(8).is_empty());
        assert_eq!(request_table.take_callers(None).len(), 1);
    }

    #[test]
    fn a_module_takes_its_methods_along_and_no_others() {
        let mut methods: BTreeMap<Key, ()> = [(7, 9), (8, 1), (8, u32::MAX), (9, 0)].map(|key| (key, ())).into();
        assert_eq!(take_module(&mut methods, 8).into_keys().collect::<Vec<_>>(), [(8, 1), (8, u32::MAX)]);
        assert_eq!(methods.into_keys().collect::<Vec<_>>(), [(7, 9), (9, 0)]);
    }
}

//! Finds requests.

use std::collections::{BTreeMap, HashMap, VecDeque};

use crate::frame::{Chain, Frame, Kind};
use crate::operation::{Operation, Run};
use crate::order::InOrder;
use crate::queue::{QueueStep, WorkQueue};
use crate::request::{Activity, ActivityKind, Call, Request, RequestLimits};
use crate::step::{Change, Step};
use crate::sub_event::DispatcherId;

/// The sources of activities of connections: `Experimental.System.Net.Http.Connections` and others.
const CONNECTIONS: &str = "Experimental.";

/// Something that waits for its turn.
#[derive(Debug)]
enum Item {
    Step(Step),
    Start { thread: u64, ticks: u64, activity: Activity },
    Stop { ticks: u64, activity: Activity },
    Queue(QueueStep),
}

/// A request that was not told yet.
#[derive(Debug)]
struct Open {
    request: Request,
    root: DispatcherId,
    /// The operations that were made for it and have not ended.
    running: usize,
    has_ended: bool,
    /// Whether the next end of a run of the root ends the request.
    is_ending: bool,
    /// The operations of iterators that go on by another number: their methods, and the indexes of the operations.
    renumbered: Vec<(u64, usize)>,
}

/// An operation that runs.
#[derive(Debug)]
struct Running {
    dispatcher: DispatcherId,
    kind: Kind,
    from: u64,
    chain: Option<Chain>,
    is_loop: bool,
}

/// Finds requests, by activities or by the operations that take them.
///
/// With activities: an activity of the kind [`Server`](ActivityKind::Server), or one that is not within another one, is
/// a request. It came to the operation that its thread ran when it began (of ASP.NET, the loop of the connection), and
/// what that makes until the activity ends is made for the request, with what these make. Where operations are not
/// told, before .NET 11, a request has the activities within it, by their spans.
///
/// Without: `is_loop` says by the methods of an operation whether it takes requests one after the other, such as those
/// of `HttpProtocol.ProcessRequests` of ASP.NET. A request begins with a run of it that makes operations, and ends with
/// its next run.
///
/// ```
/// use corprof_async::{LogicalStacks, RequestLimits, Requests};
///
/// # fn example(buffers: &[(corprof_async::Buffer<'_>, u64)]) {
/// // Activities would come by `start` and `stop`.
/// let mut requests = Requests::new(RequestLimits::default(), |_chain| false);
/// let mut stacks = LogicalStacks::new();
/// let mut print = |request: corprof_async::Request| {
///     let name = request.activity.as_ref().map_or("?", |activity| &activity.display_name);
///     println!("{name}: {} of {} ticks running", request.running(), request.to - request.from);
/// };
/// for (buffer, written) in buffers {
///     stacks.take_buffer(buffer, *written, |step| requests.step(step, &mut print));
/// }
/// requests.finish(&mut print);
/// # }
/// # example(&[]);
/// ```
pub struct Requests<F> {
    limits: RequestLimits,
    is_loop: F,
    items: InOrder<Item>,
    queue: WorkQueue,
    open: BTreeMap<u64, Open>,
    /// When requests ended, with those that were told.
    ended: VecDeque<(u64, u64)>,
    /// The requests that came to an operation and have not ended.
    roots: HashMap<DispatcherId, u64>,
    /// The requests that came to a thread that ran no operation.
    threads: HashMap<u64, u64>,
    /// The request that an operation was made for, and its index there.
    members: HashMap<DispatcherId, (u64, usize)>,
    /// The request of each span, and its index among the calls there.
    spans: HashMap<u64, (u64, Option<usize>)>,
    /// What each thread runs, the innermost last.
    running: HashMap<u64, Vec<Running>>,
    next: u64,
    left_out: u64,
    /// Whether operations are told.
    knows_operations: bool,
}

/// The part of [`RequestLimits::linger`], 50 ms, after which a thread that has made no operation for a request does
/// something else.
const LONG_PAUSE: u64 = 20;

/// The most operations that a thread is known to run inside of each other.
const DEPTH: usize = 64;

/// The most threads that run operations.
const THREADS: usize = 16_384;

impl<F: Fn(&[Frame]) -> bool> Requests<F> {
    /// Knows nothing yet.
    #[must_use]
    pub fn new(limits: RequestLimits, is_loop: F) -> Self {
        Self {
            limits,
            is_loop,
            items: InOrder::new(),
            queue: WorkQueue::default(),
            open: BTreeMap::new(),
            ended: VecDeque::new(),
            roots: HashMap::new(),
            threads: HashMap::new(),
            members: HashMap::new(),
            spans: HashMap::new(),
            running: HashMap::new(),
            next: 0,
            left_out: 0,
            knows_operations: false,
        }
    }

    /// Takes a step. `tell` receives requests.
    pub fn step(&mut self, step: Step, tell: impl FnMut(Request)) {
        self.items.push(step.ticks, Item::Step(step));
        self.advance(None, tell);
    }

    /// Takes the beginning of an activity on a thread. `tell` receives requests.
    pub fn start(&mut self, thread: u64, ticks: u64, activity: Activity, tell: impl FnMut(Request)) {
        self.items.push(ticks, Item::Start { thread, ticks, activity });
        self.advance(None, tell);
    }

    /// Takes the end of an activity, which is found by its span. `tell` receives requests.
    pub fn stop(&mut self, ticks: u64, activity: Activity, tell: impl FnMut(Request)) {
        self.items.push(ticks, Item::Stop { ticks, activity });
        self.advance(None, tell);
    }

    /// Work was put into the queue of the thread pool, by the number that the runtime gives it. `tell` receives
    /// requests.
    pub fn work_queued(&mut self, ticks: u64, work: u64, tell: impl FnMut(Request)) {
        self.items.push(ticks, Item::Queue(QueueStep::Queued { ticks, work }));
        self.advance(None, tell);
    }

    /// A thread took work from the queue of the thread pool. `tell` receives requests.
    pub fn work_taken(&mut self, ticks: u64, thread: u64, work: u64, tell: impl FnMut(Request)) {
        self.items.push(ticks, Item::Queue(QueueStep::Taken { ticks, thread, work }));
        self.advance(None, tell);
    }

    /// All steps and activities up to this time have come, as far as they will. `tell` receives the requests that have
    /// ended.
    pub fn release(&mut self, until: u64, tell: impl FnMut(Request)) {
        self.advance(Some(until), tell);
    }

    /// Tells all requests that have ended, also those with operations that have not.
    pub fn finish(&mut self, mut tell: impl FnMut(Request)) {
        self.advance(Some(u64::MAX), &mut tell);
        let ended: Vec<u64> = self.open.iter().filter(|(_, open)| open.has_ended).map(|(serial, _)| *serial).collect();
        for serial in ended {
            self.tell(serial, &mut tell);
        }
    }

    /// Tells the same after the application has ended by itself, when its threads had not told yet what they did last: a
    /// run without an end is known only up to when its thread told, which
    /// [`LogicalStacks::known_until`](crate::LogicalStacks::known_until) has.
    pub fn finish_cut_off(&mut self, known_until: impl Fn(u64) -> u64, mut tell: impl FnMut(Request)) {
        self.finish(|mut request| {
            for run in request.operations.iter_mut().flat_map(|operation| &mut operation.runs) {
                let known = known_until(run.thread).max(run.from);
                if run.to.is_none() && known < request.to {
                    run.unknown_from = Some(known);
                }
            }
            tell(request);
        });
    }

    /// How many requests have begun and have not been told.
    #[must_use]
    pub fn open(&self) -> usize {
        self.open.len()
    }

    /// When the requests began that have not ended, in ticks of the trace.
    pub fn unfinished(&self) -> impl Iterator<Item = u64> {
        self.open.values().filter(|open| !open.has_ended).map(|open| open.request.from)
    }

    /// How many requests were left out because there were too many.
    #[must_use]
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    fn advance(&mut self, until: Option<u64>, mut tell: impl FnMut(Request)) {
        while let Some(item) = self.items.pop(until, self.limits.steps) {
            let (ticks, touched) = match item {
                Item::Queue(step) => {
                    self.queue.take(step);
                    continue;
                }
                Item::Step(step) => (step.ticks, self.take(step)),
                Item::Start { thread, ticks, activity } => (ticks, self.begin_activity(thread, ticks, activity)),
                Item::Stop { ticks, activity } => (ticks, self.end_activity(ticks, activity)),
            };
            if let Some(serial) = touched {
                let is_due = self.open.get(&serial).is_some_and(|open| open.has_ended && open.running == 0);
                if is_due {
                    self.tell(serial, &mut tell);
                }
            }
            self.tell_oldest(ticks, &mut tell);
        }
    }

    /// Tells the requests that have ended long ago, and leaves out the oldest of too many.
    fn tell_oldest(&mut self, now: u64, tell: &mut impl FnMut(Request)) {
        let linger = self.limits.linger;
        while let Some((to, serial)) = self.ended.front().copied() {
            if to.saturating_add(linger) >= now {
                break;
            }
            self.ended.pop_front();
            self.tell(serial, tell);
        }
        while self.open.len() > self.limits.requests {
            let Some(serial) = self.open.keys().next().copied() else { return };
            self.left_out += 1;
            self.forget(serial);
        }
        if self.ended.len() > 2 * self.limits.requests {
            let open = &self.open;
            self.ended.retain(|(_, serial)| open.contains_key(serial));
        }
    }

    fn tell(&mut self, serial: u64, tell: &mut impl FnMut(Request)) {
        if let Some(open) = self.forget(serial) {
            tell(Request { is_whole: open.running == 0, ..open.request });
        }
    }

    /// Forgets a request with all that refers to it.
    fn forget(&mut self, serial: u64) -> Option<Open> {
        let open = self.open.remove(&serial)?;
        if self.roots.get(&open.root) == Some(&serial) {
            self.roots.remove(&open.root);
        }
        for operation in &open.request.operations {
            let is_its = self.members.get(&operation.dispatcher).is_some_and(|(of, _)| *of == serial);
            if is_its {
                self.members.remove(&operation.dispatcher);
            }
        }
        let calls = open.request.calls.iter().map(|call| &call.activity);
        for activity in calls.chain(&open.request.activity) {
            let is_its = self.spans.get(&activity.span_id).is_some_and(|(of, _)| *of == serial);
            if is_its {
                self.spans.remove(&activity.span_id);
            }
        }
        self.threads.retain(|_, of| *of != serial);
        Some(open)
    }

    /// Begins a request that came to an operation, or to none.
    fn begin(&mut self, root: Option<(u64, &Running)>, from: u64, activity: Option<Activity>) -> u64 {
        let serial = self.next;
        self.next += 1;
        let operation = root.map(|(thread, running)| {
            let run = Run::new(thread, from, running.chain.clone(), None);
            let Running { dispatcher, kind, .. } = *running;
            Operation { dispatcher, kind, parent: 0, created: from, place: None, runs: vec![run], completed: None }
        });
        let dispatcher = operation.as_ref().map_or(0, |operation| operation.dispatcher);
        let operations = operation.into_iter().collect();
        let calls = Vec::new();
        let request = Request { activity, from, to: from, operations, calls, is_whole: false, left_out: 0 };
        let open =
            Open { request, root: dispatcher, running: 0, has_ended: false, is_ending: false, renumbered: Vec::new() };
        self.open.insert(serial, open);
        if dispatcher != 0 {
            self.roots.insert(dispatcher, serial);
        }
        serial
    }

    /// A thread begins to run for a request outside of any operation: that is the first of the request, of number 0.
    fn run_of_thread(&mut self, serial: u64, thread: u64, from: u64) {
        let Some(open) = self.open.get_mut(&serial).filter(|_| self.knows_operations) else { return };
        let run = Run::new(thread, from, None, None);
        open.request.operations.push(Operation {
            dispatcher: 0,
            kind: Kind::Runtime,
            parent: 0,
            created: from,
            place: None,
            runs: vec![run],
            completed: None,
        });
    }

    /// What a thread ran for a request outside of any operation has gone on until now, unless it made its last operation
    /// long ago: then it does something else.
    fn extend_run_of_thread(open: &mut Open, ticks: u64, long: u64) {
        let of_thread = open.request.operations.first_mut().filter(|operation| operation.dispatcher == 0);
        let Some(run) = of_thread.and_then(|operation| operation.runs.last_mut()) else { return };
        if run.to.is_none_or(|to| ticks.saturating_sub(to) < long) {
            run.to = Some(ticks);
        }
    }

    fn end(&mut self, serial: u64, ticks: u64) {
        let Some(open) = self.open.get_mut(&serial) else { return };
        open.has_ended = true;
        open.request.to = ticks;
        self.ended.push_back((ticks, serial));
        if self.roots.get(&open.root) == Some(&serial) {
            self.roots.remove(&open.root);
        }
        self.threads.retain(|_, of| *of != serial);
    }

    fn begin_activity(&mut self, thread: u64, ticks: u64, activity: Activity) -> Option<u64> {
        let span = activity.span_id;
        let running = self.running.get_mut(&thread).and_then(|stack| stack.pop());
        let dispatcher = running.as_ref().map_or(0, |running| running.dispatcher);
        let by_span = self.spans.get(&activity.parent_span_id).map(|(serial, _)| *serial);
        // One that says that it is part of nothing may begin where another has ended: what goes on there was made in
        // that. Connections, which requests share, say so as well.
        let is_of_connection = activity.source.starts_with(CONNECTIONS);
        let is_root = span != 0 && activity.parent_span_id == 0 && !is_of_connection;
        // Where operations are not told, it is not known when the thread goes on with something else.
        let by_thread = || self.request_of(dispatcher, thread).filter(|_| self.knows_operations);
        let outer = if is_root { None } else { by_span.or_else(by_thread) };
        // It was made for requests that are not told.
        if is_of_connection && outer.is_none() {
            self.running.entry(thread).or_default().extend(running);
            return None;
        }
        let is_within = activity.kind != ActivityKind::Server && outer.is_some();
        if let (true, Some(serial)) = (is_within, outer) {
            self.begin_call(serial, ticks, activity);
            self.running.entry(thread).or_default().extend(running);
            return None;
        }
        let serial = self.begin(running.as_ref().map(|running| (thread, running)), ticks, Some(activity));
        if running.is_none() {
            self.run_of_thread(serial, thread, ticks);
            self.threads.insert(thread, serial);
        }
        if span != 0 {
            self.spans.insert(span, (serial, None));
        }
        self.running.entry(thread).or_default().extend(running);
        None
    }

    fn begin_call(&mut self, serial: u64, from: u64, activity: Activity) {
        let Some(open) = self.open.get_mut(&serial) else { return };
        if open.request.calls.len() >= self.limits.operations {
            open.request.left_out += 1;
            return;
        }
        if activity.span_id != 0 {
            self.spans.insert(activity.span_id, (serial, Some(open.request.calls.len())));
        }
        open.request.calls.push(Call { activity, from, to: None });
    }

    fn end_activity(&mut self, ticks: u64, activity: Activity) -> Option<u64> {
        let (serial, call) = *self.spans.get(&activity.span_id)?;
        let request = &mut self.open.get_mut(&serial)?.request;
        let Some(call) = call else {
            request.activity = Some(activity);
            self.end(serial, ticks);
            return Some(serial);
        };
        let call = request.calls.get_mut(call)?;
        call.activity = activity;
        call.to = Some(ticks);
        None
    }

    /// The request that an operation runs for; if it is 0, the one that the thread runs for.
    fn request_of(&self, dispatcher: DispatcherId, thread: u64) -> Option<u64> {
        if dispatcher == 0 {
            return self.threads.get(&thread).copied();
        }
        let root = self.roots.get(&dispatcher).copied();
        root.or_else(|| self.members.get(&dispatcher).map(|(serial, _)| *serial))
    }

    /// Answers with the request that may be over.
    fn take(&mut self, step: Step) -> Option<u64> {
        let Step { ticks, thread, dispatcher, kind, change } = step;
        self.knows_operations = true;
        match change {
            Change::Created { parent } => self.create(thread, ticks, dispatcher, kind, parent),
            Change::Resumed { chain } => self.resume(thread, ticks, dispatcher, kind, chain),
            Change::WaitsAt { chain } => {
                let operation = self.operation_mut(dispatcher)?;
                match operation.runs.last_mut() {
                    Some(run) => run.place = Some(chain),
                    None => operation.place = Some(chain),
                }
                None
            }
            Change::Suspended => self.pause(thread, ticks, dispatcher),
            Change::Completed => {
                if self.end_before_anew(thread, ticks, dispatcher).is_some() {
                    return None;
                }
                let ended = self.pause(thread, ticks, dispatcher);
                self.complete(ticks, dispatcher).or(ended)
            }
        }
    }

    /// The timeline of an operation, in the request that it runs for.
    fn operation_mut(&mut self, dispatcher: DispatcherId) -> Option<&mut Operation> {
        let root = self.roots.get(&dispatcher).map(|serial| (*serial, 0));
        let (serial, index) = root.or_else(|| self.members.get(&dispatcher).copied())?;
        self.open.get_mut(&serial)?.request.operations.get_mut(index)
    }

    fn create(
        &mut self,
        thread: u64,
        ticks: u64,
        dispatcher: DispatcherId,
        kind: Kind,
        parent: DispatcherId,
    ) -> Option<u64> {
        let ended = self.end_by_next(thread, ticks, parent);
        let outer = self.request_of(parent, thread).or_else(|| self.begin_of_loop(thread, parent));
        let open = outer.and_then(|serial| Some((serial, self.open.get_mut(&serial)?)));
        let Some((serial, open)) = open else { return ended };
        if parent == 0 {
            Self::extend_run_of_thread(open, ticks, self.limits.linger / LONG_PAUSE);
        }
        let index = open.request.operations.len();
        if index >= self.limits.operations {
            open.request.left_out += 1;
            return ended;
        }
        let runs = Vec::new();
        let operation = Operation { dispatcher, kind, parent, created: ticks, place: None, runs, completed: None };
        open.request.operations.push(operation);
        open.running += 1;
        let before = self.members.insert(dispatcher, (serial, index));
        // Its number comes again, so the one before has ended.
        let before = before.and_then(|(serial, _)| self.open.get_mut(&serial));
        if let Some(before) = before {
            before.running = before.running.saturating_sub(1);
        }
        ended
    }

    /// Ends a request whose loop makes an operation in the run that ends the request: it has taken the next one.
    /// Answers with the request.
    fn end_by_next(&mut self, thread: u64, ticks: u64, parent: DispatcherId) -> Option<u64> {
        let serial = *self.roots.get(&parent)?;
        if !self.open.get(&serial)?.is_ending {
            return None;
        }
        self.end(serial, ticks);
        let stack = self.running.get_mut(&thread)?;
        let running = stack.iter_mut().rfind(|running| running.dispatcher == parent)?;
        running.from = ticks;
        Some(serial)
    }

    /// Begins a request that came to a loop.
    fn begin_of_loop(&mut self, thread: u64, parent: DispatcherId) -> Option<u64> {
        let stack = self.running.get_mut(&thread)?;
        let at = stack.iter().rposition(|running| running.dispatcher == parent && running.is_loop)?;
        let running = stack.remove(at);
        let serial = self.begin(Some((thread, &running)), running.from, None);
        self.running.entry(thread).or_default().insert(at, running);
        Some(serial)
    }

    fn resume(
        &mut self,
        thread: u64,
        ticks: u64,
        dispatcher: DispatcherId,
        kind: Kind,
        chain: Option<Chain>,
    ) -> Option<u64> {
        self.adopt(thread, dispatcher);
        // What the thread ran for a request outside of operations is over. Where it has made operations, that was when it
        // made the last one.
        let over = self.threads.remove(&thread).and_then(|serial| self.open.get_mut(&serial));
        if let Some(open) = over.filter(|open| open.request.operations.len() == 1) {
            Self::extend_run_of_thread(open, ticks, self.limits.linger);
        }
        let is_loop = chain.as_ref().is_some_and(|chain| (self.is_loop)(chain));
        if let Some(open) = self.roots.get(&dispatcher).and_then(|serial| self.open.get_mut(serial)) {
            open.is_ending = open.request.activity.is_none();
        }
        let most = self.limits.operations;
        let queued = self.queue.of(thread);
        if let Some(operation) = self.operation_mut(dispatcher) {
            // A replay tells again what runs.
            let is_new = operation.runs.last().is_none_or(|run| run.to.is_some());
            if is_new && operation.runs.len() < most {
                operation.runs.push(Run::new(thread, ticks, chain.clone(), queued));
            }
        }
        if self.running.len() > THREADS {
            self.running.clear();
        }
        let stack = self.running.entry(thread).or_default();
        stack.retain(|running| running.dispatcher != dispatcher);
        if stack.len() < DEPTH {
            stack.push(Running { dispatcher, kind, from: ticks, chain, is_loop });
        }
        None
    }

    /// Ends a run. Answers with the request that ends with it.
    fn pause(&mut self, thread: u64, ticks: u64, dispatcher: DispatcherId) -> Option<u64> {
        if let Some(stack) = self.running.get_mut(&thread) {
            stack.retain(|running| running.dispatcher != dispatcher);
            if stack.is_empty() {
                self.running.remove(&thread);
            }
        }
        let run = self.operation_mut(dispatcher).and_then(|operation| operation.runs.last_mut());
        if let Some(run) = run {
            run.to.get_or_insert(ticks);
        }
        let serial = *self.roots.get(&dispatcher)?;
        if !self.open.get(&serial)?.is_ending {
            return None;
        }
        self.end(serial, ticks);
        Some(serial)
    }

    /// Ends the run of an iterator that was made anew in the meantime, as [`Waits`](crate::Waits) has it. It goes on by
    /// another number. Nothing if the operation was not made anew.
    fn end_before_anew(&mut self, thread: u64, ticks: u64, dispatcher: DispatcherId) -> Option<()> {
        let (serial, index) = *self.members.get(&dispatcher)?;
        let open = self.open.get_mut(&serial)?;
        let (earlier, anew) = open.request.operations.split_at_mut_checked(index)?;
        if !anew.first()?.runs.is_empty() {
            return None;
        }
        let earlier = earlier.iter_mut().rfind(|operation| operation.dispatcher == dispatcher)?;
        let run = earlier.runs.last_mut().filter(|run| run.to.is_none())?;
        run.to = Some(ticks);
        earlier.completed = Some(ticks);
        let method = run.chain.as_ref().and_then(|chain| chain.first())?.address;
        open.renumbered.push((method, index));
        self.members.remove(&dispatcher);
        if let Some(stack) = self.running.get_mut(&thread) {
            stack.retain(|running| running.dispatcher != dispatcher);
        }
        Some(())
    }

    /// An operation of a request is resumed on a thread. If what the thread runs until then is known to nobody and has
    /// the method of an iterator that this operation consumes, it is this iterator, and has yielded an element.
    fn adopt(&mut self, thread: u64, dispatcher: DispatcherId) -> Option<()> {
        let (serial, _) = *self.members.get(&dispatcher)?;
        let running = self.running.get(&thread)?.last()?;
        let number = running.dispatcher;
        if self.members.contains_key(&number) || self.roots.contains_key(&number) {
            return None;
        }
        let method = running.chain.as_ref().and_then(|chain| chain.first())?.address;
        let open = self.open.get_mut(&serial)?;
        let operations = &open.request.operations;
        let is_its = |index: usize| operations.get(index).is_some_and(|operation| operation.parent == dispatcher);
        let place = open.renumbered.iter().position(|(of, index)| *of == method && is_its(*index))?;
        let (_, index) = open.renumbered.remove(place);
        let operation = open.request.operations.get_mut(index)?;
        operation.dispatcher = number;
        let queued = self.queue.of(thread);
        operation.runs.push(Run::new(thread, running.from, running.chain.clone(), queued));
        self.members.insert(number, (serial, index));
        Some(())
    }

    /// Ends an operation. Answers with the request that it was made for.
    fn complete(&mut self, ticks: u64, dispatcher: DispatcherId) -> Option<u64> {
        if let Some(operation) = self.operation_mut(dispatcher) {
            operation.completed = Some(ticks);
        }
        let (serial, _) = self.members.remove(&dispatcher)?;
        let open = self.open.get_mut(&serial)?;
        open.running = open.running.saturating_sub(1);
        Some(serial)
    }
}

//! How long operations wait, and where.

use std::collections::{HashMap, VecDeque};

use crate::frame::{Chain, Kind};
use crate::oldest;
use crate::order::InOrder;
use crate::queue::{QueueStep, Queued, WorkQueue};
use crate::step::{Change, Step};
use crate::sub_event::DispatcherId;

/// An operation waited, from its creation or suspension until it was resumed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wait {
    /// The operation.
    pub dispatcher: DispatcherId,
    /// How its methods were compiled.
    pub kind: Kind,
    /// When it began to wait, in ticks of the trace.
    pub from: u64,
    /// When it was resumed.
    pub to: u64,
    /// Whether this is its first wait, from its creation on.
    pub is_first: bool,
    /// The system's number of the thread that resumed it.
    pub thread: u64,
    /// Where it waited: its methods, the innermost first. None if the source tells them neither at the beginning of the
    /// wait nor at its end.
    pub place: Option<Chain>,
    /// When the work that resumed it was in the queue of the thread pool, within the wait. None if it was not, or if
    /// that is not told.
    pub queued: Option<Queued>,
}

/// Makes waits of the [steps](Step) of all threads, which may come in any order.
///
/// It holds the steps until the caller [releases](Self::release) a time, because an operation is suspended on one
/// thread and resumed on another.
///
/// An async iterator is one object for all its elements. The run that yields an element resumes the consumer, which
/// asks for the next one: so the iterator is made anew, by its number, before that run ends. Then it goes on by another
/// number, which nothing announces. It is known by its method and by the consumer, which the thread resumes next; if it
/// resumes another one, of several iterators the one that has waited longest goes on. So its wait comes with the next
/// step of its thread.
///
/// ```
/// use corprof_async::{LogicalStacks, Waits};
///
/// # fn example(buffers: &[(corprof_async::Buffer<'_>, u64)]) {
/// let mut stacks = LogicalStacks::new();
/// let mut waits = Waits::new(1_000_000, 100_000);
/// let mut print = |wait: corprof_async::Wait| println!("{} ticks at {:?}", wait.to - wait.from, wait.place);
/// for (buffer, written) in buffers {
///     stacks.take_buffer(buffer, *written, |step| waits.push(step, &mut print));
/// }
/// waits.release(u64::MAX, &mut print);
/// # }
/// # example(&[]);
/// ```
#[derive(Debug)]
pub struct Waits {
    steps: InOrder<Item>,
    queue: WorkQueue,
    waiting: HashMap<DispatcherId, Waiting>,
    /// The methods of the operations that run.
    running: HashMap<DispatcherId, Method>,
    /// The waits of iterators that go on by another number, by their methods, the oldest first.
    renumbered: HashMap<Method, VecDeque<(DispatcherId, Waiting)>>,
    renumbered_count: usize,
    /// What each thread has resumed last, if nothing had announced its number.
    unannounced: HashMap<u64, (Method, Resumption)>,
    most_steps: usize,
    most_waiting: usize,
    forgotten: u64,
}

/// The address of the innermost method of an operation.
type Method = u64;

/// Something that waits for its turn.
#[derive(Debug)]
enum Item {
    Step(Step),
    Queue(QueueStep),
}

/// An operation that waits, or is about to.
#[derive(Debug, Default)]
struct Waiting {
    /// The time of its last step.
    last: u64,
    is_suspended: bool,
    /// The operation that made it, if it has not run since.
    maker: Option<DispatcherId>,
    place: Option<Chain>,
}

/// An operation is resumed.
#[derive(Debug)]
struct Resumption {
    dispatcher: DispatcherId,
    kind: Kind,
    ticks: u64,
    thread: u64,
    chain: Option<Chain>,
    queued: Option<Queued>,
}

impl Resumption {
    /// The wait that it ends.
    fn ends(self, waiting: Waiting) -> Option<Wait> {
        let Self { dispatcher, kind, ticks: to, thread, chain, queued } = self;
        let from = waiting.last;
        waiting.is_suspended.then(|| Wait {
            dispatcher,
            kind,
            from,
            to,
            is_first: waiting.maker.is_some(),
            thread,
            place: waiting.place.or(chain),
            queued: queued.and_then(|queued| queued.within(from, to)),
        })
    }
}

impl Waits {
    /// Holds at most `steps` that were not released, those of the thread pool among them, and `operations` that wait.
    /// Of more steps the oldest are used before their time, and of more operations those that have waited longest are
    /// forgotten.
    #[must_use]
    pub fn new(most_steps: usize, most_waiting: usize) -> Self {
        Self {
            steps: InOrder::new(),
            queue: WorkQueue::default(),
            waiting: HashMap::new(),
            running: HashMap::new(),
            renumbered: HashMap::new(),
            renumbered_count: 0,
            unannounced: HashMap::new(),
            most_steps,
            most_waiting,
            forgotten: 0,
        }
    }

    /// Takes a step. `wait` receives the waits that it has ended, if there are too many steps.
    pub fn push(&mut self, step: Step, mut wait: impl FnMut(Wait)) {
        self.steps.push(step.ticks, Item::Step(step));
        self.advance(None, &mut wait);
    }

    /// Work was put into the queue of the thread pool, by the number that the runtime gives it.
    pub fn work_queued(&mut self, ticks: u64, work: u64, mut wait: impl FnMut(Wait)) {
        self.steps.push(ticks, Item::Queue(QueueStep::Queued { ticks, work }));
        self.advance(None, &mut wait);
    }

    /// A thread took work from the queue of the thread pool.
    pub fn work_taken(&mut self, ticks: u64, thread: u64, work: u64, mut wait: impl FnMut(Wait)) {
        self.steps.push(ticks, Item::Queue(QueueStep::Taken { ticks, thread, work }));
        self.advance(None, &mut wait);
    }

    /// All steps up to this time have come, as far as they will. `wait` receives the waits that have ended by then, in
    /// order of their end.
    pub fn release(&mut self, until: u64, mut wait: impl FnMut(Wait)) {
        self.advance(Some(until), &mut wait);
        if until == u64::MAX {
            let threads: Vec<u64> = self.unannounced.keys().copied().collect();
            threads.into_iter().for_each(|thread| self.settle(thread, None, &mut wait));
        }
    }

    fn advance(&mut self, until: Option<u64>, wait: &mut impl FnMut(Wait)) {
        while let Some(item) = self.steps.pop(until, self.most_steps) {
            match item {
                Item::Step(step) => self.take(step, wait),
                Item::Queue(step) => self.queue.take(step),
            }
        }
    }

    /// How many operations were forgotten while they waited, because there were too many.
    #[must_use]
    pub fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// The operations that wait at the time of the last release: the operation, since when, and where.
    pub fn waiting(&self) -> impl Iterator<Item = (DispatcherId, u64, Option<&Chain>)> {
        let renumbered = self.renumbered.values().flatten().map(|(id, waiting)| (id, waiting));
        let waiting = self.waiting.iter().chain(renumbered).filter(|(_, waiting)| waiting.is_suspended);
        waiting.map(|(id, waiting)| (*id, waiting.last, waiting.place.as_ref()))
    }

    fn take(&mut self, step: Step, wait: &mut impl FnMut(Wait)) {
        let Step { ticks, thread, dispatcher, kind, change } = step;
        let resumed = matches!(change, Change::Resumed { .. }).then_some(dispatcher);
        self.settle(thread, resumed, wait);
        match change {
            Change::Created { parent } => self.begin(dispatcher, ticks, Some(parent)),
            Change::Suspended => {
                self.running.remove(&dispatcher);
                self.begin(dispatcher, ticks, None);
            }
            Change::WaitsAt { chain } => {
                let waiting = self.waiting.entry(dispatcher).or_default();
                waiting.last = ticks;
                waiting.place = Some(chain);
            }
            Change::Resumed { chain } => {
                let method = chain.as_ref().and_then(|chain| chain.first()).map(|frame| frame.address);
                self.runs(dispatcher, method);
                let resumption = Resumption { dispatcher, kind, ticks, thread, chain, queued: self.queue.of(thread) };
                match (self.waiting.remove(&dispatcher), method) {
                    (Some(waiting), _) => resumption.ends(waiting).into_iter().for_each(wait),
                    (None, Some(method)) if self.renumbered.contains_key(&method) => {
                        if self.unannounced.len() >= self.most_waiting {
                            self.unannounced.clear();
                        }
                        self.unannounced.insert(thread, (method, resumption));
                    }
                    (None, _) => {}
                }
            }
            Change::Completed => {
                let method = self.running.remove(&dispatcher);
                let waiting = self.waiting.remove(&dispatcher);
                if let (Some(method), Some(waiting)) = (method, waiting) {
                    self.renumbered.entry(method).or_default().push_back((dispatcher, waiting));
                    self.renumbered_count += 1;
                }
            }
        }
        self.forget();
    }

    /// An operation runs that has this method.
    fn runs(&mut self, dispatcher: DispatcherId, method: Option<Method>) {
        if self.running.len() >= self.most_waiting {
            self.running.clear();
        }
        if let Some(method) = method {
            self.running.insert(dispatcher, method);
        }
    }

    /// Ends the wait of the iterator that a thread has resumed, if it was one. `resumed` is what it resumes next.
    fn settle(&mut self, thread: u64, resumed: Option<DispatcherId>, wait: &mut impl FnMut(Wait)) {
        let Some((method, resumption)) = self.unannounced.remove(&thread) else { return };
        let waiting = self.take_renumbered(method, resumed);
        waiting.and_then(|waiting| resumption.ends(waiting)).into_iter().for_each(wait);
    }

    /// The wait of an iterator with this method that goes on by another number: that of this consumer, or else the
    /// oldest.
    fn take_renumbered(&mut self, method: Method, consumer: Option<DispatcherId>) -> Option<Waiting> {
        let waits = self.renumbered.get_mut(&method)?;
        let is_its = |waiting: &Waiting| consumer.is_some() && waiting.maker == consumer;
        let place = waits.iter().position(|(_, waiting)| is_its(waiting)).unwrap_or_default();
        let (_, waiting) = waits.remove(place)?;
        self.renumbered_count -= 1;
        if waits.is_empty() {
            self.renumbered.remove(&method);
        }
        Some(waiting)
    }

    fn begin(&mut self, dispatcher: DispatcherId, ticks: u64, maker: Option<DispatcherId>) {
        let waiting = self.waiting.entry(dispatcher).or_default();
        // The place of a suspension comes before it, at the same time; what is older is of an operation that had the
        // same number.
        if waiting.last != ticks || maker.is_some() {
            waiting.place = None;
        }
        waiting.last = ticks;
        waiting.is_suspended = true;
        waiting.maker = maker;
    }

    /// Forgets half of the operations if there are too many.
    fn forget(&mut self) {
        if self.renumbered_count > self.most_waiting {
            self.forgotten += self.renumbered_count as u64;
            self.renumbered_count = 0;
            self.renumbered.clear();
        }
        if self.waiting.len() > self.most_waiting {
            self.forgotten += oldest::forget_half(&mut self.waiting, |waiting| waiting.last) as u64;
        }
    }
}

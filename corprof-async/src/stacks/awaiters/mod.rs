//! Who goes on when an operation has ended, so awaited it: another operation, which its thread resumes then.
//!
//! A chain is told as far as methods of one kind await each other. Where a method of the other kind awaits the last of
//! them, or where several are awaited at once, the operation that goes on is another one. It is known only at the end.

mod starters;

use std::collections::BTreeMap;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::frame::{Chain, Frame};
use crate::oldest;
use crate::sub_event::DispatcherId;
use starters::Starter;

/// An operation that awaited another one.
#[derive(Debug, Clone)]
pub(super) struct Awaiter {
    pub(super) dispatcher: DispatcherId,
    /// Its methods when it went on.
    pub(super) chain: Chain,
}

/// What is known of operations, by their numbers. Threads tell in any order, so each fact may come first.
#[derive(Debug, Default)]
pub(super) struct Awaiters {
    operations: FxHashMap<DispatcherId, Operation>,
    /// Of operations that one has made in the same run and that have the same outermost method: who awaited one of
    /// them, as `Task.WhenAll` goes on when the last has ended.
    gathered: FxHashMap<(Maker, Address), Gathered>,
    /// The outermost methods of async iterators, each with the method that consumes its elements.
    consumers: FxHashSet<(Address, Address)>,
    /// By the operation and the time when it went on.
    runs: BTreeMap<(DispatcherId, u64), Run>,
    /// What waited at the end of the run in which operations were made, by the origin of these. Remembered before what
    /// tells it is forgotten.
    starters: FxHashMap<Origin, Vec<Starter>>,
    /// Places where methods have waited, each with the outermost method of an operation at whose end they went on.
    awaits: FxHashSet<(Place, Address)>,
    /// All threads have told what they did up to this time.
    pub(super) settled_until: u64,
}

/// Where a method waits: the address and the state of its frame.
type Place = (Address, i32);

/// A run of an operation.
#[derive(Debug, Default)]
struct Run {
    /// Its methods, of runtime async.
    chain: Option<Chain>,
    /// The last operations that were made in it, the last one last, with the times.
    made: Vec<(u64, DispatcherId)>,
    /// When it ended, of runtime async.
    end: Option<u64>,
}

/// The address of a method, the same at each await of a state machine.
type Address = u64;

/// A run of an operation, which makes others. Operation 0 stands for what runs without one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Maker {
    pub(super) dispatcher: DispatcherId,
    /// When the run began, if that is known. Of operation 0: when its thread has run an operation last.
    pub(super) began: Option<u64>,
}

/// When an operation was made, and by whom.
type Origin = (u64, Maker);

#[derive(Debug, Default)]
struct Operation {
    /// When it was made, and by whom.
    made: Option<Origin>,
    /// The same of the first operation that it goes on from: a state machine may be another one after each await. Each
    /// takes it from the one before, once both have run: a loop is a long way back.
    origin: Option<Origin>,
    /// Once it has run: its methods, one at least, and when it has done so first.
    ran: Option<(Chain, u64)>,
    end: Option<End>,
    awaiter: Option<Awaiter>,
    /// The last operation at whose end it went on.
    awaited: Option<DispatcherId>,
    /// The last operation that it has made, and when.
    child: Option<(u64, DispatcherId)>,
    /// The time of the last fact.
    last: u64,
}

impl Operation {
    /// Whether more may be told of it after this time, or be asked.
    fn is_needed(&self, until: u64) -> bool {
        self.end.is_none() || self.last > until
    }

    /// The outermost of its methods, once it has run.
    fn outermost(&self) -> Option<Address> {
        self.ran.as_ref().and_then(|(chain, _)| outermost(chain))
    }
}

#[derive(Debug, Clone, Copy)]
struct End {
    ticks: u64,
    /// Whether all its methods had ended. Otherwise they go on as another operation.
    is_whole: bool,
}

#[derive(Debug)]
struct Gathered {
    ticks: u64,
    /// The awaiter began to wait then, or later: it awaits what was made before and has ended since.
    since: u64,
    awaiter: Awaiter,
}

/// Who goes on after an operation.
enum Next<'a> {
    Awaiter(&'a Awaiter),
    /// That may still be told.
    Open,
    /// Nobody, or that is not told.
    Unknown,
}

/// How many operations a state machine is followed through.
const MOST_TURNS: usize = 256;

/// How many of the operations are remembered that were made in a run.
const MOST_MADE: usize = 16;

/// How many methods of iterators are remembered. A service has some dozens.
const MOST_CONSUMERS: usize = 4096;

/// How many places are remembered where methods wait. A service has some thousands.
const MOST_AWAITS: usize = 1 << 15;

/// Where the innermost method of a chain waits.
fn place(chain: &[Frame]) -> Option<Place> {
    chain.iter().find(|frame| frame.address != 0).map(|frame| (frame.address, frame.state))
}

/// The innermost method of a chain.
fn innermost(chain: &[Frame]) -> Option<Address> {
    place(chain).map(|(address, _)| address)
}

/// The outermost method of a chain.
fn outermost(chain: &[Frame]) -> Option<Address> {
    chain.iter().rfind(|frame| frame.address != 0).map(|frame| frame.address)
}

impl Awaiters {
    /// An operation was made. Of more than `most`, half are forgotten.
    pub(super) fn create(&mut self, ticks: u64, dispatcher: DispatcherId, maker: Maker, most: usize) {
        self.forget(most);
        if let Some(before) = self.operations.get_mut(&dispatcher)
            && before.made.is_some()
        {
            // Its number comes again.
            *before = Operation::default();
        }
        let operation = self.at(dispatcher, ticks);
        operation.made = Some((ticks, maker));
        if let Some(began) = maker.began {
            let run = self.runs.entry((maker.dispatcher, began)).or_default();
            if run.made.len() >= MOST_MADE {
                run.made.remove(0);
            }
            // Most runs make one, and there are ten thousands.
            if run.made.is_empty() {
                run.made.reserve_exact(1);
            }
            run.made.push((ticks, dispatcher));
        }
        if maker.dispatcher != 0 {
            let maker = self.at(maker.dispatcher, ticks);
            maker.child = maker.child.max(Some((ticks, dispatcher)));
        }
        self.take_origin(dispatcher);
        self.gather(dispatcher);
    }

    /// An operation runs that has these methods. Of more than `most`, half are forgotten.
    pub(super) fn run(&mut self, ticks: u64, dispatcher: DispatcherId, chain: &Chain, most: usize) {
        self.forget(most);
        if outermost(chain).is_none() {
            return;
        }
        let operation = self.at(dispatcher, ticks);
        let first = operation.ran.as_ref().map_or(ticks, |(_, first)| ticks.min(*first));
        operation.ran = Some((chain.clone(), first));
        self.take_origin(dispatcher);
    }

    /// An operation of runtime async went on at this time. A replay tells it again.
    pub(super) fn resume(&mut self, began: u64, dispatcher: DispatcherId, chain: &Chain) {
        let run = self.runs.entry((dispatcher, began)).or_default();
        run.chain.get_or_insert_with(|| chain.clone());
    }

    /// It waits again.
    pub(super) fn suspend(&mut self, began: u64, dispatcher: DispatcherId, ticks: u64) {
        if let Some(run) = self.runs.get_mut(&(dispatcher, began)) {
            run.end = Some(ticks);
        }
    }

    /// An operation has ended.
    pub(super) fn end(&mut self, ticks: u64, dispatcher: DispatcherId, is_whole: bool) {
        if let Some(operation) = self.operations.get_mut(&dispatcher) {
            operation.last = operation.last.max(ticks);
            operation.end = Some(End { ticks, is_whole });
        }
    }

    /// An operation went on because another one had ended.
    pub(super) fn went_on(&mut self, ticks: u64, awaited: DispatcherId, awaiter: Awaiter) {
        let dispatcher = awaiter.dispatcher;
        if let Some(operation) = self.operations.get_mut(&awaited) {
            if self.awaits.len() >= MOST_AWAITS {
                self.awaits.clear();
            }
            self.awaits.extend(place(&awaiter.chain).zip(operation.outermost()));
            operation.awaiter = Some(awaiter);
        }
        self.at(dispatcher, ticks).awaited = Some(awaited);
        self.gather(dispatcher);
    }

    /// Remembers who went on at the end of an operation for the others that were made in the same run of another one.
    /// That is who made them, or what was made after them in that run.
    fn gather(&mut self, dispatcher: DispatcherId) -> Option<()> {
        let operation = self.operations.get(&dispatcher)?;
        let awaited = self.operations.get(&operation.awaited?)?;
        let awaiter = awaited.awaiter.as_ref().filter(|awaiter| awaiter.dispatcher == dispatcher)?;
        // What runs without an operation has no end that the source tells.
        let (_, maker) = self.origin(awaited).filter(|(_, maker)| maker.began.is_some() && maker.dispatcher != 0)?;
        let ticks = operation.last;
        let since = if maker.dispatcher == dispatcher {
            self.last_made(maker)?.0
        } else {
            self.origin(operation).filter(|(_, other)| *other == maker)?.0
        };
        let gathered = Gathered { ticks, since, awaiter: awaiter.clone() };
        self.gathered.insert((maker, awaited.outermost()?), gathered);
        Some(())
    }

    /// An operation takes elements of an iterator: the one has resumed the other while it ran.
    pub(super) fn consumes(&mut self, consumer: &[Frame], iterator: &[Frame]) {
        if self.consumers.len() >= MOST_CONSUMERS {
            self.consumers.clear();
        }
        self.consumers.extend(outermost(iterator).zip(innermost(consumer)));
    }

    /// Whether an operation with one chain consumes elements of the iterator with the other.
    pub(super) fn is_consumer(&self, consumer: &[Frame], iterator: &[Frame]) -> bool {
        let methods = outermost(iterator).zip(innermost(consumer));
        methods.is_some_and(|methods| self.consumers.contains(&methods))
    }

    /// The operation that made another one.
    pub(super) fn parent(&self, dispatcher: DispatcherId) -> Option<DispatcherId> {
        let (_, maker) = self.operations.get(&dispatcher)?.made?;
        (maker.dispatcher != 0).then_some(maker.dispatcher)
    }

    /// Who awaited an operation, who awaited that, and so on.
    pub(super) fn of(&self, dispatcher: DispatcherId) -> impl Iterator<Item = &Awaiter> {
        let first = self.awaiter(dispatcher);
        std::iter::successors(first, |awaiter| self.awaiter(awaiter.dispatcher))
    }

    /// The operation that another one goes on from, as far as that is told.
    fn before(&self, operation: &Operation) -> Option<&Operation> {
        let (_, maker) = operation.made?;
        let before = self.operations.get(&maker.dispatcher)?;
        let method = before.outermost()?;
        (operation.outermost() == Some(method)).then_some(before)
    }

    /// Keeps where an operation comes from, if it goes on from another one.
    fn take_origin(&mut self, dispatcher: DispatcherId) {
        let operation = self.operations.get(&dispatcher).filter(|operation| operation.origin.is_none());
        let before = operation.and_then(|operation| self.before(operation));
        let origin = before.and_then(|before| self.origin(before));
        if let Some(operation) = self.operations.get_mut(&dispatcher).filter(|_| origin.is_some()) {
            operation.origin = origin;
        }
    }

    /// When an operation was made, or the first one of those that go on from each other up to it, and by whom.
    fn origin(&self, operation: &Operation) -> Option<Origin> {
        let mut first = operation;
        for _ in 0..MOST_TURNS {
            let Some(before) = self.before(first).filter(|_| first.origin.is_none()) else { break };
            first = before;
        }
        first.origin.or(first.made)
    }

    /// The last operations that were made in a run, with the times.
    fn made_in(&self, run: Maker) -> &[(u64, DispatcherId)] {
        let run = run.began.and_then(|began| self.runs.get(&(run.dispatcher, began)));
        run.map(|run| run.made.as_slice()).unwrap_or_default()
    }

    /// The last operation that was made in a run, and when.
    fn last_made(&self, run: Maker) -> Option<(u64, DispatcherId)> {
        self.made_in(run).last().copied()
    }

    /// When an operation of runtime async went on after a run, and its methods then.
    fn next_run(&self, run: Maker) -> Option<(u64, &Chain)> {
        let after = run.began?.checked_add(1)?;
        let ((_, ticks), next) = self.runs.range((run.dispatcher, after)..=(run.dispatcher, u64::MAX)).next()?;
        Some((*ticks, next.chain.as_ref()?))
    }

    /// Whether an operation has neither ended nor gone on after a run.
    fn waits(&self, run: Maker) -> bool {
        let has_ended = self.operations.get(&run.dispatcher).is_none_or(|maker| maker.end.is_some());
        !has_ended && run.began.is_some() && self.next_run(run).is_none()
    }

    /// Whether it is certain when an operation went on after a run: until all threads have told, another one may have
    /// run it before.
    fn is_certain(&self, run: Maker) -> bool {
        self.next_run(run).is_none_or(|(ticks, _)| ticks <= self.settled_until)
    }

    /// Whether more may be told of who awaited an operation: it, or one that awaited it, has not ended, or it is not told
    /// yet who made it. What began before `since`, or before the source began to tell, is taken for one that does not
    /// end, and nobody needs the end of what has made the operation.
    pub(super) fn is_open(&self, dispatcher: DispatcherId, since: u64, most_awaiters: usize) -> bool {
        let mut next = dispatcher;
        for _ in 0..most_awaiters {
            let Some(operation) = self.operations.get(&next) else { return false };
            let Some((began, _)) = self.origin(operation) else {
                // It was made before it has run.
                return operation.ran.as_ref().is_some_and(|(_, first)| *first > self.settled_until);
            };
            if began < since {
                return false;
            }
            match self.next(next) {
                Next::Awaiter(awaiter) if self.has_made(awaiter.dispatcher, dispatcher) => return false,
                Next::Awaiter(awaiter) => next = awaiter.dispatcher,
                Next::Open => return true,
                Next::Unknown => return false,
            }
        }
        false
    }

    /// All threads have told what they did up to this time.
    pub(super) fn settle_all(&mut self, until: u64) {
        self.settled_until = self.settled_until.max(until);
    }

    /// All up to this time has come.
    pub(super) fn release(&mut self, until: u64) {
        let needed = self.remember_origins(until);
        self.runs.retain(|run, _| run.1 > until || needed.contains(run));
        oldest::forget(&mut self.operations, |_, operation| operation.is_needed(until));
        self.gathered.retain(|_, gathered| gathered.ticks > until);
    }

    fn at(&mut self, dispatcher: DispatcherId, ticks: u64) -> &mut Operation {
        let operation = self.operations.entry(dispatcher).or_default();
        operation.last = operation.last.max(ticks);
        operation
    }

    fn awaiter(&self, dispatcher: DispatcherId) -> Option<&Awaiter> {
        if let Next::Awaiter(awaiter) = self.next(dispatcher) { Some(awaiter) } else { None }
    }

    /// Whether an operation has made another one, or one that has made that.
    fn has_made(&self, maker: DispatcherId, made: DispatcherId) -> bool {
        let parents = std::iter::successors(self.parent(made), |parent| self.parent(*parent));
        parents.take(MOST_TURNS).any(|parent| parent == maker)
    }

    fn next(&self, dispatcher: DispatcherId) -> Next<'_> {
        let mut operation = self.operations.get(&dispatcher);
        for _ in 0..MOST_TURNS {
            let Some(known) = operation else { return Next::Unknown };
            if let Some(awaiter) = &known.awaiter {
                return Next::Awaiter(awaiter);
            }
            let Some(end) = known.end else { return Next::Open };
            if end.is_whole {
                return self.gathered(known, end.ticks);
            }
            // What it goes on as is made last: what its methods call is made before they wait.
            let turn = known.child.and_then(|(_, child)| self.operations.get(&child));
            let Some(turn) = turn else { return Next::Unknown };
            if turn.ran.is_none() {
                return Next::Open;
            }
            operation = Some(turn).filter(|turn| turn.outermost() == known.outermost());
        }
        Next::Unknown
    }

    /// Who goes on after an operation whose end resumed nobody: perhaps who awaits several at once.
    fn gathered(&self, ended: &Operation, end: u64) -> Next<'_> {
        let (Some((made, maker)), Some(method)) = (self.origin(ended), ended.outermost()) else { return Next::Unknown };
        if let Some(gathered) = self.gathered.get(&(maker, method))
            && (made..end).contains(&gathered.since)
        {
            return Next::Awaiter(&gathered.awaiter);
        }
        let last = self.last_made(maker).filter(|(ticks, _)| *ticks > made);
        let last = last.and_then(|(_, dispatcher)| self.operations.get(&dispatcher));
        let has_gone_on =
            self.next_run(maker).is_some() || maker.dispatcher == 0 && last.is_some_and(|last| last.ran.is_some());
        let may_be_awaited = last.is_some() && !has_gone_on;
        if may_be_awaited || self.waits(maker) || !self.is_certain(maker) { Next::Open } else { Next::Unknown }
    }

    /// Forgets half of the operations if there are too many.
    fn forget(&mut self, most: usize) {
        if self.gathered.len() > most {
            self.gathered.clear();
        }
        if self.runs.len() > most {
            self.runs.clear();
        }
        if self.operations.len() > most {
            oldest::forget_half(&mut self.operations, |operation| operation.last);
        }
    }
}

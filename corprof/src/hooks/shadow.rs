//! [`ShadowStack`]: the functions that are running on a thread, kept by its hooks.
//!
//! A function that an exception leaves does not leave by a hook. But every hook knows the stack pointer of the function's
//! caller, and stacks grow downward: what is running lies above what it calls. So an entry at or below the function that
//! now begins, or below the one that now ends, is of a function that is gone, whoever ended it. That is all the shadow
//! stack needs between hooks, and it asks nothing of the runtime, whose versions tell of exceptions in different ways.
//!
//! It is not enough while an exception is handled. Finally and catch blocks run on top of the frames that the exception has
//! left, which stay in memory until the last of them is done; and a function without hooks that has caught one may call
//! deeper down than what it has lost. For those moments there is [`FunctionHooks::unwound`](super::FunctionHooks::unwound),
//! of which the runtime does not know enough in one case: blocks of dynamic methods, which it does not tell of.

use super::{InHook, StackBoundary};
use crate::adapter::apart;

/// How many entries a stack has room for from the start: more than most threads ever need, so their hooks do not allocate.
const AT_FIRST: usize = 1024;

/// How many there are at most, unless it is asked for another number: more frames than a stack of 8 MiB commonly holds.
const MOST: usize = 1 << 17;

/// The hooked functions that are running on a thread, with something of the user's for each.
///
/// It belongs into [`FunctionHooks::Thread`](super::FunctionHooks::Thread), and is told of every hook:
///
/// ```
/// use corprof::hooks::{ShadowStack, StackBoundary};
/// use corprof::prelude::*;
///
/// struct Deepest;
///
/// #[derive(Default)]
/// struct Thread {
///     stack: ShadowStack<Name>,
///     most: usize,
/// }
///
/// impl FunctionHooks for Deepest {
///     type Function = Name;
///     type Thread = Thread;
///     const UNWINDS: bool = true;
///
///     fn select(&self, cx: &mut InTriggers<'_>, function: FunctionId) -> Hook<Name> {
///         Hook::Yes(cx.names().function(function))
///     }
///     fn thread_started(&self) -> Thread {
///         Thread::default()
///     }
///     fn enter(&self, cx: &InHook<'_>, thread: &mut Thread, function: &Name) {
///         thread.stack.enter(cx, function.clone(), drop);
///         thread.most = thread.most.max(thread.stack.depth());
///     }
///     fn leave(&self, cx: &InHook<'_>, thread: &mut Thread, _function: &Name) {
///         thread.stack.leave(cx, drop);
///     }
///     fn tailcall(&self, cx: &InHook<'_>, thread: &mut Thread, _function: &Name) {
///         thread.stack.leave(cx, drop);
///     }
///     fn unwound(&self, thread: &mut Thread, boundary: StackBoundary) {
///         thread.stack.unwound(boundary, drop);
///     }
/// }
/// ```
///
/// Each of these methods takes a closure for the entries that it finds to be gone without a hook of their own, the innermost
/// first: those of functions that an exception has left. Who does not care passes `drop`.
///
/// It holds at most as many entries as it was [made for](Self::with_bound); calls that are deeper are not entered, and
/// [counted](Self::lost).
///
/// # Where it is not right
///
/// While a finally block of a dynamic method runs because of an exception, and in what that calls: the runtime tells nobody of
/// blocks of methods without metadata, so what the exception has left is still on the stack. The next hook above it, or the
/// next block that the runtime tells of, sets it right. While a filter runs nothing has been left yet: what the filter calls is
/// entered below what threw.
#[derive(Debug)]
pub struct ShadowStack<F> {
    entries: Vec<Entry<F>>,
    bound: usize,
    lost: u64,
}

#[derive(Debug)]
struct Entry<F> {
    /// Its caller's. Entries further on have lower ones.
    stack_pointer: usize,
    frame: F,
}

impl<F> Default for ShadowStack<F> {
    fn default() -> Self {
        Self::new()
    }
}

impl<F> ShadowStack<F> {
    /// An empty stack of at most 131,072 entries.
    ///
    /// The first 1024 have their room at once; when they do not suffice a hook doubles it.
    pub fn new() -> Self {
        Self::with_bound(MOST)
    }

    /// An empty stack of at most so many entries. Each takes the size of an `F` and of a pointer.
    pub fn with_bound(bound: usize) -> Self {
        Self { entries: Vec::with_capacity(bound.min(AT_FIRST)), bound, lost: 0 }
    }

    /// A function begins: to be called by [`enter`](super::FunctionHooks::enter).
    ///
    /// `left` gets what is found to be gone.
    #[inline]
    pub fn enter(&mut self, cx: &InHook<'_>, frame: F, left: impl FnMut(F)) {
        self.enter_at(cx.stack_pointer(), frame, left);
    }

    /// A function ends: to be called by [`leave`](super::FunctionHooks::leave) and by
    /// [`tailcall`](super::FunctionHooks::tailcall).
    ///
    /// The answer is what its `enter` put there; none if it was too deep to be entered. `left` gets what is found to be gone.
    #[inline]
    pub fn leave(&mut self, cx: &InHook<'_>, left: impl FnMut(F)) -> Option<F> {
        self.leave_at(cx.stack_pointer(), left)
    }

    /// An exception has left functions: to be called by [`unwound`](super::FunctionHooks::unwound), or with what
    /// [`stack_boundary`](crate::InCallback::stack_boundary) answers.
    ///
    /// `left` gets those of them that are on the stack.
    #[inline]
    pub fn unwound(&mut self, boundary: StackBoundary, left: impl FnMut(F)) {
        self.cut(move |stack_pointer| boundary.is_gone(stack_pointer), left);
    }

    /// What is running, the outermost function first.
    pub fn frames(&self) -> impl DoubleEndedIterator<Item = &F> + ExactSizeIterator {
        self.entries.iter().map(|entry| &entry.frame)
    }

    /// As [`frames`](Self::frames), to change what is kept.
    pub fn frames_mut(&mut self) -> impl DoubleEndedIterator<Item = &mut F> + ExactSizeIterator {
        self.entries.iter_mut().map(|entry| &mut entry.frame)
    }

    /// The innermost function.
    #[inline]
    pub fn top(&self) -> Option<&F> {
        self.entries.last().map(|entry| &entry.frame)
    }

    /// As [`top`](Self::top), to change what is kept.
    #[inline]
    pub fn top_mut(&mut self) -> Option<&mut F> {
        self.entries.last_mut().map(|entry| &mut entry.frame)
    }

    /// How many there are.
    #[inline]
    pub fn depth(&self) -> usize {
        self.entries.len()
    }

    /// How many calls were not entered: beyond the bound, or for want of memory.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// As [`enter`](Self::enter).
    #[inline]
    pub(super) fn enter_at(&mut self, stack_pointer: usize, frame: F, left: impl FnMut(F)) {
        // At the same place as well: a function that it takes the place of.
        self.cut(move |entered| entered <= stack_pointer, left);
        let entry = Entry { stack_pointer, frame };
        if self.entries.len() < self.entries.capacity() {
            self.entries.push(entry);
        } else {
            self.push_growing(entry);
        }
    }

    /// As [`leave`](Self::leave).
    #[inline]
    pub(super) fn leave_at(&mut self, stack_pointer: usize, left: impl FnMut(F)) -> Option<F> {
        if self.entries.last().is_some_and(|entry| entry.stack_pointer == stack_pointer) {
            return self.entries.pop().map(|entry| entry.frame);
        }
        // What is rare is kept apart, so that the usual case saves no registers for it.
        apart(move || {
            self.cut(move |entered| entered < stack_pointer, left);
            self.entries.pop_if(|entry| entry.stack_pointer == stack_pointer).map(|entry| entry.frame)
        })
    }

    /// Takes off what is gone, as its stack pointer tells.
    #[inline]
    fn cut(&mut self, is_gone: impl Fn(usize) -> bool, mut left: impl FnMut(F)) {
        if self.entries.last().is_some_and(|entry| is_gone(entry.stack_pointer)) {
            apart(move || {
                while let Some(entry) = self.entries.pop_if(|entry| is_gone(entry.stack_pointer)) {
                    left(entry.frame);
                }
            });
        }
    }

    /// Makes room for one more, if there may be.
    #[cold]
    #[inline(never)]
    fn push_growing(&mut self, entry: Entry<F>) {
        let room = self.entries.capacity();
        let more = room.max(AT_FIRST).min(self.bound.saturating_sub(room));
        if more > 0 && self.entries.try_reserve_exact(more).is_ok() {
            self.entries.push(entry);
        } else {
            self.lost += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is running, outermost first.
    fn names(stack: &ShadowStack<char>) -> String {
        stack.frames().collect()
    }

    /// A stack of these functions, each 0x10 below its caller, the first at 0x1000.
    fn nested(functions: &str) -> ShadowStack<char> {
        let mut stack = ShadowStack::new();
        for (depth, function) in functions.chars().enumerate() {
            stack.enter_at(0x1000 - 0x10 * depth, function, |_| panic!("nothing is gone"));
        }
        stack
    }

    #[test]
    fn calls_that_nest_come_back_in_order() {
        let mut stack = nested("abc");
        assert_eq!((names(&stack).as_str(), stack.depth()), ("abc", 3));
        for (stack_pointer, function) in [(0xfe0, 'c'), (0xff0, 'b'), (0x1000, 'a')] {
            assert_eq!(stack.leave_at(stack_pointer, |_| panic!("nothing is gone")), Some(function));
        }
        assert_eq!(stack.depth(), 0);
    }

    #[test]
    fn what_an_exception_left_is_found_by_the_next_hook() {
        let mut left = String::new();
        let mut stack = nested("abcd");
        // `b` has caught, and calls `e` from where it called `c`.
        stack.enter_at(0xfe0, 'e', |frame| left.push(frame));
        assert_eq!((names(&stack).as_str(), left.as_str()), ("abe", "dc"));
        // `a` has caught, and returns.
        assert_eq!(stack.leave_at(0x1000, |frame| left.push(frame)), Some('a'));
        assert_eq!((names(&stack).as_str(), left.as_str()), ("", "dceb"));
    }

    #[test]
    fn a_tail_call_takes_the_place_of_its_caller() {
        let mut stack = nested("ab");
        assert_eq!(stack.leave_at(0xff0, |_| panic!("nothing is gone")), Some('b'));
        stack.enter_at(0xff0, 'c', |_| panic!("nothing is gone"));
        assert_eq!(names(&stack), "ac");
        // The same, should nobody have said that `c` ends so.
        stack.enter_at(0xff0, 'd', drop);
        assert_eq!(names(&stack), "ad");
    }

    #[test]
    fn a_boundary_takes_off_what_lies_below() {
        let mut left = String::new();
        let mut stack = nested("abcd");
        // The handler runs deeper than all of them.
        stack.unwound(StackBoundary(0xfe1), |frame| left.push(frame));
        assert_eq!((names(&stack).as_str(), left.as_str()), ("ab", "dc"));
        stack.enter_at(0x500, 'h', |_| panic!("nothing is gone"));
        assert_eq!(names(&stack), "abh");
        stack.unwound(StackBoundary(0), |_| panic!("nothing is gone"));
    }

    #[test]
    fn calls_beyond_the_bound_are_counted_and_those_before_stay_right() {
        let mut stack = ShadowStack::with_bound(2);
        for depth in 0..5 {
            stack.enter_at(0x1000 - 0x10 * depth, depth, |_| panic!("nothing is gone"));
        }
        assert_eq!((stack.depth(), stack.lost()), (2, 3));
        for depth in (2..5).rev() {
            assert_eq!(stack.leave_at(0x1000 - 0x10 * depth, |_| panic!("nothing is gone")), None);
        }
        assert_eq!(stack.leave_at(0xff0, drop), Some(1));
        stack.enter_at(0xff0, 7, drop);
        assert_eq!(stack.frames().copied().collect::<Vec<_>>(), [0, 7]);
    }

    #[test]
    fn room_is_made_as_it_is_needed() {
        let mut stack = ShadowStack::with_bound(5000);
        for depth in 0..6000 {
            stack.enter_at(0x10_0000 - 0x10 * depth, depth, drop);
        }
        assert_eq!((stack.depth(), stack.lost()), (5000, 1000));
    }
}

//! [`ShadowStack`]: the functions that run on a thread, tracked by its hooks.
//!
//! A function that an exception unwinds ends without a hook. But every hook knows the stack pointer of the function's
//! caller, and stacks grow downward: a running function lies above the functions that it calls. So an entry at or below
//! the function that now begins, or below the one that now ends, belongs to a function that is gone, however it ended.
//! Between hooks the shadow stack needs no more than that, and it needs nothing from the runtime, whose versions report
//! exceptions in different ways.
//!
//! It is not enough while an exception is handled. Finally and catch blocks run on top of the frames that the exception
//! has unwound, which stay in memory until the last of the blocks is done; and a function without hooks that has caught
//! an exception may call from deeper down than the calls it has lost. For those moments there is
//! [`FunctionHooks::unwound`](crate::hooks::FunctionHooks::unwound). The runtime does not report blocks of dynamic
//! methods, so one case remains.

use std::fmt;
use std::mem::MaybeUninit;
use std::slice;

use super::cold_call::cold_call;
use crate::hooks::{InHook, StackBoundary};

/// The initial capacity of a stack: more than most threads ever need, so their hooks do not allocate.
const AT_FIRST: usize = 1024;

/// The default limit on entries: more frames than a stack of 8 MiB commonly holds.
const MOST: usize = 1 << 17;

/// The hooked functions that are running on a thread, with a value of the user's for each.
///
/// Keep it in [`FunctionHooks::Thread`](crate::hooks::FunctionHooks::Thread), and call it in every hook:
///
/// ```
/// use corprof::calls::ShadowStack;
/// use corprof::hooks::StackBoundary;
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
///     fn select(&self, cx: &mut InCallback<'_>, function: FunctionId) -> Hook<Name> {
///         Hook::Inlinable(cx.names().function(function))
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
/// Each of these methods takes a closure that receives the entries found to be gone without a hook of their own, the
/// innermost first: functions that an exception has unwound. Pass `drop` to ignore them.
///
/// It holds at most as many entries as its [bound](Self::with_bound); deeper calls are not entered, but
/// [counted](Self::lost).
///
/// # Where it is wrong
///
/// While a finally block of a dynamic method runs because of an exception, and in functions that the block calls: the
/// runtime does not report blocks of methods without metadata, so the unwound functions are still on the stack. The
/// next hook above it, or the next block that the runtime reports, corrects it. While a filter runs, nothing has been
/// unwound yet: functions that the filter calls are entered below the function that threw.
///
/// While the runtime makes a `TypeInitializationException`, and in functions that it calls for that: it has caught the
/// exception of the static constructor, which is still on the stack, and reports this only when it throws the new
/// exception.
pub struct ShadowStack<F> {
    /// The innermost entry. By pointers, a call takes 18.8 ns with its two hooks and times; by the methods of a `Vec`,
    /// 19.3 (`cargo xtask bench --only hooks`).
    top: *mut Entry<F>,
    /// The last entry that there is room for.
    last: *mut Entry<F>,
    /// The memory only: the vector's own length is 0. Entry 0 is a sentinel without a frame, above every possible stack
    /// pointer.
    room: Vec<Entry<F>>,
    bound: usize,
    lost: u64,
}

struct Entry<F> {
    /// The stack pointer of its caller. Later entries have lower ones.
    stack_pointer: usize,
    frame: MaybeUninit<F>,
}

// SAFETY: the pointers lead into `room`, which this value alone owns; so a stack is `Send` if its frames are.
unsafe impl<F: Send> Send for ShadowStack<F> {}
// SAFETY: as above; shared access only reads.
unsafe impl<F: Sync> Sync for ShadowStack<F> {}

impl<F> Default for ShadowStack<F> {
    fn default() -> Self {
        Self::new()
    }
}

impl<F> ShadowStack<F> {
    /// An empty stack with a limit of 131,072 entries.
    ///
    /// Room for the first 1024 is allocated at once; when they do not suffice, a hook doubles the room.
    pub fn new() -> Self {
        Self::with_bound(MOST)
    }

    /// An empty stack with a limit of `bound` entries. Each takes the size of an `F` and of a pointer.
    pub fn with_bound(bound: usize) -> Self {
        let mut room = Vec::with_capacity(bound.min(AT_FIRST) + 1);
        let top = Self::begin(&mut room);
        Self { top, last: Self::last(&mut room, bound), room, bound, lost: 0 }
    }

    /// A function begins: call this in [`enter`](crate::hooks::FunctionHooks::enter).
    ///
    /// `left` receives the entries found to be gone.
    #[inline]
    pub fn enter(&mut self, cx: &InHook<'_>, frame: F, left: impl FnMut(F)) {
        self.enter_at(cx.stack_pointer(), frame, left);
    }

    /// A function ends: call this in [`leave`](crate::hooks::FunctionHooks::leave) and
    /// [`tailcall`](crate::hooks::FunctionHooks::tailcall).
    ///
    /// Returns the value that its `enter` stored; none if the call was too deep to be entered. `left` receives the
    /// entries found to be gone.
    #[inline]
    pub fn leave(&mut self, cx: &InHook<'_>, left: impl FnMut(F)) -> Option<F> {
        self.leave_at(cx.stack_pointer(), left)
    }

    /// The runtime suspends a function: call this in [`suspended`](crate::hooks::FunctionHooks::suspended).
    ///
    /// Returns the value that its `enter` stored; none if the call was too deep to be entered. `left` receives the
    /// entries found to be gone.
    pub fn suspended(&mut self, cx: &InHook<'_>, left: impl FnMut(F)) -> Option<F> {
        self.suspended_at(cx.stack_pointer(), left)
    }

    /// An exception has unwound functions: call this in [`unwound`](crate::hooks::FunctionHooks::unwound), or with the
    /// result of [`stack_boundary`](crate::InNoGc::stack_boundary).
    ///
    /// `left` receives those of them that are on the stack.
    #[inline]
    pub fn unwound(&mut self, boundary: StackBoundary, left: impl FnMut(F)) {
        let is_gone = move |stack_pointer| boundary.is_gone(stack_pointer);
        if is_gone(self.top_stack_pointer()) {
            cold_call(|| self.cut(is_gone, left));
        }
    }

    /// The running functions, the outermost first.
    pub fn frames(&self) -> impl DoubleEndedIterator<Item = &F> + ExactSizeIterator {
        // SAFETY: all entries after entry 0, up to the top, are initialized.
        let entries = unsafe { slice::from_raw_parts(self.room.as_ptr().add(1), self.depth()) };
        // SAFETY: as above.
        entries.iter().map(|entry| unsafe { entry.frame.assume_init_ref() })
    }

    /// Like [`frames`](Self::frames), with mutable values and without the outermost `from`.
    pub(super) fn frames_from(&mut self, from: usize) -> impl DoubleEndedIterator<Item = &mut F> + ExactSizeIterator {
        let depth = self.depth();
        // SAFETY: as in `frames`.
        let entries = unsafe { slice::from_raw_parts_mut(self.room.as_mut_ptr().add(1), depth) };
        let inner = entries.get_mut(from..).unwrap_or_default();
        // SAFETY: as above.
        inner.iter_mut().map(|entry| unsafe { entry.frame.assume_init_mut() })
    }

    /// The innermost function.
    #[inline]
    pub fn top(&self) -> Option<&F> {
        // SAFETY: every entry except entry 0 is initialized, and stays while the stack is borrowed.
        (!self.is_empty()).then(|| unsafe { (*self.top).frame.assume_init_ref() })
    }

    /// Like [`top`](Self::top), with a mutable value.
    #[inline]
    pub fn top_mut(&mut self) -> Option<&mut F> {
        // SAFETY: as in `top`.
        (!self.is_empty()).then(|| unsafe { (*self.top).frame.assume_init_mut() })
    }

    /// The number of running functions.
    #[inline]
    pub fn depth(&self) -> usize {
        // SAFETY: the top lies in the room, at or after entry 0.
        unsafe { self.top.offset_from_unsigned(self.room.as_ptr()) }
    }

    /// How many calls were not entered: beyond the bound, or for lack of memory.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Removes the innermost entry if it is gone.
    #[inline]
    pub(super) fn pop_gone(&mut self, boundary: StackBoundary) -> Option<F> {
        let is_gone = !self.is_empty() && boundary.is_gone(self.top_stack_pointer());
        // SAFETY: the top is not entry 0.
        is_gone.then(|| unsafe { self.pop() })
    }

    /// See [`enter`](Self::enter).
    #[inline]
    pub(super) fn enter_at(&mut self, stack_pointer: usize, frame: F, left: impl FnMut(F)) {
        // An entry at the same place is gone too: the new function replaces it.
        let is_gone = move |entered| entered <= stack_pointer;
        if is_gone(self.top_stack_pointer()) || self.top == self.last {
            cold_call(move || {
                self.cut(is_gone, left);
                if self.top == self.last && !self.has_grown() {
                    self.lost += 1;
                } else {
                    // SAFETY: there is room.
                    unsafe { self.push(stack_pointer, frame) };
                }
            });
        } else {
            // SAFETY: the top is not the last entry.
            unsafe { self.push(stack_pointer, frame) };
        }
    }

    /// See [`leave`](Self::leave).
    #[inline]
    pub(super) fn leave_at(&mut self, stack_pointer: usize, left: impl FnMut(F)) -> Option<F> {
        if self.top_stack_pointer() == stack_pointer {
            // SAFETY: a stack pointer is aligned, so it never equals that of entry 0: this is another entry.
            return Some(unsafe { self.pop() });
        }
        cold_call(move || {
            self.cut(move |entered| entered < stack_pointer, left);
            // SAFETY: as above.
            (self.top_stack_pointer() == stack_pointer).then(|| unsafe { self.pop() })
        })
    }

    /// See [`suspended`](Self::suspended). The stack pointer is one of the suspended function itself.
    pub(super) fn suspended_at(&mut self, stack_pointer: usize, left: impl FnMut(F)) -> Option<F> {
        self.cut(move |entered| entered <= stack_pointer, left);
        // SAFETY: the top is not entry 0.
        (!self.is_empty()).then(|| unsafe { self.pop() })
    }

    /// Removes the entries that are gone by their stack pointers.
    fn cut(&mut self, is_gone: impl Fn(usize) -> bool, mut left: impl FnMut(F)) {
        while !self.is_empty() && is_gone(self.top_stack_pointer()) {
            // SAFETY: the top is not entry 0.
            left(unsafe { self.pop() });
        }
    }

    #[inline]
    fn is_empty(&self) -> bool {
        self.top.cast_const() == self.room.as_ptr()
    }

    #[inline]
    fn top_stack_pointer(&self) -> usize {
        // SAFETY: the top is an entry, and every entry has a stack pointer.
        unsafe { (*self.top).stack_pointer }
    }

    /// # Safety
    /// The top is not the last entry that there is room for.
    #[inline]
    unsafe fn push(&mut self, stack_pointer: usize, frame: F) {
        // SAFETY: there is room for one more behind the top, by the caller's promise.
        unsafe {
            self.top = self.top.add(1);
            self.top.write(Entry { stack_pointer, frame: MaybeUninit::new(frame) });
        }
    }

    /// # Safety
    /// The top is not entry 0.
    #[inline]
    unsafe fn pop(&mut self) -> F {
        // SAFETY: the entry is initialized, by the caller's promise, and is not used any more once the top is before
        // it.
        unsafe {
            let frame = (*self.top).frame.assume_init_read();
            self.top = self.top.sub(1);
            frame
        }
    }

    /// Writes entry 0 into an empty room.
    fn begin(room: &mut Vec<Entry<F>>) -> *mut Entry<F> {
        let first = room.as_mut_ptr();
        // SAFETY: every room is made with capacity for at least one.
        unsafe { first.write(Entry { stack_pointer: usize::MAX, frame: MaybeUninit::uninit() }) };
        first
    }

    /// The last usable entry of a room.
    fn last(room: &mut Vec<Entry<F>>, bound: usize) -> *mut Entry<F> {
        let most = (room.capacity() - 1).min(bound);
        // SAFETY: the room is longer than that.
        unsafe { room.as_mut_ptr().add(most) }
    }

    /// Makes room for more, if the bound allows.
    fn has_grown(&mut self) -> bool {
        let depth = self.depth();
        let most = (2 * depth).max(AT_FIRST).min(self.bound);
        let mut bigger = Vec::new();
        if most <= depth || bigger.try_reserve_exact(most + 1).is_err() {
            return false;
        }
        let first = Self::begin(&mut bigger);
        // SAFETY: `depth` entries after the sentinel are initialized, and the new room is longer; the old copies are
        // not used any more.
        unsafe {
            self.room.as_ptr().add(1).copy_to_nonoverlapping(first.add(1), depth);
            self.top = first.add(depth);
        }
        self.last = Self::last(&mut bigger, self.bound);
        self.room = bigger;
        true
    }
}

impl<F> Drop for ShadowStack<F> {
    fn drop(&mut self) {
        self.cut(|_| true, drop);
    }
}

impl<F: fmt::Debug> fmt::Debug for ShadowStack<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.frames()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The running functions, outermost first.
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
        // The result is the same if `c` ended without a tailcall hook.
        stack.enter_at(0xff0, 'd', drop);
        assert_eq!(names(&stack), "ad");
    }

    #[test]
    fn a_suspended_function_is_off_with_what_it_has_called() {
        let mut left = String::new();
        let mut stack = nested("abc");
        // `b` calls from 0xfe0, where it has called `c`.
        assert_eq!(stack.suspended_at(0xfe0, |frame| left.push(frame)), Some('b'));
        assert_eq!((names(&stack).as_str(), left.as_str()), ("a", "c"));
        assert_eq!(stack.suspended_at(0xff0, drop), Some('a'));
        assert_eq!(stack.suspended_at(0xff0, drop), None);
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
    fn each_frame_is_dropped_once() {
        let all = std::rc::Rc::new(());
        let mut stack = ShadowStack::with_bound(2000);
        for depth in 0..2100 {
            stack.enter_at(0x10_0000 - 0x10 * depth, all.clone(), drop);
        }
        assert_eq!(std::rc::Rc::strong_count(&all), 2001, "those beyond the bound are not kept");
        assert!(stack.leave_at(0x10_0000 - 0x10 * 1999, drop).is_some());
        stack.unwound(StackBoundary(0x10_0000 - 0x10 * 999), drop);
        assert_eq!((stack.depth(), std::rc::Rc::strong_count(&all)), (1000, 1001));
        drop(stack);
        assert_eq!(std::rc::Rc::strong_count(&all), 1);
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

//! The exceptions under way on one thread, each thrown while the earlier ones were being handled.
//!
//! An exception can be thrown while the runtime searches for the handler of another: in a filter, in a handler of
//! `FirstChanceException`, in code that resolves an assembly for the search. The outer one must stay pinned meanwhile.
//! And no event reliably shows the end of an exception: a method without metadata may catch it, or the runtime itself.
//! So an entry is kept with the stack pointer of its `ExceptionThrown`. The runtime makes that callback by the same
//! path for every exception, with frames of the same sizes, and handles an exception on top of the stack that threw it.
//! Hence:
//!
//! - An entry at the stack pointer of a new exception, or deeper, has ended: its frames are gone.
//! - When the runtime unwinds, it does so for the last entry or for an earlier one, never for an exception without an
//!   entry. Only the pin of the last entry is freed; the search for an earlier one may still be in progress.
//!
//! If an event is missing, a pin stays longer than necessary: until the thread throws again at the same depth or
//! further out, or until it ends. It is freed too early only if the profiler turned the events off and on again between
//! two exceptions, the second thrown while the first was handled.

/// The exceptions under way, the outermost first; `H` is the type of a pin.
pub(super) struct Stack<H> {
    entries: Vec<Entry<H>>,
}

struct Entry<H> {
    /// The stack pointer of its `ExceptionThrown`.
    stack_pointer: usize,
    /// Its address, which does not change while it is pinned.
    exception: usize,
    /// None once its filters have run. The entry stays, so that an earlier one is not taken for this one.
    pin: Option<H>,
}

impl<H> Default for Stack<H> {
    fn default() -> Self {
        Self { entries: Vec::new() }
    }
}

impl<H> Stack<H> {
    /// An exception is about to be added at this stack pointer: frees the entries that have ended.
    pub(super) fn leave(&mut self, stack_pointer: usize) {
        let left = self.entries.iter().take_while(|entry| entry.stack_pointer > stack_pointer).count();
        self.entries.truncate(left);
    }

    /// Adds an exception, after [`leave`](Self::leave) at the same place.
    pub(super) fn push(&mut self, stack_pointer: usize, exception: usize, pin: H) {
        self.entries.push(Entry { stack_pointer, exception, pin: Some(pin) });
    }

    /// The runtime unwinds a function: all filters of the innermost exception have run. There may be many calls for one
    /// exception.
    pub(super) fn search_over(&mut self) {
        if let Some(last) = self.entries.last_mut() {
            last.pin = None;
        }
    }

    /// A catch block begins: this exception, and all that were thrown while it was handled, have ended.
    ///
    /// An exception that has moved since its pin was freed is not found and stays an entry, without a pin. If one was
    /// thrown twice, the inner entry is meant.
    pub(super) fn caught(&mut self, exception: usize) {
        if let Some(at) = self.entries.iter().rposition(|entry| entry.exception == exception) {
            self.entries.truncate(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use super::*;

    /// The names of the pinned exceptions.
    #[derive(Clone, Default)]
    struct Pinned(Rc<RefCell<Vec<&'static str>>>);

    struct Pin(Pinned, &'static str);

    impl Drop for Pin {
        fn drop(&mut self) {
            let Pin(Pinned(names), own) = self;
            let at = names.borrow().iter().rposition(|name| name == own);
            at.map(|at| names.borrow_mut().remove(at)).expect("it is freed once");
        }
    }

    #[derive(Default)]
    struct Thread {
        stack: Stack<Pin>,
        pinned: Pinned,
    }

    /// The least distance between two exceptions when one is thrown while another is handled.
    const DEPTH: usize = 0x800;

    impl Thread {
        /// Throws at a depth of handlers; the address is that of the name.
        fn throw(&mut self, depth: usize, name: &'static str) {
            let stack_pointer = 0x7fff_0000 - depth * DEPTH;
            self.stack.leave(stack_pointer);
            self.pinned.0.borrow_mut().push(name);
            self.stack.push(stack_pointer, name.as_ptr().addr(), Pin(self.pinned.clone(), name));
        }

        fn unwind(&mut self) {
            self.stack.search_over();
        }

        fn catch(&mut self, name: &'static str) {
            self.stack.caught(name.as_ptr().addr());
        }

        fn pinned(&self) -> Vec<&'static str> {
            self.pinned.0.borrow().clone()
        }
    }

    #[test]
    fn an_exception_is_pinned_until_its_first_function_is_unwound() {
        let mut thread = Thread::default();
        thread.throw(0, "A");
        assert_eq!(thread.pinned(), ["A"]);
        thread.unwind();
        assert_eq!(thread.pinned(), [""; 0]);
        thread.unwind();
        thread.catch("A");
        assert!(thread.stack.entries.is_empty());
    }

    #[test]
    fn what_is_caught_in_a_filter_leaves_the_outer_one_pinned() {
        let mut thread = Thread::default();
        thread.throw(0, "A");
        for _ in 0..3 {
            thread.throw(1, "B");
            thread.throw(2, "C");
            thread.unwind();
            thread.unwind();
            thread.catch("C");
            assert_eq!(thread.pinned(), ["A", "B"]);
            thread.unwind();
            thread.unwind();
            thread.catch("B");
            assert_eq!(thread.pinned(), ["A"]);
        }
        thread.unwind();
        assert_eq!(thread.pinned(), [""; 0]);
    }

    #[test]
    fn what_leaves_a_filter_leaves_the_outer_one_pinned() {
        let mut thread = Thread::default();
        thread.throw(0, "A");
        // The runtime swallows it: the filter's function is unwound, and no catch is reported.
        thread.throw(1, "B");
        (0..3).for_each(|_| thread.unwind());
        assert_eq!(thread.pinned(), ["A"]);
        thread.throw(1, "C");
        thread.unwind();
        assert_eq!(thread.pinned(), ["A"]);
        // The unwinding of the outer exception has no effect while an entry lies above it, but its catch has.
        thread.unwind();
        thread.catch("A");
        assert!(thread.pinned().is_empty() && thread.stack.entries.is_empty());
    }

    #[test]
    fn a_finally_block_may_throw_and_catch_or_be_left() {
        let mut thread = Thread::default();
        thread.throw(0, "A");
        thread.unwind();
        thread.throw(1, "B");
        assert_eq!(thread.pinned(), ["B"]);
        thread.unwind();
        thread.catch("B");
        thread.unwind();
        thread.throw(1, "C");
        thread.unwind();
        // It has left the block and replaced the first.
        thread.catch("C");
        assert_eq!(thread.stack.entries.len(), 1, "no more events come for the first");
        thread.throw(0, "D");
        assert_eq!((thread.pinned(), thread.stack.entries.len()), (vec!["D"], 1));
    }

    #[test]
    fn the_same_exception_may_be_thrown_in_its_own_filter() {
        let mut thread = Thread::default();
        thread.throw(0, "A");
        thread.throw(1, "A");
        thread.unwind();
        assert_eq!(thread.pinned(), ["A"]);
        thread.catch("A");
        assert_eq!(thread.pinned(), ["A"], "the outer one");
        thread.unwind();
        thread.catch("A");
        assert!(thread.stack.entries.is_empty());
    }

    #[test]
    fn what_the_runtime_swallowed_unseen_goes_with_the_next_at_its_depth() {
        let mut thread = Thread::default();
        thread.throw(0, "A");
        thread.throw(1, "unseen");
        assert_eq!(thread.pinned(), ["A", "unseen"]);
        thread.throw(1, "next");
        assert_eq!(thread.pinned(), ["A", "next"]);
        thread.catch("next");
        thread.throw(2, "unseen");
        thread.throw(0, "outer");
        assert_eq!(thread.pinned(), ["outer"]);
    }

    #[test]
    fn a_rethrow_is_pinned_anew() {
        let mut thread = Thread::default();
        for _ in 0..3 {
            thread.throw(0, "A");
            assert_eq!(thread.pinned(), ["A"]);
            thread.unwind();
            thread.catch("A");
        }
        thread.throw(0, "A");
        drop(std::mem::take(&mut thread.stack));
        assert_eq!(thread.pinned(), [""; 0], "the thread has ended");
    }

    #[test]
    fn a_catch_of_something_never_told_changes_nothing() {
        let mut thread = Thread::default();
        thread.catch("A");
        thread.unwind();
        thread.throw(0, "A");
        thread.catch("B");
        assert_eq!(thread.pinned(), ["A"]);
    }
}

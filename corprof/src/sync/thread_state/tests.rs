use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc;
use std::thread;

use super::*;

#[derive(Default)]
struct Count(u64);

impl Merge for Count {
    fn merge(&mut self, other: Self) {
        self.0 += other.0;
    }
}

impl ThreadState<Count> {
    fn add(&self) {
        self.with_anywhere(|count| count.0 += 1);
    }

    fn sum(&self) -> u64 {
        self.read_anywhere(|count| count.0)
    }

    /// How many threads have a value.
    fn threads(&self) -> usize {
        self.0.live().len()
    }
}

#[test]
fn each_thread_has_its_own_and_a_reader_has_all() {
    let state = ThreadState::<Count>::new();
    let ((is_in, entered), (goes_on, end)) = (mpsc::channel(), mpsc::channel::<()>());
    thread::scope(|scope| {
        let state = &state;
        scope.spawn(move || {
            (0..3).for_each(|_| state.add());
            is_in.send(()).unwrap();
            end.recv().unwrap_err();
            state.add();
        });
        scope.spawn(|| (0..40).for_each(|_| state.add())).join().unwrap();
        state.add();
        assert_eq!(state.with_anywhere(|count| count.0), 1, "that of this thread");
        entered.recv().unwrap();
        assert_eq!(state.sum(), 44, "of a thread that lives, of one that has ended, and of this one");
        assert_eq!(state.with_anywhere(|count| count.0), 0, "begins anew");
        drop(goes_on);
    });
    assert_eq!(state.sum(), 45, "what was read is there still");
}

#[test]
fn nothing_is_lost_or_counted_twice_while_threads_end_and_somebody_reads() {
    const THREADS: usize = 400;
    let state = ThreadState::<Count>::new();
    let is_over = AtomicBool::new(false);
    let mut total = 0;
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut taken = 0;
            while !is_over.load(SeqCst) {
                taken += state.read_anywhere(|count| std::mem::take(&mut count.0));
            }
            taken
        });
        for _ in 0..THREADS / 4 {
            let batch: Vec<_> = (0..4).map(|_| scope.spawn(|| (0..100).for_each(|_| state.add()))).collect();
            batch.into_iter().for_each(|thread| thread.join().unwrap());
        }
        is_over.store(true, SeqCst);
        total = reader.join().unwrap();
    });
    assert_eq!(total + state.sum(), 100 * THREADS as u64);
}

#[test]
fn more_threads_than_the_table_has_entries_for_count_all() {
    const THREADS: usize = 600;
    let state = ThreadState::<Count>::new();
    let all_count = std::sync::Barrier::new(THREADS);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            let thread = thread::Builder::new().stack_size(64 * 1024);
            let work = || {
                state.add();
                all_count.wait();
                state.add();
            };
            thread.spawn_scoped(scope, work).unwrap();
        }
    });
    assert_eq!(state.sum(), 2 * THREADS as u64);
}

#[test]
fn threads_that_have_ended_leave_nothing_but_their_sum() {
    let state = Arc::new(ThreadState::<Count>::new());
    for _ in 0..200 {
        let own = Arc::clone(&state);
        thread::spawn(move || own.add()).join().unwrap();
    }
    assert_eq!((state.threads(), state.sum()), (0, 200));
}

/// A callback made while the system destroys the thread's own values.
struct Late(Arc<ThreadState<Count>>);

impl Drop for Late {
    fn drop(&mut self) {
        self.0.add();
    }
}

thread_local! {
    static EARLIER: RefCell<Option<Late>> = const { RefCell::new(None) };
    static LATER: RefCell<Option<Late>> = const { RefCell::new(None) };
}

#[test]
fn what_comes_while_the_thread_is_taken_down_counts_too() {
    let state = Arc::new(ThreadState::<Count>::new());
    let own = Arc::clone(&state);
    let work = move || {
        // In both orders of destruction: one before the thread's values, one after.
        EARLIER.with(|late| *late.borrow_mut() = Some(Late(Arc::clone(&own))));
        own.add();
        LATER.with(|late| *late.borrow_mut() = Some(Late(Arc::clone(&own))));
    };
    thread::spawn(work).join().unwrap();
    assert_eq!((state.threads(), state.sum()), (0, 3));
}

/// The message of the closure's panic.
fn panic_of(f: impl FnOnce()) -> String {
    *catch_unwind(AssertUnwindSafe(f)).unwrap_err().downcast::<String>().unwrap()
}

#[test]
fn asking_again_from_the_closure_is_a_panic_and_no_hang() {
    let state = ThreadState::<Count>::new();
    let again = "twice on one thread";
    assert!(panic_of(|| state.with_anywhere(|_| state.add())).contains(again));
    assert!(panic_of(|| state.with_anywhere(|_| state.read_anywhere(|_| ()))).contains(again));
    assert!(panic_of(|| state.read_anywhere(|_| state.read_anywhere(|_| ()))).contains(again));
    // Another state is independent, and this one is usable as before.
    let other = ThreadState::<Count>::new();
    state.with_anywhere(|count| {
        count.0 += 1;
        other.add();
    });
    state.read_anywhere(|_| state.add());
    assert_eq!((state.sum(), other.sum()), (2, 1));
}

static DROPPED: AtomicUsize = AtomicUsize::new(0);

/// Panics when a thread's value is dropped or merged, after it was used.
#[derive(Default)]
struct Fragile {
    is_used: bool,
    in_merge: bool,
}

impl Merge for Fragile {
    fn merge(&mut self, other: Self) {
        if other.in_merge {
            std::panic::resume_unwind(Box::new("in merge"));
        }
        drop(other);
    }
}

impl Drop for Fragile {
    fn drop(&mut self) {
        if self.is_used {
            DROPPED.fetch_add(1, SeqCst);
            std::panic::resume_unwind(Box::new("in drop"));
        }
    }
}

#[test]
fn a_value_that_panics_at_the_end_of_its_thread_does_not_end_the_process() {
    let state = Arc::new(ThreadState::<Fragile>::new());
    for in_merge in [false, true, false] {
        let own = Arc::clone(&state);
        let use_it = move || own.with_anywhere(|value| (value.is_used, value.in_merge) = (!in_merge, in_merge));
        thread::spawn(use_it).join().unwrap();
    }
    assert_eq!(DROPPED.load(SeqCst), 2);
    // Nor with the state itself, which here drops this thread's value.
    state.with_anywhere(|value| value.is_used = true);
    drop(state);
    assert_eq!(DROPPED.load(SeqCst), 3);
}

#[test]
fn values_go_with_the_state_and_not_with_the_last_thread() {
    #[derive(Default)]
    struct Kept(Option<Arc<()>>);
    impl Merge for Kept {
        fn merge(&mut self, other: Self) {
            self.0 = self.0.take().or(other.0.clone());
        }
    }
    let state = Arc::new(ThreadState::<Kept>::new());
    let value = Arc::new(());
    let own = Arc::clone(&state);
    let kept = Arc::clone(&value);
    let ((is_in, entered), (goes_on, end)) = (mpsc::channel(), mpsc::channel::<()>());
    let thread = thread::spawn(move || {
        own.with_anywhere(|value| value.0 = Some(kept));
        drop(own);
        is_in.send(()).unwrap();
        end.recv().unwrap_err();
    });
    entered.recv().unwrap();
    assert_eq!(Arc::strong_count(&value), 2);
    drop(state);
    assert_eq!(Arc::strong_count(&value), 1, "while the thread lives");
    drop(goes_on);
    thread.join().unwrap();
}

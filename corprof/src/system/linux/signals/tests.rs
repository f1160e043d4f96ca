//! Sends signals to the test's own threads.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use super::*;

/// Runs `work` on a thread with a slot, until `test` has finished with it.
fn with_thread(work: fn(&AtomicBool), test: impl FnOnce(&'static SampleSlot, Address, Range<usize>)) {
    install().unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (sender, receiver) = mpsc::channel();
        let is_over = &is_over;
        scope.spawn(move || {
            let slot = SampleSlot::new(100).unwrap();
            let stack = own_stack().unwrap();
            slot.take(&stack);
            sender.send((slot, Address::own(), stack)).unwrap();
            work(is_over);
        });
        let (slot, address, stack) = receiver.recv().unwrap();
        let answer = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| test(slot, address, stack)));
        is_over.store(true, SeqCst);
        answer.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

/// Waits for a requested sample.
fn read<R>(slot: &SampleSlot, read: impl FnOnce(&RawSample) -> R) -> R {
    let start = Instant::now();
    let mut read = Some(read);
    loop {
        if !slot.is_idle()
            && let Some(answer) = slot.read(|sample| read.take().map(|read| read(sample)))
        {
            return answer.unwrap();
        }
        assert!(start.elapsed() < Duration::from_secs(60), "no sample");
        std::thread::yield_now();
    }
}

#[inline(never)]
fn spin(is_over: &AtomicBool) {
    while !is_over.load(SeqCst) {
        std::hint::spin_loop();
    }
}

#[test]
fn a_filter_of_system_calls_that_forbids_signals_is_seen() {
    let thread = std::thread::spawn(|| {
        assert!(are_allowed());
        crate::system::forbid(libc::SYS_rt_tgsigqueueinfo);
        assert!(!are_allowed());
    });
    thread.join().unwrap();
}

#[test]
fn a_thread_that_runs_is_seen_where_it_is() {
    with_thread(spin, |slot, address, stack| {
        assert!(address.is_runnable());
        for _ in 0..1000 {
            assert_eq!(slot.request(address), Sending::Done);
            read(slot, |sample| {
                assert_ne!(sample.ip, 0);
                assert!(stack.contains(&sample.stack_pointer) && !sample.is_elsewhere);
                assert!(!sample.words().is_empty() && sample.words().len() <= sample_slot::WORDS);
                assert_eq!(sample.read(sample.stack_pointer), Some(sample.words()[0]));
                assert_eq!(sample.read(stack.end), None);
            });
        }
    });
}

static CALLS: AtomicUsize = AtomicUsize::new(0);

/// Sleeps in system calls that a signal interrupts.
fn sleep(is_over: &AtomicBool) {
    while !is_over.load(SeqCst) {
        std::thread::sleep(Duration::from_millis(1));
        CALLS.fetch_add(1, SeqCst);
    }
}

#[test]
fn a_thread_in_a_system_call_answers_too_and_goes_on() {
    with_thread(sleep, |slot, address, _| {
        for _ in 0..200 {
            assert_eq!(slot.request(address), Sending::Done);
            read(slot, |sample| assert_ne!(sample.ip, 0));
        }
        let before = CALLS.load(SeqCst);
        while CALLS.load(SeqCst) < before + 3 {
            std::thread::sleep(Duration::from_millis(1));
        }
    });
}

#[test]
fn a_signal_that_nobody_asked_for_changes_nothing() {
    with_thread(spin, |slot, address, _| {
        assert_eq!(address.send(slot), Sending::Done);
        std::thread::sleep(Duration::from_millis(20));
        assert!(slot.is_idle());
        // Nor does a signal to a thread that does not own the slot, or with a number that no slot has.
        assert_eq!(Address::own().send(slot), Sending::Done);
        // SAFETY: both are system calls of this process to itself.
        unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), address.thread, SIGNAL) };
        std::thread::sleep(Duration::from_millis(20));
        assert!(slot.is_idle());
    });
}

#[test]
fn a_thread_that_has_ended_is_not_asked() {
    let (slot, address) = std::thread::spawn(|| {
        let slot = SampleSlot::new(10).unwrap();
        slot.take(&own_stack().unwrap());
        (slot, Address::own())
    })
    .join()
    .unwrap();
    let start = Instant::now();
    while !address.has_ended() {
        assert!(start.elapsed() < Duration::from_secs(60));
    }
    install().unwrap();
    assert_eq!(slot.request(address), Sending::NotNow);
    assert!(slot.is_idle());
    assert!(!address.is_runnable());
}

#[inline(never)]
fn deep(depth: usize, is_over: &AtomicBool) -> usize {
    if depth == 0 {
        spin(is_over);
        return 0;
    }
    black_box(deep(black_box(depth - 1), is_over)) + 1
}

#[test]
fn of_a_deep_stack_the_top_is_copied() {
    with_thread(
        |is_over| _ = deep(5000, is_over),
        |slot, address, _| {
            std::thread::sleep(Duration::from_millis(20));
            assert_eq!(slot.request(address), Sending::Done);
            read(slot, |sample| {
                assert_eq!(sample.words().len(), sample_slot::WORDS, "the stack is deeper than its copy");
                assert_eq!(
                    sample.read(sample.stack_pointer + sample_slot::WORDS * size_of::<usize>() - 1),
                    None,
                    "unaligned"
                );
            });
        },
    );
}

#[test]
fn errno_and_registers_survive() {
    fn work(is_over: &AtomicBool) {
        let mut turn = 0i32;
        while !is_over.load(SeqCst) {
            turn = turn.wrapping_add(1) & 0xFFF;
            let mut sum = 0u64;
            let mut float = 0f64;
            // SAFETY: `errno` belongs to the thread.
            unsafe { *libc::__errno_location() = turn };
            for i in 0..1000u64 {
                sum = sum.wrapping_mul(31).wrapping_add(i);
                float += i as f64;
            }
            // SAFETY: as above.
            assert_eq!(unsafe { *libc::__errno_location() }, turn);
            assert_eq!((black_box(sum), black_box(float)), (SUM.with(|sum| *sum), 499_500.0));
        }
    }
    thread_local! {
        static SUM: u64 = (0..1000u64).fold(0u64, |sum, i| sum.wrapping_mul(31).wrapping_add(i));
    }
    with_thread(work, |slot, address, _| {
        for _ in 0..2000 {
            assert_eq!(slot.request(address), Sending::Done);
            read(slot, |_| ());
        }
    });
}

#[test]
fn the_own_stack_has_this_frame_in_it() {
    let here = 0u8;
    assert!(own_stack().unwrap().contains(&std::ptr::from_ref(&here).addr()));
}

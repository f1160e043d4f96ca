//! How soon a thread runs when it wakes up.

use std::mem::MaybeUninit;

/// The shortest slice that the system gives, in nanoseconds.
const SHORTEST: u64 = 100_000;

/// So much nicer than others is a thread that does not come first.
const NICENESS: i32 = 10;

/// The least niceness that there is.
const LEAST: i32 = -20;

const SIZE: u32 = size_of::<libc::sched_attr>() as u32;

/// Lets the calling thread run soon after it wakes up, while others have work for all processors; it keeps its policy.
///
/// - A thread with a shorter time slice displaces one with a longer one at once. Otherwise it waits for the end of that
///   slice, which the system looks for in its ticks only. Linux has this since 6.12.
/// - A thread with a higher priority is due earlier. That is for root only, and for those whom `RLIMIT_NICE` allows it.
///
/// What the system does not have, or forbids, does not change.
pub(crate) fn run_promptly() {
    let Some(mut attributes) = attributes() else { return };
    if attributes.sched_policy != libc::SCHED_OTHER.cast_unsigned() {
        return;
    }
    attributes.sched_runtime = SHORTEST;
    let prior = libc::sched_attr { sched_nice: (attributes.sched_nice - NICENESS).max(LEAST), ..attributes };
    if !set(&prior) {
        set(&attributes);
    }
}

/// The calling thread's attributes; none where the call is forbidden.
fn attributes() -> Option<libc::sched_attr> {
    let mut attributes = MaybeUninit::<libc::sched_attr>::zeroed();
    // SAFETY: the call writes at most the given size; the attributes are valid when they are all zeros.
    unsafe {
        let result = libc::syscall(libc::SYS_sched_getattr, 0, attributes.as_mut_ptr(), SIZE, 0);
        (result == 0).then(|| attributes.assume_init())
    }
}

/// Gives the calling thread these attributes; returns whether it has them now.
fn set(attributes: &libc::sched_attr) -> bool {
    // SAFETY: the call reads the attributes, and concerns the calling thread only.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const *attributes, 0) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_thread(test: impl FnOnce() + Send) {
        std::thread::scope(|scope| scope.spawn(test).join().unwrap());
    }

    #[test]
    fn a_shorter_slice_and_a_higher_priority_are_all_that_changes() {
        in_thread(|| {
            let before = attributes().unwrap();
            run_promptly();
            let after = attributes().unwrap();
            assert!(after.sched_runtime == SHORTEST || after.sched_runtime == before.sched_runtime);
            let raised = (before.sched_nice - NICENESS).max(LEAST);
            assert!(after.sched_nice == raised || after.sched_nice == before.sched_nice);
            let others = |of: libc::sched_attr| (of.sched_policy, of.sched_flags, of.sched_priority);
            assert_eq!(others(after), others(before));
        });
    }

    #[test]
    fn without_the_right_to_a_higher_priority_the_slice_changes() {
        in_thread(|| {
            // Whoever is not root has not the right anyway.
            // SAFETY: the call of the system, other than that of libc, concerns the calling thread only.
            unsafe { libc::syscall(libc::SYS_setresuid, -1, 65534, -1) };
            let before = attributes().unwrap();
            run_promptly();
            let after = attributes().unwrap();
            assert_eq!(after.sched_nice, before.sched_nice);
            assert!(after.sched_runtime == SHORTEST || after.sched_runtime == before.sched_runtime);
        });
    }
}

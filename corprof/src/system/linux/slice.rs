//! The time slice of a thread.

use std::mem::MaybeUninit;

/// The shortest slice that the system gives, in nanoseconds.
const SHORTEST: u64 = 100_000;

const SIZE: u32 = size_of::<libc::sched_attr>() as u32;

/// Asks for the shortest time slice for the calling thread; it keeps its policy and its priority.
///
/// A thread that wakes up displaces one with a longer slice at once. Otherwise it waits for the end of that slice,
/// which the system looks for in its ticks only. Linux has this since 6.12. Before, and where the call is forbidden,
/// nothing changes.
pub(crate) fn shorten_slice() {
    let Some(mut attributes) = attributes() else { return };
    if attributes.sched_policy != libc::SCHED_OTHER.cast_unsigned() {
        return;
    }
    attributes.sched_runtime = SHORTEST;
    // SAFETY: the call reads the attributes, and concerns the calling thread only.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shorter_slice_is_all_that_changes() {
        std::thread::spawn(|| {
            let before = attributes().unwrap();
            shorten_slice();
            let after = attributes().unwrap();
            assert!(after.sched_runtime == SHORTEST || after.sched_runtime == before.sched_runtime);
            let others = |of: libc::sched_attr| (of.sched_policy, of.sched_flags, of.sched_nice, of.sched_priority);
            assert_eq!(others(after), others(before));
        })
        .join()
        .unwrap();
    }
}

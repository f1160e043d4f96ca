//! The processors that a thread may run on.

use std::mem::MaybeUninit;

const SIZE: usize = size_of::<libc::cpu_set_t>();

/// The processors on which the calling thread may run; none on a machine with more than the set has room for.
fn allowed() -> Option<libc::cpu_set_t> {
    let mut allowed = MaybeUninit::<libc::cpu_set_t>::zeroed();
    // SAFETY: the call writes no more than the size of the set, which is valid when it is all zeros.
    unsafe { (libc::sched_getaffinity(0, SIZE, allowed.as_mut_ptr()) == 0).then(|| allowed.assume_init()) }
}

/// Moves the calling thread to another processor. Returns whether there is one.
///
/// The system chooses which. Afterwards the thread may run where it could before.
pub(crate) fn change_processor() -> bool {
    let Some(allowed) = allowed() else { return false };
    // SAFETY: takes no arguments and touches no memory of ours.
    let Ok(own) = usize::try_from(unsafe { libc::sched_getcpu() }) else { return false };
    let mut others = allowed;
    // SAFETY: a processor's number is within a set that could hold all of them.
    unsafe { libc::CPU_CLR(own, &mut others) };
    // SAFETY: reads the set.
    if unsafe { libc::CPU_COUNT(&others) } == 0 {
        return false;
    }
    // SAFETY: both calls read a set of this size, and concern the calling thread only.
    unsafe {
        libc::sched_setaffinity(0, SIZE, &raw const others) == 0
            && libc::sched_setaffinity(0, SIZE, &raw const allowed) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_changes_its_processor_and_may_run_where_it_could() {
        let before = allowed().unwrap();
        // SAFETY: reads the set.
        let has_others = unsafe { libc::CPU_COUNT(&before) } > 1;
        assert_eq!(change_processor(), has_others);
        // SAFETY: reads both sets.
        assert!(unsafe { libc::CPU_EQUAL(&allowed().unwrap(), &before) });
    }

    #[test]
    fn a_thread_that_may_use_one_processor_stays() {
        std::thread::spawn(|| {
            let mut own = allowed().unwrap();
            // SAFETY: takes no arguments and touches no memory of ours.
            let number = usize::try_from(unsafe { libc::sched_getcpu() }).unwrap();
            // SAFETY: the number is within a set that holds it; the call reads a set of this size.
            let is_set = unsafe {
                libc::CPU_ZERO(&mut own);
                libc::CPU_SET(number, &mut own);
                libc::sched_setaffinity(0, SIZE, &raw const own)
            };
            assert_eq!(is_set, 0);
            assert!(!change_processor());
        })
        .join()
        .unwrap();
    }
}

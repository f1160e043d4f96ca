//! Closing the gate where the application has had the barrier forbidden since the profiler was loaded.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::*;

/// Has every further `membarrier` of the calling thread answered with EPERM, and those of threads that it starts.
fn forbid_membarrier() {
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let step = |code: u16, k: u32| libc::sock_filter { code, jt: 0, jf: 0, k };
    let mut steps = [
        // The number of the call stands first in what the filter is shown.
        step((libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16, 0),
        libc::sock_filter {
            jf: 1,
            ..step((libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16, libc::SYS_membarrier as u32)
        },
        step(RETURN, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        step(RETURN, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
    // SAFETY: both calls take numbers, and the second a program that the system copies.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program), 0);
    }
}

#[test]
fn nobody_is_inside_after_closing_without_the_barrier() {
    let _turn = super::tests::ONE_AT_A_TIME.lock();
    for _ in 0..20 {
        let gate = Arc::new(Gate::new());
        assert_eq!(gate.open, OPEN, "this system has the barrier");
        let gone = Arc::new(AtomicBool::new(false));
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let (gate, gone) = (gate.clone(), gone.clone());
                std::thread::spawn(move || {
                    while let Some(_inside) = gate.enter() {
                        assert!(!gone.load(Ordering::SeqCst), "inside a closed gate");
                    }
                })
            })
            .collect();
        // On a thread of its own, which takes the filter with it.
        std::thread::scope(|scope| {
            scope.spawn(|| {
                forbid_membarrier();
                assert!(!system::process_wide_barrier(), "it is forbidden, and says so");
                let begun = Instant::now();
                assert!(gate.close(Duration::from_secs(60)));
                assert!(begun.elapsed() >= SETTLING);
                gone.store(true, Ordering::SeqCst);
            });
        });
        for thread in threads {
            thread.join().unwrap();
        }
    }
}

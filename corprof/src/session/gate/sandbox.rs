//! Closing the gate when the application has forbidden the barrier since the profiler was loaded.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::*;

#[test]
fn nobody_is_inside_after_closing_without_the_barrier() {
    let _turn = super::tests::ONE_AT_A_TIME.lock();
    for _ in 0..20 {
        let gate = Arc::new(Gate::new());
        assert_eq!(gate.open, OPEN, "this system has the barrier");
        let gone = Arc::new(AtomicBool::new(false));
        let threads = super::tests::pushing(&gate, &gone);
        // On a thread of its own: the seccomp filter ends with the thread.
        std::thread::scope(|scope| {
            scope.spawn(|| {
                system::forbid(libc::SYS_membarrier);
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

//! A number that tells threads apart, at the price of one load.
//!
//! Two threads that live at the same time never have the same key; one that starts after another has ended may. The key is
//! the address of something that each thread has to itself: its control block where one instruction finds it, else a
//! thread-local of ours, which a shared library reaches only by a call.

/// The calling thread's key, never 0.
#[inline]
pub(crate) fn current() -> usize {
    imp()
}

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
#[inline]
fn imp() -> usize {
    let key: usize;
    // SAFETY: the System V ABI for x86-64 keeps the thread control block's own address at fs:0; reading it has no effect.
    unsafe {
        std::arch::asm!("mov {}, fs:0", out(reg) key, options(nostack, preserves_flags, readonly, pure));
    }
    key
}

#[cfg(all(windows, target_arch = "x86_64"))]
#[inline]
fn imp() -> usize {
    let key: usize;
    // SAFETY: Windows keeps the thread environment block's own address at gs:0x30; reading it has no effect.
    unsafe {
        std::arch::asm!("mov {}, gs:0x30", out(reg) key, options(nostack, preserves_flags, readonly, pure));
    }
    key
}

#[cfg(all(target_os = "linux", target_arch = "aarch64"))]
#[inline]
fn imp() -> usize {
    let key: usize;
    // SAFETY: TPIDR_EL0 holds the thread pointer and may be read from user mode; reading it has no effect.
    unsafe {
        std::arch::asm!("mrs {}, tpidr_el0", out(reg) key, options(nostack, preserves_flags, nomem, pure));
    }
    key
}

#[cfg(not(any(
    all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")),
    all(windows, target_arch = "x86_64")
)))]
#[inline]
fn imp() -> usize {
    thread_local! {
        static ANCHOR: u8 = const { 0 };
    }
    ANCHOR.with(|anchor| std::ptr::from_ref(anchor).addr())
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    #[test]
    fn threads_that_live_together_have_different_keys() {
        let barrier = std::sync::Barrier::new(16);
        let keys: HashSet<usize> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..16)
                .map(|_| {
                    scope.spawn(|| {
                        barrier.wait();
                        let key = super::current();
                        barrier.wait();
                        assert_eq!(key, super::current());
                        key
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(keys.len(), 16);
        assert!(!keys.contains(&0));
    }
}

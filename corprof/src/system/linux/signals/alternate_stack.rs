//! The stack on which a thread handles faults, made large enough for a signal on top of the runtime's handler.
//!
//! The runtime gives each of its threads 16 KB, of which a guard page takes 4. Its handler for SIGSEGV (every null reference of
//! managed code) needs most of the rest where signal frames hold AVX-512 registers, 3.5 KB each and twice that with AMX. A
//! further signal during the handler does not fit, and the system ends the process.
//!
//! The thread itself replaces it, outside any handler: a stack set inside a handler is undone when the handler returns, as the
//! system restores the earlier one (`uc_stack`).

use std::mem::MaybeUninit;

/// Room for several frames of the largest size, and the handlers between them. Untouched pages cost no memory.
const SIZE: usize = 128 * 1024;

/// A larger alternate stack for the calling thread, in place of the one that it had.
#[derive(Debug)]
pub(crate) struct AlternateStack {
    /// The thread's earlier alternate stack.
    before: libc::stack_t,
    /// The mapping: a guard page, then the stack.
    start: usize,
}

// SAFETY: addresses, which are used only on their own thread (`restore`) or not at all.
unsafe impl Send for AlternateStack {}

/// The reason why a thread cannot have one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refusal {
    /// The thread is on its alternate stack right now.
    InUse,
    /// The system refuses memory or the stack.
    System,
}

fn current() -> Option<libc::stack_t> {
    let mut stack = MaybeUninit::uninit();
    // SAFETY: the call writes the structure if it answers 0.
    unsafe { (libc::sigaltstack(std::ptr::null(), stack.as_mut_ptr()) == 0).then(|| stack.assume_init()) }
}

fn set(stack: &libc::stack_t) -> bool {
    // SAFETY: the structure names memory of the caller's that stays mapped while it is set, or says that there is none.
    unsafe { libc::sigaltstack(stack, std::ptr::null_mut()) == 0 }
}

fn page() -> usize {
    // SAFETY: the call takes a number and touches no memory.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(0x1_0000)
}

impl AlternateStack {
    /// Gives the calling thread a larger one. None is necessary, and none set, without an alternate stack (faults are then
    /// handled on the thread's own stack) or if it is large enough already.
    pub(crate) fn enlarge() -> Result<Option<Self>, Refusal> {
        let before = current().ok_or(Refusal::System)?;
        if before.ss_flags & libc::SS_ONSTACK != 0 {
            return Err(Refusal::InUse);
        }
        if before.ss_flags & libc::SS_DISABLE != 0 || before.ss_size >= SIZE {
            return Ok(None);
        }
        let guard = page();
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_STACK;
        // SAFETY: new memory, which no other code knows.
        let start =
            unsafe { libc::mmap(std::ptr::null_mut(), guard + SIZE, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(Refusal::System);
        }
        let new = Self { before, start: start.addr() };
        let stack = libc::stack_t { ss_sp: start.wrapping_byte_add(guard), ss_flags: 0, ss_size: SIZE };
        // SAFETY: the first page of the new mapping.
        let is_guarded = unsafe { libc::mprotect(start, guard, libc::PROT_NONE) == 0 };
        if is_guarded && set(&stack) {
            return Ok(Some(new));
        }
        new.unmap();
        Err(Refusal::System)
    }

    /// Gives the calling thread its earlier alternate stack back, before the runtime frees the one that it finds at the
    /// thread's end. Changes nothing if another stack is set, or if the thread is on this stack right now.
    pub(crate) fn restore(self) {
        let is_ours = |stack: libc::stack_t| stack.ss_sp.addr() == self.start + page();
        let is_idle = |stack: &libc::stack_t| stack.ss_flags & libc::SS_ONSTACK == 0;
        if current().filter(is_idle).is_some_and(is_ours) && set(&self.before) {
            self.unmap();
        }
    }

    fn unmap(self) {
        // SAFETY: the mapping that `enlarge` made, which is no thread's alternate stack any more.
        unsafe { libc::munmap(std::ptr::without_provenance_mut(self.start), page() + SIZE) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on_a_thread(run: impl FnOnce() + Send + 'static) {
        std::thread::spawn(run).join().unwrap();
    }

    /// As small as the runtime's.
    fn set_small() -> libc::stack_t {
        let memory = Box::leak(vec![0u8; 16 * 1024].into_boxed_slice());
        let stack = libc::stack_t { ss_sp: memory.as_mut_ptr().cast(), ss_flags: 0, ss_size: memory.len() };
        assert!(set(&stack));
        stack
    }

    #[test]
    fn a_small_one_is_replaced_and_given_back() {
        on_a_thread(|| {
            let small = set_small();
            let big = AlternateStack::enlarge().unwrap().unwrap();
            let now = current().unwrap();
            assert_eq!((now.ss_size, now.ss_sp.addr()), (SIZE, big.start + page()));
            assert!(AlternateStack::enlarge().unwrap().is_none(), "it is big enough");
            big.restore();
            assert_eq!((current().unwrap().ss_sp, current().unwrap().ss_size), (small.ss_sp, small.ss_size));
        });
    }

    #[test]
    fn where_there_is_none_none_is_set() {
        on_a_thread(|| {
            let none = libc::stack_t { ss_sp: std::ptr::null_mut(), ss_flags: libc::SS_DISABLE, ss_size: 0 };
            assert!(set(&none));
            assert!(AlternateStack::enlarge().unwrap().is_none());
            assert_ne!(current().unwrap().ss_flags & libc::SS_DISABLE, 0);
        });
    }

    #[test]
    fn one_that_somebody_has_replaced_stays() {
        on_a_thread(|| {
            set_small();
            let big = AlternateStack::enlarge().unwrap().unwrap();
            let other = set_small();
            big.restore();
            assert_eq!(current().unwrap().ss_sp, other.ss_sp);
        });
    }
}

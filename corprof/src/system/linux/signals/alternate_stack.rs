//! The stack on which a thread handles faults, made large enough for a signal on top of the runtime's handler.
//!
//! The runtime gives each of its threads 16 KB, of which a guard page takes 4. Its handler for SIGSEGV (every null
//! reference of managed code) needs most of the rest where signal frames hold AVX-512 registers, 3.5 KB each and twice
//! that with AMX. A further signal during the handler does not fit, and the system ends the process.
//!
//! The thread itself replaces it, outside any handler: a stack set inside a handler is undone when the handler returns,
//! as the system restores the earlier one (`uc_stack`). A thread that is older than the sampler gets it from a handler
//! that writes the new one into `uc_stack` (`older.rs`). At the end of a thread the runtime frees the stack that it
//! made, if that one is set. So the thread gets it back at its end. If its end becomes known only later, as of a thread
//! that the runtime did not make, the runtime has freed neither, and both are freed here. When the profiler detaches,
//! threads that go on are asked to set the earlier one again (`giving_back.rs`).

use std::mem::MaybeUninit;

use super::{Address, SampleSlot, Sending};

/// Room for several frames of the largest size, and the handlers between them. Untouched pages cost no memory.
const SIZE: usize = 128 * 1024;

/// A larger alternate stack for the calling thread, in place of the one that it had.
#[derive(Debug)]
pub(crate) struct AlternateStack {
    /// The thread's earlier alternate stack.
    before: libc::stack_t,
    /// Whether the runtime has made that one. Another maker frees its own at the thread's end, whichever is set.
    is_runtimes: bool,
    memory: StackMemory,
}

/// New memory for a stack: a guard page, then the stack.
#[derive(Debug)]
pub(super) struct StackMemory {
    start: usize,
}

impl StackMemory {
    pub(super) fn new() -> Option<Self> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_STACK;
        // SAFETY: new memory, which no other code knows.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), page() + SIZE, access, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return None;
        }
        let memory = Self { start: start.addr() };
        // SAFETY: the first page of the new mapping.
        let is_guarded = unsafe { libc::mprotect(start, page(), libc::PROT_NONE) == 0 };
        if is_guarded {
            return Some(memory);
        }
        memory.unmap();
        None
    }

    /// The stack in it.
    pub(super) fn stack(&self) -> libc::stack_t {
        let start = std::ptr::without_provenance_mut(self.start + page());
        libc::stack_t { ss_sp: start, ss_flags: 0, ss_size: SIZE }
    }

    pub(super) fn unmap(self) {
        // SAFETY: the mapping that `new` made, which is no thread's alternate stack any more.
        unsafe { libc::munmap(std::ptr::without_provenance_mut(self.start), page() + SIZE) };
    }
}

/// Whether a thread with this alternate stack needs a larger one. Without one, faults are handled on the thread's own
/// stack.
pub(super) const fn is_small(stack: &libc::stack_t) -> bool {
    stack.ss_flags & libc::SS_DISABLE == 0 && stack.ss_size < SIZE
}

// SAFETY: addresses, which are used only on their own thread (`restore`) or after its end (`free`).
unsafe impl Send for AlternateStack {}

/// The reason why a thread cannot have one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refusal {
    /// The thread is on its alternate stack right now.
    InUse,
    /// The system refuses memory or the stack.
    System,
}

pub(super) fn current() -> Option<libc::stack_t> {
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

/// Whether it is one of the runtime's: its lowest page is a guard. Other makers leave the guard out of it.
fn is_runtimes(stack: &libc::stack_t) -> bool {
    let start = stack.ss_sp.addr();
    let size = stack.ss_size;
    let is_whole_pages = start.is_multiple_of(page()) && size.is_multiple_of(page()) && size > page();
    is_whole_pages && !is_readable(start) && is_readable(start + page())
}

/// Whether the memory at `place`, an aligned address, can be read. Asked by a call that every sandbox allows: it would
/// wait for a change there, for no time at all.
fn is_readable(place: usize) -> bool {
    let no_time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let word: *const u32 = std::ptr::without_provenance(place);
    let wait = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the system reads a word, and returns an error for a bad address; it writes nothing.
    let answer = unsafe { libc::syscall(libc::SYS_futex, word, wait, u32::MAX, &raw const no_time) };
    answer == 0 || std::io::Error::last_os_error().raw_os_error() != Some(libc::EFAULT)
}

impl AlternateStack {
    /// Gives the calling thread a larger one. None is necessary, and none set, without an alternate stack (faults are
    /// then handled on the thread's own stack) or if it is large enough already.
    pub(crate) fn enlarge() -> Result<Option<Self>, Refusal> {
        let before = current().ok_or(Refusal::System)?;
        if before.ss_flags & libc::SS_ONSTACK != 0 {
            return Err(Refusal::InUse);
        }
        if !is_small(&before) {
            return Ok(None);
        }
        let memory = StackMemory::new().ok_or(Refusal::System)?;
        if set(&memory.stack()) {
            return Ok(Some(Self::in_place_of(before, memory)));
        }
        memory.unmap();
        Err(Refusal::System)
    }

    /// A thread's new stack, by the one that it had before.
    fn in_place_of(before: libc::stack_t, memory: StackMemory) -> Self {
        Self { before, is_runtimes: is_runtimes(&before), memory }
    }

    /// New memory that is no thread's alternate stack yet; none if the system refuses it.
    pub(super) fn unused() -> Option<Self> {
        let none = libc::stack_t { ss_sp: std::ptr::null_mut(), ss_flags: libc::SS_DISABLE, ss_size: 0 };
        Some(Self { before: none, is_runtimes: false, memory: StackMemory::new()? })
    }

    /// The same memory, for a thread that has its earlier stack again.
    pub(crate) fn without_earlier(self) -> Self {
        Self { is_runtimes: false, ..self }
    }

    /// The same memory in place of another stack.
    pub(super) fn replacing(self, before: libc::stack_t) -> Self {
        Self::in_place_of(before, self.memory)
    }

    /// What a thread sets to have it.
    pub(super) fn stack(&self) -> libc::stack_t {
        self.memory.stack()
    }

    /// The address of the stack.
    pub(super) fn address(&self) -> usize {
        self.memory.stack().ss_sp.addr()
    }

    /// Gives the calling thread its earlier alternate stack back, before the runtime frees the one that it finds at the
    /// thread's end. Changes nothing if another stack is set, or if the thread is on this stack right now.
    pub(crate) fn restore(self) {
        let is_ours = |stack: libc::stack_t| stack.ss_sp.addr() == self.address();
        let is_idle = |stack: &libc::stack_t| stack.ss_flags & libc::SS_ONSTACK == 0;
        if current().filter(is_idle).is_some_and(is_ours) && set(&self.before) {
            self.unmap();
        }
    }

    /// Frees both, after the end of the thread. The runtime has freed neither: its own was not set.
    pub(crate) fn free(self) {
        if self.is_runtimes {
            // SAFETY: the runtime unmaps its stack at the thread's end if it is set, which it was not, and no other
            // code knows it. The tests of `signals` would die if it did;
            // `tens_of_thousands_of_native_threads_leave_no_memory_behind` fails without this.
            unsafe { libc::munmap(self.before.ss_sp, self.before.ss_size) };
        }
        self.unmap();
    }

    /// Asks the thread that has it to set its earlier one again.
    pub(super) fn request_back(&self, slot: &SampleSlot, thread: Address) -> Sending {
        slot.request_return(thread, self.address(), self.before)
    }

    pub(super) fn unmap(self) {
        self.memory.unmap();
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    fn on_a_thread(run: impl FnOnce() + Send + 'static) {
        std::thread::spawn(run).join().unwrap();
    }

    /// As small as the runtime's, and with a guard page in it as it has.
    pub(in super::super) fn set_small() -> libc::stack_t {
        let size = 16 * 1024;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: new memory, whose first page becomes inaccessible.
        let start = unsafe {
            let start = libc::mmap(std::ptr::null_mut(), size, access, flags, -1, 0);
            assert_eq!(libc::mprotect(start, page(), libc::PROT_NONE), 0);
            start
        };
        let stack = libc::stack_t { ss_sp: start, ss_flags: 0, ss_size: size };
        assert!(set(&stack));
        stack
    }

    /// As another than the runtime makes them.
    fn set_other() -> libc::stack_t {
        let memory = vec![0u8; 16 * 1024].leak();
        let stack = libc::stack_t { ss_sp: memory.as_mut_ptr().cast(), ss_flags: 0, ss_size: memory.len() };
        assert!(set(&stack));
        stack
    }

    const MARK: usize = 0x5AFE_57AC;

    /// Marks the last word of a stack; returns its address.
    fn mark(end: usize) -> usize {
        let place = end - size_of::<usize>();
        // SAFETY: the last word of a mapped stack that no handler runs on.
        unsafe { std::ptr::with_exposed_provenance_mut::<usize>(place).write_volatile(MARK) };
        place
    }

    /// Whether it is still the same memory: what is unmapped may be another's at once.
    fn is_there(place: usize) -> bool {
        let mut bytes = [0; size_of::<usize>()];
        crate::system::read_memory(place, &mut bytes) && usize::from_ne_bytes(bytes) == MARK
    }

    fn end(stack: libc::stack_t) -> usize {
        stack.ss_sp.expose_provenance() + stack.ss_size
    }

    #[test]
    fn a_small_one_is_replaced_and_given_back() {
        on_a_thread(|| {
            let small = set_small();
            let big = AlternateStack::enlarge().unwrap().unwrap();
            let now = current().unwrap();
            assert_eq!((now.ss_size, now.ss_sp.addr()), (SIZE, big.address()));
            assert!(AlternateStack::enlarge().unwrap().is_none(), "it is big enough");
            let places = [small, now].map(end).map(mark);
            big.restore();
            assert_eq!((current().unwrap().ss_sp, current().unwrap().ss_size), (small.ss_sp, small.ss_size));
            assert_eq!(places.map(is_there), [true, false]);
        });
    }

    /// The stacks of a thread that has ended with a larger one set.
    fn after_the_end(set_first: fn() -> libc::stack_t) -> [bool; 2] {
        let make = move || {
            let first = set_first();
            let big = AlternateStack::enlarge().unwrap().unwrap();
            let places = [first, current().unwrap()].map(end).map(mark);
            let none = libc::stack_t { ss_sp: std::ptr::null_mut(), ss_flags: libc::SS_DISABLE, ss_size: SIZE };
            // As the runtime does at a thread's end, and then frees its own if it was set.
            assert!(set(&none));
            (places, big)
        };
        let (places, big) = std::thread::spawn(make).join().unwrap();
        assert_eq!(places.map(is_there), [true, true]);
        big.free();
        places.map(is_there)
    }

    #[test]
    fn of_an_ended_thread_the_runtime_s_and_the_larger_one_are_freed() {
        assert_eq!(after_the_end(set_small), [false, false]);
        assert_eq!(after_the_end(set_other), [true, false]);
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
            let other = set_other();
            big.restore();
            assert_eq!(current().unwrap().ss_sp, other.ss_sp);
        });
    }
}

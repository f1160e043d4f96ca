//! Makes a call that may touch unmapped memory, without a crash of the process.
//!
//! A vectored handler receives a fault before all others. If the fault is on the thread that has armed the guard, the
//! handler sends that thread back to the start of the call. Only code without locks may be called this way, as nothing
//! is cleaned up on the way.

use std::arch::naked_asm;
use std::ffi::c_void;
use std::sync::Once;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};

use windows_sys::Win32::Foundation::{
    EXCEPTION_ACCESS_VIOLATION, EXCEPTION_ILLEGAL_INSTRUCTION, EXCEPTION_IN_PAGE_ERROR, STATUS_GUARD_PAGE_VIOLATION,
};
use windows_sys::Win32::System::Diagnostics::Debug::{AddVectoredExceptionHandler, EXCEPTION_POINTERS};

const CONTINUE_EXECUTION: i32 = -1;
const CONTINUE_SEARCH: i32 = 0;

/// A thread whose faults are caught.
struct Guarded {
    /// Its key, or 0.
    owner: AtomicUsize,
    /// The address and the stack pointer at which it continues after a fault.
    return_to: [AtomicU64; 2],
}

/// As many as threads of corprof's walk other threads' native frames at the same time, and some for tests.
static GUARDED: [Guarded; 8] =
    [const { Guarded { owner: AtomicUsize::new(0), return_to: [const { AtomicU64::new(0) }; 2] } }; 8];

/// Installs the handler. It allocates memory, so this comes before any thread is stopped. The handler stays for good,
/// in a library that stays as well (`pin_library`).
pub(super) fn prepare() {
    static ONCE: Once = Once::new();
    // SAFETY: the handler may be called on any thread at any time, and is written for that.
    ONCE.call_once(|| unsafe {
        AddVectoredExceptionHandler(1, Some(on_exception));
    });
}

/// Calls `call`, and returns whether it came to its end; if not, it has touched unmapped memory, and the rest of it
/// never ran. None if too many threads are using the guard.
///
/// # Safety
/// `call` must hold no lock, own nothing and leave nothing half-done that matters, at any moment when it may fault.
pub(super) unsafe fn call<F: FnMut()>(mut call: F) -> Option<bool> {
    unsafe extern "C" fn run<F: FnMut()>(call: *mut c_void) {
        // SAFETY: it is the closure below, which has no other user meanwhile.
        unsafe { (*call.cast::<F>())() }
    }
    let key = crate::system::thread_key();
    let is_taken = |guarded: &&Guarded| guarded.owner.compare_exchange(0, key, SeqCst, SeqCst).is_ok();
    let guarded = GUARDED.iter().find(is_taken)?;
    // SAFETY: the caller vouches for the closure; the handler reads the two words.
    let faulted = unsafe { enter(guarded.return_to.as_ptr(), run::<F>, (&raw mut call).cast()) };
    guarded.owner.store(0, SeqCst);
    Some(faulted == 0)
}

unsafe extern "system" fn on_exception(exception: *mut EXCEPTION_POINTERS) -> i32 {
    let key = crate::system::thread_key();
    let Some(guarded) = GUARDED.iter().find(|guarded| guarded.owner.load(SeqCst) == key) else {
        return CONTINUE_SEARCH;
    };
    // SAFETY: the system passes both structures for the time of the call. The registers set here are those that `enter`
    // has saved on this very thread, which is still inside `enter`, as the guard is armed.
    unsafe {
        let record = &*(*exception).ExceptionRecord;
        let context = &mut *(*exception).ContextRecord;
        let is_fault = matches!(
            record.ExceptionCode,
            EXCEPTION_ACCESS_VIOLATION
                | EXCEPTION_IN_PAGE_ERROR
                | EXCEPTION_ILLEGAL_INSTRUCTION
                | STATUS_GUARD_PAGE_VIOLATION
        );
        if !is_fault {
            return CONTINUE_SEARCH;
        }
        context.Rip = guarded.return_to[0].load(SeqCst);
        context.Rsp = guarded.return_to[1].load(SeqCst);
    }
    CONTINUE_EXECUTION
}

/// Saves at `_return_to` where to come back to, calls `_run(_data)`, and returns 0; or 1 when the handler has brought
/// it back. It restores all registers that a function must keep, as the called function had no chance to.
#[unsafe(naked)]
unsafe extern "C" fn enter(
    _return_to: *const AtomicU64,
    _run: unsafe extern "C" fn(*mut c_void),
    _data: *mut c_void,
) -> u32 {
    naked_asm!(
        ".seh_proc {enter}",
        "push rbp",
        ".seh_pushreg rbp",
        "push rbx",
        ".seh_pushreg rbx",
        "push rsi",
        ".seh_pushreg rsi",
        "push rdi",
        ".seh_pushreg rdi",
        "push r12",
        ".seh_pushreg r12",
        "push r13",
        ".seh_pushreg r13",
        "push r14",
        ".seh_pushreg r14",
        "push r15",
        ".seh_pushreg r15",
        // Room for the callee (32 bytes), ten registers of 16, and 8 for the alignment.
        "sub rsp, 200",
        ".seh_stackalloc 200",
        ".seh_endprologue",
        "movups [rsp + 32], xmm6",
        "movups [rsp + 48], xmm7",
        "movups [rsp + 64], xmm8",
        "movups [rsp + 80], xmm9",
        "movups [rsp + 96], xmm10",
        "movups [rsp + 112], xmm11",
        "movups [rsp + 128], xmm12",
        "movups [rsp + 144], xmm13",
        "movups [rsp + 160], xmm14",
        "movups [rsp + 176], xmm15",
        "lea rax, [rip + 2f]",
        "mov [rcx], rax",
        "mov [rcx + 8], rsp",
        "mov rcx, r8",
        "call rdx",
        "xor eax, eax",
        "jmp 3f",
        "2:",
        "mov eax, 1",
        "3:",
        "movups xmm6, [rsp + 32]",
        "movups xmm7, [rsp + 48]",
        "movups xmm8, [rsp + 64]",
        "movups xmm9, [rsp + 80]",
        "movups xmm10, [rsp + 96]",
        "movups xmm11, [rsp + 112]",
        "movups xmm12, [rsp + 128]",
        "movups xmm13, [rsp + 144]",
        "movups xmm14, [rsp + 160]",
        "movups xmm15, [rsp + 176]",
        "add rsp, 200",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rdi",
        "pop rsi",
        "pop rbx",
        "pop rbp",
        "ret",
        ".seh_endproc",
        enter = sym enter,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_is_an_answer_and_what_was_before_is_kept() {
        prepare();
        let kept = std::hint::black_box([1.5_f64, 2.5, 3.5]);
        // SAFETY: the closures hold no lock and own nothing.
        let (bad, good) = unsafe {
            let bad = call(|| {
                std::hint::black_box(std::ptr::dangling::<u64>().read_volatile());
            });
            let mut sum = 0;
            (bad, call(|| sum += 1).map(|done| (done, sum)))
        };
        assert_eq!((bad, good), (Some(false), Some((true, 1))));
        assert_eq!(kept, [1.5, 2.5, 3.5]);
    }
}

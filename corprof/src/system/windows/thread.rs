//! A thread of this process on Windows: stops and resumes it, reads its registers, its stack's bounds and its processor
//! time.

use std::ffi::c_void;
use std::ops::Range;
use std::sync::OnceLock;
use std::time::Duration;

use windows_sys::Wdk::System::Threading::{NtQueryInformationThread, ThreadBasicInformation};
use windows_sys::Win32::Foundation::{CloseHandle, HANDLE};
use windows_sys::Win32::System::Diagnostics::Debug::{CONTEXT, CONTEXT_FULL_AMD64, GetThreadContext};
use windows_sys::Win32::System::LibraryLoader::GetModuleHandleW;
use windows_sys::Win32::System::ProcessStatus::{GetModuleInformation, MODULEINFO};
use windows_sys::Win32::System::Threading::{
    GetCurrentProcess, GetCurrentProcessId, GetCurrentThreadId, GetThreadId, OpenThread, ResumeThread, SuspendThread,
    THREAD_GET_CONTEXT, THREAD_QUERY_INFORMATION, THREAD_SUSPEND_RESUME,
};

use super::{cpu_time, guard};

/// The offset in a thread's environment block of the end of its stack; the lowest address in use follows.
const STACK_IN_TEB: usize = 8;

/// The kernel's data about a thread, unchanged since the first NT.
#[repr(C)]
#[derive(Default)]
struct BasicInformation {
    exit_status: i32,
    teb: usize,
    process_id: usize,
    thread_id: usize,
    affinity: usize,
    priority: i32,
    base_priority: i32,
}

/// An open thread of this process. It may end at any time; its id is not reused while this is open.
#[derive(Debug)]
pub(crate) struct Thread {
    handle: HANDLE,
    id: u32,
    /// The address of its environment block.
    teb: usize,
}

/// The registers of a thread at one moment. The processor requires the alignment.
#[repr(C, align(16))]
#[derive(Clone, Copy)]
pub(crate) struct Registers(pub(super) CONTEXT);

/// The operating system's id of the calling thread.
pub(crate) fn current_id() -> u32 {
    // SAFETY: takes no arguments and touches no memory.
    unsafe { GetCurrentThreadId() }
}

/// The address range of the system's library that makes system calls.
fn system_library() -> Option<Range<usize>> {
    static LIBRARY: OnceLock<Option<Range<usize>>> = OnceLock::new();
    let find = || {
        let name: Vec<u16> = "ntdll.dll\0".encode_utf16().collect();
        let mut information =
            MODULEINFO { lpBaseOfDll: std::ptr::null_mut(), SizeOfImage: 0, EntryPoint: std::ptr::null_mut() };
        let size = size_of::<MODULEINFO>() as u32;
        // SAFETY: the name ends with a 0; the handle belongs to a module that no process unloads; the call writes at
        // most the given size.
        let is_known = unsafe {
            let library = GetModuleHandleW(name.as_ptr());
            !library.is_null() && GetModuleInformation(GetCurrentProcess(), library, &mut information, size) != 0
        };
        let start = information.lpBaseOfDll.addr();
        is_known.then(|| start..start + information.SizeOfImage as usize)
    };
    LIBRARY.get_or_init(find).clone()
}

/// Prepares [`Registers::is_in_system_call`]. Call it before any thread is stopped.
pub(crate) fn prepare() {
    system_library();
}

/// A thread that is stopped until this is dropped: an early return and a panic resume it too.
///
/// It may hold a lock of the heap or of the loader. Until it is resumed, make no call that needs one.
#[derive(Debug)]
pub(crate) struct Stopped<'t> {
    thread: &'t Thread,
}

impl Thread {
    /// Opens the thread with this id; none if this process has no such thread, or if it is the calling one, which could
    /// never resume itself.
    pub(crate) fn open(os_thread_id: u32) -> Option<Self> {
        let rights = THREAD_SUSPEND_RESUME | THREAD_GET_CONTEXT | THREAD_QUERY_INFORMATION;
        // SAFETY: takes no memory of ours.
        let handle = unsafe { (GetCurrentThreadId() != os_thread_id).then(|| OpenThread(rights, 0, os_thread_id)) }?;
        if handle.is_null() {
            return None;
        }
        let mut thread = Self { handle, id: os_thread_id, teb: 0 };
        // SAFETY: takes no arguments.
        let own = unsafe { GetCurrentProcessId() };
        thread.teb = thread.information().filter(|information| information.process_id == own as usize)?.teb;
        Some(thread)
    }

    /// Stops the thread; none if it has ended.
    ///
    /// SuspendThread only requests the stop. The thread is stopped once its registers have been read
    /// ([`Stopped::registers`]).
    pub(crate) fn stop(&self) -> Option<Stopped<'_>> {
        // SAFETY: the handle is open, with the right to stop. The call returns the number of earlier stops, or all
        // ones.
        let before = unsafe { SuspendThread(self.handle) };
        // Not `then_some`: the value would be made in any case, and its drop resumes the thread.
        (before != u32::MAX).then(|| Stopped { thread: self })
    }

    /// Resumes the thread in place of the thread that has stopped it and cannot resume it; returns the number of stops
    /// before. 0 and all ones mean that it was not stopped.
    pub(crate) fn resume_for_another(&self) -> u32 {
        // SAFETY: the handle is open, with the right to resume. The call does not affect a running thread.
        unsafe { ResumeThread(self.handle) }
    }

    /// Whether `handle`, opened elsewhere, belongs to this thread. It takes no lock and allocates no memory.
    pub(crate) fn is_that_of(&self, handle: *mut c_void) -> bool {
        // SAFETY: accepts any value, and returns 0 if it is not a thread's handle.
        unsafe { GetThreadId(handle) == self.id }
    }

    /// The thread's processor time. The scheduler counts in steps of some 16 ms.
    pub(crate) fn cpu_time(&self) -> Option<Duration> {
        // SAFETY: the handle is open, with the right to query.
        unsafe { cpu_time::time_of(self.handle) }
    }

    fn information(&self) -> Option<BasicInformation> {
        let mut information = BasicInformation::default();
        let size = size_of::<BasicInformation>() as u32;
        // SAFETY: the handle is open, with the right to query; the call writes at most the given size.
        let status = unsafe {
            NtQueryInformationThread(
                self.handle,
                ThreadBasicInformation,
                (&raw mut information).cast(),
                size,
                std::ptr::null_mut(),
            )
        };
        (status == 0).then_some(information)
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        // SAFETY: opened by `open`, and closed only here.
        unsafe { CloseHandle(self.handle) };
    }
}

// SAFETY: a handle belongs to the process, and any of its threads may use it.
unsafe impl Send for Thread {}
// SAFETY: as above; the kernel orders the calls on it.
unsafe impl Sync for Thread {}

impl Stopped<'_> {
    /// The registers, read once the thread is really stopped; none if it has ended instead.
    pub(crate) fn registers(&self) -> Option<Registers> {
        // SAFETY: registers are plain numbers.
        let mut registers: Registers = unsafe { std::mem::zeroed() };
        registers.0.ContextFlags = CONTEXT_FULL_AMD64;
        // SAFETY: the handle is open, with the right to query; the structure is aligned and says which registers are
        // requested.
        let is_read = unsafe { GetThreadContext(self.thread.handle, &mut registers.0) != 0 };
        is_read.then_some(registers)
    }

    /// The part of the stack that is in use; none if the thread's environment block cannot be read, or makes no sense.
    ///
    /// It makes no system call: the thread stands still meanwhile. Call it after
    /// [`unwind::prepare`](super::unwind::prepare).
    pub(crate) fn stack(&self) -> Option<Range<usize>> {
        let teb = self.thread.teb;
        let mut bounds = [0_usize; 2];
        let from = (teb + STACK_IN_TEB) as *const [usize; 2];
        // SAFETY: the closure owns nothing. The block is aligned and mapped while the thread lives; if it has ended,
        // the read faults, and the guard catches that.
        let is_read = teb != 0 && unsafe { guard::call(|| bounds = from.read_volatile()) } == Some(true);
        let [end, start] = bounds;
        (is_read && start < end && end.is_multiple_of(8)).then_some(start..end)
    }
}

impl Stopped<'_> {
    /// Ends the stop without resuming the thread, which another thread has resumed.
    pub(crate) fn was_resumed(self) {
        std::mem::forget(self);
    }
}

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        // SAFETY: the handle is open, with the right to resume, and this thread has stopped it once.
        unsafe { ResumeThread(self.thread.handle) };
    }
}

impl Registers {
    /// The registers in a context that the runtime shows; none if it is shorter than Windows' own.
    ///
    /// # Safety
    /// `context` has `size` readable bytes.
    pub(crate) unsafe fn of_context(context: *const u8, size: u32) -> Option<Self> {
        let is_whole = !context.is_null() && size as usize >= size_of::<CONTEXT>();
        // SAFETY: the caller promises the structure; it is plain numbers, and may be at any address.
        is_whole.then(|| Self(unsafe { context.cast::<CONTEXT>().read_unaligned() }))
    }

    /// The address of the next instruction.
    pub(crate) fn ip(&self) -> usize {
        self.0.Rip as usize
    }

    /// Whether the thread is in a system call, which nearly always means that it waits. After [`prepare`] this takes no
    /// lock.
    ///
    /// In a system call, the next instruction is the one behind the call to the system: `syscall`, `int 2Eh`, or, under
    /// Wine, a call through a fixed address.
    pub(crate) fn is_in_system_call(&self) -> bool {
        const CALLS: [&[u8]; 3] = [&[0x0F, 0x05], &[0xCD, 0x2E], &[0xFF, 0x14, 0x25, 0x00, 0x10, 0xFE, 0x7F]];
        const LONGEST: usize = 7;
        let Some(library) = system_library().filter(|library| library.contains(&self.ip())) else { return false };
        // Not before the page of the instruction: that page is readable, as it is being executed.
        let start = self.ip().saturating_sub(LONGEST).max(self.ip() & !0xFFF).max(library.start);
        // SAFETY: the bytes lie on the page that the thread executes, in a library that is never unloaded.
        let before = unsafe { std::slice::from_raw_parts(start as *const u8, self.ip() - start) };
        CALLS.iter().any(|call| before.ends_with(call))
    }

    /// The stack pointer.
    pub(crate) fn sp(&self) -> usize {
        self.0.Rsp as usize
    }

    /// All of them, as the seed of DoStackSnapshot: the structure and its size.
    pub(crate) fn as_bytes(&self) -> (*const u8, u32) {
        ((&raw const self.0).cast(), size_of::<CONTEXT>() as u32)
    }
}

//! Unwinds the native frames of a stopped thread, by the tables in every x64 module.
//!
//! No code in here allocates memory or takes a lock of ours. RtlLookupFunctionEntry does take locks of the system,
//! which the stopped thread may hold: `lock_check.rs` checks that first.

use std::ops::{ControlFlow, Range};

use windows_sys::Win32::System::Diagnostics::Debug::{RtlLookupFunctionEntry, RtlVirtualUnwind, UNW_FLAG_NHANDLER};

use super::guard;
use super::thread::Registers;

/// The reason why there is no further frame.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum UnwindError {
    /// The instruction pointer is 0: this was the thread's first frame.
    End,
    /// The stack pointer is not within the thread's stack, is odd, or did not move towards its end.
    Stack,
    /// The tables led to unmapped memory.
    Fault,
    /// More frames than the limit.
    TooDeep,
    /// The callback asked to stop.
    Stopped,
    /// Too many other threads are unwinding.
    Busy,
}

/// Registers with which the runtime can begin a walk: their instruction pointer is in managed code, and their stack
/// pointer within the thread's stack. Only [`seed`] makes one.
pub(crate) struct Seed {
    registers: Registers,
}

impl Seed {
    /// The registers, as an argument of DoStackSnapshot.
    pub(crate) fn as_bytes(&self) -> (*const u8, u32) {
        self.registers.as_bytes()
    }

    /// The registers themselves.
    pub(crate) fn registers(&self) -> &Registers {
        &self.registers
    }
}

/// Prepares [`seed`] and [`step`]. Call it before any thread is stopped.
pub(crate) fn prepare() {
    guard::prepare();
}

/// The innermost managed frame of a stopped thread with these registers and this stack, searched through at most `most`
/// native ones; `on_native` is called with the instruction and stack pointer of each.
///
/// `is_managed` says whether an instruction pointer is in managed code (GetFunctionFromIP).
///
/// # Errors
/// If there is none, or it cannot be reached.
pub(crate) fn seed(
    mut registers: Registers,
    stack: &Range<usize>,
    most: usize,
    mut is_managed: impl FnMut(usize) -> bool,
    mut on_native: impl FnMut(usize, usize) -> ControlFlow<()>,
) -> Result<Seed, UnwindError> {
    for _ in 0..most {
        check(&registers, stack)?;
        if is_managed(registers.ip()) {
            return Ok(Seed { registers });
        }
        if on_native(registers.ip(), registers.sp()).is_break() {
            return Err(UnwindError::Stopped);
        }
        step(&mut registers, stack)?;
    }
    Err(UnwindError::TooDeep)
}

/// Changes `registers` to those of the caller. Leaves them unchanged on an error.
///
/// # Errors
/// If there is no caller, or it cannot be found; see [`UnwindError`].
pub(crate) fn step(registers: &mut Registers, stack: &Range<usize>) -> Result<(), UnwindError> {
    check(registers, stack)?;
    let mut caller = *registers;
    let mut base = 0;
    // SAFETY: the call looks an address up and accepts any; it writes one number.
    let function = unsafe { RtlLookupFunctionEntry(caller.0.Rip, &mut base, std::ptr::null_mut()) };
    if function.is_null() {
        // A function without an entry does not move the stack pointer: its return address is on top of the stack.
        let top = caller.0.Rsp as *const u64;
        // SAFETY: the stack pointer is aligned and within the part of the stack that is in use, as was checked. If the
        // watchdog has resumed the thread and it has ended, the read faults, and the guard catches that.
        let is_read = unsafe { guard::call(|| caller.0.Rip = top.read_volatile()) };
        if !is_read.ok_or(UnwindError::Busy)? {
            return Err(UnwindError::Fault);
        }
        caller.0.Rsp += 8;
    } else {
        let mut data = std::ptr::null_mut();
        let mut establisher = 0;
        let ip = caller.0.Rip;
        // SAFETY: the entry belongs to this very address, and its module is mapped, or was when it was found. If it is
        // unmapped, or a register leads elsewhere, the read faults, and the guard catches that. RtlVirtualUnwind takes
        // no lock, and writes only to this stack.
        let is_done = unsafe {
            guard::call(|| {
                RtlVirtualUnwind(
                    UNW_FLAG_NHANDLER,
                    base,
                    ip,
                    function,
                    &mut caller.0,
                    &mut data,
                    &mut establisher,
                    std::ptr::null_mut(),
                );
            })
        };
        if !is_done.ok_or(UnwindError::Busy)? {
            return Err(UnwindError::Fault);
        }
    }
    if caller.ip() == 0 {
        return Err(UnwindError::End);
    }
    if caller.sp() <= registers.sp() {
        return Err(UnwindError::Stack);
    }
    check(&caller, stack)?;
    *registers = caller;
    Ok(())
}

/// A bad stack pointer gives an error, and is not read from.
fn check(registers: &Registers, stack: &Range<usize>) -> Result<(), UnwindError> {
    let sp = registers.sp();
    if sp.is_multiple_of(8) && stack.contains(&sp) { Ok(()) } else { Err(UnwindError::Stack) }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
    use std::time::{Duration, Instant};

    use super::super::thread::Thread;
    use super::*;

    static OVER: AtomicBool = AtomicBool::new(false);

    #[inline(never)]
    fn spin(deep: u32) -> u32 {
        if deep > 0 {
            return std::hint::black_box(spin(deep - 1)) + 1;
        }
        while !OVER.load(SeqCst) {
            std::hint::spin_loop();
        }
        0
    }

    #[test]
    fn the_frames_of_a_thread_that_spins_are_found_and_nonsense_is_an_error() {
        prepare();
        let id = std::sync::Arc::new(AtomicU32::new(0));
        let spinner = std::thread::spawn({
            let id = id.clone();
            move || {
                id.store(crate::system::os_thread_id(), SeqCst);
                spin(20)
            }
        });
        let start = Instant::now();
        while id.load(SeqCst) == 0 && start.elapsed() < Duration::from_secs(60) {
            std::thread::yield_now();
        }
        std::thread::sleep(Duration::from_millis(100));
        let thread = Thread::open(id.load(SeqCst)).unwrap();
        let start_of_spin = spin as *const () as usize;
        let within = start_of_spin..start_of_spin + 4096;
        let mut ips = [0_usize; 128];
        for _ in 0..100 {
            let mut count = 0;
            let stopped = thread.stop().unwrap();
            let registers = stopped.registers().unwrap();
            let stack = stopped.stack().unwrap();
            let found = seed(
                registers,
                &stack,
                128,
                |_| false,
                |ip, _| {
                    ips[count] = ip;
                    count += 1;
                    ControlFlow::Continue(())
                },
            );
            drop(stopped);
            let spinning = ips[..count].iter().filter(|ip| within.contains(*ip)).count();
            assert!((21..count).contains(&spinning), "{spinning} of {count}");
            assert!(matches!(found, Err(UnwindError::End | UnwindError::Stack)), "{:?}", found.err());
        }

        // The managed function is the seed, and its stack pointer is within the stack.
        let stopped = thread.stop().unwrap();
        let registers = stopped.registers().unwrap();
        let stack = stopped.stack().unwrap();
        let is_managed = |ip| !within.contains(&ip);
        let seed = seed(registers, &stack, 128, is_managed, |_, _| ControlFlow::Continue(())).ok().unwrap();
        let mut registers = *seed.registers();
        drop(stopped);
        assert!(stack.contains(&registers.sp()) && !within.contains(&registers.ip()));

        // Registers that lead nowhere.
        let mut torn = registers;
        torn.0.Rsp = 16;
        assert_eq!(step(&mut torn, &stack), Err(UnwindError::Stack));
        torn.0.Rsp = registers.0.Rsp + 1;
        assert_eq!(step(&mut torn, &stack), Err(UnwindError::Stack));
        registers.0.Rbp = 8;
        let _ = step(&mut registers, &stack); // any result, but no crash
        // Asked while the thread lives, because Wine forgets the time when it ends.
        while thread.cpu_time().unwrap() < Duration::from_millis(10) {
            assert!(start.elapsed() < Duration::from_secs(60), "busy, and no time passes");
        }
        OVER.store(true, SeqCst);
        assert_eq!(spinner.join().unwrap(), 20);
        // Its handle is still open, but the thread can no longer be stopped.
        assert!(thread.stop().is_none_or(|stopped| stopped.registers().is_none() || stopped.stack().is_none()));
        assert!(Thread::open(crate::system::os_thread_id()).is_none(), "one's own");
        assert!(Thread::open(0x3FFF_FFFE).is_none(), "nobody's");
    }
}

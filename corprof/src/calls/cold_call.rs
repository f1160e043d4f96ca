//! [`cold_call`]: an outlined call for rare work, which costs the common path of a hook nothing. A stand-in for
//! `preserve_most`.
//!
//! Any call may overwrite half of the registers. So a function with a call in it, even one made once in a million times, saves
//! some registers at its beginning and restores them at its end, each time: in a hook of twenty instructions, every fourth. On
//! x86-64 a rare call therefore goes through a few instructions that save the registers at the call itself.

use std::mem::{ManuallyDrop, MaybeUninit};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::thread;

/// The closure before the call, and its result afterwards.
struct Call<C, R> {
    rare: ManuallyDrop<C>,
    answer: MaybeUninit<thread::Result<R>>,
}

impl<C: FnOnce() -> R, R> Call<C, R> {
    /// Lets no panic out: [`call_keeping`] cannot unwind.
    ///
    /// # Safety
    /// It has not run before.
    unsafe extern "C" fn run(&mut self) {
        // SAFETY: nothing has taken the closure yet, by the caller's promise.
        let rare = unsafe { ManuallyDrop::take(&mut self.rare) };
        self.answer.write(catch_unwind(AssertUnwindSafe(rare)));
    }
}

/// Runs `rare`. The calling function saves no registers for it.
#[inline(always)]
pub(super) fn cold_call<R>(rare: impl FnOnce() -> R) -> R {
    let mut call = Call { rare: ManuallyDrop::new(rare), answer: MaybeUninit::uninit() };
    // SAFETY: it has not run before; after the call it has written the result.
    let answer = unsafe {
        call_keeping(&mut call);
        call.answer.assume_init()
    };
    answer.unwrap_or_else(|panic| resume_unwind(panic))
}

/// Keeps all registers except the vectors named below: a hook has no values in those.
#[cfg(all(target_arch = "x86_64", not(windows), not(target_feature = "avx512f"), not(miri)))]
///
/// # Safety
/// As [`Call::run`], which it calls.
#[inline(always)]
unsafe fn call_keeping<C: FnOnce() -> R, R>(call: &mut Call<C, R>) {
    let run: unsafe extern "C" fn(&mut Call<C, R>) = Call::run;
    // SAFETY: `keep_and_call` calls the function in rax with the value of rdi, as that function expects. It does not unwind,
    // and it keeps every register that C lets it overwrite and that is not named as overwritten. Only with AVX-512 does a
    // processor have more registers than these vectors. The block may use the stack.
    unsafe {
        std::arch::asm!(
            "call {keep_and_call}",
            keep_and_call = sym keep_and_call,
            inout("rax") run => _,
            inout("rdi") &raw mut *call => _,
            out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _, out("xmm4") _, out("xmm5") _, out("xmm6") _,
            out("xmm7") _, out("xmm8") _, out("xmm9") _, out("xmm10") _, out("xmm11") _, out("xmm12") _, out("xmm13") _,
            out("xmm14") _, out("xmm15") _, out("mm0") _, out("mm1") _, out("mm2") _, out("mm3") _, out("mm4") _,
            out("mm5") _, out("mm6") _, out("mm7") _, out("st(0)") _, out("st(1)") _, out("st(2)") _, out("st(3)") _,
            out("st(4)") _, out("st(5)") _, out("st(6)") _, out("st(7)") _,
        );
    }
}

/// Calls the function in rax, and keeps the integer registers, except rax and rdi, that C does not keep.
///
/// The stack is aligned when it is called, so an odd number of registers aligns it again.
#[cfg(all(target_arch = "x86_64", not(windows), not(target_feature = "avx512f"), not(miri)))]
#[unsafe(naked)]
extern "C" fn keep_and_call() {
    std::arch::naked_asm!(
        ".cfi_startproc",
        "sub rsp, 56",
        ".cfi_adjust_cfa_offset 56",
        "mov [rsp], rcx",
        "mov [rsp + 8], rdx",
        "mov [rsp + 16], rsi",
        "mov [rsp + 24], r8",
        "mov [rsp + 32], r9",
        "mov [rsp + 40], r10",
        "mov [rsp + 48], r11",
        "call rax",
        "mov r11, [rsp + 48]",
        "mov r10, [rsp + 40]",
        "mov r9, [rsp + 32]",
        "mov r8, [rsp + 24]",
        "mov rsi, [rsp + 16]",
        "mov rdx, [rsp + 8]",
        "mov rcx, [rsp]",
        "add rsp, 56",
        ".cfi_adjust_cfa_offset -56",
        "ret",
        ".cfi_endproc",
    )
}

/// An ordinary call.
#[cfg(not(all(target_arch = "x86_64", not(windows), not(target_feature = "avx512f"), not(miri))))]
///
/// # Safety
/// As [`Call::run`], which it calls.
#[cold]
#[inline(never)]
unsafe fn call_keeping<C: FnOnce() -> R, R>(call: &mut Call<C, R>) {
    // SAFETY: the caller's promise.
    unsafe { call.run() };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_rare_is_done_and_answered() {
        let (mut log, more) = (Vec::new(), String::from("more"));
        let length = cold_call(|| {
            log.push(more);
            log.len()
        });
        assert_eq!((length, log), (1, vec!["more".to_owned()]));
    }

    #[test]
    fn what_was_at_hand_before_is_so_after() {
        // More values than there are registers, all of which the optimizer would like to keep in registers.
        let mut all = std::hint::black_box([3_u64, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59]);
        let mut overwritten = 0;
        for round in 0..1000_u64 {
            let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = all;
            if std::hint::black_box(round) % 7 == 0 {
                // A call that uses registers of all kinds.
                overwritten += cold_call(|| format!("{} {:.3}", round, round as f64 / 3.0).len());
            }
            all = [b ^ round, c, d, e, f, g, h, i, j, k, l, m, n, o, p, a.wrapping_add(b)];
        }
        let mut expected = [3_u64, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59];
        for round in 0..1000 {
            let (first, second) = (expected[0], expected[1]);
            expected.rotate_left(1);
            expected[0] ^= round;
            expected[15] = first.wrapping_add(second);
        }
        assert_eq!(all, expected);
        assert!(overwritten > 0);
    }

    #[test]
    fn a_panic_passes_through() {
        let panic = catch_unwind(|| cold_call(|| -> u32 { std::panic::panic_any(42_u8) })).unwrap_err();
        assert_eq!(panic.downcast_ref(), Some(&42_u8));
    }
}

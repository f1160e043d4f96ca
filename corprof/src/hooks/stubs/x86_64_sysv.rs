//! x86-64, System V: Linux and macOS.
//!
//! Enter gets its arguments in r14 and r15, which the callee saves; Leave and Tailcall get theirs as in C. The lists
//! have all other registers that must survive and that C may overwrite. No result and no argument is in the upper parts
//! of ymm and zmm, but an argument of a tail call may be (`vector_tail_calls.rs`), so Tailcall saves what the processor
//! has of them.
//!
//! Registers that return values: rax, rdx, xmm0 and xmm1 by the ABI; rcx, the continuation of a runtime-async method
//! (docs/design/coreclr/botr/runtime-async-codegen.md, `REG_ASYNC_CONTINUATION_RET`), which is 0 when the method has
//! finished; by Swift's convention also rcx, r8, xmm2 and xmm3 (`REG_SWIFT_INTRET_ORDER` in jit/targetamd64.h). Swift's
//! error and self are in r12 and r13, which the callee saves.

use std::arch::naked_asm;

use super::{NEVER, OURS, PLAIN_ARGUMENTS, PLAIN_RESULT, Target};

/// A stub that saves the registers of `general`, and those of `vectors` unless the tag is set, each at its place in the
/// frame.
///
/// A call leaves the stack pointer 8 off a multiple of 16, so a frame is 8 off as well.
macro_rules! stub {
    (
        $(#[$doc:meta])*
        $name:ident calls $target:ident, $tag:ident in $low:literal, arguments { $($to:literal = $from:literal)* },
        general [$($general:literal at $place:literal),*] in $small:literal,
        vectors by $move:literal [$($vector:literal at $spot:literal),*] in $large:literal
    ) => {
        $(#[$doc])*
        #[unsafe(naked)]
        pub(super) unsafe extern "C-unwind" fn $name<T: Target>() {
            naked_asm!(
                ".cfi_startproc",
                concat!("test ", $low, ", {plain}"),
                "jz 2f",
                concat!("sub rsp, ", $small),
                concat!(".cfi_adjust_cfa_offset ", $small),
                $(concat!("mov [rsp + ", $place, "], ", $general),)*
                $(concat!("mov ", $to, ", ", $from),)*
                "call {target}",
                $(concat!("mov ", $general, ", [rsp + ", $place, "]"),)*
                concat!("add rsp, ", $small),
                concat!(".cfi_adjust_cfa_offset -", $small),
                "ret",
                "2:",
                concat!("sub rsp, ", $large),
                concat!(".cfi_adjust_cfa_offset ", $large),
                concat!("test ", $low, ", {ours}"),
                "jz 3f",
                $(concat!("mov [rsp + ", $place, "], ", $general),)*
                $(concat!($move, " [rsp + ", $spot, "], ", $vector),)*
                $(concat!("mov ", $to, ", ", $from),)*
                "call {target}",
                $(concat!($move, " ", $vector, ", [rsp + ", $spot, "]"),)*
                $(concat!("mov ", $general, ", [rsp + ", $place, "]"),)*
                "3:",
                concat!("add rsp, ", $large),
                concat!(".cfi_adjust_cfa_offset -", $large),
                "ret",
                ".cfi_endproc",
                plain = const $tag,
                ours = const OURS,
                target = sym <T as Target>::$target,
            )
        }
    };
}

stub! {
    /// Enter: the method's arguments are still in their registers.
    enter calls enter, PLAIN_ARGUMENTS in "r14b", arguments { "rdi" = "r14" "rsi" = "r15" },
    general ["rax" at 0, "rdi" at 8, "rsi" at 16, "rdx" at 24, "rcx" at 32, "r8" at 40, "r9" at 48] in 56,
    vectors by "movups" [
        "xmm0" at 64, "xmm1" at 80, "xmm2" at 96, "xmm3" at 112,
        "xmm4" at 128, "xmm5" at 144, "xmm6" at 160, "xmm7" at 176
    ] in 200
}

stub! {
    /// Leave: the method's result is in its registers.
    leave calls leave, PLAIN_RESULT in "dil", arguments {},
    general ["rax" at 0, "rdx" at 8, "rcx" at 16, "r8" at 24] in 40,
    vectors by "movups" ["xmm0" at 32, "xmm1" at 48, "xmm2" at 64, "xmm3" at 80] in 104
}

stub! {
    /// Tailcall: the compiler treats it like a Leave, and so may keep local variables in the registers for results.
    tailcall calls tailcall, NEVER in "dil", arguments {},
    general ["rax" at 0, "rdx" at 8, "rcx" at 16, "r8" at 24] in 40,
    vectors by "movups" ["xmm0" at 32, "xmm1" at 48, "xmm2" at 64, "xmm3" at 80] in 104
}

stub! {
    /// The same on processors with AVX.
    tailcall_256 calls tailcall, NEVER in "dil", arguments {},
    general ["rax" at 0, "rdx" at 8, "rcx" at 16, "r8" at 24] in 40,
    vectors by "vmovups" ["ymm0" at 32, "ymm1" at 64, "ymm2" at 96, "ymm3" at 128] in 168
}

stub! {
    /// The same on processors with AVX-512.
    tailcall_512 calls tailcall, NEVER in "dil", arguments {},
    general ["rax" at 0, "rdx" at 8, "rcx" at 16, "r8" at 24] in 40,
    vectors by "vmovups" ["zmm0" at 32, "zmm1" at 96, "zmm2" at 160, "zmm3" at 224] in 296
}

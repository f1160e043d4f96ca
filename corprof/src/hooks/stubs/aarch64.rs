//! arm64, for all systems except Windows, whose unwind information is not written yet.
//!
//! All three hooks get their arguments in x10 and x11 and save the same registers: x0 to x8 and q0 to q7, in addition
//! to those that the callee saves. The frame begins with the frame pointer and the return address, as in C.
//!
//! These include all registers that return values: x0, x1 and v0 to v3 by the ABI, x2 as the continuation of a
//! runtime-async method (`REG_ASYNC_CONTINUATION_RET`, docs/design/coreclr/botr/runtime-async-codegen.md), x0 to x3
//! from Swift. Swift's error and self are in x21 and x20, which the callee saves.

use std::arch::naked_asm;

use super::{NEVER, OURS, PLAIN_ARGUMENTS, PLAIN_RESULT, Target};

/// A stub that saves the pairs of `general`, and those of `vectors` unless the tag is set, each at its place in the
/// frame.
macro_rules! stub {
    (
        $(#[$doc:meta])*
        $name:ident, $tag:ident,
        general [$($first:literal $second:literal at $place:literal),*] in $small:literal,
        vectors [$($low:literal $high:literal at $spot:literal),*] in $large:literal
    ) => {
        $(#[$doc])*
        #[unsafe(naked)]
        pub(super) unsafe extern "C-unwind" fn $name<T: Target>() {
            naked_asm!(
                ".cfi_startproc",
                "mov x9, #{plain}",
                "tst x10, x9",
                "b.eq 2f",
                concat!("stp x29, x30, [sp, #-", $small, "]!"),
                concat!(".cfi_def_cfa_offset ", $small),
                concat!(".cfi_offset x29, -", $small),
                concat!(".cfi_offset x30, -", $small, " + 8"),
                "mov x29, sp",
                $(concat!("stp ", $first, ", ", $second, ", [sp, #", $place, "]"),)*
                "mov x0, x10",
                "mov x1, x11",
                "bl {target}",
                $(concat!("ldp ", $first, ", ", $second, ", [sp, #", $place, "]"),)*
                concat!("ldp x29, x30, [sp], #", $small),
                ".cfi_def_cfa_offset 0",
                ".cfi_restore x29",
                ".cfi_restore x30",
                "ret",
                "2:",
                concat!("stp x29, x30, [sp, #-", $large, "]!"),
                concat!(".cfi_def_cfa_offset ", $large),
                concat!(".cfi_offset x29, -", $large),
                concat!(".cfi_offset x30, -", $large, " + 8"),
                "mov x29, sp",
                "tst x10, #{ours}",
                "b.eq 3f",
                $(concat!("stp ", $first, ", ", $second, ", [sp, #", $place, "]"),)*
                $(concat!("stp ", $low, ", ", $high, ", [sp, #", $spot, "]"),)*
                "mov x0, x10",
                "mov x1, x11",
                "bl {target}",
                $(concat!("ldp ", $low, ", ", $high, ", [sp, #", $spot, "]"),)*
                $(concat!("ldp ", $first, ", ", $second, ", [sp, #", $place, "]"),)*
                "3:",
                concat!("ldp x29, x30, [sp], #", $large),
                ".cfi_def_cfa_offset 0",
                ".cfi_restore x29",
                ".cfi_restore x30",
                "ret",
                ".cfi_endproc",
                plain = const $tag,
                ours = const OURS,
                target = sym <T as Target>::$name,
            )
        }
    };
}

/// The same registers for each; x9 need not be saved, and only completes a pair.
macro_rules! stubs {
    ($($(#[$doc:meta])* $name:ident, $tag:ident;)*) => { $(
        stub! {
            $(#[$doc])*
            $name, $tag,
            general ["x0" "x1" at 16, "x2" "x3" at 32, "x4" "x5" at 48, "x6" "x7" at 64, "x8" "x9" at 80] in 96,
            vectors ["q0" "q1" at 96, "q2" "q3" at 128, "q4" "q5" at 160, "q6" "q7" at 192] in 224
        }
    )* };
}

stubs! {
    /// Enter: the method's arguments are still in their registers.
    enter, PLAIN_ARGUMENTS;
    /// Leave: the method's result is in its registers.
    leave, PLAIN_RESULT;
    /// Tailcall: the compiler treats it like a Leave, and so may keep local variables in the registers for results.
    tailcall, NEVER;
}

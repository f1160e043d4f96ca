//! x86-64, Windows.
//!
//! The arguments are passed as in C. The JIT stores the method's own arguments before it calls Enter, so that stub
//! saves nothing, and Leave saves only two registers: testing the signatures' tags would cost more than it saves.
//!
//! Leave and Tailcall return with rcx = 0. A runtime-async method returns its continuation there, and 0 when it has
//! finished (`REG_ASYNC_CONTINUATION_RET`, jit/targetamd64.h). The .NET 10 compiler sets rcx to 0, then puts the hook's
//! argument into it and calls Leave; it does not clear it again (dotnet/runtime pull request 122490 changes that in
//! .NET 11). A method does not call Leave when it is suspended, so 0 is the only right value. In all other methods rcx
//! is free.

use std::arch::naked_asm;

use super::{OURS, Target};

/// A stub that saves these registers, each at its place in the frame. The first 32 bytes of a frame belong to the
/// callee; a call leaves the stack pointer 8 off a multiple of 16, so a frame is 8 off as well.
macro_rules! stub {
    (
        $(#[$doc:meta])*
        $name:ident calls $target:ident, general [$($general:literal at $place:literal),*],
        vectors by $move:literal [$($vector:literal at $spot:literal),*]
        in $frame:literal, clears [$($cleared:literal),*]
    ) => {
        $(#[$doc])*
        #[unsafe(naked)]
        pub(super) unsafe extern "C-unwind" fn $name<T: Target>() {
            naked_asm!(
                ".seh_proc {this}",
                concat!("sub rsp, ", $frame),
                concat!(".seh_stackalloc ", $frame),
                ".seh_endprologue",
                "test cl, {ours}",
                "jz 2f",
                $(concat!("mov [rsp + ", $place, "], ", $general),)*
                $(concat!($move, " [rsp + ", $spot, "], ", $vector),)*
                "call {target}",
                $(concat!($move, " ", $vector, ", [rsp + ", $spot, "]"),)*
                $(concat!("mov ", $general, ", [rsp + ", $place, "]"),)*
                "2:",
                $(concat!("xor ", $cleared, ", ", $cleared),)*
                concat!("add rsp, ", $frame),
                "ret",
                ".seh_endproc",
                ours = const OURS,
                this = sym $name::<T>,
                target = sym <T as Target>::$target,
            )
        }
    };
}

stub! {
    /// Enter: the method's arguments are in memory.
    enter calls enter, general [], vectors by "movups" [] in 40, clears []
}

stub! {
    /// Leave: the method's result is in its registers.
    leave calls leave, general ["rax" at 32], vectors by "movups" ["xmm0" at 48] in 72, clears ["ecx"]
}

stub! {
    /// Tailcall: the compiler treats it like a Leave, and so may keep an argument of the call in the register for results.
    tailcall calls tailcall, general ["rax" at 32], vectors by "movups" ["xmm0" at 48] in 72, clears ["ecx"]
}

stub! {
    /// The same on processors with AVX.
    tailcall_256 calls tailcall, general ["rax" at 32], vectors by "vmovups" ["ymm0" at 48] in 88, clears ["ecx"]
}

stub! {
    /// The same on processors with AVX-512.
    tailcall_512 calls tailcall, general ["rax" at 32], vectors by "vmovups" ["zmm0" at 48] in 120, clears ["ecx"]
}

//! The tests' assembly for arm64.

use std::arch::naked_asm;
use std::ops::Range;

use super::{Kind, Overwrites, Registers, Stub, Target, see_enter, see_leave, see_tailcall};

/// The stack pointer's remainder by 16 when a function begins.
pub(super) const ENTRY_ALIGNMENT: usize = 0;
/// Whether a stub skips vector registers if its tag is set.
pub(super) const LOOKS_AT_TAGS: bool = true;
/// An `Overwrites` without a stub.
pub(super) const OVERWRITE: Stub = overwrite;
/// The registers that Leave loses without a stub.
pub(super) const LOST_BARE: [&str; 4] = ["x0", "x8", "vector 0", "vector 7"];

/// `Registers::general` has the registers in the order of their numbers, without x16 to x18 and the return address.
const NAMES: [&str; 30] = [
    "x0", "x1", "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11", "x12", "x13", "x14", "x15", "x16", "x17",
    "x18", "x19", "x20", "x21", "x22", "x23", "x24", "x25", "x26", "x27", "x28", "fp",
];

/// The indices of the registers in which a hook receives the client's number and the stack pointer.
pub(super) fn arguments(_kind: Kind) -> (usize, usize) {
    (10, 11)
}

/// The registers that a hook must save: general registers, whole vectors, lower halves of vectors.
pub(super) fn kept(_kind: Kind) -> (Vec<(&'static str, usize)>, Range<usize>, Range<usize>) {
    ((0..=8).chain(19..=29).map(|place| (NAMES[place], place)).collect(), 0..8, 8..16)
}

/// Loads all registers, calls `stub`, and stores them.
#[unsafe(naked)]
pub(super) unsafe extern "C-unwind" fn call(_stub: Stub, _registers: &mut Registers) {
    naked_asm!(
        ".cfi_startproc",
        "stp x29, x30, [sp, #-224]!",
        ".cfi_def_cfa_offset 224",
        ".cfi_offset x29, -224",
        ".cfi_offset x30, -216",
        "stp x19, x20, [sp, #16]",
        ".cfi_offset x19, -208",
        ".cfi_offset x20, -200",
        "stp x21, x22, [sp, #32]",
        ".cfi_offset x21, -192",
        ".cfi_offset x22, -184",
        "stp x23, x24, [sp, #48]",
        ".cfi_offset x23, -176",
        ".cfi_offset x24, -168",
        "stp x25, x26, [sp, #64]",
        ".cfi_offset x25, -160",
        ".cfi_offset x26, -152",
        "stp x27, x28, [sp, #80]",
        ".cfi_offset x27, -144",
        ".cfi_offset x28, -136",
        "stp d8, d9, [sp, #96]",
        ".cfi_offset b8, -128",
        ".cfi_offset b9, -120",
        "stp d10, d11, [sp, #112]",
        ".cfi_offset b10, -112",
        ".cfi_offset b11, -104",
        "stp d12, d13, [sp, #128]",
        ".cfi_offset b12, -96",
        ".cfi_offset b13, -88",
        "stp d14, d15, [sp, #144]",
        ".cfi_offset b14, -80",
        ".cfi_offset b15, -72",
        "str x1, [sp, #160]",
        "mov x17, x0",
        "mov x16, x1",
        // The words around.
        "add x2, x16, #768",
        "ldp x0, x1, [x2]",
        "ldp x2, x3, [x2, #16]",
        "stp x2, x3, [sp, #-16]!",
        "stp x0, x1, [sp, #-16]!",
        ".cfi_def_cfa_offset 256",
        "add x0, x16, #256",
        "ldp q0, q1, [x0, #0]",
        "ldp q2, q3, [x0, #32]",
        "ldp q4, q5, [x0, #64]",
        "ldp q6, q7, [x0, #96]",
        "ldp q8, q9, [x0, #128]",
        "ldp q10, q11, [x0, #160]",
        "ldp q12, q13, [x0, #192]",
        "ldp q14, q15, [x0, #224]",
        "ldp q16, q17, [x0, #256]",
        "ldp q18, q19, [x0, #288]",
        "ldp q20, q21, [x0, #320]",
        "ldp q22, q23, [x0, #352]",
        "ldp q24, q25, [x0, #384]",
        "ldp q26, q27, [x0, #416]",
        "ldp q28, q29, [x0, #448]",
        "ldp q30, q31, [x0, #480]",
        "ldr x0, [x16, #0]",
        "ldr x1, [x16, #8]",
        "ldr x2, [x16, #16]",
        "ldr x3, [x16, #24]",
        "ldr x4, [x16, #32]",
        "ldr x5, [x16, #40]",
        "ldr x6, [x16, #48]",
        "ldr x7, [x16, #56]",
        "ldr x8, [x16, #64]",
        "ldr x9, [x16, #72]",
        "ldr x10, [x16, #80]",
        "ldr x11, [x16, #88]",
        "ldr x12, [x16, #96]",
        "ldr x13, [x16, #104]",
        "ldr x14, [x16, #112]",
        "ldr x15, [x16, #120]",
        "ldr x19, [x16, #152]",
        "ldr x20, [x16, #160]",
        "ldr x21, [x16, #168]",
        "ldr x22, [x16, #176]",
        "ldr x23, [x16, #184]",
        "ldr x24, [x16, #192]",
        "ldr x25, [x16, #200]",
        "ldr x26, [x16, #208]",
        "ldr x27, [x16, #216]",
        "ldr x28, [x16, #224]",
        "ldr x29, [x16, #232]",
        "blr x17",
        "ldr x16, [sp, #192]",
        "str x0, [x16, #0]",
        "str x1, [x16, #8]",
        "str x2, [x16, #16]",
        "str x3, [x16, #24]",
        "str x4, [x16, #32]",
        "str x5, [x16, #40]",
        "str x6, [x16, #48]",
        "str x7, [x16, #56]",
        "str x8, [x16, #64]",
        "str x9, [x16, #72]",
        "str x10, [x16, #80]",
        "str x11, [x16, #88]",
        "str x12, [x16, #96]",
        "str x13, [x16, #104]",
        "str x14, [x16, #112]",
        "str x15, [x16, #120]",
        "str x19, [x16, #152]",
        "str x20, [x16, #160]",
        "str x21, [x16, #168]",
        "str x22, [x16, #176]",
        "str x23, [x16, #184]",
        "str x24, [x16, #192]",
        "str x25, [x16, #200]",
        "str x26, [x16, #208]",
        "str x27, [x16, #216]",
        "str x28, [x16, #224]",
        "str x29, [x16, #232]",
        "add x0, x16, #256",
        "stp q0, q1, [x0, #0]",
        "stp q2, q3, [x0, #32]",
        "stp q4, q5, [x0, #64]",
        "stp q6, q7, [x0, #96]",
        "stp q8, q9, [x0, #128]",
        "stp q10, q11, [x0, #160]",
        "stp q12, q13, [x0, #192]",
        "stp q14, q15, [x0, #224]",
        "stp q16, q17, [x0, #256]",
        "stp q18, q19, [x0, #288]",
        "stp q20, q21, [x0, #320]",
        "stp q22, q23, [x0, #352]",
        "stp q24, q25, [x0, #384]",
        "stp q26, q27, [x0, #416]",
        "stp q28, q29, [x0, #448]",
        "stp q30, q31, [x0, #480]",
        "add x4, x16, #768",
        "ldp x0, x1, [sp], #16",
        "ldp x2, x3, [sp], #16",
        ".cfi_def_cfa_offset 224",
        "stp x0, x1, [x4]",
        "stp x2, x3, [x4, #16]",
        "ldp x19, x20, [sp, #16]",
        "ldp x21, x22, [sp, #32]",
        "ldp x23, x24, [sp, #48]",
        "ldp x25, x26, [sp, #64]",
        "ldp x27, x28, [sp, #80]",
        "ldp d8, d9, [sp, #96]",
        "ldp d10, d11, [sp, #112]",
        "ldp d12, d13, [sp, #128]",
        "ldp d14, d15, [sp, #144]",
        "ldp x29, x30, [sp], #224",
        ".cfi_def_cfa_offset 0",
        "ret",
        ".cfi_endproc",
    )
}

/// A function that passes its arguments to `$see`, and overwrites all registers that it may (of q8 to q15 the upper
/// halves).
macro_rules! overwrite {
    ($see:path) => {
        naked_asm!(
            "stp x29, x30, [sp, #-16]!",
            "add x2, sp, #16",
            "bl {see}",
            "ldp x29, x30, [sp], #16",
            "mov x0, #-1",
            "mov x1, #-1",
            "mov x2, #-1",
            "mov x3, #-1",
            "mov x4, #-1",
            "mov x5, #-1",
            "mov x6, #-1",
            "mov x7, #-1",
            "mov x8, #-1",
            "mov x9, #-1",
            "mov x10, #-1",
            "mov x11, #-1",
            "mov x12, #-1",
            "mov x13, #-1",
            "mov x14, #-1",
            "mov x15, #-1",
            "mov x16, #-1",
            "mov x17, #-1",
            "movi v0.2d, #0xffffffffffffffff",
            "movi v1.2d, #0xffffffffffffffff",
            "movi v2.2d, #0xffffffffffffffff",
            "movi v3.2d, #0xffffffffffffffff",
            "movi v4.2d, #0xffffffffffffffff",
            "movi v5.2d, #0xffffffffffffffff",
            "movi v6.2d, #0xffffffffffffffff",
            "movi v7.2d, #0xffffffffffffffff",
            "movi v16.2d, #0xffffffffffffffff",
            "movi v17.2d, #0xffffffffffffffff",
            "movi v18.2d, #0xffffffffffffffff",
            "movi v19.2d, #0xffffffffffffffff",
            "movi v20.2d, #0xffffffffffffffff",
            "movi v21.2d, #0xffffffffffffffff",
            "movi v22.2d, #0xffffffffffffffff",
            "movi v23.2d, #0xffffffffffffffff",
            "movi v24.2d, #0xffffffffffffffff",
            "movi v25.2d, #0xffffffffffffffff",
            "movi v26.2d, #0xffffffffffffffff",
            "movi v27.2d, #0xffffffffffffffff",
            "movi v28.2d, #0xffffffffffffffff",
            "movi v29.2d, #0xffffffffffffffff",
            "movi v30.2d, #0xffffffffffffffff",
            "movi v31.2d, #0xffffffffffffffff",
            "mov v8.d[1], x0",
            "mov v9.d[1], x0",
            "mov v10.d[1], x0",
            "mov v11.d[1], x0",
            "mov v12.d[1], x0",
            "mov v13.d[1], x0",
            "mov v14.d[1], x0",
            "mov v15.d[1], x0",
            "cmp x0, x0",
            "ret",
            see = sym $see,
        )
    };
}

impl Target for Overwrites {
    #[unsafe(naked)]
    extern "C-unwind" fn enter(_client: usize, _stack_pointer: usize) {
        overwrite!(see_enter)
    }

    #[unsafe(naked)]
    extern "C-unwind" fn leave(_client: usize, _stack_pointer: usize) {
        overwrite!(see_leave)
    }

    #[unsafe(naked)]
    extern "C-unwind" fn tailcall(_client: usize, _stack_pointer: usize) {
        overwrite!(see_tailcall)
    }
}

#[unsafe(naked)]
unsafe extern "C-unwind" fn overwrite() {
    overwrite!(see_leave)
}

//! The tests' assembly for x86-64, System V.

use std::arch::{asm, naked_asm};
use std::ops::Range;

use super::super::OURS;
use super::super::abi::{tailcall_256, tailcall_512};
use super::{Kind, Overwrites, Registers, Stub, Target, see_enter, see_leave, see_tailcall};

/// The stack pointer's remainder by 16 when a function begins.
pub(super) const ENTRY_ALIGNMENT: usize = 8;
/// Whether a stub skips vector registers if its tag is set.
pub(super) const LOOKS_AT_TAGS: bool = true;
/// An `Overwrites` without a stub.
pub(super) const OVERWRITE: Stub = overwrite;
/// The registers that Leave loses without a stub.
pub(super) const LOST_BARE: [&str; 8] = ["rax", "rdx", "rcx", "r8", "vector 0", "vector 1", "vector 2", "vector 3"];

/// In the order of `Registers::general`.
const NAMES: [&str; 15] =
    ["rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rbp", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15"];

fn place(name: &str) -> usize {
    NAMES.iter().position(|&known| known == name).unwrap()
}

/// The indices of the registers in which a hook receives the client's number and the stack pointer.
pub(super) fn arguments(kind: Kind) -> (usize, usize) {
    match kind {
        Kind::Enter => (place("r14"), place("r15")),
        Kind::Leave | Kind::Tailcall => (place("rdi"), place("rsi")),
    }
}

/// The registers that a hook must save: general registers, whole vectors, lower halves of vectors.
pub(super) fn kept(kind: Kind) -> (Vec<(&'static str, usize)>, Range<usize>, Range<usize>) {
    let callee_saved = ["rbx", "rbp", "r12", "r13", "r14", "r15"];
    let (others, vectors): (&[&str], _) = match kind {
        Kind::Enter => (&["rdi", "rsi", "rdx", "rcx", "r8", "r9", "rax"], 0..8),
        // Includes the continuation of runtime async, and all registers that Swift returns.
        Kind::Leave | Kind::Tailcall => (&["rax", "rdx", "rcx", "r8"], 0..4),
    };
    let general = callee_saved.iter().chain(others).map(|&name| (name, place(name))).collect();
    (general, vectors, 0..0)
}

/// Loads all registers, calls `stub`, and stores them.
#[unsafe(naked)]
pub(super) unsafe extern "C-unwind" fn call(_stub: Stub, _registers: &mut Registers) {
    naked_asm!(
        ".cfi_startproc",
        "push rbp",
        ".cfi_adjust_cfa_offset 8",
        ".cfi_rel_offset rbp, 0",
        "push rbx",
        ".cfi_adjust_cfa_offset 8",
        ".cfi_rel_offset rbx, 0",
        "push r12",
        ".cfi_adjust_cfa_offset 8",
        ".cfi_rel_offset r12, 0",
        "push r13",
        ".cfi_adjust_cfa_offset 8",
        ".cfi_rel_offset r13, 0",
        "push r14",
        ".cfi_adjust_cfa_offset 8",
        ".cfi_rel_offset r14, 0",
        "push r15",
        ".cfi_adjust_cfa_offset 8",
        ".cfi_rel_offset r15, 0",
        // The call takes 8, the pushes 48, and 56 more make it a multiple of 16.
        "sub rsp, 56",
        ".cfi_adjust_cfa_offset 56",
        "mov [rsp + 32], rdi",
        "mov [rsp + 40], rsi",
        "mov rax, rsi",
        // The caller's words around the return address.
        "mov rcx, [rax + 768]",
        "mov [rsp], rcx",
        "mov rcx, [rax + 776]",
        "mov [rsp + 8], rcx",
        "mov rcx, [rax + 784]",
        "mov [rsp + 16], rcx",
        "mov rcx, [rax + 792]",
        "mov [rsp + 24], rcx",
        "movups xmm0, [rax + 256]",
        "movups xmm1, [rax + 272]",
        "movups xmm2, [rax + 288]",
        "movups xmm3, [rax + 304]",
        "movups xmm4, [rax + 320]",
        "movups xmm5, [rax + 336]",
        "movups xmm6, [rax + 352]",
        "movups xmm7, [rax + 368]",
        "mov rbx, [rax + 8]",
        "mov rcx, [rax + 16]",
        "mov rdx, [rax + 24]",
        "mov rsi, [rax + 32]",
        "mov rdi, [rax + 40]",
        "mov rbp, [rax + 48]",
        "mov r8, [rax + 56]",
        "mov r9, [rax + 64]",
        "mov r10, [rax + 72]",
        "mov r11, [rax + 80]",
        "mov r12, [rax + 88]",
        "mov r13, [rax + 96]",
        "mov r14, [rax + 104]",
        "mov r15, [rax + 112]",
        "mov rax, [rax]",
        "call [rsp + 32]",
        // No register is free here, so rax is saved in the stub's place.
        "mov [rsp + 32], rax",
        "mov rax, [rsp + 40]",
        "mov [rax + 8], rbx",
        "mov [rax + 16], rcx",
        "mov [rax + 24], rdx",
        "mov [rax + 32], rsi",
        "mov [rax + 40], rdi",
        "mov [rax + 48], rbp",
        "mov [rax + 56], r8",
        "mov [rax + 64], r9",
        "mov [rax + 72], r10",
        "mov [rax + 80], r11",
        "mov [rax + 88], r12",
        "mov [rax + 96], r13",
        "mov [rax + 104], r14",
        "mov [rax + 112], r15",
        "mov rcx, [rsp + 32]",
        "mov [rax], rcx",
        "movups [rax + 256], xmm0",
        "movups [rax + 272], xmm1",
        "movups [rax + 288], xmm2",
        "movups [rax + 304], xmm3",
        "movups [rax + 320], xmm4",
        "movups [rax + 336], xmm5",
        "movups [rax + 352], xmm6",
        "movups [rax + 368], xmm7",
        "mov rcx, [rsp]",
        "mov [rax + 768], rcx",
        "mov rcx, [rsp + 8]",
        "mov [rax + 776], rcx",
        "mov rcx, [rsp + 16]",
        "mov [rax + 784], rcx",
        "mov rcx, [rsp + 24]",
        "mov [rax + 792], rcx",
        "add rsp, 56",
        ".cfi_adjust_cfa_offset -56",
        "pop r15",
        ".cfi_adjust_cfa_offset -8",
        "pop r14",
        ".cfi_adjust_cfa_offset -8",
        "pop r13",
        ".cfi_adjust_cfa_offset -8",
        "pop r12",
        ".cfi_adjust_cfa_offset -8",
        "pop rbx",
        ".cfi_adjust_cfa_offset -8",
        "pop rbp",
        ".cfi_adjust_cfa_offset -8",
        "ret",
        ".cfi_endproc",
    )
}

/// A function that passes its arguments to `$see`, and overwrites all registers that it may.
macro_rules! overwrite {
    ($see:path) => {
        naked_asm!(
            "mov rdx, rsp",
            "sub rsp, 8",
            "call {see}",
            "add rsp, 8",
            "mov rax, -1",
            "mov rcx, -1",
            "mov rdx, -1",
            "mov rsi, -1",
            "mov rdi, -1",
            "mov r8, -1",
            "mov r9, -1",
            "mov r10, -1",
            "mov r11, -1",
            "pcmpeqd xmm0, xmm0",
            "pcmpeqd xmm1, xmm1",
            "pcmpeqd xmm2, xmm2",
            "pcmpeqd xmm3, xmm3",
            "pcmpeqd xmm4, xmm4",
            "pcmpeqd xmm5, xmm5",
            "pcmpeqd xmm6, xmm6",
            "pcmpeqd xmm7, xmm7",
            "pcmpeqd xmm8, xmm8",
            "pcmpeqd xmm9, xmm9",
            "pcmpeqd xmm10, xmm10",
            "pcmpeqd xmm11, xmm11",
            "pcmpeqd xmm12, xmm12",
            "pcmpeqd xmm13, xmm13",
            "pcmpeqd xmm14, xmm14",
            "pcmpeqd xmm15, xmm15",
            "stc",
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

/// Leaves nothing in vector registers.
struct Zeroes;

impl Target for Zeroes {
    extern "C-unwind" fn enter(_client: usize, _stack_pointer: usize) {}

    extern "C-unwind" fn leave(_client: usize, _stack_pointer: usize) {}

    extern "C-unwind" fn tailcall(_client: usize, _stack_pointer: usize) {
        // SAFETY: the caller has looked whether the processor has AVX, and the compiler is told what changes.
        unsafe { asm!("vzeroall", clobber_abi("C")) };
    }
}

/// Calls a stub with these bytes in four registers, `$width` in each, and returns what they have then.
macro_rules! call_with {
    ($stub:expr, $before:expr, $v0:literal $v1:literal $v2:literal $v3:literal) => {{
        let stub: Stub = $stub;
        let mut after = [[0_u8; 64]; 4];
        // SAFETY: the processor has these registers. The stub saves what C does not overwrite, and the registers with
        // the addresses are kept by the callee.
        unsafe {
            asm!(
                concat!("vmovups ", $v0, ", [r12]"),
                concat!("vmovups ", $v1, ", [r12 + 64]"),
                concat!("vmovups ", $v2, ", [r12 + 128]"),
                concat!("vmovups ", $v3, ", [r12 + 192]"),
                "call r14",
                concat!("vmovups [r13], ", $v0),
                concat!("vmovups [r13 + 64], ", $v1),
                concat!("vmovups [r13 + 128], ", $v2),
                concat!("vmovups [r13 + 192], ", $v3),
                "vzeroupper",
                in("r12") $before.as_ptr(),
                in("r13") after.as_mut_ptr(),
                in("r14") stub,
                in("rdi") OURS,
                in("rsi") 0,
                clobber_abi("C"),
            );
        }
        after
    }};
}

#[test]
fn tailcall_keeps_vectors_whole() {
    let before: [[u8; 64]; 4] = std::array::from_fn(|register| {
        std::array::from_fn(|place| u8::try_from(64 * register + place).unwrap_or_default() | 1)
    });
    if is_x86_feature_detected!("avx") {
        let after = call_with!(tailcall_256::<Zeroes>, before, "ymm0" "ymm1" "ymm2" "ymm3");
        for (before, after) in before.iter().zip(after) {
            assert_eq!(before[..32], after[..32]);
        }
    }
    if is_x86_feature_detected!("avx512f") {
        assert_eq!(before, call_with!(tailcall_512::<Zeroes>, before, "zmm0" "zmm1" "zmm2" "zmm3"));
    }
}

//! The tests' assembly for x86-64, Windows.

use std::arch::naked_asm;
use std::ops::Range;

use super::super::of;
use super::{CLIENT, Kind, OURS, Overwrites, Registers, STACK, Stub, TAGS, Target, see_enter, see_leave, see_tailcall};

/// The stack pointer's remainder by 16 when a function begins.
pub(super) const ENTRY_ALIGNMENT: usize = 8;
/// Whether a stub skips vector registers if its tag is set.
pub(super) const LOOKS_AT_TAGS: bool = false;
/// An `Overwrites` without a stub.
pub(super) const OVERWRITE: Stub = overwrite;
/// The registers that Leave loses without a stub.
pub(super) const LOST_BARE: [&str; 3] = ["rax", "vector 0", "the caller's stack"];

/// In the order of `Registers::general`.
const NAMES: [&str; 15] =
    ["rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rbp", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15"];

fn place(name: &str) -> usize {
    NAMES.iter().position(|&known| known == name).unwrap()
}

/// The indices of the registers in which a hook receives the client's number and the stack pointer.
pub(super) fn arguments(_kind: Kind) -> (usize, usize) {
    (place("rcx"), place("rdx"))
}

/// The registers that a hook must save: general registers, whole vectors except xmm6 to xmm15 (the callee saves those),
/// and of these the halves that a test can tell from its own.
pub(super) fn kept(kind: Kind) -> (Vec<(&'static str, usize)>, Range<usize>, Range<usize>) {
    let callee_saved = ["rbx", "rbp", "rsi", "rdi", "r12", "r13", "r14", "r15"];
    let (others, vectors): (&[&str], _) = match kind {
        Kind::Enter => (&[], 0..0),
        Kind::Leave | Kind::Tailcall => (&["rax"], 0..1),
    };
    let general = callee_saved.iter().chain(others).map(|&name| (name, place(name))).collect();
    (general, vectors, 6..16)
}

/// Loads all registers, calls `stub`, and stores them.
#[unsafe(naked)]
pub(super) unsafe extern "C-unwind" fn call(_stub: Stub, _registers: &mut Registers) {
    naked_asm!(
        ".seh_proc {this}",
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
        // 8 by the call, 64 by the pushes: 216 make it a multiple of 16.
        "sub rsp, 216",
        ".seh_stackalloc 216",
        "movaps [rsp + 48], xmm6",
        ".seh_savexmm xmm6, 48",
        "movaps [rsp + 64], xmm7",
        ".seh_savexmm xmm7, 64",
        "movaps [rsp + 80], xmm8",
        ".seh_savexmm xmm8, 80",
        "movaps [rsp + 96], xmm9",
        ".seh_savexmm xmm9, 96",
        "movaps [rsp + 112], xmm10",
        ".seh_savexmm xmm10, 112",
        "movaps [rsp + 128], xmm11",
        ".seh_savexmm xmm11, 128",
        "movaps [rsp + 144], xmm12",
        ".seh_savexmm xmm12, 144",
        "movaps [rsp + 160], xmm13",
        ".seh_savexmm xmm13, 160",
        "movaps [rsp + 176], xmm14",
        ".seh_savexmm xmm14, 176",
        "movaps [rsp + 192], xmm15",
        ".seh_savexmm xmm15, 192",
        ".seh_endprologue",
        "mov [rsp + 32], rcx",
        "mov [rsp + 40], rdx",
        "mov rax, rdx",
        // The words around: the ABI would let the stub use them for its arguments.
        "mov rcx, [rax + 768]",
        "mov [rsp + 0], rcx",
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
        "movups xmm8, [rax + 384]",
        "movups xmm9, [rax + 400]",
        "movups xmm10, [rax + 416]",
        "movups xmm11, [rax + 432]",
        "movups xmm12, [rax + 448]",
        "movups xmm13, [rax + 464]",
        "movups xmm14, [rax + 480]",
        "movups xmm15, [rax + 496]",
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
        "movups [rax + 384], xmm8",
        "movups [rax + 400], xmm9",
        "movups [rax + 416], xmm10",
        "movups [rax + 432], xmm11",
        "movups [rax + 448], xmm12",
        "movups [rax + 464], xmm13",
        "movups [rax + 480], xmm14",
        "movups [rax + 496], xmm15",
        "mov rcx, [rsp + 0]",
        "mov [rax + 768], rcx",
        "mov rcx, [rsp + 8]",
        "mov [rax + 776], rcx",
        "mov rcx, [rsp + 16]",
        "mov [rax + 784], rcx",
        "mov rcx, [rsp + 24]",
        "mov [rax + 792], rcx",
        "movaps xmm6, [rsp + 48]",
        "movaps xmm7, [rsp + 64]",
        "movaps xmm8, [rsp + 80]",
        "movaps xmm9, [rsp + 96]",
        "movaps xmm10, [rsp + 112]",
        "movaps xmm11, [rsp + 128]",
        "movaps xmm12, [rsp + 144]",
        "movaps xmm13, [rsp + 160]",
        "movaps xmm14, [rsp + 176]",
        "movaps xmm15, [rsp + 192]",
        "add rsp, 216",
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
        this = sym call,
    )
}

/// A function that passes its arguments to `$see`, and overwrites all registers that it may, and the room for its
/// arguments.
macro_rules! overwrite {
    ($see:path, $($this:tt)+) => {
        naked_asm!(
            ".seh_proc {this}",
            "mov r8, rsp",
            "sub rsp, 40",
            ".seh_stackalloc 40",
            ".seh_endprologue",
            "call {see}",
            "add rsp, 40",
            "mov qword ptr [rsp + 8], -1",
            "mov qword ptr [rsp + 16], -1",
            "mov qword ptr [rsp + 24], -1",
            "mov qword ptr [rsp + 32], -1",
            "mov rax, -1",
            "mov rcx, -1",
            "mov rdx, -1",
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
            "stc",
            "ret",
            ".seh_endproc",
            this = sym $($this)+,
            see = sym $see,
        )
    };
}

impl Target for Overwrites {
    #[unsafe(naked)]
    extern "C-unwind" fn enter(_client: usize, _stack_pointer: usize) {
        overwrite!(see_enter, <Overwrites as Target>::enter)
    }

    #[unsafe(naked)]
    extern "C-unwind" fn leave(_client: usize, _stack_pointer: usize) {
        overwrite!(see_leave, <Overwrites as Target>::leave)
    }

    #[unsafe(naked)]
    extern "C-unwind" fn tailcall(_client: usize, _stack_pointer: usize) {
        overwrite!(see_tailcall, <Overwrites as Target>::tailcall)
    }
}

#[unsafe(naked)]
unsafe extern "C-unwind" fn overwrite() {
    overwrite!(see_leave, overwrite)
}

/// The .NET 10 compiler leaves the hook's argument in rcx, where the caller of a runtime-async method expects a
/// continuation.
#[test]
fn leave_and_tailcall_return_no_continuation() {
    let stubs = of::<Overwrites>().unwrap();
    for (kind, stub) in [(Kind::Leave, stubs.leave), (Kind::Tailcall, stubs.tailcall)] {
        for client in [CLIENT | OURS, CLIENT & !TAGS] {
            let (_, after) = Registers::call(stub, kind, client, STACK);
            assert_eq!(after.general[place("rcx")], 0, "{kind:?}");
        }
    }
}

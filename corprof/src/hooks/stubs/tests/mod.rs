//! Each stub is called from assembly with a known value in every register, in front of a function that overwrites all
//! registers that C allows it to overwrite. The registers that the application needs must come back unchanged.
//!
//! The files beside this one have the assembly. Tests for other machines than the compiling one run under `cargo xtask
//! test` if an emulator is installed.

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(all(target_arch = "x86_64", not(windows)))]
mod x86_64_sysv;
#[cfg(all(target_arch = "x86_64", windows))]
mod x86_64_windows;

use std::cell::Cell;
use std::panic::{catch_unwind, panic_any, resume_unwind};

#[cfg(target_arch = "aarch64")]
use aarch64 as abi;
#[cfg(all(target_arch = "x86_64", not(windows)))]
use x86_64_sysv as abi;
#[cfg(all(target_arch = "x86_64", windows))]
use x86_64_windows as abi;

use super::{OURS, PLAIN_ARGUMENTS, PLAIN_RESULT, Stub, Stubs, TAGS, Target};

/// The values of the registers before a call, and then after it. An ABI uses as many as it has.
#[repr(C, align(16))]
#[derive(Clone, Copy, PartialEq, Debug)]
struct Registers {
    general: [u64; 32],
    vectors: [[u64; 2]; 32],
    /// The caller's own words next to the return address.
    around: [u64; 4],
}

impl Registers {
    /// Values that are all different, and none 0.
    fn known() -> Self {
        let word =
            |place: usize| 0x1357_9BDF_0246_8A01_u64.rotate_left(place as u32).wrapping_mul(2 * place as u64 + 3);
        let mut registers = Self { general: [0; 32], vectors: [[0; 2]; 32], around: [0; 4] };
        let words =
            registers.general.iter_mut().chain(registers.vectors.as_flattened_mut()).chain(&mut registers.around);
        for (place, register) in words.enumerate() {
            *register = word(place);
        }
        registers
    }

    /// Calls `stub` as compiled code would, with `client` and `stack_pointer` in the registers for this kind of hook.
    fn call(stub: Stub, kind: Kind, client: usize, stack_pointer: usize) -> (Self, Self) {
        let mut before = Self::known();
        let (id, stack) = abi::arguments(kind);
        before.general[id] = client as u64;
        before.general[stack] = stack_pointer as u64;
        let mut after = before;
        // SAFETY: the callee follows the ABI of the hooks; `call` saves more registers than C asks for.
        unsafe { abi::call(stub, &mut after) };
        (before, after)
    }

    /// The names of the registers, and of the words around, whose value has changed.
    fn lost(before: &Self, after: &Self, kind: Kind) -> Vec<String> {
        let (general, vectors, halves) = abi::kept(kind);
        let mut lost = Vec::new();
        for (name, place) in general {
            if before.general[place] != after.general[place] {
                lost.push(name.to_owned());
            }
        }
        for place in 0..32 {
            let [low, high] = [0, 1].map(|half| before.vectors[place][half] != after.vectors[place][half]);
            if vectors.contains(&place) && (low || high) || halves.contains(&place) && low {
                lost.push(format!("vector {place}"));
            }
        }
        if before.around != after.around {
            lost.push("the caller's stack".to_owned());
        }
        lost
    }
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Kind {
    Enter,
    Leave,
    Tailcall,
}

impl Kind {
    const ALL: [Self; 3] = [Self::Enter, Self::Leave, Self::Tailcall];

    fn stub(self, stubs: Stubs) -> Stub {
        match self {
            Self::Enter => stubs.enter,
            Self::Leave => stubs.leave,
            Self::Tailcall => stubs.tailcall,
        }
    }

    /// The tag with which this kind of hook saves no vectors; 0 if it has none.
    fn tag(self) -> usize {
        match self {
            Self::Enter => PLAIN_ARGUMENTS,
            Self::Leave => PLAIN_RESULT,
            Self::Tailcall => 0,
        }
    }
}

thread_local! {
    /// The last call: its kind, its two arguments, and the stack pointer at its first instruction.
    static SEEN: Cell<Option<(Kind, usize, usize, usize)>> = const { Cell::new(None) };
}

extern "C-unwind" fn see_enter(client: usize, stack_pointer: usize, own_stack: usize) {
    SEEN.set(Some((Kind::Enter, client, stack_pointer, own_stack)));
}

extern "C-unwind" fn see_leave(client: usize, stack_pointer: usize, own_stack: usize) {
    SEEN.set(Some((Kind::Leave, client, stack_pointer, own_stack)));
}

extern "C-unwind" fn see_tailcall(client: usize, stack_pointer: usize, own_stack: usize) {
    SEEN.set(Some((Kind::Tailcall, client, stack_pointer, own_stack)));
}

/// Records its arguments, then overwrites every register that C does not ask it to save.
struct Overwrites;

const CLIENT: usize = 0x7f12_3456_7890;
const STACK: usize = 0x7ffe_0000_1110;

#[test]
fn every_register_that_the_application_needs_comes_back() {
    let stubs = super::of::<Overwrites>().unwrap();
    for kind in Kind::ALL {
        let client = CLIENT | OURS;
        let (before, after) = Registers::call(kind.stub(stubs), kind, client, STACK);
        assert_eq!(Registers::lost(&before, &after, kind), [""; 0], "{kind:?}");

        let (seen, got, stack, own_stack) = SEEN.take().unwrap();
        assert_eq!((seen, got, stack), (kind, client, STACK));
        assert_eq!(own_stack % 16, abi::ENTRY_ALIGNMENT, "{kind:?}: the stack is not aligned for C");
    }
}

#[test]
fn only_the_kinds_own_tag_lets_go_of_vectors() {
    let stubs = super::of::<Overwrites>().unwrap();
    for kind in Kind::ALL {
        let (before, after) = Registers::call(kind.stub(stubs), kind, CLIENT | (TAGS & !kind.tag()), STACK);
        assert_eq!(Registers::lost(&before, &after, kind), [""; 0], "{kind:?}");

        let client = CLIENT | OURS | kind.tag();
        let (before, after) = Registers::call(kind.stub(stubs), kind, client, STACK);
        let lost = Registers::lost(&before, &after, kind);
        let (_, vectors, _) = abi::kept(kind);
        let expected: Vec<_> = vectors.map(|place| format!("vector {place}")).collect();
        let lets_go = abi::LOOKS_AT_TAGS && kind.tag() != 0;
        assert_eq!(lost, if lets_go { expected } else { Vec::new() }, "{kind:?}");
        let (_, got, stack, own_stack) = SEEN.take().unwrap();
        assert_eq!((got, stack), (client, STACK));
        assert_eq!(own_stack % 16, abi::ENTRY_ALIGNMENT, "{kind:?}: the stack is not aligned for C");
    }
}

#[test]
fn a_number_of_the_runtimes_own_is_nobodys() {
    let stubs = super::of::<Overwrites>().unwrap();
    for kind in Kind::ALL {
        let (before, after) = Registers::call(kind.stub(stubs), kind, CLIENT & !TAGS, STACK);
        assert_eq!((Registers::lost(&before, &after, kind), SEEN.take()), (Vec::new(), None), "{kind:?}");
    }
}

/// Checks the tests: if the stubs did nothing, they would find the registers lost.
#[test]
fn without_a_stub_the_registers_are_lost() {
    let bare: Stub = abi::OVERWRITE;
    for kind in Kind::ALL {
        let (before, after) = Registers::call(bare, kind, CLIENT, STACK);
        let lost = Registers::lost(&before, &after, kind);
        for register in abi::LOST_BARE {
            assert!(
                kind == Kind::Enter || lost.iter().any(|name| name == register),
                "{kind:?}: {register} in {lost:?}"
            );
        }
    }
}

/// Walks the stack, or panics.
struct Unwinds;

thread_local! {
    /// The return addresses of the functions on the stack.
    static STACK_OF: Cell<Vec<usize>> = const { Cell::new(Vec::new()) };
}

impl Unwinds {
    fn look(client: usize) {
        if client & !TAGS == CLIENT {
            let mut places = Vec::new();
            backtrace::trace(|frame| {
                places.push(frame.ip() as usize);
                true
            });
            STACK_OF.set(places);
        } else {
            panic_any(client);
        }
    }
}

impl Target for Unwinds {
    extern "C-unwind" fn enter(client: usize, _stack_pointer: usize) {
        Self::look(client);
    }

    extern "C-unwind" fn leave(client: usize, _stack_pointer: usize) {
        Self::look(client);
    }

    extern "C-unwind" fn tailcall(client: usize, _stack_pointer: usize) {
        Self::look(client);
    }
}

#[test]
fn a_stack_walk_goes_through_each_stub_into_its_caller() {
    #[inline(never)]
    fn beyond(stub: Stub, kind: Kind, client: usize) -> Vec<usize> {
        Registers::call(stub, kind, client, STACK);
        std::hint::black_box(STACK_OF.take())
    }

    /// More than the length of any of the functions.
    const LENGTH: usize = 0x400;
    let within = |function: usize, place: usize| (function..function + LENGTH).contains(&place);

    let stubs = super::of::<Unwinds>().unwrap();
    for kind in Kind::ALL {
        for tags in [OURS, TAGS] {
            let places = beyond(kind.stub(stubs), kind, CLIENT | tags);
            let stub = kind.stub(stubs) as *const () as usize;
            let caller = abi::call as *const () as usize;
            let at = places.windows(2).position(|pair| within(stub, pair[0]) && within(caller, pair[1]));
            let at = at.unwrap_or_else(|| panic!("{kind:?} {tags}: no {stub:#x} and {caller:#x} in {places:#x?}"));
            // The test's own functions, those of the test harness, the start of the thread.
            assert!(places.len() > at + 5, "{kind:?} {tags}: {places:#x?}");
        }
    }
}

#[test]
fn an_exception_passes_through_each_stub_and_its_caller_finds_its_registers() {
    let stubs = super::of::<Unwinds>().unwrap();
    for kind in Kind::ALL {
        for client in [8 | OURS, 8 | TAGS] {
            let kept = std::hint::black_box([3_u64, 5, 7, 11, 13, 17].map(|word| word << 32));
            let thrown = catch_unwind(|| Registers::call(kind.stub(stubs), kind, client, STACK)).unwrap_err();
            match thrown.downcast::<usize>() {
                Ok(thrown) => assert_eq!(*thrown, client),
                Err(other) => resume_unwind(other),
            }
            assert_eq!(kept.map(|word| word >> 32), [3, 5, 7, 11, 13, 17]);
        }
    }
}

//! The instructions of a function on x86-64, and how its frame is at each.

use iced_x86::{Code, Decoder, DecoderOptions, Mnemonic, OpKind, Register};

use super::parts::{Instruction, Part};
use super::reference::{Cookie, FRAME, WORD};

/// An epilogue has at most this many instructions: an addition, all saved registers, and the return.
const LONGEST_EPILOGUE: usize = 9;

/// A function stores the value that it keeps to notice an overrun among so many first instructions of its body.
const FIRST: usize = 40;

/// A function's code.
pub(crate) struct Decoded {
    start: usize,
    end: usize,
    instructions: Vec<iced_x86::Instruction>,
    /// How many make the frame.
    prologue: usize,
    /// Where the frame pointer points in the body, as an offset from the stack pointer.
    frame_pointer: Option<isize>,
}

/// Whether the instruction makes a frame.
fn makes_frame(instruction: &iced_x86::Instruction) -> bool {
    let destination = instruction.op0_register();
    match instruction.mnemonic() {
        Mnemonic::Push | Mnemonic::Vzeroupper => true,
        Mnemonic::Sub => destination == Register::RSP,
        Mnemonic::Lea => matches!(destination, Register::RBP | Register::R11),
        Mnemonic::Mov => matches!(destination, Register::RBP | Register::RSP),
        _ => false,
    }
}

/// Whether the instruction is one more of those in code that continues a loop: it copies the caller's frame pointer, or
/// saves a register.
fn copies_or_saves(instruction: &iced_x86::Instruction) -> bool {
    let copies = instruction.op0_register() == Register::RAX && instruction.memory_base() == Register::RBP;
    let saves = instruction.op0_kind() == OpKind::Memory && instruction.memory_base() == Register::RSP;
    instruction.mnemonic() == Mnemonic::Mov && (copies || saves)
}

/// Whether code that begins with these continues a loop.
fn continues_a_loop(instructions: &[iced_x86::Instruction]) -> bool {
    instructions.iter().take(2).any(|instruction| {
        let loads = instruction.code() == Code::Mov_r64_rm64 && instruction.op0_register() == Register::RAX;
        loads && instruction.memory_base() == Register::RBP && instruction.memory_displacement64() == 0
    })
}

/// Where the instruction sets the frame pointer to, as an offset from the stack pointer.
fn set_frame_pointer(instruction: &iced_x86::Instruction) -> Option<isize> {
    if instruction.op0_register() != Register::RBP {
        return None;
    }
    match instruction.mnemonic() {
        Mnemonic::Mov if instruction.op1_register() == Register::RSP => Some(0),
        Mnemonic::Lea if instruction.memory_base() == Register::RSP => {
            Some(instruction.memory_displacement64() as isize)
        }
        _ => None,
    }
}

/// What an instruction at the end of a function does to the stack pointer.
enum Removes {
    Bytes(isize),
    /// It becomes the frame pointer plus this.
    AllBut(isize),
}

fn removes(instruction: &iced_x86::Instruction) -> Option<Removes> {
    let is_stack_pointer = instruction.op0_register() == Register::RSP;
    match instruction.mnemonic() {
        Mnemonic::Pop => Some(Removes::Bytes(WORD as isize)),
        Mnemonic::Vzeroupper => Some(Removes::Bytes(0)),
        Mnemonic::Add if is_stack_pointer => Some(Removes::Bytes(instruction.immediate(1) as isize)),
        Mnemonic::Lea if is_stack_pointer && instruction.memory_base() == Register::RBP => {
            Some(Removes::AllBut(instruction.memory_displacement64() as isize))
        }
        Mnemonic::Mov if is_stack_pointer && instruction.op1_register() == Register::RBP => Some(Removes::AllBut(0)),
        _ => None,
    }
}

impl Decoded {
    pub(crate) fn of(start: usize, code: &[u8]) -> Self {
        let decoder = Decoder::with_ip(64, code, start as u64, DecoderOptions::NONE);
        let instructions: Vec<_> = decoder.into_iter().collect();
        // A large frame is made by a call, which touches its pages.
        let touched = |pair: &[iced_x86::Instruction]| matches!(pair, [lea, _] if lea.op0_register() == Register::R11);
        let touch = instructions.windows(2).take(LONGEST_EPILOGUE).position(touched).map(|place| place + 1);
        let is_loop = continues_a_loop(&instructions);
        let first = instructions.iter().enumerate().take_while(|&(number, instruction)| {
            makes_frame(instruction) || touch == Some(number) || is_loop && copies_or_saves(instruction)
        });
        // The last to make it is the one that sets the frame pointer, if there is one.
        let set = first.clone().position(|(_, instruction)| set_frame_pointer(instruction).is_some());
        let prologue = set.map_or_else(|| first.count(), |set| set + 1);
        let frame_pointer = set.and_then(|set| instructions.get(set).and_then(set_frame_pointer));
        Self { start, end: start + code.len(), instructions, prologue, frame_pointer }
    }

    /// Whether the instruction leaves the function: it returns, or goes on in another function.
    fn leaves(&self, instruction: &iced_x86::Instruction) -> bool {
        let target = instruction.near_branch_target() as usize;
        match instruction.mnemonic() {
            Mnemonic::Ret => true,
            Mnemonic::Jmp => {
                // The compiler marks most of them by a prefix for 64 bits, which they would not need.
                let is_marked = instruction.op0_kind() == OpKind::Memory || instruction.len() > 2 && target == 0;
                is_marked || target != 0 && !(self.start..self.end).contains(&target)
            }
            _ => false,
        }
    }

    /// Whether it continues a loop: it begins in another function's frame, to which the frame pointer points.
    pub(crate) fn continues_a_loop(&self) -> bool {
        continues_a_loop(&self.instructions)
    }

    /// How many instructions come before the first handler of exceptions, which makes a frame where no other code goes
    /// on.
    fn handlers(&self) -> usize {
        let is_new = |pair: &[iced_x86::Instruction]| {
            let [before, instruction] = pair else { return false };
            let goes_on = !matches!(
                before.mnemonic(),
                Mnemonic::Ret | Mnemonic::Jmp | Mnemonic::Int3 | Mnemonic::Call | Mnemonic::Nop
            );
            let makes = match instruction.mnemonic() {
                Mnemonic::Push => instruction.op0_register() != Register::None,
                Mnemonic::Sub => {
                    instruction.op0_register() == Register::RSP && instruction.op1_register() == Register::None
                }
                _ => false,
            };
            makes && !goes_on
        };
        let first = self.instructions.windows(2).skip(self.prologue.saturating_sub(1)).position(is_new);
        first.map_or(self.instructions.len(), |place| place + self.prologue.max(1))
    }

    pub(crate) fn instructions(&self) -> Vec<Instruction> {
        let mut parts = vec![Part::Body; self.instructions.len()];
        parts[..self.prologue].fill(Part::Prologue);
        let anywhere = (FRAME * WORD) as isize;
        let inside = self.frame_pointer.unwrap_or(anywhere);
        let mut frame_pointers = vec![inside; parts.len()];
        let mut removed = vec![0; parts.len()];
        frame_pointers[..self.prologue].fill(anywhere);
        let handlers = self.handlers();
        parts[handlers..].fill(Part::Handlers);
        let mut is_begun = false;
        for (part, instruction) in parts.iter_mut().zip(&self.instructions).skip(handlers) {
            let sets = instruction.mnemonic() == Mnemonic::Lea && instruction.op0_register() == Register::RBP;
            is_begun |= instruction.mnemonic() == Mnemonic::Push && instruction.op0_register() == Register::RBP;
            if is_begun {
                *part = Part::HandlerPrologue;
            }
            is_begun &= !sets;
        }
        frame_pointers[handlers..].fill(anywhere);
        for (number, instruction) in self.instructions.iter().enumerate().take(handlers) {
            if !self.leaves(instruction) {
                continue;
            }
            let before = self.instructions[self.prologue.min(number)..number].iter().rev().take(LONGEST_EPILOGUE);
            let first = number - before.take_while(|other| removes(other).is_some()).count();
            parts[first..=number].fill(Part::Epilogue);
            let mut so_far = 0;
            for place in first..=number {
                frame_pointers[place] = inside - so_far;
                removed[place] = so_far;
                match removes(&self.instructions[place]) {
                    Some(Removes::Bytes(bytes)) => so_far += bytes,
                    Some(Removes::AllBut(rest)) => so_far = inside + rest,
                    None => {}
                }
            }
        }
        let all = self.instructions.iter().zip(parts).zip(frame_pointers).zip(removed);
        all.map(|(((instruction, part), frame_pointer), removed)| Instruction {
            offset: instruction.ip() as usize - self.start,
            size: instruction.len(),
            part,
            frame_pointer,
            removed,
        })
        .collect()
    }

    /// The values that the function keeps on its stack to notice an overrun, with their places: the runtime ends the
    /// process if it walks over a frame without its value.
    pub(crate) fn cookies(&self) -> Vec<Cookie> {
        let at = |store: &iced_x86::Instruction, value: usize| {
            let is_from_frame_pointer = self.frame_pointer.is_some();
            let base = if is_from_frame_pointer { Register::RBP } else { Register::RSP };
            let offset = store.memory_displacement64() as isize;
            // It lies in the frame, below the frame pointer.
            let is_in_frame = store.memory_base() == base && (offset < 0 || !is_from_frame_pointer);
            is_in_frame.then_some(Cookie { value, is_from_frame_pointer, offset })
        };
        let loaded = |pair: &[iced_x86::Instruction]| {
            let [load, store] = pair else { return None };
            if store.code() != Code::Mov_rm64_r64 || store.op1_register() != load.op0_register() {
                return None;
            }
            let value = match load.code() {
                Code::Mov_r64_imm64 => load.immediate64() as usize,
                Code::Mov_r64_rm64 if load.memory_base() == Register::RIP => {
                    let place = load.memory_displacement64() as usize;
                    // SAFETY: the instruction reads this word of the runtime's data, which stays where it is.
                    unsafe { std::ptr::with_exposed_provenance::<usize>(place).read_unaligned() }
                }
                _ => return None,
            };
            at(store, value)
        };
        // A small one is a part of the instruction.
        let first = &self.instructions[..self.instructions.len().min(self.prologue + FIRST)];
        let short = first.iter().filter(|instruction| instruction.code() == Code::Mov_rm64_imm32);
        let short = short.filter_map(|store| at(store, store.immediate(1) as usize));
        short.chain(first.windows(2).filter_map(loaded)).collect()
    }
}

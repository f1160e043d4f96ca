//! The instructions of a function on arm64, and how its frame is at each.
//!
//! It is written apart from the walk's own decoder, and knows other things: where the parts of a function begin, and
//! which values it keeps on its stack.

use super::parts::{Instruction, Part};
use super::reference::{Cookie, FRAME, WORD};

/// An epilogue has at most this many instructions: ten pairs of registers, the frame, and the return.
const LONGEST_EPILOGUE: usize = 16;

/// A function stores the value that it keeps to notice an overrun among so many first instructions of its body.
const FIRST: usize = 60;

/// Where a process on arm64 Linux has its data.
const ADDRESSES: std::ops::Range<usize> = 1 << 32..1 << 48;

const FRAME_POINTER: u32 = 29;
const STACK_POINTER: u32 = 31;

/// A function's code.
pub(crate) struct Decoded {
    start: usize,
    instructions: Vec<u32>,
    /// How many make the frame.
    prologue: usize,
    /// Where the frame pointer points in the body, as an offset from the stack pointer.
    frame_pointer: Option<isize>,
}

fn field(instruction: u32, from: u32, bits: u32) -> u32 {
    instruction >> from & ((1 << bits) - 1)
}

fn base(instruction: u32) -> u32 {
    field(instruction, 5, 5)
}

/// `stp x29, x30, [sp, …]`, with or without a move of the stack pointer.
fn saves_record(instruction: u32) -> bool {
    matches!(instruction & 0xFFC0_7FFF, 0xA980_7BFD | 0xA900_7BFD)
}

/// What `add` and `sub` with an immediate do: the destination, the base, and what is added.
fn addition(instruction: u32) -> Option<(u32, u32, isize)> {
    let amount = (field(instruction, 10, 12) << (12 * field(instruction, 22, 1))) as isize;
    let added = match field(instruction, 23, 9) {
        0x122 => amount,
        0x1A2 => -amount,
        _ => return None,
    };
    Some((field(instruction, 0, 5), base(instruction), added))
}

/// `sub sp, sp, …`
fn grows_stack(instruction: u32) -> bool {
    addition(instruction).is_some_and(|(to, from, by)| (to, from) == (STACK_POINTER, STACK_POINTER) && by < 0)
        || instruction & 0xFFE0_FFFF == 0xCB20_63FF
}

/// Whether a load or store of one or two registers finds its place by the stack pointer; and whether it is a load.
fn on_stack(instruction: u32) -> Option<bool> {
    let is_pair = matches!(field(instruction, 27, 3), 0b101) && field(instruction, 25, 1) == 0;
    let is_one = field(instruction, 27, 3) == 0b111 && matches!(field(instruction, 30, 2), 0b11);
    ((is_pair || is_one) && base(instruction) == STACK_POINTER).then_some(field(instruction, 22, 1) == 1)
}

/// By how much a load moves the stack pointer afterwards.
fn moves_after(instruction: u32) -> isize {
    let is_pair = field(instruction, 27, 3) == 0b101;
    match (is_pair, field(instruction, 23, 2), field(instruction, 10, 2), field(instruction, 24, 2)) {
        (true, 0b01, ..) => ((instruction << 10).cast_signed() >> 25) as isize * 8,
        (false, _, 0b01, 0b00) => ((instruction << 11).cast_signed() >> 23) as isize,
        _ => 0,
    }
}

/// The registers, as the last instructions have made them.
#[derive(Default)]
struct Values {
    known: [Option<usize>; 32],
    /// Those that point into the frame, as offsets from the frame pointer.
    places: [Option<isize>; 32],
}

impl Values {
    fn note(&mut self, place: usize, instruction: u32) {
        let to = field(instruction, 0, 5) as usize;
        let bits = field(instruction, 5, 16) as usize;
        let shift = 16 * field(instruction, 21, 2);
        let from = |register: u32| self.known.get(register as usize).copied().flatten();
        let value = match field(instruction, 23, 9) {
            0x1A5 => Some(bits << shift),
            0x125 => Some(!(bits << shift)),
            0x1E5 => from(to as u32).map(|value| value & !(0xFFFF << shift) | bits << shift),
            0x122 | 0x1A2 => addition(instruction).and_then(|(_, base, by)| Some(from(base)?.wrapping_add_signed(by))),
            // adrp
            _ if instruction & 0x9F00_0000 == 0x9000_0000 => {
                let pages = (field(instruction, 5, 19) << 2 | field(instruction, 29, 2)) << 11;
                Some((place & !0xFFF).wrapping_add_signed((pages.cast_signed() >> 11) as isize * 4096))
            }
            // ldr xN, [xM, …]
            _ if instruction & 0xFFC0_0000 == 0xF940_0000 && base(instruction) < FRAME_POINTER => {
                let offset = field(instruction, 10, 12) as usize * 8;
                // A small number is not an address: null, or one that the program computes with.
                from(base(instruction)).filter(|base| ADDRESSES.contains(base) && base % WORD == 0).map(|base| {
                    // SAFETY: the instruction reads this word of the runtime's data, whose address is in the code.
                    unsafe { std::ptr::with_exposed_provenance::<usize>(base + offset).read_unaligned() }
                })
            }
            // A store changes no register.
            _ if matches!(instruction & 0xFFC0_0000, 0xF900_0000 | 0xF800_0000 | 0xF820_0000) => return,
            _ => None,
        };
        self.known[to] = value;
        self.places[to] = addition(instruction).filter(|(_, from, _)| *from == FRAME_POINTER).map(|(_, _, by)| by);
    }

    /// Where in the frame a store of 64 bits puts a known value.
    fn stored(&self, instruction: u32) -> Option<Cookie> {
        let value = self.known[field(instruction, 0, 5) as usize]?;
        let base = base(instruction);
        let offset = if instruction & 0xFFC0_0000 == 0xF900_0000 {
            field(instruction, 10, 12) as isize * 8
        } else if instruction & 0xFFE0_0C00 == 0xF800_0000 {
            ((instruction << 11).cast_signed() >> 23) as isize
        } else if instruction & 0xFFE0_FC00 == 0xF820_6800 {
            // In a large frame the offset is in a register.
            self.known[field(instruction, 16, 5) as usize]?.cast_signed()
        } else {
            return None;
        };
        let place = match base {
            FRAME_POINTER | STACK_POINTER => 0,
            _ => self.places[base as usize]?,
        };
        Some(Cookie { value, is_from_frame_pointer: base != STACK_POINTER, offset: place + offset })
    }
}

impl Decoded {
    pub(crate) fn of(start: usize, code: &[u8]) -> Self {
        let words = code.as_chunks::<4>().0.iter();
        let instructions: Vec<_> = words.map(|bytes| u32::from_le_bytes(*bytes)).collect();
        // All that the compiler makes a frame in sets the frame pointer to it.
        let set = instructions.iter().take(32).position(|&instruction| {
            addition(instruction).is_some_and(|(to, from, _)| (to, from) == (FRAME_POINTER, STACK_POINTER))
        });
        let has_record = |set: &usize| instructions[..*set].iter().any(|&instruction| saves_record(instruction));
        let set = set.filter(has_record);
        let frame_pointer = set.and_then(|set| addition(instructions[set])).map(|(_, _, by)| by);
        Self { start, instructions, prologue: set.map_or(0, |set| set + 1), frame_pointer }
    }

    /// Whether the instruction leaves the function: it returns, or goes on in another function.
    fn leaves(&self, number: usize) -> bool {
        let instruction = self.instructions[number];
        if instruction & 0xFFFF_FC1F == 0xD65F_0000 {
            return true;
        }
        let before = number.checked_sub(1).map(|before| self.instructions[before]);
        let is_after_end = before.is_some_and(|before| self.removes(before));
        let is_jump = instruction & 0xFFFF_FC1F == 0xD61F_0000 || instruction & 0xFC00_0000 == 0x1400_0000;
        is_jump && is_after_end
    }

    /// Whether an instruction at the end of a function removes a part of its frame.
    fn removes(&self, instruction: u32) -> bool {
        let adds = addition(instruction).is_some_and(|(to, from, by)| {
            to == STACK_POINTER && (from == STACK_POINTER && by > 0 || from == FRAME_POINTER)
        });
        // add sp, sp, xN, whose value comes just before it
        let adds_register = instruction & 0xFFE0_FFFF == 0x8B20_63FF;
        let is_value =
            matches!(field(instruction, 23, 9), 0x1A5 | 0x1E5) && matches!(field(instruction, 0, 5), 16 | 17);
        on_stack(instruction) == Some(true) || adds || adds_register || is_value
    }

    pub(crate) fn continues_a_loop(&self) -> bool {
        false
    }

    /// How many instructions come before the first handler of exceptions, which makes a frame of its own.
    fn handlers(&self) -> usize {
        let makes = |&instruction: &u32| saves_record(instruction) || grows_stack(instruction);
        let first = self.instructions.iter().skip(self.prologue).position(makes);
        first.map_or(self.instructions.len(), |place| place + self.prologue)
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
        frame_pointers[handlers..].fill(anywhere);
        for number in (0..handlers).filter(|&number| self.leaves(number)) {
            let before = self.instructions[self.prologue.min(number)..number].iter().rev().take(LONGEST_EPILOGUE);
            let first = number - before.take_while(|&&other| self.removes(other)).count();
            parts[first..=number].fill(Part::Epilogue);
            let mut so_far = 0;
            for place in first..=number {
                frame_pointers[place] = inside - so_far;
                removed[place] = so_far;
                let instruction = self.instructions[place];
                so_far = match addition(instruction) {
                    Some((STACK_POINTER, FRAME_POINTER, by)) => inside + by,
                    Some((STACK_POINTER, STACK_POINTER, by)) => so_far + by,
                    _ => so_far + moves_after(instruction),
                };
            }
        }
        let all = parts.into_iter().zip(frame_pointers).zip(removed).enumerate();
        all.map(|(number, ((part, frame_pointer), removed))| Instruction {
            offset: number * 4,
            size: 4,
            part,
            frame_pointer,
            removed,
        })
        .collect()
    }

    /// The values that the function keeps on its stack to notice an overrun, with their places: the runtime ends the
    /// process if it walks over a frame without its value.
    pub(crate) fn cookies(&self) -> Vec<Cookie> {
        let mut values = Values::default();
        let mut cookies = Vec::new();
        for (number, &instruction) in self.instructions.iter().take(self.prologue + FIRST).enumerate() {
            cookies.extend(values.stored(instruction));
            values.note(self.start + number * 4, instruction);
        }
        cookies
    }
}

//! Walks a stack that its thread has recorded itself, in a signal handler: from caller to caller in the copy of its
//! words.
//!
//! That happens later, on the sampler's thread, while everything runs. `code.rs` finds the functions at addresses, and
//! `shape.rs` (on arm64 `arm64.rs`) decodes from their instructions where a frame has its return address; `replaced.rs`
//! does so for code that continues a loop. Native frames are found by the unwind information of their libraries
//! (`natives.rs`). What is above code of which nothing is known may be no frame at all: `precompiled.rs` says where the
//! runtime may be asked about it nevertheless.

mod arm64;
mod call_site;
mod code;
mod natives;
mod precompiled;
mod replaced;
mod shape;
#[cfg(feature = "testing")]
mod single;
mod steps;

pub(crate) use code::{CodeLookUp, KnownCode};
pub(crate) use natives::Natives;
#[cfg(feature = "testing")]
pub use single::{CallerPosition, SignalStack, SignalStep};

use crate::id::FunctionId;
use crate::system::signals::RawSample;

use arm64::{Base, Frame};
use shape::Shape;

const WORD: usize = size_of::<usize>();

/// The record of the code at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
struct Code {
    /// The managed function; none for native code.
    function: Option<FunctionId>,
    shape: Shape,
}

/// Finds the code at addresses.
trait Codes {
    /// The code at the address of an instruction that was interrupted.
    fn at(&mut self, address: usize) -> Code;

    /// The code that a frame returns to; the word there may be no return address.
    fn returned_to(&mut self, place: Place) -> Code {
        // A call may be the last instruction of its function; its return address is then behind the function.
        self.at(place.ip.wrapping_sub(1))
    }

    /// The shape of the top function's frame, if it is not made yet or already gone.
    fn incomplete(&mut self, ip: usize) -> Option<Shape>;

    /// Whether the runtime has compiled what is at the address: a method, or one of its own stubs.
    fn is_compiled(&mut self, address: usize) -> bool;

    /// The caller of native code, by the unwind information of its library.
    fn native_caller(&mut self, sample: &RawSample, here: Place, is_top: bool) -> NativeCaller;
}

/// The caller of native code.
enum NativeCaller {
    Found(Place),
    /// The code has no caller: the stack ends.
    Outermost,
    /// There is no unwind information for the code.
    Unknown,
}

/// The current position of the walk: in a function, with its registers.
#[derive(Clone, Copy, Debug)]
struct Place {
    ip: usize,
    stack_pointer: usize,
    frame_pointer: usize,
    /// The link register, where the processor has one.
    #[cfg_attr(not(target_arch = "aarch64"), allow(dead_code))]
    link: usize,
    /// Whether something is known of the code of each frame that the walk has passed.
    is_certain: bool,
}

/// Calls `visit` with each frame, the innermost first: its function and its position. Ends when `visit` says so.
fn unwind(sample: &RawSample, codes: &mut impl Codes, mut visit: impl FnMut(Option<FunctionId>, usize) -> bool) {
    let mut code = codes.at(sample.ip);
    if !visit(code.function, sample.ip) || sample.is_elsewhere {
        return;
    }
    let mut place = caller_of_top(sample, codes, code);
    while let Some(here) = place.filter(|here| here.ip != 0) {
        code = codes.returned_to(here);
        if !visit(code.function, here.ip) {
            return;
        }
        // Each frame lies above the last, so the walk ends.
        place = caller(sample, codes, here, code, false).filter(|next| next.stack_pointer > here.stack_pointer);
        place = place.map(|next| Place { is_certain: next.is_certain && here.is_certain, ..next });
    }
}

/// The caller of the interrupted function, whose code this is.
fn caller_of_top(sample: &RawSample, codes: &mut impl Codes, code: Code) -> Option<Place> {
    let RawSample { ip, stack_pointer, frame_pointer, link, .. } = *sample;
    let top = Place { ip, stack_pointer, frame_pointer, link, is_certain: true };
    match code.function.and_then(|_| codes.incomplete(ip)) {
        Some(shape) => caller_by_shape(sample, top, shape),
        None => caller(sample, codes, top, code, true),
    }
}

/// The caller of a function.
fn caller(sample: &RawSample, codes: &mut impl Codes, here: Place, code: Code, is_top: bool) -> Option<Place> {
    if code.function.is_some() {
        return caller_by_shape(sample, here, code.shape);
    }
    match codes.native_caller(sample, here, is_top) {
        NativeCaller::Found(place) => return Some(place),
        NativeCaller::Outermost => return None,
        NativeCaller::Unknown => {}
    }
    // What the runtime generates besides functions makes no frame: stubs, and the copies of its write barriers.
    let has_none = cfg!(target_arch = "aarch64") && is_top;
    let shape = if has_none { Shape::OnArm64(Frame::NONE) } else { code.shape };
    // A compiled stub that calls something has a frame like a method's: those into native code are such.
    let is_certain = !is_top && codes.is_compiled(here.ip);
    caller_by_shape(sample, here, shape).map(|place| Place { is_certain, ..place })
}

/// The caller of a function with a frame of this shape.
fn caller_by_shape(sample: &RawSample, here: Place, shape: Shape) -> Option<Place> {
    match shape {
        Shape::Fixed { size, saved_frame_pointer } => {
            let frame_pointer = match saved_frame_pointer {
                Some(saved) => sample.read(here.stack_pointer.checked_add(saved)?)?,
                None => here.frame_pointer,
            };
            returned(sample, here.stack_pointer.checked_add(size)?, frame_pointer)
        }
        Shape::Chained => returned(sample, here.frame_pointer.checked_add(WORD)?, sample.read(here.frame_pointer)?),
        Shape::Replaced { size } => {
            let frame_pointer = sample.read(here.frame_pointer)?;
            let place = size.and_then(|size| here.frame_pointer.checked_add(size));
            place.and_then(|place| returned(sample, place, frame_pointer)).or_else(|| {
                // One frame is missing, but not those further out.
                let outer = sample.read(frame_pointer)?;
                returned(sample, frame_pointer.checked_add(WORD)?, outer)
            })
        }
        Shape::OnArm64(Frame { base, size, link, frame_pointer }) => {
            let base = match base {
                Base::StackPointer => here.stack_pointer,
                Base::FramePointer => here.frame_pointer,
            };
            let saved = |offset: Option<usize>, register: usize| match offset {
                Some(offset) => sample.read(base.checked_add(offset)?),
                None => Some(register),
            };
            Some(Place {
                ip: arm64::unsigned(saved(link, here.link)?),
                stack_pointer: base.checked_add(size)?,
                frame_pointer: saved(frame_pointer, here.frame_pointer)?,
                link: 0,
                is_certain: true,
            })
        }
    }
}

/// The position after a return, given the place of the return address.
fn returned(sample: &RawSample, place: usize, frame_pointer: usize) -> Option<Place> {
    let ip = sample.read(place)?;
    Some(Place { ip, stack_pointer: place.checked_add(WORD)?, frame_pointer, link: 0, is_certain: true })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Functions at addresses that are multiples of a hundred.
    struct Known(Vec<(usize, Shape)>, Option<Shape>);

    impl Codes for Known {
        fn at(&mut self, address: usize) -> Code {
            let known = self.0.iter().find(|(start, _)| (*start..start + 100).contains(&address));
            known.map_or(Code::default(), |&(start, shape)| Code { function: FunctionId::from_raw(start), shape })
        }

        fn incomplete(&mut self, _ip: usize) -> Option<Shape> {
            self.1
        }

        fn is_compiled(&mut self, _: usize) -> bool {
            false
        }

        fn native_caller(&mut self, _: &RawSample, _: Place, _: bool) -> NativeCaller {
            NativeCaller::Unknown
        }
    }

    /// The functions of a stack of these words, which begins at 0x1000.
    fn walk(ip: usize, frame_pointer: usize, words: &[usize], codes: &mut Known) -> Vec<usize> {
        let sample = RawSample::of(ip, 0x1000, frame_pointer, words);
        let mut functions = Vec::new();
        unwind(&sample, codes, |function, _| {
            functions.push(function.map_or(0, FunctionId::as_raw));
            true
        });
        functions
    }

    fn at(word: usize) -> usize {
        0x1000 + word * WORD
    }

    fn chained(starts: &[usize]) -> Known {
        Known(starts.iter().map(|&start| (start, Shape::Chained)).collect(), None)
    }

    #[test]
    fn the_chain_is_followed_to_its_end() {
        let words = [1, 2, at(4), 210, 0, 310, 7];
        assert_eq!(walk(110, at(2), &words, &mut chained(&[100, 200, 300])), [100, 200, 300]);
        // Native code is followed as well.
        assert_eq!(walk(110, at(2), &words, &mut chained(&[100, 300])), [100, 0, 300]);
    }

    #[test]
    fn what_is_above_code_of_which_nothing_is_known_is_uncertain() {
        struct Noting(Known, Vec<(usize, bool)>);

        impl Codes for Noting {
            fn at(&mut self, address: usize) -> Code {
                self.0.at(address)
            }

            fn returned_to(&mut self, place: Place) -> Code {
                self.1.push((place.ip, place.is_certain));
                self.at(place.ip)
            }

            fn incomplete(&mut self, _: usize) -> Option<Shape> {
                None
            }

            fn is_compiled(&mut self, address: usize) -> bool {
                address > 500
            }

            fn native_caller(&mut self, _: &RawSample, _: Place, _: bool) -> NativeCaller {
                NativeCaller::Unknown
            }
        }

        // From a method through a stub, and through native code.
        let words = [1, 2, at(4), 510, at(6), 210, at(8), 310, 0, 410];
        let sample = RawSample::of(110, 0x1000, at(2), &words);
        let mut codes = Noting(chained(&[100, 300, 400]), Vec::new());
        unwind(&sample, &mut codes, |_, _| true);
        assert_eq!(codes.1, [(510, true), (210, true), (310, false), (410, false)]);
    }

    #[test]
    fn a_function_without_a_record_of_its_own_does_not_lose_its_caller() {
        // The function at 100 is chained; 200, with 8 bytes on the stack, called it; 300, which is chained, called
        // that.
        let words = [0, at(6), 210, 99, 310, 5, at(8), 410, 0, 510];
        let mut codes = chained(&[100, 300, 400]);
        codes.0.push((200, Shape::Fixed { size: 8, saved_frame_pointer: None }));
        assert_eq!(walk(110, at(1), &words, &mut codes), [100, 200, 300, 400, 0]);
        // And one that has the frame pointer on the stack.
        let words = [0, 99, at(5), 310, 5, 0, 410];
        let mut codes = chained(&[300, 400]);
        codes.0.push((200, Shape::Fixed { size: 24, saved_frame_pointer: Some(16) }));
        assert_eq!(walk(210, 12345, &words, &mut codes), [200, 300, 400]);
    }

    #[test]
    fn at_the_top_what_is_not_there_yet_is_left_out() {
        let words = [210, 5, 6, at(5), 9, 0, 310];
        let mut codes = chained(&[100, 200, 300]);
        codes.1 = Some(Shape::Fixed { size: 0, saved_frame_pointer: None });
        assert_eq!(walk(100, at(5), &words, &mut codes), [100, 200, 300]);
    }

    #[test]
    fn code_that_continues_a_loop_is_followed_to_its_caller() {
        let words = [at(5), 111, 99, 210, 4, 0, 310];
        let mut codes = chained(&[200, 300]);
        codes.0.push((100, Shape::Replaced { size: Some(3 * WORD) }));
        assert_eq!(walk(120, at(0), &words, &mut codes), [100, 200, 300]);
        // Where its frame's size is unknown, only that caller is missing.
        codes.0.push((100, Shape::Replaced { size: None }));
        codes.0.remove(2);
        assert_eq!(walk(120, at(0), &words, &mut codes), [100, 300]);
    }

    #[test]
    fn frames_of_arm64_are_found_by_their_registers() {
        // The record lies at the bottom of the frame, and the caller's frame so far above.
        let frame = Frame { base: Base::FramePointer, size: 4 * WORD, link: Some(WORD), frame_pointer: Some(0) };
        let of = |start, frame| (start, Shape::OnArm64(frame));
        let words = [at(4), 210, 5, 6, at(7), 310, 7, 0, 0];
        let mut codes = Known(vec![of(100, frame), of(200, frame), of(300, frame)], None);
        assert_eq!(walk(110, at(0), &words, &mut codes), [100, 200, 300]);
        // Saved by the stack pointer, and the frame pointer is the caller's.
        let begun = Frame { base: Base::StackPointer, size: 4 * WORD, link: Some(WORD), frame_pointer: None };
        codes.1 = Some(Shape::OnArm64(begun));
        assert_eq!(walk(100, at(4), &words, &mut codes), [100, 200, 300]);
        // Nothing is saved: the caller is in the link register, which is zero here.
        codes.1 = Some(Shape::OnArm64(Frame::NONE));
        assert_eq!(walk(100, at(4), &words, &mut codes), [100]);
    }

    #[test]
    fn whatever_lies_on_the_stack_the_walk_ends() {
        let mut codes = chained(&[100]);
        assert_eq!(walk(110, at(0), &[at(0), 110], &mut codes), [100, 100], "a frame that is its own caller");
        assert_eq!(walk(110, usize::MAX, &[1, 2], &mut codes), [100]);
        assert_eq!(walk(110, at(0) + 1, &[1, 2], &mut codes), [100]);
        codes.0.push((200, Shape::Fixed { size: usize::MAX, saved_frame_pointer: Some(usize::MAX) }));
        assert_eq!(walk(210, at(0), &[1, 2], &mut codes), [200]);
    }
}

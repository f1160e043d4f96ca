//! Single steps of the walk, for tests that compare them with the runtime's own unwinder.

use std::cell::RefCell;

use crate::context::InCallback;
use crate::system::signals::RawSample;

use super::code::{CodeLookUp, KnownCode};
use super::natives::Natives;
use super::shape::Shape;
use super::{Code, Codes, NativeCaller, Place, caller_of_top};

/// The signal sampler's walk, one step from the top of a stack that the test makes.
///
/// A thread is never where a test wants it. So the test fills memory as a stack, and asks for the caller of any
/// instruction as if a thread had been interrupted there.
#[allow(missing_debug_implementations, reason = "it is for tests")]
#[derive(Default)]
pub struct SignalStep {
    known: KnownCode,
    natives: RefCell<Natives>,
}

/// A stack that a test has made.
#[allow(missing_debug_implementations, reason = "it is for tests")]
pub struct SignalStack(RawSample);

/// Where a frame's caller continues.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub struct CallerPosition {
    /// The return address.
    pub ip: usize,
    /// The stack pointer after the return.
    pub stack_pointer: usize,
    /// The frame pointer after the return.
    pub frame_pointer: usize,
}

impl SignalStep {
    /// Looks up the function at an address, as the sampler's thread does when it first sees it.
    pub fn look_up(&mut self, cx: &mut InCallback<'_>, address: usize) {
        CodeLookUp { known: &mut self.known, natives: &self.natives, cx }.at(address);
    }

    /// The caller of the instruction at `ip`, with this frame pointer, in a function that was looked up; none if the
    /// walk ends there. `link` is the link register, on processors that have one.
    pub fn caller(
        &self,
        stack: &mut SignalStack,
        ip: usize,
        frame_pointer: usize,
        link: usize,
    ) -> Option<CallerPosition> {
        (stack.0.ip, stack.0.frame_pointer, stack.0.link) = (ip, frame_pointer, link);
        let code = self.known.code(ip)?;
        let Place { ip, stack_pointer, frame_pointer, .. } = caller_of_top(&stack.0, &mut Known(&self.known), code)?;
        Some(CallerPosition { ip, stack_pointer, frame_pointer })
    }
}

impl SignalStack {
    /// A stack of these words, the first of which the stack pointer points at.
    pub fn new(stack_pointer: usize, words: &[usize]) -> Self {
        Self(RawSample::of(0, stack_pointer, 0, words))
    }
}

/// What is known, without a look-up.
struct Known<'k>(&'k KnownCode);

impl Codes for Known<'_> {
    fn at(&mut self, address: usize) -> Code {
        self.0.code(address).unwrap_or_default()
    }

    fn incomplete(&mut self, ip: usize) -> Option<Shape> {
        self.0.incomplete(ip)
    }

    fn is_compiled(&mut self, _: usize) -> bool {
        false
    }

    fn native_caller(&mut self, _: &RawSample, _: Place, _: bool) -> NativeCaller {
        NativeCaller::Unknown
    }
}

//! Probes: compiled code of one method calls Rust when the method begins and ends.
//!
//! `weave` adds the calls to a body, `convention` says how compiled code makes them, and `site` is where they arrive.

mod apart;
mod convention;
mod copies;
mod entries;
mod hook_calls;
mod in_probe;
mod site;
mod weave;

use std::sync::Arc;

use super::{EditError, MethodEdit};
use crate::id::ObjectId;
use crate::values::{Arguments, ReturnValue};

pub(crate) use entries::{Entered, address_of_entry};
pub(crate) use hook_calls::HookCalls;
pub use in_probe::InProbe;
pub(super) use site::Values;
pub(crate) use site::range;

bitflags::bitflags! {
    /// The calls that a [`Probe`] gets, and the values in them. Those that are left out cost nothing.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    pub struct ProbeKinds: u8 {
        /// [`Probe::enter`].
        const ENTER = 1;
        /// The arguments in `enter`; needs [`ENTER`](Self::ENTER).
        const ARGUMENTS = 2;
        /// [`Probe::leave`].
        const LEAVE = 4;
        /// The result in `leave`; needs [`LEAVE`](Self::LEAVE).
        const RESULT = 8;
        /// [`Probe::exception`].
        const EXCEPTION = 16;
        /// [`Probe::unwound`].
        const UNWOUND = 32;
    }
}

impl ProbeKinds {
    const fn are_whole(self) -> bool {
        let are_arguments_sent = self.contains(Self::ENTER) || !self.contains(Self::ARGUMENTS);
        let is_result_sent = self.contains(Self::LEAVE) || !self.contains(Self::RESULT);
        are_arguments_sent && is_result_sent && !self.is_empty()
    }
}

/// Code that a method calls when it begins and ends, inserted by [`MethodEdit::probe`].
///
/// It is called on the application's threads, on several at the same time. It has the contract of a
/// [hook](crate::hooks): compiled code calls it directly, and collections wait until it returns. So it must be short,
/// must not wait, and must not take a lock that another thread holds while it calls the runtime.
///
/// A panic is reported once, and the profiler is disabled. Calls that come after Shutdown do nothing. A probe is never
/// dropped: compiled code has its address until the process ends.
///
/// # Order
///
/// A call that returns: `enter`, `leave`. One that an exception leaves: `enter`; `exception`, after inner filters and
/// before those of callers, when nothing is unwound yet; then, after the `finally` blocks in the method, `unwound`. The
/// two are separate passes of the runtime: if a `finally` block in the method throws another exception, `exception`
/// comes twice and `unwound` once; if nothing handles the exception, the process ends before `unwound`. Neither changes
/// what the application sees: the order of filters and handlers, stack traces and dumps are as before.
pub trait Probe: Send + Sync + 'static {
    /// The calls that come, and their values.
    const KINDS: ProbeKinds = ProbeKinds::all();

    /// The method begins: none of its code has run. In a constructor, no constructor of `this` has run either.
    fn enter(&self, cx: &InProbe<'_>, args: &Arguments<'_>) {
        let _ = (cx, args);
    }

    /// The method is about to return.
    fn leave(&self, cx: &InProbe<'_>, result: &ReturnValue<'_>) {
        let _ = (cx, result);
    }

    /// An exception that nothing in the method handles is about to leave it; `exception` is null if the runtime has
    /// none.
    fn exception(&self, cx: &InProbe<'_>, exception: Option<ObjectId<'_>>) {
        let _ = (cx, exception);
    }

    /// An exception leaves the method now.
    fn unwound(&self, cx: &InProbe<'_>) {
        let _ = cx;
    }
}

impl<P: Probe> Probe for Arc<P> {
    const KINDS: ProbeKinds = P::KINDS;

    fn enter(&self, cx: &InProbe<'_>, args: &Arguments<'_>) {
        P::enter(self, cx, args);
    }

    fn leave(&self, cx: &InProbe<'_>, result: &ReturnValue<'_>) {
        P::leave(self, cx, result);
    }

    fn exception(&self, cx: &InProbe<'_>, exception: Option<ObjectId<'_>>) {
        P::exception(self, cx, exception);
    }

    fn unwound(&self, cx: &InProbe<'_>) {
        P::unwound(self, cx);
    }
}

/// A closure for the beginning of a method.
struct OnEntry<F>(F);

impl<F: Fn(&InProbe<'_>, &Arguments<'_>) + Send + Sync + 'static> Probe for OnEntry<F> {
    const KINDS: ProbeKinds = ProbeKinds::ENTER.union(ProbeKinds::ARGUMENTS);

    fn enter(&self, cx: &InProbe<'_>, args: &Arguments<'_>) {
        (self.0)(cx, args);
    }
}

impl MethodEdit<'_> {
    /// Calls `probe` when the method begins and ends, as [`Probe::KINDS`] says.
    ///
    /// The last of several probes in a method is the outermost. Arguments and results are read by the signature; the
    /// first 16 arguments, `this` included, can be read. A type parameter, or a struct with one, is
    /// [unreadable](crate::values::Unreadable::TypeParameter), as instantiations share the body. Outside of
    /// [`edit_once`](crate::InCallback::edit_once), structs of other assemblies than the method's own and the core
    /// library are [unreadable](crate::values::Unreadable::AmbiguousType) as well, since another version of that
    /// assembly may yet be loaded.
    ///
    /// The method is not inlined any more: [`set_checked_body`](crate::InCallback::set_checked_body) sets
    /// `MONITOR_JIT_COMPILATION` for that. Line numbers in its stack traces are lost. Each call of this keeps some
    /// memory until the process ends, also if the edit is not used.
    ///
    /// # Errors
    /// [`EditError::Refused`]: [`Refusal::TailCall`](super::Refusal::TailCall) and
    /// [`Refusal::Jmp`](super::Refusal::Jmp), if ends are wanted;
    /// [`Refusal::CallingConvention`](super::Refusal::CallingConvention),
    /// [`Refusal::RuntimeAsync`](super::Refusal::RuntimeAsync),
    /// [`Refusal::OfTheRuntime`](super::Refusal::OfTheRuntime), [`Refusal::Not64Bit`](super::Refusal::Not64Bit),
    /// [`Refusal::TooManyLocals`](super::Refusal::TooManyLocals). Otherwise the runtime's errors about new rows of
    /// metadata. The body is as it was.
    pub fn probe<P: Probe>(&mut self, probe: P) -> Result<(), EditError> {
        const {
            assert!(
                P::KINDS.are_whole(),
                "`Probe::KINDS` is empty, or has `ARGUMENTS` without `ENTER` or `RESULT` without `LEAVE`"
            );
        }
        self.weave(probe)
    }

    /// Calls `probe` with the arguments when the method begins.
    ///
    /// # Errors
    /// As [`probe`](Self::probe).
    pub fn probe_entry<F>(&mut self, probe: F) -> Result<(), EditError>
    where
        F: Fn(&InProbe<'_>, &Arguments<'_>) + Send + Sync + 'static,
    {
        self.probe(OnEntry(probe))
    }

    /// Removes all `tail.` prefixes, so that the method can be [probed](Self::probe): its frames then stay until the
    /// calls return, and a program that counts on their going may run out of stack. Returns how many there were.
    pub fn drop_tail_calls(&mut self) -> usize {
        self.code_mut().drop_tail_calls()
    }
}

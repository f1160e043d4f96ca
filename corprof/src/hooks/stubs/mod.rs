//! What the compiled code calls: for each ABI a stub for Enter, one for Leave and one for Tailcall.
//!
//! Compiled code calls a fast-path hook as it would no function: the arguments are in registers of their own, and registers
//! that any function may overwrite still hold what the application needs (the table is in the contract notes, (d)). So a stub
//! keeps those, builds a frame that a stack walk understands, and calls one Rust function. The files beside this one have
//! the registers of an ABI each; `tests` proves them.
//!
//! Vector registers are kept whole. That is most of what a stub costs, and for most methods for nothing: a method without
//! arguments of a floating-point, vector or value type gets nothing in them. Which methods those are, their signatures prove
//! when they are compiled (`signature.rs`); the answer travels in the lowest bits of the number that the runtime hands to
//! the hook, and the stub looks there. A number without such bits is one of the runtime's own, and nobody's hook is called.

#[cfg(all(target_arch = "aarch64", not(windows)))]
mod aarch64;
#[cfg(all(target_arch = "x86_64", not(windows)))]
mod x86_64_sysv;
#[cfg(all(target_arch = "x86_64", windows))]
mod x86_64_windows;

#[cfg(test)]
mod tests;

#[cfg(all(target_arch = "aarch64", not(windows)))]
use aarch64 as abi;
#[cfg(all(target_arch = "x86_64", not(windows)))]
use x86_64_sysv as abi;
#[cfg(all(target_arch = "x86_64", windows))]
use x86_64_windows as abi;

/// No argument is in a vector register.
pub(super) const PLAIN_ARGUMENTS: usize = 1;
/// What is returned is in no vector register.
pub(super) const PLAIN_RESULT: usize = 2;
/// Every number of ours has this tag. The runtime's own have none: they are addresses that are a multiple of 8. .NET Core 3.1
/// passes them after Shutdown, when it does not ask any more and compiles with hooks all the same.
pub(super) const OURS: usize = 4;
/// All of these: what a client's number is beside them is aligned to more.
pub(super) const TAGS: usize = PLAIN_ARGUMENTS | PLAIN_RESULT | OURS;
/// No tag: local variables may be in vector registers where a tail call is made, and no signature tells of those.
#[cfg(not(windows))]
const NEVER: usize = 0;

/// The Rust functions behind the stubs. They get the number that the runtime has for the function, tags included, if it is one
/// of [`OURS`], and the stack pointer that its caller had before the call.
///
/// They may unwind as far as the stubs are concerned; in a profiler they must not, as compiled code is above.
pub(crate) trait Target: 'static {
    /// A method begins.
    extern "C-unwind" fn enter(client: usize, stack_pointer: usize);
    /// A method returns.
    extern "C-unwind" fn leave(client: usize, stack_pointer: usize);
    /// A method is left by a tail call.
    extern "C-unwind" fn tailcall(client: usize, stack_pointer: usize);
}

/// The Rust functions behind the hooks of the slow path. They get the number that the runtime has for the function, tags
/// included, and its `COR_PRF_ELT_INFO`.
pub(crate) trait SlowTarget: 'static {
    /// A method begins.
    extern "C-unwind" fn enter(client: usize, elt: usize);
    /// A method returns.
    extern "C-unwind" fn leave(client: usize, elt: usize);
    /// A method is left by a tail call.
    extern "C-unwind" fn tailcall(client: usize, elt: usize);
}

/// A stub, as the runtime takes it.
pub(crate) type Stub = unsafe extern "C-unwind" fn();

/// A hook of the slow path.
pub(crate) type SlowStub = unsafe extern "C-unwind" fn(usize, usize);

/// The hooks of the slow path: the runtime's wrapper keeps the registers that must be kept and calls them as C does, so they
/// are the functions of the [`SlowTarget`] themselves, but for what an ABI has to add.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SlowStubs {
    pub(crate) enter: SlowStub,
    pub(crate) leave: SlowStub,
    pub(crate) tailcall: SlowStub,
}

/// The hooks of the slow path for this processor and system, if there are any.
#[cfg(any(target_arch = "x86_64", all(target_arch = "aarch64", not(windows))))]
pub(crate) fn slow_of<T: SlowTarget>() -> Option<SlowStubs> {
    #[cfg(all(target_arch = "x86_64", not(windows)))]
    let enter: SlowStub = abi::slow_enter::<T>;
    #[cfg(not(all(target_arch = "x86_64", not(windows))))]
    let enter: SlowStub = T::enter;
    Some(SlowStubs { enter, leave: T::leave, tailcall: T::tailcall })
}

/// There are none.
#[cfg(not(any(target_arch = "x86_64", all(target_arch = "aarch64", not(windows)))))]
pub(crate) fn slow_of<T: SlowTarget>() -> Option<SlowStubs> {
    None
}

/// The stubs in front of one [`Target`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stubs {
    pub(crate) enter: Stub,
    pub(crate) leave: Stub,
    pub(crate) tailcall: Stub,
}

/// The stubs of this processor and system, if there are any.
#[cfg(any(target_arch = "x86_64", all(target_arch = "aarch64", not(windows))))]
pub(crate) fn of<T: Target>() -> Option<Stubs> {
    Some(Stubs { enter: abi::enter::<T>, leave: abi::leave::<T>, tailcall: abi::tailcall::<T> })
}

/// There are none.
#[cfg(not(any(target_arch = "x86_64", all(target_arch = "aarch64", not(windows)))))]
pub(crate) fn of<T: Target>() -> Option<Stubs> {
    None
}

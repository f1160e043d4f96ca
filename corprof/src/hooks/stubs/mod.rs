//! The functions that compiled code calls: for each ABI a stub for Enter, one for Leave and one for Tailcall.
//!
//! Compiled code does not call a fast-path hook by the usual convention: the arguments are in registers of their own,
//! and registers that any function may overwrite still hold values of the application (the table is in the contract
//! notes, (d)). So a stub saves those, builds a frame that a stack walk understands, and calls one Rust function. Each
//! file beside this one has the registers of one ABI; `tests` checks them.
//!
//! Vector registers are saved whole. That is most of a stub's cost, and needless for most methods: a method without
//! arguments of a floating-point, vector or value type receives nothing in them. The signature proves this when the
//! method is compiled (`signature.rs`). The answer is stored in the lowest bits of the number that the runtime passes
//! to the hook, and the stub tests them. A number without these bits is one of the runtime's own, and no hook is
//! called.

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
/// No part of the result is in a vector register.
pub(super) const PLAIN_RESULT: usize = 2;
/// The tag of all numbers of ours. The runtime's own have no tags: they are addresses that are multiples of 8. It
/// passes them if it compiles with hooks after Shutdown, without asking (seen on .NET Core 3.1 only).
pub(super) const OURS: usize = 4;
/// All tags: without them a client's number is aligned to more.
pub(super) const TAGS: usize = PLAIN_ARGUMENTS | PLAIN_RESULT | OURS;
/// No tag: local variables may be in vector registers at a tail call, and signatures do not describe those.
#[cfg(not(windows))]
const NEVER: usize = 0;

/// The Rust functions behind the stubs. They receive the runtime's number for the function, tags included, if it has
/// [`OURS`], and the stack pointer that the function's caller had before the call.
///
/// The stubs allow them to unwind; in a profiler they must not, as compiled code is above them on the stack.
pub(crate) trait Target: 'static {
    /// A method begins.
    extern "C-unwind" fn enter(client: usize, stack_pointer: usize);
    /// A method returns.
    extern "C-unwind" fn leave(client: usize, stack_pointer: usize);
    /// A method is left by a tail call.
    extern "C-unwind" fn tailcall(client: usize, stack_pointer: usize);
}

/// The Rust functions behind the slow-path hooks. They receive the runtime's number for the function, tags included,
/// and its `COR_PRF_ELT_INFO`.
pub(crate) trait SlowTarget: 'static {
    /// A method begins.
    extern "C-unwind" fn enter(client: usize, elt: usize);
    /// A method returns.
    extern "C-unwind" fn leave(client: usize, elt: usize);
    /// A method is left by a tail call.
    extern "C-unwind" fn tailcall(client: usize, elt: usize);
}

/// A stub, as the runtime expects it.
pub(crate) type Stub = unsafe extern "C-unwind" fn();

/// A hook of the slow path.
pub(crate) type SlowStub = unsafe extern "C-unwind" fn(usize, usize);

/// The slow-path hooks: the runtime's wrapper saves the necessary registers and calls them as C does. So they are the
/// functions of the [`SlowTarget`] themselves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SlowStubs {
    pub(crate) enter: SlowStub,
    pub(crate) leave: SlowStub,
    pub(crate) tailcall: SlowStub,
}

/// The hooks of the slow path for this processor and system, if there are any.
#[cfg(any(target_arch = "x86_64", all(target_arch = "aarch64", not(windows))))]
pub(crate) fn slow_of<T: SlowTarget>() -> Option<SlowStubs> {
    Some(SlowStubs { enter: T::enter, leave: T::leave, tailcall: T::tailcall })
}

/// This processor and system have no stubs.
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
    Some(Stubs { enter: abi::enter::<T>, leave: abi::leave::<T>, tailcall: tailcall_of::<T>() })
}

/// The one that saves vectors whole.
#[cfg(target_arch = "x86_64")]
fn tailcall_of<T: Target>() -> Stub {
    if std::arch::is_x86_feature_detected!("avx512f") {
        return abi::tailcall_512::<T>;
    }
    if std::arch::is_x86_feature_detected!("avx") {
        return abi::tailcall_256::<T>;
    }
    abi::tailcall::<T>
}

#[cfg(all(target_arch = "aarch64", not(windows)))]
fn tailcall_of<T: Target>() -> Stub {
    abi::tailcall::<T>
}

/// This processor and system have no stubs.
#[cfg(not(any(target_arch = "x86_64", all(target_arch = "aarch64", not(windows)))))]
pub(crate) fn of<T: Target>() -> Option<Stubs> {
    None
}

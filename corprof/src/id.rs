//! The runtime's identifiers.
//!
//! Each is a non-zero number with a type of its own, so that they cannot be mixed up; where the runtime may pass 0 for
//! "none", corprof uses `Option`. An identifier names something in the runtime, and dies with it: its documentation
//! names the callback after which it must no longer be used. [`ObjectId`] is an address that the next collection may
//! change, and so has a lifetime.
//!
//! # Dead identifiers
//!
//! The runtime does not recognise a dead identifier: it reads the memory that used to hold the object. So corprof
//! tracks the identifiers that can die, and a call with a dead one returns `COR_E_OBJECTDISPOSED`
//! ([`ErrorKind::Gone`](crate::error::ErrorKind)); while a call is under way, the end of its identifier waits.
//! Identifiers may be kept and compared without a limit. But the runtime reuses addresses: a dead identifier may later
//! name something else.
//!
//! The profilers of a library share its memory, and a profiler that was detached may be attached again. An identifier
//! from another of these sessions is refused if it could die, unless the runtime has handed it out in this one as well.
//!
//! Identifiers that go with a module are refused once `module_unload_started` has returned. Names that were known
//! before stay known until `module_unload_finished`, and a class is usable once more in its `class_unload_started`.
//! Before .NET 10 the runtime does not say over which types shared generic code was made
//! ([`FunctionInfo::class`](crate::info::FunctionInfo) is none). Such a function is known to stay if its code lies on a
//! page with code that stays, which it nearly always does. Otherwise, if the function was first seen after the
//! unloading module was loaded, corprof looks for it at the next call about it. While the module is being unloaded,
//! which takes a millisecond, the call waits, 50 ms at most, and then returns an error.

use std::fmt;
use std::marker::PhantomData;
use std::num::NonZeroUsize;

macro_rules! ids {
    ($($(#[$meta:meta])* $name:ident;)*) => { $(
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(transparent)]
        pub struct $name(NonZeroUsize);

        impl $name {
            /// The identifier with this value, unless it is 0, which the runtime uses for "none".
            ///
            /// Not public: an invented number would make the runtime read memory that is not mapped.
            pub(crate) const fn from_raw(raw: usize) -> Option<Self> {
                match NonZeroUsize::new(raw) {
                    Some(id) => Some(Self(id)),
                    None => None,
                }
            }

            /// The value passed to the runtime.
            pub const fn as_raw(self) -> usize {
                self.0.get()
            }
        }

        impl Inert<$name> {
            /// The number, for tables and logs.
            pub const fn as_raw(self) -> usize {
                self.0.as_raw()
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({:#x})"), self.0)
            }
        }

        impl fmt::LowerHex for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::LowerHex::fmt(&self.0, f)
            }
        }
    )* };
}

ids! {
    /// An application domain. CoreCLR has the default one, and one for its core library; dead after
    /// `app_domain_shutdown_finished`.
    AppDomainId;
    /// A loaded assembly; dead after `assembly_unload_finished`.
    AssemblyId;
    /// A loaded module; dead after `module_unload_finished`.
    ModuleId;
    /// A loaded class: one for each instantiation of a generic class, though instantiations over reference types may
    /// share one. Dead after `class_unload_finished`, or with its module.
    ClassId;
    /// A function: one for each instantiation of a generic one, though instantiations over reference types may share
    /// one. Dead after `module_unload_finished` of its module; that of a dynamic method after
    /// `dynamic_method_unloaded`.
    FunctionId;
    /// A managed thread; dead when `thread_destroyed` returns. It names the managed thread, not the operating-system
    /// thread that carries it.
    ThreadId;
    /// A context of remoting, which CoreCLR does not have: the number is that of the application domain.
    ContextId;
    /// A garbage-collection handle; dead after `handle_destroyed`.
    HandleId;
    /// A kind of event that an EventPipe provider of this profiler's has defined, alive as long as the process.
    EventPipeEventId;
}

/// The start of one piece of native code. A function has one for each body it was compiled from, and more where it
/// was compiled in several tiers. Dead with its function.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NativeCode {
    start: NonZeroUsize,
    function: FunctionId,
}

impl NativeCode {
    pub(crate) fn new(start: usize, function: FunctionId) -> Option<Self> {
        NonZeroUsize::new(start).map(|start| Self { start, function })
    }

    /// The function that was compiled to it.
    pub fn function(self) -> FunctionId {
        self.function
    }

    /// The address of its start.
    pub const fn as_raw(self) -> usize {
        self.start.get()
    }
}

/// An address in managed code: of a frame, of a piece of native code, or of code that was compiled in this process.
///
/// [`function_from_ip`](crate::Info::function_from_ip) and
/// [`function_version_from_ip`](crate::InCallback::function_version_from_ip) take nothing else, as a number that is no
/// such address may end the application: asked about the precompiled code of a method that has not run, the runtime
/// looks for a method before it in the image that has, and reads on past the beginning of the image's table if there is
/// none.
///
/// ```compile_fail,E0308
/// # use corprof::prelude::*;
/// fn ask(cx: &InNoGc<'_>) -> corprof::Result<Option<FunctionId>> {
///     cx.function_from_ip(0x7f12_3456_7890) // expected `CodeAddress`, found `usize`
/// }
/// ```
///
/// | From | by |
/// |---|---|
/// | a managed frame of a walk | [`Frame::code_address`](crate::walk::Frame::code_address) |
/// | the start of a piece of code | `CodeAddress::from`([`NativeCode`]) |
/// | a number, such as a field of an event or a word of a stack | [`Info::code_address`](crate::Info::code_address): code that was compiled in this process |
/// | a stack that the runtime's sample profiler has recorded | [`EventPipeEvent::stack`](crate::args::EventPipeEvent::stack) |
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct CodeAddress(usize);

impl CodeAddress {
    /// Takes the number for an address in managed code.
    ///
    /// # Safety
    /// It is in code that the runtime compiled in this process, or in the precompiled code of a method that has run, or
    /// in no managed code at all. The runtime may have removed the code meanwhile.
    pub const unsafe fn from_raw(address: usize) -> Self {
        Self(address)
    }

    /// The address as a number.
    pub const fn as_raw(self) -> usize {
        self.0
    }
}

impl From<NativeCode> for CodeAddress {
    /// The start of the code. The runtime has told it, so the method is ready to run.
    fn from(code: NativeCode) -> Self {
        Self(code.as_raw())
    }
}

impl fmt::Debug for CodeAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CodeAddress({:#x})", self.0)
    }
}

impl fmt::LowerHex for CodeAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::LowerHex::fmt(&self.0, f)
    }
}

/// An identifier that no call accepts: the thing that it names is not yet loaded, unloaded, or suspended.
///
/// The runtime does not refuse such calls; it follows the identifier into memory of something else. So callbacks at the
/// beginning of a load and at the end of an unload receive identifiers in this form, which can only be compared and
/// printed. While threads are stopped one by one, even recording a new identifier would allocate memory (suspension
/// rule 3).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(transparent)]
pub struct Inert<I>(pub(crate) I);

impl<I: PartialEq> PartialEq<I> for Inert<I> {
    fn eq(&self, other: &I) -> bool {
        self.0 == *other
    }
}

impl<I: fmt::LowerHex> fmt::LowerHex for Inert<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<I> From<I> for Inert<I> {
    /// An identifier that is valid now can be compared with a kept one.
    fn from(id: I) -> Self {
        Self(id)
    }
}

/// Identifies one of several bodies of a function: 0 is the one that it was loaded with, others come from ReJIT
/// requests.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(transparent)]
pub struct ReJitId(pub usize);

/// An EventPipe provider.
///
/// A provider that this profiler has made lives as long as the process: `EventPipeProviderId<'static>`. Callbacks also
/// receive providers of the application, which deletes them when it disposes of an `EventSource` or collects it. So
/// those identifiers end with their callback. Keep the provider's name instead
/// ([`event_pipe_provider_info`](crate::Info::event_pipe_provider_info)):
///
/// ```compile_fail,E0521
/// # use corprof::id::EventPipeProviderId;
/// # use corprof::prelude::*;
/// # use std::sync::Mutex;
/// struct Keeper { providers: Mutex<Vec<EventPipeProviderId<'static>>> }
/// # #[callbacks]
/// impl Callbacks for Keeper {
///     fn event_pipe_provider_created(&self, _cx: &mut InCallback<'_>, provider: EventPipeProviderId<'_>) {
///         self.providers.lock().unwrap().push(provider); // borrowed data escapes
///     }
/// }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct EventPipeProviderId<'cb> {
    id: NonZeroUsize,
    _valid: PhantomData<&'cb ()>,
}

impl EventPipeProviderId<'_> {
    /// The provider with this number, unless it is 0.
    ///
    /// The caller vouches, by the lifetime, that the provider is not deleted while the identifier is in use.
    pub(crate) const fn from_raw(raw: usize) -> Option<Self> {
        match NonZeroUsize::new(raw) {
            Some(id) => Some(Self { id, _valid: PhantomData }),
            None => None,
        }
    }

    /// The value passed to the runtime. As a number it may be kept and compared.
    pub const fn as_raw(self) -> usize {
        self.id.get()
    }
}

impl fmt::Debug for EventPipeProviderId<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EventPipeProviderId({:#x})", self.id)
    }
}

impl fmt::LowerHex for EventPipeProviderId<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::LowerHex::fmt(&self.id, f)
    }
}

/// An EventPipe session that this profiler has started, until it is stopped.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(transparent)]
pub struct EventPipeSessionId(pub(crate) u64);

impl EventPipeSessionId {
    /// The value passed to the runtime.
    pub const fn as_raw(self) -> u64 {
        self.0
    }
}

/// An object on the managed heap: its current address.
///
/// The next collection may move or free the object, so an `ObjectId` cannot outlive its callback, and callbacks with
/// objects have a context from which no call can start a collection.
///
/// To find an object again later, keep an [`ObjectHandle`](crate::info::ObjectHandle), which
/// [`create_handle`](crate::InNoGc::create_handle) makes. The identifier itself cannot be kept:
///
/// ```compile_fail,E0521
/// # use corprof::prelude::*;
/// # use std::sync::Mutex;
/// struct Keeper { last: Mutex<Option<ObjectId<'static>>> }
/// # #[callbacks]
/// impl Callbacks for Keeper {
///     fn object_allocated(&self, _cx: &InNoGc<'_>, object: ObjectId<'_>, _class: ClassId) {
///         *self.last.lock().unwrap() = Some(object); // borrowed data escapes
///     }
/// }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct ObjectId<'gc> {
    address: NonZeroUsize,
    _valid: PhantomData<&'gc ()>,
}

impl ObjectId<'_> {
    /// The object at this address, unless it is 0.
    ///
    /// # Safety
    /// `raw` is 0 or the address of an object, and no collection moves or frees that object as long as the lifetime
    /// lasts.
    pub(crate) const unsafe fn from_raw(raw: usize) -> Option<Self> {
        match NonZeroUsize::new(raw) {
            Some(address) => Some(Self { address, _valid: PhantomData }),
            None => None,
        }
    }

    /// The address. As a number it may be kept, but it names the object only until the next collection.
    pub const fn as_raw(self) -> usize {
        self.address.get()
    }
}

impl fmt::Debug for ObjectId<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ObjectId({:#x})", self.address)
    }
}

impl fmt::LowerHex for ObjectId<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::LowerHex::fmt(&self.address, f)
    }
}

// The arrays of some callbacks are read in place, so an identifier must have the layout of the number on the wire, 0
// included.
static_assertions::assert_eq_size!(Option<ObjectId<'static>>, usize);
static_assertions::assert_eq_size!(Option<ClassId>, usize);

//! The runtime's reasons for the events that it reports.
//!
//! Runtimes add values, so every list here is open: a value that corprof does not know becomes `Unknown`.

use std::fmt;

use corprof_sys as sys;
use windows_core::BOOL;

use crate::session::Info;
use crate::session::wire::FromWire;

macro_rules! open_enums {
    ($($(#[$meta:meta])* $name:ident: $wire:ident { $($(#[$value_meta:meta])* $value:ident = $constant:ident, $text:literal;)* })*) => { $(
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[non_exhaustive]
        pub enum $name {
            $($(#[$value_meta])* $value,)*
            /// A value that this version of corprof does not know.
            Unknown(i32),
        }

        impl From<sys::$wire> for $name {
            fn from(wire: sys::$wire) -> Self {
                match wire {
                    $(sys::$constant => Self::$value,)*
                    other => Self::Unknown(other.0),
                }
            }
        }

        impl FromWire<sys::$wire> for $name {
            fn from_wire(_info: &Info, wire: sys::$wire) -> Option<Self> {
                Some(wire.into())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Self::$value => f.write_str($text),)*
                    Self::Unknown(value) => write!(f, "unknown ({value})"),
                }
            }
        }
    )* };
}

open_enums! {
    /// The result of the search for precompiled code.
    JitCache: COR_PRF_JIT_CACHE {
        /// Precompiled code is used.
        Found = COR_PRF_CACHED_FUNCTION_FOUND, "found";
        /// There is none: the function will be compiled.
        NotFound = COR_PRF_CACHED_FUNCTION_NOT_FOUND, "not found";
    }
    /// Whether a transition between managed and native code is a call or the return from one.
    TransitionReason: COR_PRF_TRANSITION_REASON {
        /// A call.
        Call = COR_PRF_TRANSITION_CALL, "call";
        /// The return from a call.
        Return = COR_PRF_TRANSITION_RETURN, "return";
    }
    /// Why the runtime suspends the managed threads.
    SuspendReason: COR_PRF_SUSPEND_REASON {
        /// None of the others.
        Other = COR_PRF_SUSPEND_OTHER, "other";
        /// A garbage collection.
        Gc = COR_PRF_SUSPEND_FOR_GC, "garbage collection";
        /// An application domain is being shut down.
        AppDomainShutdown = COR_PRF_SUSPEND_FOR_APPDOMAIN_SHUTDOWN, "application domain shutdown";
        /// Compiled code is discarded.
        CodePitching = COR_PRF_SUSPEND_FOR_CODE_PITCHING, "code pitching";
        /// The process is ending.
        Shutdown = COR_PRF_SUSPEND_FOR_SHUTDOWN, "shutdown";
        /// A debugger inside the process.
        InprocDebugger = COR_PRF_SUSPEND_FOR_INPROC_DEBUGGER, "debugger";
        /// The preparation of a garbage collection.
        GcPrep = COR_PRF_SUSPEND_FOR_GC_PREP, "preparing a garbage collection";
        /// A function gets a new body.
        Rejit = COR_PRF_SUSPEND_FOR_REJIT, "rejit";
        /// A profiler has requested it.
        Profiler = COR_PRF_SUSPEND_FOR_PROFILER, "profiler";
    }
    /// Why a collection takes place.
    GcReason: COR_PRF_GC_REASON {
        /// The application has requested it.
        Induced = COR_PRF_GC_INDUCED, "induced";
        /// The runtime has decided to collect.
        Other = COR_PRF_GC_OTHER, "other";
    }
    /// A part of the managed heap.
    Generation: COR_PRF_GC_GENERATION {
        /// The youngest objects.
        Gen0 = COR_PRF_GC_GEN_0, "gen0";
        /// Objects that have survived once.
        Gen1 = COR_PRF_GC_GEN_1, "gen1";
        /// Objects that have survived longer.
        Gen2 = COR_PRF_GC_GEN_2, "gen2";
        /// Large objects, which are not moved as a rule.
        LargeObjects = COR_PRF_GC_LARGE_OBJECT_HEAP, "large objects";
        /// Pinned objects, which are never moved.
        PinnedObjects = COR_PRF_GC_PINNED_OBJECT_HEAP, "pinned objects";
    }
    /// The kind of root that keeps an object alive.
    RootKind: COR_PRF_GC_ROOT_KIND {
        /// A variable on a thread's stack.
        Stack = COR_PRF_GC_ROOT_STACK, "stack";
        /// The finalizer's queue.
        Finalizer = COR_PRF_GC_ROOT_FINALIZER, "finalizer";
        /// A garbage-collection handle.
        Handle = COR_PRF_GC_ROOT_HANDLE, "handle";
        /// None of the others.
        Other = COR_PRF_GC_ROOT_OTHER, "other";
    }
}

/// The generations that a collection collects.
///
/// [`iter`](Self::iter) returns them one by one.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Generations {
    /// One bit for each generation.
    bits: u32,
}

impl Generations {
    /// # Safety
    /// `collected` is null or points at `count` truth values.
    pub(crate) unsafe fn new(count: i32, collected: *const BOOL) -> Self {
        // SAFETY: the caller's promise; a negative count means none.
        let flags = unsafe { crate::session::wire::slice(u32::try_from(count).unwrap_or(0), collected) };
        let bits = flags.iter().take(32).enumerate().fold(0, |bits, (n, flag)| bits | u32::from(flag.as_bool()) << n);
        Self { bits }
    }

    /// The collected generations, youngest first.
    pub fn iter(self) -> impl Iterator<Item = Generation> + use<> {
        let bits = self.bits;
        (0..32).filter(move |n| bits & 1 << n != 0).map(|n| sys::COR_PRF_GC_GENERATION(n).into())
    }

    /// Whether `generation` is collected.
    pub fn contains(self, generation: Generation) -> bool {
        self.iter().any(|collected| collected == generation)
    }
}

impl fmt::Display for Generations {
    /// The generations, with a plus sign between them: `gen0+gen1`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, generation) in self.iter().enumerate() {
            write!(f, "{}{generation}", if n == 0 { "" } else { "+" })?;
        }
        Ok(())
    }
}

impl fmt::Debug for Generations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Generations({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_values_arrive() {
        assert_eq!(SuspendReason::from(sys::COR_PRF_SUSPEND_FOR_GC), SuspendReason::Gc);
        assert_eq!(SuspendReason::from(sys::COR_PRF_SUSPEND_REASON(77)), SuspendReason::Unknown(77));
        assert_eq!(SuspendReason::Unknown(77).to_string(), "unknown (77)");
    }

    #[test]
    fn generations_are_the_true_ones() {
        let collected = [BOOL(1), BOOL(1), BOOL(0), BOOL(0), BOOL(0)];
        // SAFETY: five values, alive.
        let generations = unsafe { Generations::new(5, collected.as_ptr()) };
        assert_eq!(generations.to_string(), "gen0+gen1");
        assert!(!generations.contains(Generation::Gen2));
        // SAFETY: null is allowed.
        assert_eq!(unsafe { Generations::new(-1, std::ptr::null()) }.iter().count(), 0);
    }
}

//! Numbers that have names.

use std::fmt::{self, Debug, Display, Formatter};

macro_rules! named {
    ($(#[$doc:meta])* $name:ident($number:ident) { $($(#[$item:meta])* $constant:ident = $value:literal, $text:literal;)* }) => {
        $(#[$doc])*
        ///
        /// Newer runtimes may have more of them.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(
            /// The number that the event has.
            pub $number,
        );

        impl $name {
            $(
                #[doc = concat!("`", $text, "`.")]
                $(#[$item])*
                pub const $constant: Self = Self($value);
            )*

            /// Its name; nothing if this crate does not know it.
            #[must_use]
            pub fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($value => Some($text),)*
                    _ => None,
                }
            }
        }

        impl From<$number> for $name {
            fn from(number: $number) -> Self {
                Self(number)
            }
        }

        impl Display for $name {
            /// The name, or the number where there is none.
            fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
                match self.name() {
                    Some(name) => f.pad(name),
                    None => write!(f, "{}", self.0),
                }
            }
        }

        impl Debug for $name {
            fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
                Display::fmt(self, f)
            }
        }
    };
}

named! {
    /// Why there was a collection.
    GcReason(u32) {
        SMALL_OBJECTS = 0, "small objects allocated";
        INDUCED = 1, "asked for";
        LOW_MEMORY = 2, "low memory";
        EMPTY = 3, "empty";
        LARGE_OBJECTS = 4, "large objects allocated";
        NO_SPACE_FOR_SMALL = 5, "no space for small objects";
        NO_SPACE_FOR_LARGE = 6, "no space for large objects";
        INDUCED_NOT_FORCED = 7, "asked for, not forced";
        STRESS = 8, "stress test";
        LOW_MEMORY_BLOCKING = 9, "low memory, blocking";
        INDUCED_COMPACTING = 10, "asked for, compacting";
        LOW_MEMORY_HOST = 11, "low memory of the host";
        PROVISIONAL_FULL = 12, "provisional mode";
        LOW_MEMORY_HOST_BLOCKING = 13, "low memory of the host, blocking";
        TUNING_SMALL = 14, "tuning, small objects";
        TUNING_LARGE = 15, "tuning, large objects";
        BACKGROUND_STEP = 16, "step of a background collection";
        INDUCED_AGGRESSIVE = 17, "asked for, aggressive";
    }
}

named! {
    /// How a collection is made.
    GcKind(u32) {
        BLOCKING = 0, "blocking";
        BACKGROUND = 1, "background";
        FOREGROUND = 2, "blocking, during a background one";
    }
}

named! {
    /// The reason of a suspension.
    SuspendReason(u32) {
        OTHER = 0, "other";
        GC = 1, "collection";
        APP_DOMAIN_SHUTDOWN = 2, "shutdown of an application domain";
        REJIT = 3, "new code of methods";
        SHUTDOWN = 4, "shutdown";
        DEBUGGER = 5, "debugger";
        GC_PREPARATION = 6, "preparing a collection";
        DEBUGGER_SWEEP = 7, "debugger, again";
        PROFILER = 8, "a profiler";
    }
}

named! {
    /// The heap that an object was allocated in.
    AllocationKind(u32) {
        SMALL = 0, "small";
        LARGE = 1, "large";
        PINNED = 2, "pinned";
    }
}

named! {
    /// The kind of lock.
    ContentionFlags(u8) {
        MANAGED = 0, "managed";
        NATIVE = 1, "native";
    }
}

named! {
    /// Why the thread pool changes how many workers it wants.
    AdjustmentReason(u32) {
        WARMUP = 0, "warm-up";
        INITIALIZING = 1, "initializing";
        RANDOM_MOVE = 2, "random move";
        CLIMBING_MOVE = 3, "climbing move";
        CHANGE_POINT = 4, "change point";
        STABILIZING = 5, "stabilizing";
        STARVATION = 6, "starvation";
        THREAD_TIMED_OUT = 7, "a worker had nothing to do";
        COOPERATIVE_BLOCKING = 8, "cooperative blocking";
    }
}

named! {
    /// The object that a thread blocks on.
    WaitSource(u8) {
        UNKNOWN = 0, "wait handle";
        MONITOR = 1, "Monitor.Wait";
    }
}

named! {
    /// Where a root of the heap is.
    RootKind(u8) {
        STACK = 0, "stack";
        FINALIZER = 1, "finalizer queue";
        HANDLE = 2, "handle";
        OLDER = 3, "older generation";
        SIZED_REF = 4, "sized handle";
        OVERFLOW = 5, "overflow";
        DEPENDENT_HANDLE = 6, "dependent handle";
        NEW_FINALIZER = 7, "new finalizer";
        STEAL = 8, "stolen";
        BACKGROUND = 9, "background";
    }
}

/// The kind of a handle that is a root of the heap.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RootFlags(
    /// The bits that the event has.
    pub u32,
);

impl RootFlags {
    /// The object is not moved.
    pub const PINNING: Self = Self(1);
    /// It does not keep the object alive.
    pub const WEAK: Self = Self(2);
    /// It points into the object.
    pub const INTERIOR: Self = Self(4);
    /// Native code counts references.
    pub const REF_COUNTED: Self = Self(8);

    /// Whether all of these bits are set.
    #[must_use]
    pub fn contains(self, flags: Self) -> bool {
        self.0 & flags.0 == flags.0
    }
}

impl From<u32> for RootFlags {
    fn from(bits: u32) -> Self {
        Self(bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values that the manifest gives names to.
    fn values(map: &str) -> impl Iterator<Item = u32> {
        let maps = include_str!("../manifest/maps.tsv");
        let values = maps.lines().find_map(|line| line.strip_prefix(map)?.strip_prefix('\t'));
        let values = values.unwrap_or_default().split(',');
        values.filter_map(|value| u32::from_str_radix(value.strip_prefix("0x")?, 16).ok())
    }

    #[test]
    fn every_value_of_the_manifest_has_a_name() {
        let mut seen = 0;
        let mut check = |map: &str, name: &dyn Fn(u32) -> Option<&'static str>| {
            for value in values(map) {
                seen += 1;
                assert!(name(value).is_some(), "{map} {value}");
            }
        };
        check("GCReasonMap", &|value| GcReason(value).name());
        check("GCTypeMap", &|value| GcKind(value).name());
        check("GCSuspendEEReasonMap", &|value| SuspendReason(value).name());
        // The manifest does not have it; the runtime writes it (`SUSPEND_FOR_PROFILER`).
        assert_eq!(SuspendReason(8).to_string(), "a profiler");
        check("GCAllocationKindMap", &|value| AllocationKind(value).name());
        check("ContentionFlagsMap", &|value| ContentionFlags(value as u8).name());
        check("ThreadAdjustmentReasonMap", &|value| AdjustmentReason(value).name());
        check("WaitHandleWaitSourceMap", &|value| WaitSource(value as u8).name());
        check("GCRootKindMap", &|value| RootKind(value as u8).name());
        assert_eq!(seen, 10 + 3 + 8 + 3 + 2 + 8 + 2 + 10);
        assert_eq!(GcReason(99).to_string(), "99");
    }
}

//! [`cold_call`]: an outlined call for the rare work of hooks.
//!
//! Assembly that kept all registers over this call gained 0.2 of 18.9 ns a call in a shadow stack with times, and
//! nothing in `timer` (`cargo xtask bench --only hooks`, five interleaved runs of both).

/// Runs `rare`, outside of the calling function's own code.
#[cold]
#[inline(never)]
pub(super) fn cold_call<R>(rare: impl FnOnce() -> R) -> R {
    rare()
}

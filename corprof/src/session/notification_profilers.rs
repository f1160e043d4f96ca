//! What the end of another profiler does to notification-only ones.
//!
//! When a profiler is detached, or fails while it is initialized, the runtime counts one notification-only profiler
//! less, also if it was the main one (`ProfControlBlock::DeRegisterProfilerInfo` in inc/profilepriv.inl; seen on .NET
//! 8, 10 and 11). When the count is zero it makes no more callbacks to those that are left, so these do not hear what
//! dies; and when one of them requests its detach it follows a null pointer. Nothing tells them.
//!
//! So the main profiler stays in the process if there may be others, and a notification-only profiler is not detached,
//! nor attached: the count may be wrong from an earlier main profiler. The runtime loads the others at start-up if a
//! variable says so.

use std::ffi::OsStr;

use super::Info;

/// The variables that have the runtime load notification-only profilers; .NET 11 prefers the first.
const SWITCHES: [&str; 2] = ["DOTNET_ENABLE_NOTIFICATION_PROFILERS", "CORECLR_ENABLE_NOTIFICATION_PROFILERS"];

/// Whether the process may have notification-only profilers.
pub(crate) fn may_exist() -> bool {
    SWITCHES.iter().any(|name| std::env::var_os(name).is_some_and(|value| is_on(&value)))
}

fn is_on(value: &OsStr) -> bool {
    !value.is_empty() && value != "0"
}

impl Info {
    /// Why the runtime must not detach this profiler, if notification-only ones come into it: the subject and the rule.
    pub(crate) fn notification_obstacle(&self) -> Option<(&'static str, &'static str)> {
        const OBSERVER: &str =
            "the runtime crashes when a notification-only profiler leaves after the main one: end it by `retire`";
        const MAIN: &str =
            "the runtime would make no more callbacks to the notification-only profilers: end this one by `retire`";
        if self.profiler().is_notification_only {
            return Some(("notification_only", OBSERVER));
        }
        may_exist().then_some(("the main profiler", MAIN))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_switch_is_on_unless_it_is_empty_or_zero() {
        assert_eq!(["1", "true", "0", ""].map(|value| is_on(OsStr::new(value))), [true, true, false, false]);
    }
}

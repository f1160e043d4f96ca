//! What the runtime tells of a crash of the application, by its variables (live, on .NET 10 and 11): a profiler may be
//! the cause.

use std::process::ExitStatus;

/// Has .NET 11 print the managed stacks of all threads when the application crashes. With [`DUMP`], every version
/// writes them into a file, those of native code too; earlier versions do nothing without it.
pub const REPORT: &str = "EnableCrashReport";
/// Has the runtime write a core dump when the application crashes.
pub const DUMP: &str = "DbgEnableMiniDump";

/// The signals of crashes on Linux and macOS, whose numbers are the same on both but for SIGBUS.
#[cfg(unix)]
const SIGNALS: [(i32, &str); 6] =
    [(4, "SIGILL"), (6, "SIGABRT"), (7, "SIGBUS"), (8, "SIGFPE"), (10, "SIGBUS"), (11, "SIGSEGV")];

/// Whether the setting is on, by the values of variables. The runtime reads hexadecimal numbers, and COMPlus_ as well.
pub fn is_on(setting: &str, value_of: impl Fn(&str) -> Option<String>) -> bool {
    let values = ["DOTNET", "COMPlus"].iter().find_map(|prefix| value_of(&format!("{prefix}_{setting}")));
    values.is_some_and(|value| crate::environment::enables(&value))
}

/// The name of the signal by which the application has crashed, if it has.
#[cfg(unix)]
fn crash_of(status: ExitStatus) -> Option<&'static str> {
    let signal = std::os::unix::process::ExitStatusExt::signal(&status)?;
    let is_here = |number: i32| if cfg!(target_os = "linux") { number != 10 } else { number != 7 };
    SIGNALS.iter().find(|(number, _)| *number == signal && is_here(*number)).map(|(_, name)| *name)
}

/// Crashes on Windows have an exit code of their own each, and Windows itself reports them.
#[cfg(not(unix))]
fn crash_of(_status: ExitStatus) -> Option<&'static str> {
    None
}

/// What to tell of an application that has ended so: how its next crash says where it was, if this one has not.
pub fn hint(status: ExitStatus, value_of: impl Fn(&str) -> Option<String>) -> Option<String> {
    let signal = crash_of(status)?;
    (!is_on(REPORT, value_of)).then(|| {
        format!(
            "{signal} has ended the application. With --env DOTNET_{REPORT}=1 .NET 11 prints the stacks of all threads in a crash; with \
             --env DOTNET_{DUMP}=1 as well, each version writes them into a file"
        )
    })
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    #[test]
    fn a_crash_without_a_report_is_told_how_to_get_one() {
        let nothing = |_: &str| None;
        let hint_of = |signal| hint(ExitStatus::from_raw(signal), nothing);
        assert!(
            hint_of(11)
                .unwrap()
                .starts_with("SIGSEGV has ended the application. With --env DOTNET_EnableCrashReport=1")
        );
        assert!(hint_of(7).unwrap().starts_with("SIGBUS"));
        for no_crash in [0, 9, 10, 15] {
            assert_eq!(hint_of(no_crash), None, "{no_crash}");
        }
        let on = |name: &str| (name == "COMPlus_EnableCrashReport").then(|| "1".to_owned());
        assert_eq!(hint(ExitStatus::from_raw(11), on), None);
        let off = |name: &str| (name == "DOTNET_EnableCrashReport").then(|| "0".to_owned());
        assert!(hint(ExitStatus::from_raw(11), off).is_some());
    }
}

//! Keeps quiet in processes of the SDK: MSBuild takes lines on the standard error of the compilers that it starts for
//! errors.

use std::env;
use std::sync::OnceLock;

use corprof_profilers::sdk;

/// Prints a line to standard error, except in a process of the SDK.
macro_rules! report {
    ($($text:tt)*) => {
        if !crate::sdk::is_tool() {
            eprintln!($($text)*);
        }
    };
}

/// Whether this process is of the SDK and not an application: `dotnet run`, and the compilers, build servers and test
/// runners that it starts.
pub(crate) fn is_tool() -> bool {
    static IS_TOOL: OnceLock<bool> = OnceLock::new();
    *IS_TOOL.get_or_init(|| {
        let executable = env::current_exe().unwrap_or_default();
        sdk::is_tool(&executable, &arguments(), env::current_dir().ok().as_deref())
    })
}

/// The program and its arguments.
fn arguments() -> Vec<String> {
    // The standard library has no arguments in a shared library for musl.
    match std::fs::read("/proc/self/cmdline") {
        Ok(text) => sdk::arguments(&text),
        Err(_) => env::args_os().map(|argument| argument.to_string_lossy().into_owned()).collect(),
    }
}

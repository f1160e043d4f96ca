//! Keeps quiet in processes of the SDK: MSBuild takes lines on the standard error of the compilers that it starts for
//! errors.

use std::path::Path;
use std::sync::OnceLock;

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
    *IS_TOOL.get_or_init(|| is_tool_by(&arguments()))
}

/// The program and its arguments.
fn arguments() -> Vec<String> {
    // The standard library has no arguments in a shared library for musl.
    match std::fs::read("/proc/self/cmdline") {
        Ok(text) => String::from_utf8_lossy(&text).split('\0').map(str::to_owned).collect(),
        Err(_) => std::env::args_os().map(|argument| argument.to_string_lossy().into_owned()).collect(),
    }
}

/// As `is_launcher` of the command `corprof`.
fn is_tool_by(arguments: &[String]) -> bool {
    let Some((program, rest)) = arguments.split_first() else { return false };
    if Path::new(program).file_stem().is_none_or(|stem| stem != "dotnet") {
        return is_in_sdk(program);
    }
    let verbs = ["run", "test", "watch", "build", "msbuild", "vstest", "publish", "pack", "restore"];
    let is_verb = rest.first().is_some_and(|verb| verbs.contains(&verb.as_str()));
    is_verb || rest.iter().find(|argument| argument.ends_with(".dll")).is_some_and(|assembly| is_in_sdk(assembly))
}

/// Whether a file belongs to an SDK, which has a folder named after its version: `/usr/share/dotnet/sdk/10.0.100/`.
fn is_in_sdk(file: &str) -> bool {
    let folders: Vec<&str> = file.split(['/', '\\']).collect();
    folders.windows(2).any(|pair| pair[0] == "sdk" && pair[1].starts_with(|first: char| first.is_ascii_digit()))
}

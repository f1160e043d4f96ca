//! The command as its users call it, without .NET: standard output, exit codes, and errors before anything starts.

#[cfg(target_os = "linux")]
use std::os::unix::net::UnixListener;
use std::process::{Command, Output, Stdio};

fn corprof(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_corprof"));
    command.args(arguments).env("CORPROF_CACHE", env!("CARGO_TARGET_TMPDIR"));
    command
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_standard_output_is_an_error_and_a_closed_one_is_not() {
    for arguments in [["completions", "fish"].as_slice(), &["run", "--list"], &["exit-codes"], &["ps"]] {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let output = corprof(arguments).stdout(full).output().unwrap();
        assert_eq!(output.status.code(), Some(3), "{arguments:?}: {output:?}");
        assert!(stderr(&output).contains("cannot write to standard output: No space left"), "{output:?}");

        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = corprof(arguments).stdout(writer).stderr(Stdio::piped()).output().unwrap();
        assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""), "{arguments:?}");
    }
}

/// As a terminal that was closed.
#[cfg(target_os = "linux")]
#[test]
fn a_standard_error_that_nobody_can_read_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    for arguments in
        [["stacks", "999999999"].as_slice(), &["run", "locks", "--", "true"], &["record", "-o", "p.svg", "--", "true"]]
    {
        let code = |stderr: Stdio| {
            let status = corprof(arguments).current_dir(&folder).stdout(Stdio::null()).stderr(stderr).status();
            status.unwrap().code()
        };
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let (reader, closed) = std::io::pipe().unwrap();
        drop(reader);
        let expected = code(Stdio::null());
        assert_eq!([code(full.into()), code(closed.into())], [expected; 2], "{arguments:?}");
    }
}

#[test]
fn mistakes_are_told_before_an_application_starts() {
    let folder = tempfile::tempdir().unwrap();
    let told = |arguments: &[&str], variable: Option<(&str, &str)>| {
        let output = corprof(arguments).current_dir(&folder).envs(variable).output().unwrap();
        (output.status.code().unwrap(), stderr(&output))
    };
    let (code, text) = told(&["run", "locks", "true"], Some(("LOCKS_TPO", "3")));
    assert!(code == 125 && text.contains("LOCKS_TPO=3: locks has no such setting; did you mean LOCKS_TOP?"), "{text}");
    let (code, text) = told(&["record", "true"], Some(("SAMPLER_BUGDET", "3")));
    assert!(code == 125 && text.contains("did you mean SAMPLER_BUDGET?"), "{text}");
    let (code, text) = told(&["record", "4711"], None);
    assert!(code == 2 && text.contains("corprof record -p 4711"), "{text}");
    let (code, text) = told(&["record", "--rate", "-5", "true"], None);
    assert!(code == 2 && text.contains("give a number from 0.01 to 10000") && !text.contains("-- -5"), "{text}");
    let (code, text) = told(&["record", "--its-option", "true"], None);
    assert!(code == 2 && text.contains("unexpected argument '--its-option'"), "{text}");
    let (code, text) = told(&["new", "mine"], None);
    assert!(code == 2 && text.contains("--corprof-path") && !folder.path().join("mine").exists(), "{text}");
}

/// A user's folder for caches may belong to somebody else.
#[cfg(target_os = "linux")]
#[test]
fn a_cache_that_cannot_be_written_is_found() {
    let output = corprof(&["doctor"]).env("CORPROF_CACHE", "/proc/nowhere").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.code() == Some(1) && text.contains("cache-unwritable: "), "{text}");
    assert!(text.contains("name another one by CORPROF_CACHE"), "{text}");
}

/// There is no compiler for NativeAOT here: a program in C with a diagnostics port has its marks, none, or those of a
/// single-file application, which contains the CLR.
#[cfg(target_os = "linux")]
#[test]
fn a_process_compiled_ahead_of_time_is_left_alone_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let programs = [
        ("int DotNetRuntimeDebugHeader[4] = { 1 };", true),
        ("int something_else[4] = { 1 };", true),
        ("int DotNetRuntimeInfo[4] = { 1 };", false),
    ];
    for (number, (mark, is_compiled_ahead)) in programs.into_iter().enumerate() {
        let source = folder.path().join("app.c");
        let program = folder.path().join(format!("app{number}"));
        std::fs::write(&source, format!("#include <unistd.h>\n{mark}\nint main(void) {{ sleep(600); }}\n")).unwrap();
        let mut cc = Command::new("cc");
        let compiled = cc.args(["-Wl,--export-dynamic", "-o"]).arg(&program).arg(&source).status();
        assert!(compiled.expect("the tests need a C compiler").success());
        let mut app = Command::new(&program).env("TMPDIR", folder.path()).spawn().unwrap();
        let pid = app.id().to_string();
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        // The 22nd field, the start time; the second is the name in parentheses.
        let start = stat.rsplit(')').next().unwrap().split_whitespace().nth(19).unwrap();
        let port = folder.path().join(format!("dotnet-diagnostic-{pid}-{start}-socket"));
        let listener = UnixListener::bind(port).unwrap();
        // A process whose runtime is asked gets the end of the connection as an answer.
        std::thread::spawn(move || listener.incoming().for_each(drop));
        for arguments in [&["heap"][..], &["stacks"], &["record", "-p"], &["top", "--once"], &["doctor"]] {
            let output = corprof(arguments).arg(&pid).current_dir(&folder).output().unwrap();
            let text = format!("{}{}", stderr(&output), String::from_utf8_lossy(&output.stdout));
            assert_eq!(text.contains("compiled-ahead: "), is_compiled_ahead, "{mark} {arguments:?}: {text}");
            assert!(!is_compiled_ahead || output.status.code() == Some(1), "{arguments:?}: {output:?}");
        }
        app.kill().unwrap();
        app.wait().unwrap();
    }
}

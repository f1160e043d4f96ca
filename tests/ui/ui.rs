//! Code that must not compile, with the user's message, and beside it code that must.
//!
//! A case is named by its mistake, has at most 15 lines and is found by being in its folder. After a change of
//! messages: `TRYBUILD=overwrite cargo test -p corprof-ui-tests`, then read the difference as a user who does not know
//! the mistake.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot read its files fails")]

use std::path::Path;
use std::process::Command;

/// Set to anything, it leaves out the comparison of messages, for work with another compiler.
const ANY_COMPILER: &str = "CORPROF_ANY_COMPILER";

/// The flags that trybuild has cargo pass to the compiler for the cases.
const FLAGS: [&str; 6] = ["--cfg", "trybuild", "--verbose", "-A", "dead_code", "--diagnostic-width=140"];

/// All at once: without a case that must compile, trybuild only checks.
#[test]
fn what_is_forbidden_does_not_compile() {
    if messages_are_of_this_compiler() {
        // trybuild first checks what the cases depend on, without the last of the flags, and cargo would check all of
        // it once more for the cases.
        // SAFETY: the other tests of this program start programs, and read variables by the standard library only.
        unsafe { std::env::set_var("CARGO_ENCODED_RUSTFLAGS", FLAGS.join("\u{1f}")) };
        trybuild::TestCases::new().compile_fail("fail/*.rs");
    }
}

/// Whether messages can be compared: each release of Rust words them anew, and those here are of one.
fn messages_are_of_this_compiler() -> bool {
    let (wanted, found) = (messages_of(), this_release());
    if found == wanted || found.starts_with(&format!("{wanted}.")) {
        return true;
    }
    let what = format!("the messages in tests/ui are those of Rust {wanted}, and this is Rust {found}");
    assert!(
        std::env::var_os(ANY_COMPILER).is_some(),
        "{what}: run them with that release (`cargo +{wanted} test -p corprof-ui-tests`), or leave them out by \
         {ANY_COMPILER}=1. To move them to another release, change `messages-of` in Cargo.toml, and record them by \
         TRYBUILD=overwrite",
    );
    println!("skipped, by {ANY_COMPILER}: {what}");
    false
}

/// The release that the workspace's manifest names.
fn messages_of() -> String {
    let manifest = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.toml")).unwrap();
    let named = manifest.lines().find_map(|line| line.strip_prefix("messages-of = \"")?.strip_suffix('"'));
    named.expect("`messages-of` is a text, such as \"1.95\"").to_owned()
}

/// The release that trybuild compiles with.
fn this_release() -> String {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc).arg("-vV").output().expect("rustc runs");
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().find_map(|line| line.strip_prefix("release: ")).expect("rustc tells its release").to_owned()
}

#[cfg(unix)]
#[test]
fn another_compiler_is_told_what_to_do() {
    let rustc = Path::new(env!("CARGO_TARGET_TMPDIR")).join("another-rustc");
    // The shell writes it: a program that another test starts meanwhile would inherit the file, open and so not
    // executable.
    let write = r#"printf '#!/bin/sh\necho release: 1.12.0\n' > "$0" && chmod +x "$0""#;
    assert!(Command::new("sh").args(["-c", write]).arg(&rustc).status().unwrap().success());
    let run = |any_compiler: Option<&str>| {
        let mut test = Command::new(std::env::current_exe().unwrap());
        test.args(["--exact", "what_is_forbidden_does_not_compile", "--nocapture"]).env("RUSTC", &rustc);
        test.env_remove(ANY_COMPILER).envs(any_compiler.map(|value| (ANY_COMPILER, value)));
        let output = test.output().unwrap();
        let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap()).concat();
        (output.status.success(), said)
    };
    let what = format!("the messages in tests/ui are those of Rust {}, and this is Rust 1.12.0", messages_of());
    let (passed, said) = run(None);
    assert!(!passed && said.contains(&what) && said.contains("cargo +"), "{said}");
    let (passed, said) = run(Some("1"));
    assert!(passed && said.contains("skipped, by CORPROF_ANY_COMPILER") && said.contains(&what), "{said}");
}

/// Cases that are built, not only checked.
mod long {
    use super::*;

    #[test]
    fn what_is_right_compiles() {
        trybuild::TestCases::new().pass("pass/*.rs");
    }

    /// Errors that come of generating code. The case that compiles makes trybuild build.
    #[test]
    fn what_is_forbidden_does_not_link() {
        if messages_are_of_this_compiler() {
            let cases = trybuild::TestCases::new();
            cases.pass("pass/minimal.rs");
            cases.compile_fail("link/*.rs");
        }
    }
}

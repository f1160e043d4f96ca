//! What must not compile, with the message that the user gets, and right beside it what must.
//!
//! A case is named by its mistake, has at most 15 lines and is found by being in its folder. After a change of messages:
//! `TRYBUILD=overwrite cargo test -p corprof --test ui`, then read the difference with the eyes of somebody who does not
//! know what is wrong.

#[test]
fn what_is_right_compiles() {
    trybuild::TestCases::new().pass("tests/ui/pass/*.rs");
}

/// All at once: without a case that must compile, trybuild only checks.
#[test]
fn what_is_forbidden_does_not_compile() {
    trybuild::TestCases::new().compile_fail("tests/ui/fail/*.rs");
}

/// Errors that come of generating code. The case that compiles makes trybuild build.
#[test]
fn what_is_forbidden_does_not_link() {
    let cases = trybuild::TestCases::new();
    cases.pass("tests/ui/pass/minimal.rs");
    cases.compile_fail("tests/ui/link/*.rs");
}

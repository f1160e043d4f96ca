//! What must not compile, with the message that the user gets, and right beside it what must.
//!
//! A case is named by its mistake, has at most 15 lines and is found by being in its folder. After a change of messages:
//! `TRYBUILD=overwrite cargo test -p corprof --test ui`, then read the difference with the eyes of somebody who does not
//! know what is wrong. A case whose error comes of generating code (two_exports) needs the whole run: with a filter that leaves no
//! passing case, trybuild only checks.

#[test]
fn ui() {
    let cases = trybuild::TestCases::new();
    cases.pass("tests/ui/pass/*.rs");
    cases.compile_fail("tests/ui/fail/*.rs");
}

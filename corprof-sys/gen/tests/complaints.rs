//! The generator's errors: each names the place, and shows the line.

#![allow(clippy::expect_used, clippy::panic, reason = "helpers of tests")]

mod common;

use common::{complaint, context, facts, sample, sources, text};
use corprof_gen::{Contracts, Error, Input};

/// Line, column, text of the line, part of the message.
fn assert_complaint(input: Input, text: &str, place: (usize, usize), line: &str, message: &str) {
    let complaint = complaint(input, text);
    assert_eq!((complaint.line, complaint.column), place, "{complaint}");
    assert_eq!(complaint.file, input.file_name());
    assert_eq!(complaint.text, line);
    assert!(complaint.message.contains(message), "{complaint}");
    let shown = complaint.to_string();
    assert!(shown.starts_with(&format!("{}:{}:{}: ", complaint.file, place.0, place.1)), "{shown}");
    assert!(shown.contains(line), "{shown}");
}

fn assert_corhdr(text: &str, place: (usize, usize), line: &str, message: &str) {
    assert_complaint(Input::Corhdr, text, place, line, message);
}

const METHOD: &str = "[ object, uuid(7dac8207-d3ae-4c75-9b67-92801a497d45) ]\ninterface IX : IUnknown\n{\n";

#[test]
fn unknown_construct() {
    assert_corhdr("\n  coclass X;", (2, 3), "  coclass X;", "`coclass` is not understood here");
    assert_corhdr("typedef int @;", (1, 13), "typedef int @;", "`@` starts no word");
    assert_corhdr("/* é */ typedef é;", (1, 17), "/* é */ typedef é;", "starts no word");
    assert_corhdr("#import <x>\n", (1, 1), "#import <x>", "`#import` is not understood");
    let method = format!("{METHOD}    HRESULT M([in, surprise] int x);\n}}");
    assert_corhdr(
        &method,
        (4, 20),
        "    HRESULT M([in, surprise] int x);",
        "expected a known attribute, found `surprise`",
    );
    let method = format!("{METHOD}    HRESULT M(int x) const;\n}}");
    assert_corhdr(&method, (4, 22), "    HRESULT M(int x) const;", "`;`, found `const`");
    let method = format!("{METHOD}    HRESULT M(int x\n");
    assert_corhdr(&method, (4, 20), "    HRESULT M(int x", "found the end");
}

#[test]
fn broken_enumeration() {
    assert_corhdr("enum E { a = , };", (1, 14), "enum E { a = , };", "expected a value, found `,`");
    assert_corhdr("enum E { a = 1 2 };", (1, 16), "enum E { a = 1 2 };", "`,` or `}`");
    assert_corhdr("enum E { a = b };", (1, 14), "enum E { a = b };", "`b` is not an enumerator so far");
    assert_corhdr("enum E { a = f(1) };", (1, 14), "enum E { a = f(1) };", "`f(...)` is not a value");
    assert_corhdr("enum E { a = 1 << 32 };", (1, 10), "enum E { a = 1 << 32 };", "does not fit 32 bits");
    assert_corhdr("enum E { a, a };", (1, 13), "enum E { a, a };", "`a` is declared twice");
}

#[test]
fn never_closed() {
    assert_corhdr("int\n /* and so on", (2, 2), " /* and so on", "this comment is never closed");
    assert_corhdr("import \"x", (1, 8), "import \"x", "this text is never closed");
    assert_corhdr("\n#if 1\n", (2, 1), "#if 1", "no #endif");
    assert_corhdr("#endif", (1, 1), "#endif", "without a condition");
}

#[test]
fn unknown_type() {
    assert_corhdr("typedef Mystery X;", (1, 9), "typedef Mystery X;", "the type `Mystery` is not known");
    assert_corhdr("typedef IStream X;", (1, 9), "typedef IStream X;", "only a pointer");
    let method = format!("{METHOD}    HRESULT M([in] Mystery *p);\n}}");
    assert_corhdr(&method, (4, 20), "    HRESULT M([in] Mystery *p);", "`Mystery` is not known");
    let parent = METHOD.replace("IUnknown", "INothing") + "}";
    assert_corhdr(&parent, (2, 16), "interface IX : INothing", "`INothing` is not a known interface");
}

#[test]
fn duplicate_name() {
    assert_corhdr("typedef int A;\ntypedef int A;", (2, 13), "typedef int A;", "`A` is declared twice");
    assert_corhdr("typedef int DWORD;", (1, 13), "typedef int DWORD;", "`DWORD` is declared twice");
    let methods = format!("{METHOD}    HRESULT M(int x);\n    HRESULT M(int y);\n}}");
    assert_corhdr(&methods, (5, 13), "    HRESULT M(int y);", "the method `M` is declared twice");
    let params = format!("{METHOD}    HRESULT M(int x, int x);\n}}");
    assert_corhdr(&params, (4, 26), "    HRESULT M(int x, int x);", "the parameter `x` is declared twice");
    let codes = format!("{}#define COR_E_ARGUMENT EMAKEHR(1)\n", text(Input::Corerror));
    assert_complaint(Input::Corerror, &codes, (9, 24), "#define COR_E_ARGUMENT EMAKEHR(1)", "declared twice");
}

#[test]
fn bad_guid() {
    let short = METHOD.replace("7dac8207", "7dac820") + "}";
    let line = "[ object, uuid(7dac820-d3ae-4c75-9b67-92801a497d45) ]";
    assert_corhdr(&short, (1, 16), line, "expected a GUID (8-4-4-4-12 hexadecimal digits)");
    let none = "[ object ]\ninterface IX : IUnknown { }";
    assert_corhdr(none, (2, 11), "interface IX : IUnknown { }", "`IX` has no uuid");
    let same = METHOD.replace("497d45", "497d44") + "}";
    // The sample's metadata.idl is read after corhdr.idl, so the complaint is there.
    let complaint = complaint(Input::Corhdr, &same);
    assert_eq!(complaint.file, "metadata.idl");
    assert!(complaint.message.contains("has the IID of `IX`"), "{complaint}");
}

#[test]
fn unknown_macro_or_code() {
    let line = "#define COR_E_X CRYPTIC(1)";
    assert_complaint(Input::Corerror, line, (1, 17), line, "`CRYPTIC` is not a known macro");
    let line = "#define CRYPTIC(x) x";
    assert_complaint(Input::Corerror, line, (1, 20), line, "the macro `CRYPTIC` is not known");
    let line = "#define COR_E_X COR_E_Y";
    assert_complaint(Input::Corerror, line, (1, 17), line, "`COR_E_Y` is not a known code");
}

#[test]
fn facts_about_nothing() {
    let mut facts = facts();
    for part in [&mut facts.since, &mut facts.bitflags, &mut facts.unsigned, &mut facts.opaque, &mut facts.superseded] {
        part.insert("Nothing".to_owned(), "no reason".to_owned());
    }
    let error = context(&[], &facts, &sources()).expect_err("five wrong facts");
    let Error::Facts { file: "facts.toml", problems } = error else { panic!("{error}") };
    assert_eq!(problems.len(), 5, "{problems:?}");
    assert!(
        problems.iter().all(|problem| problem.ends_with("Nothing: nothing of that name is declared")),
        "{problems:?}"
    );
}

#[test]
fn contracts_that_disagree() {
    let model = context(&[], &facts(), &sources()).expect("a model").model;
    let contracts = Contracts::read(&sample("contracts.toml")).expect("contracts");
    let problems = |change: &dyn Fn(&mut Contracts)| {
        let mut changed = contracts.clone();
        change(&mut changed);
        match changed.check(&model) {
            Err(Error::Facts { file: "contracts.toml", problems }) => problems,
            Err(other) => panic!("{other}"),
            Ok(()) => Vec::new(),
        }
    };
    assert!(problems(&|_| {}).is_empty());
    let slot = problems(&|contracts| contracts.info[1].slot = 9);
    assert_eq!(slot, ["[[info]] ICorProfilerInfo::SetFunctionIDMapper: slot 9, but the IDL has 4"]);
    let missing = problems(&|contracts| drop(contracts.callback.remove(0)));
    assert_eq!(missing, ["[[callback]] ICorProfilerCallback::Initialize: missing"]);
    let unknown = problems(&|contracts| contracts.info[0].method = "Gone".to_owned());
    assert_eq!(unknown.len(), 2, "{unknown:?}");
    let value = problems(&|contracts| contracts.flag[1].value = 1);
    assert_eq!(value, ["[[flag]] COR_PRF_MONITOR_GC: 0x1, but the IDL has 0x80"]);
    let silent = problems(&|contracts| contracts.info[0].lets_gc_in = None);
    assert_eq!(silent, ["[[info]] GetModuleInfo: says not whether it lets a collection in, or not who says so"]);
    let twice = problems(&|contracts| contracts.info[0].offered.push("module_info(module)".to_owned()));
    assert_eq!(twice, ["[[info]] GetModuleInfo: needs one of offered, step_of, replaced_by, never"]);
    let reason = problems(&|contracts| contracts.info[0].context = Some(corprof_gen::contracts::Context::Info));
    assert_eq!(reason, ["[[info]] GetModuleInfo: has a context without a context_reason, or the reverse"]);
    let newer = problems(&|contracts| contracts.flag[6].in_idl = true);
    assert_eq!(newer, ["[[flag]] COR_PRF_HIGH_NEWER: COR_PRF_HIGH_MONITOR has no such flag"]);
}

#[test]
fn unknown_keys_in_the_tables() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("facts.toml");
    let text = std::fs::read_to_string(sample("facts.toml")).expect("facts");
    std::fs::write(&path, format!("{text}\n[surprise]\nA = 1\n")).expect("a file");
    let error = corprof_gen::Facts::read(&path).expect_err("an unknown key");
    assert!(error.to_string().contains("unknown field `surprise`"), "{error}");
}

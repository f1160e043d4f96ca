//! Arguments and results in hooks: they equal those of the program, and the program is unchanged.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail, ensure};
use corprof_tests::{Difference, Outcome, Run, Runtime, repetitions};

const LIBRARY: &str = "values";
const APP: &str = "Values";

const SHARED: &str = "<its type is a type parameter of code that is shared between instantiations>";
const BEHIND: &str = "<it is an object reference behind a by-ref, and nothing proves that there is an object>";
const NOWHERE: &str = "<there is no memory at its address, or none that can be read safely>";

/// The calls of one method in order, each with its arguments and its result.
type Calls = Vec<(String, String)>;

/// The output of `WritesValues`, by method.
fn calls(outcome: &Outcome) -> Result<BTreeMap<String, Calls>> {
    let mut calls = BTreeMap::<String, Calls>::new();
    for line in outcome.stderr.lines() {
        let Some((hook, rest)) = line.split_once(' ') else { continue };
        let (name, values) = rest.split_once(' ').unwrap_or((rest, ""));
        match hook {
            "enter" => calls.entry(name.to_owned()).or_default().push((values.to_owned(), String::new())),
            "leave" => {
                let last = calls.get_mut(name).and_then(|of| of.last_mut()).context("left before it was entered")?;
                ensure!(last.1.is_empty(), "{name} left twice: {outcome}");
                values.clone_into(&mut last.1);
            }
            _ => {}
        }
    }
    Ok(calls)
}

/// Runs the program with and without a profiler; it must print the same.
fn both(runtime: &Runtime, profiler: &str) -> Result<Outcome> {
    let bare = Run::new(runtime, APP).run()?;
    bare.exited_with(0)?;
    ensure!(bare.stdout.lines().count() == 62, "{bare}");
    let outcome = Run::new(runtime, APP).profiler_named(LIBRARY, profiler).run()?;
    outcome.exited_with(0)?;
    ensure!(outcome.stdout == bare.stdout, "without: {bare}; with: {outcome}");
    Ok(outcome)
}

/// The arguments and results of each method, as the program has them.
const EXPECTED: &[(&str, &str, &str)] = &[
    ("Values.Numbers.Bool", "a=true", "false"),
    ("Values.Numbers.Char", "a='é'", "'ê'"),
    ("Values.Numbers.SByte", "a=-100", "100"),
    ("Values.Numbers.Byte", "a=200", "201"),
    ("Values.Numbers.Short", "a=-30000", "30000"),
    ("Values.Numbers.UShort", "a=60000", "60001"),
    ("Values.Numbers.Int", "a=-2000000000", "2000000000"),
    ("Values.Numbers.UInt", "a=4000000000", "4000000001"),
    ("Values.Numbers.Long", "a=-9000000000000000000", "9000000000000000000"),
    ("Values.Numbers.ULong", "a=18000000000000000000", "17999999999999999999"),
    ("Values.Numbers.Float", "a=1.25", "2.5"),
    ("Values.Numbers.Double", "a=-2.5", "-5"),
    ("Values.Numbers.Native", "a=-3 b=5", "-8"),
    (
        "Values.Numbers.Many",
        "a=1 b=2.5 c=3 d=4.5 e=5 f=6.5 g=7.5 h=8.5 i=9.5 j=10.5 k=11.5 l=12.5 m=13 n=14 o=15 p=-16 q=17.5 r=\"r\" s=true t='t'",
        "244",
    ),
    ("Values.Numbers.Nothing", "", "void"),
    ("Values.Numbers.Enum", "a=1 b=-5 c=18446744073709551615", "2"),
    ("Values.Numbers.Enum2", "a=5", "-5"),
    ("Values.References.String", "a=\"one \\\"é\\\" \" b=\"😀\"", "\"one \\\"é\\\" 😀\""),
    ("Values.References.String", "a=null b=\"\"", "\"\""),
    ("Shapes.Thing..ctor", "(Shapes.Thing) id=1", "void"),
    ("Shapes.Thing..ctor", "(Shapes.Thing) id=2", "void"),
    ("Values.References.Object", "a=(Shapes.Thing) b=null", "(Shapes.Thing)"),
    ("Values.References.Class", "a=(Shapes.Thing) b=(int32[]) c=(int32[,]) d=null", "(Shapes.Thing)"),
    ("Values.References.Pointer", "a=0x1000 b=0x2000", "0x1004"),
    ("Values.ByRefs.Ref", "a=ref 5 b=ref 0 c=ref 0.75", "void"),
    ("Values.ByRefs.Cell", "at=1", "ref 20"),
    ("Values.ByRefs.Cell", "at=1", "ref 22"),
    ("Values.ByRefs.Struct", "a=ref { Name: BEHIND, Age: 33 } b=ref { I: 4, D: 0.5 }", "37"),
    ("Values.ByRefs.Text", "a=ref unchecked \"text\"", "void"),
    ("Values.ByRefs.End", "end=ref NOWHERE none=ref unchecked \"text!\"", "true"),
    ("Values.Structs.OneInt", "a={ A: 1 }", "{ A: 2 }"),
    ("Values.Structs.OneFloat", "a={ F: 1.5 }", "{ F: 2.5 }"),
    ("Values.Structs.OneDouble", "a={ D: 2.5 }", "{ D: 3.5 }"),
    ("Values.Structs.TwoFloats", "a={ X: 1.5, Y: 2.5 }", "{ X: 1.5, Y: 3.5 }"),
    ("Values.Structs.ThreeFloats", "a={ X: 1.5, Y: 2.5, Z: 3.5 }", "{ X: 1.5, Y: 2.5, Z: 4.5 }"),
    ("Values.Structs.FourDoubles", "a={ A: 1.5, B: 2.5, C: 3.5, D: 4.5 }", "{ A: 1.5, B: 2.5, C: 3.5, D: 5.5 }"),
    ("Values.Structs.FloatThenDouble", "a={ F: 1.5, D: 2.5 }", "{ F: 1.5, D: 3.5 }"),
    ("Values.Structs.IntAndDouble", "a={ I: 1, D: 2.5 }", "{ I: 1, D: 3.5 }"),
    ("Values.Structs.FloatAndInt", "a={ F: 1.5, I: 2 }", "{ F: 1.5, I: 3 }"),
    ("Values.Structs.DoubleAndInt", "a={ D: 1.5, I: 2 }", "{ D: 1.5, I: 3 }"),
    ("Values.Structs.Bytes3", "a={ A: 1, B: 2, C: 3 }", "{ A: 1, B: 2, C: 4 }"),
    ("Values.Structs.Longs2", "a={ A: 1, B: 2 }", "{ A: 1, B: 3 }"),
    ("Values.Structs.Longs3", "a={ A: 1, B: 2, C: 3 }", "{ A: 1, B: 2, C: 4 }"),
    ("Values.Structs.Named", "a={ Name: \"name\", Age: 1 }", "{ Name: \"name\", Age: 2 }"),
    (
        "Values.Structs.Outer",
        "a={ In: { S: 1, E: 2 }, O: null, F: { F: 1.5 } }",
        "{ In: { S: 2, E: 2 }, O: null, F: { F: 1.5 } }",
    ),
    ("Values.Structs.Overlaid", "a={ I: 1065353216, F: 1, B: 9 }", "{ I: 1065353216, F: 1, B: 10 }"),
    ("Values.Structs.Empty", "a={ } b=3", "3"),
    ("Values.Structs.Vector2", "a={ X: 1.5, Y: 2.5 }", "{ X: 3, Y: 5 }"),
    ("Values.Structs.Vector3", "a={ X: 1.5, Y: 2.5, Z: 3.5 }", "{ X: 3, Y: 5, Z: 7 }"),
    ("Values.Structs.Vector4", "a={ X: 1.5, Y: 2.5, Z: 3.5, W: 4.5 }", "{ X: 3, Y: 5, Z: 7, W: 9 }"),
    ("Values.Structs.Date", "a={ _dateData: 1000 } b={ _ticks: 24 }", "{ _dateData: 1024 }"),
    (
        "Values.Structs.Maybe",
        "a={ hasValue: true, value: 3 } b={ hasValue: false, value: 0 }",
        "{ hasValue: true, value: 3 }",
    ),
    (
        "Values.Structs.Maybe",
        "a={ hasValue: false, value: 0 } b={ hasValue: true, value: 1.5 }",
        "{ hasValue: false, value: 0 }",
    ),
    (
        "Values.Structs.Pair",
        "a={ First: 1, Second: \"second\" } b={ key: 2, value: { F: 2.5 } }",
        "{ First: 2, Second: \"second\" }",
    ),
    (
        "Values.Structs.Several",
        "a={ F: 1.5 } b={ X: 2.5, Y: 3.5 } c={ I: 4, D: 5.5 } d={ A: 6, B: 7 } e={ X: 8.5, Y: 9.5, Z: 10.5 } f={ A: 11, B: 12, \
         C: 13 } g={ D: 14.5, I: 15 } h={ X: 16.5, Y: 17.5 } i={ A: 18, B: 19 } j={ D: 20.5 }",
        "215.5",
    ),
    ("Values.Instance..ctor", "(Values.Instance)", "void"),
    ("Values.Instance.Add", "(Values.Instance) a=1 b=2.5", "10"),
    ("Values.Instance.Large", "(Values.Instance) a=\"four\"", "{ A: 4, B: 2, C: 3 }"),
    ("Shapes.Counter.Add", "ref { Count: 40 } by=2", "42"),
    ("Values.Generic<int32>.Echo", "(Values.Generic<int32>) a=8", "8"),
    ("Values.Generic<float64>.Echo", "(Values.Generic<float64>) a=8.5", "8.5"),
    (
        "Values.Generic<Shapes.IntAndDouble>.Echo",
        "(Values.Generic<Shapes.IntAndDouble>) a={ I: 1, D: 2.5 }",
        "{ I: 1, D: 2.5 }",
    ),
    ("Values.Generic<int32>.Choose<float32>", "a=1 b=2.5 c={ First: 3, Second: 4.5 }", "1"),
];

/// Values in code that is shared between instantiations over reference types. On .NET 10 it has a class of its own, so
/// values of its type parameters are known to be objects.
struct Shared {
    name: &'static str,
    args: &'static str,
    args_with_class: &'static str,
}

const SHARED_CODE: [Shared; 2] = [
    Shared {
        name: "Values.Generic<T>.Echo",
        args: "(Values.Generic<string>) a=SHARED",
        args_with_class: "(Values.Generic<string>) a=(System.String)",
    },
    Shared {
        name: "Values.Generic<T>.Choose<int32>",
        args: "a=SHARED b=2 c=SHARED",
        args_with_class: "a=(System.String) b=2 c={ First: object, Second: 4 }",
    },
];

/// Names of shared code as this runtime has them.
fn shared_name(runtime: &Runtime, name: &str) -> String {
    if runtime.has(Difference::ClassOfSharedCode) { name.replace("<T>", "<System.__Canon>") } else { name.to_owned() }
}

/// As [`shared_name`], for a line with a signature.
fn shared_line(runtime: &Runtime, line: &str) -> String {
    if !runtime.has(Difference::ClassOfSharedCode) {
        return line.to_owned();
    }
    let canon = "System.__Canon";
    line.replace("<T>", &format!("<{canon}>")).replace("(T", &format!("({canon}")).replace("<T,", &format!("<{canon},"))
}

/// Without the addresses of objects.
fn without_addresses(text: &str) -> String {
    let mut parts = text.split(" at 0x");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + part.trim_start_matches(|c: char| c.is_ascii_hexdigit()))
}

/// The expected values, with the reasons why some are unreadable.
fn expected(text: &str) -> String {
    text.replace("BEHIND", BEHIND).replace("NOWHERE", NOWHERE).replace("SHARED", SHARED)
}

#[test]
fn values_of_every_kind_are_what_the_program_passed_and_returned() -> Result<()> {
    for runtime in Runtime::all()? {
        let outcome = both(&runtime, "WritesValues")?;
        let mut calls = calls(&outcome)?;
        for (name, args, result) in EXPECTED {
            let call = calls.get_mut(*name).filter(|of| !of.is_empty()).map(|of| of.remove(0));
            let (found_args, found_result) =
                call.with_context(|| format!("{runtime}: no call of {name}: {outcome}"))?;
            ensure!(found_args == expected(args), "{runtime}: {name} was called with {found_args}");
            ensure!(found_result == expected(result), "{runtime}: {name} returned {found_result}");
        }
        for Shared { name, args, args_with_class } in SHARED_CODE {
            let call = calls.get(&shared_name(&runtime, name)).and_then(|of| of.first());
            let (found_args, found_result) =
                call.with_context(|| format!("{runtime}: no call of {name}: {outcome}"))?;
            let (args, result) = match runtime.has(Difference::ClassOfSharedCode) {
                true => (args_with_class.to_owned(), "(System.String)".to_owned()),
                false => (expected(args), expected("SHARED")),
            };
            let found = (without_addresses(found_args), found_result);
            ensure!(found == (args, &result), "{runtime}: {name}: {found:?}");
        }
        // Its fields have other names in each version.
        let decimals = calls.get("Values.Numbers.Decimal").and_then(|of| of.first()).context("no decimal")?;
        ensure!(decimals.0.contains(": 65536,") && decimals.0.contains(": 125"), "{runtime}: {decimals:?}");
        ensure!(decimals.1.contains(": 135"), "{runtime}: {decimals:?}");

        let too_many = calls.get("Values.Numbers.TooMany").and_then(|of| of.first()).context("not that many")?;
        let no_room = "<the method has more arguments than a hook has room for>";
        ensure!(too_many.0.matches(no_room).count() == 130 && too_many.1 == "129", "{runtime}: {too_many:?}");

        let mask = outcome.stderr.lines().find(|line| line.starts_with("mask: ")).context("no mask")?;
        for (flag, is_on) in
            [("ENABLE_FUNCTION_ARGS", true), ("ENABLE_FUNCTION_RETVAL", true), ("ENABLE_FRAME_INFO", false)]
        {
            ensure!(mask.contains(flag) == is_on, "{flag}: {mask}");
        }
    }
    Ok(())
}

/// The numbers in the last line of `ReadsValues`.
fn counts(outcome: &Outcome) -> Result<BTreeMap<&str, u64>> {
    let line = outcome.stderr.lines().find(|line| line.starts_with("values=")).context("no counts")?;
    Ok(line
        .split(' ')
        .filter_map(|pair| pair.split_once('='))
        .filter_map(|(k, v)| Some((k, v.parse().ok()?)))
        .collect())
}

#[test]
fn all_values_of_all_functions_are_read_and_the_results_are_the_same() -> Result<()> {
    for runtime in Runtime::all()? {
        // Recursion 10,000 deep, exceptions, threads; and the runtime's own calls on the way.
        for (app, args, least) in
            [("Calls", &["2"][..], 40_000), (APP, &[], 3000), ("Tails", &[], 500), ("Generics", &[], 500)]
        {
            let bare = Run::new(&runtime, app).args(args).run()?;
            let outcome = Run::new(&runtime, app).args(args).profiler_named(LIBRARY, "ReadsValues").run()?;
            ensure!(outcome.status == bare.status && outcome.stdout == bare.stdout, "{bare}; with values: {outcome}");
            let counts = counts(&outcome)?;
            let count = |name| counts.get(name).copied().unwrap_or_default();
            ensure!(count("values") >= least, "{runtime}, {app}: {counts:?}");
            ensure!(count("unreadable") * 5 < count("values"), "{runtime}, {app}: {counts:?}");
            ensure!(
                count("left") + count("tail") <= count("entered") && count("left") > 0,
                "{runtime}, {app}: {counts:?}"
            );
            ensure!((app == "Tails") == (count("tail") > 0) || app != "Tails", "{runtime}, {app}: {counts:?}");
            ensure!(!outcome.stderr.contains("no frame info"), "{outcome}");
        }
    }
    Ok(())
}

#[test]
fn a_slow_hook_walks_the_stack_and_knows_type_arguments_of_shared_code() -> Result<()> {
    for runtime in Runtime::all()? {
        let outcome = both(&runtime, "LooksAround")?;
        for line in [
            // The result of the runtime's walk, and that the stack pointer is that of the caller's frame.
            "enter Values.Instance.Add(int32, float64): Ok(()) Values.Instance.Add < App.Program.Main callers=true",
            "leave Values.Instance.Add(int32, float64): Ok(()) Values.Instance.Add < App.Program.Main callers=true",
            "enter Shapes.Counter.Add(int32): Ok(()) Shapes.Counter.Add < App.Program.Main callers=true",
            // The frame has the class's arguments when the method begins; the code does not have them.
            "enter Values.Generic<T>.Echo(T): class=Values.Generic<string> arguments=",
            "enter Values.Generic<T>.Choose<int32>(T, int32, Shapes.Pair<T, int32>): class=Values.Generic<string> arguments=System.Int32",
            "enter Values.Generic<int32>.Echo(int32): class=Values.Generic<int32> arguments=",
        ] {
            let line = shared_line(&runtime, line);
            ensure!(outcome.stderr.lines().any(|found| found == line), "{runtime}: no {line:?} in {outcome}");
        }
        // A static constructor is called by way of the runtime's own frames.
        let others = outcome.stderr.lines().filter(|line| line.contains("callers=false"));
        ensure!(others.clone().all(|line| line.contains("..cctor()")), "{:?}", others.collect::<Vec<_>>());
        let not_asked = outcome.stderr.lines().filter(|line| line.starts_with("not asked for: "));
        let texts: Vec<_> = not_asked.collect();
        ensure!(texts.len() == 4 && texts.iter().all(|text| text.contains("`FunctionHooks::VALUES`")), "{texts:?}");
    }
    Ok(())
}

#[test]
fn a_panic_with_values_is_reported_once_and_ends_the_profiler_only() -> Result<()> {
    for runtime in Runtime::all()? {
        let outcome = both(&runtime, "PanicsWithValues")?;
        let quiet = "the profiler PanicsWithValues panicked in enter_with_args and is disabled";
        for text in ["with values\n", quiet] {
            ensure!(outcome.stderr.matches(text).count() == 1, "{text:?} once: {outcome}");
        }
    }
    Ok(())
}

#[test]
fn threads_that_run_on_after_shutdown_find_slow_hooks_that_do_nothing() -> Result<()> {
    for runtime in Runtime::all()? {
        let ways = [("ReadsValues", "Abandon", 4), ("ReadsValues", "Late", 2)];
        let inserted = [("ReadsValuesByIl", "Abandon", 4), ("ReadsValuesByIl", "Late", 2)];
        for (profiler, app, threads) in [ways, inserted].concat().repeat(repetitions(1, 5)) {
            let outcome = Run::new(&runtime, app).profiler_named(LIBRARY, profiler).run()?;
            outcome.exited_with(3)?;
            ensure!(outcome.stdout == format!("abandoned {threads} threads\n"), "{outcome}");
            ensure!(counts(&outcome)?.get("values").is_some_and(|&values| values > 0), "{outcome}");
            ensure!(!outcome.stderr.contains("corprof:"), "{outcome}");
        }
    }
    Ok(())
}

/// The runtime's slow path is not made for functions that native code calls: .NET 8 crashes there on a thread that it
/// has not seen.
#[test]
fn functions_that_native_code_calls_are_left_alone_where_they_must_be() -> Result<()> {
    // The program is for Linux.
    for runtime in Runtime::all()?.into_iter().filter(|runtime| !runtime.is_windows()) {
        let outcome = Run::new(&runtime, "Native").profiler_named(LIBRARY, "ReadsValues").run()?;
        outcome.exited_with(0)?;
        ensure!(outcome.stdout == "42\n0\n2\n4\n6\n8\n10\n12\n14\n", "{outcome}");
        // Their callees are hooked.
        let counts = counts(&outcome)?;
        ensure!(counts.get("values").is_some_and(|&values| values > 1000), "{counts:?}");
    }
    Ok(())
}

/// The program under `WritesEitherWay`, whose hooks are called by the runtime or by inserted code.
fn either_way(runtime: &Runtime, by: &str) -> Result<(Outcome, BTreeMap<String, Calls>)> {
    let bare = Run::new(runtime, APP).run()?;
    let outcome = Run::new(runtime, APP).profiler_named(LIBRARY, "WritesEitherWay").env("VALUES_BY", by).run()?;
    outcome.exited_with(0)?;
    ensure!(outcome.stdout == bare.stdout, "by {by}: without: {bare}; with: {outcome}");
    let calls = calls(&outcome)?;
    Ok((outcome, calls))
}

#[test]
fn values_by_inserted_code_are_those_of_the_runtimes_hooks() -> Result<()> {
    const NO_ROOM: &str = "<the method has more arguments than a hook has room for>";
    for runtime in Runtime::all()? {
        let (_, theirs) = either_way(&runtime, "runtime")?;
        ensure!(theirs.len() > 60, "{runtime}: {theirs:?}");
        for by in ["il", "il-all"] {
            let (outcome, mut ours) = either_way(&runtime, by)?;
            ensure!(!outcome.stderr.contains("left out"), "{outcome}");
            // All instantiations share the code, and the first one names it.
            for (name, args, result, count) in [
                ("Values.Generic<int32>.Echo", "(object) a=SHARED", "SHARED", 4),
                ("Values.Generic<int32>.Choose<float32>", "a=SHARED b=SHARED c=SHARED", "SHARED", 2),
                ("Values.Generic<int32>..ctor", "(object)", "void", 4),
            ] {
                let call = (args.replace("SHARED", SHARED), result.replace("SHARED", SHARED));
                let found = ours.remove(name);
                ensure!(found.as_ref() == Some(&vec![call; count]), "{runtime}, {by}: {name}: {found:?}");
            }
            for (name, theirs) in theirs.iter().filter(|(name, _)| !name.starts_with("Values.Generic<")) {
                let ours = ours.remove(name).with_context(|| format!("{runtime}, {by}: no call of {name}"))?;
                ensure!(ours.len() == theirs.len(), "{runtime}, {by}: {name}: {ours:?}, {theirs:?}");
                for ((our_args, our_result), (their_args, their_result)) in ours.iter().zip(theirs) {
                    let is_same_args = match name.as_str() {
                        // Sixteen are passed.
                        "Values.Numbers.Many" => {
                            let passed = their_args.split(" q=").next().unwrap_or_default();
                            *our_args == format!("{passed} q={NO_ROOM} r={NO_ROOM} s={NO_ROOM} t={NO_ROOM}")
                        }
                        "Values.Numbers.TooMany" => {
                            our_args.starts_with("p0=0 p1=1 ")
                                && our_args.contains(&format!(" p15=15 p16={NO_ROOM} "))
                                && our_args.matches(NO_ROOM).count() == 114
                        }
                        _ => our_args == their_args,
                    };
                    ensure!(is_same_args, "{runtime}, {by}: {name} was called with {our_args}, not {their_args}");
                    let is_same_result = our_result == their_result;
                    ensure!(is_same_result, "{runtime}, {by}: {name} returned {our_result}, not {their_result}");
                }
            }
            ensure!(ours.is_empty(), "{runtime}, {by}: {ours:?}");
        }
    }
    Ok(())
}

#[test]
fn a_hook_with_values_by_inserted_code_is_refused_what_only_a_callback_has() -> Result<()> {
    for runtime in Runtime::all()? {
        let outcome = both(&runtime, "TriesByIl")?;
        let line = |start: &str| outcome.stderr.lines().find_map(|line| line.strip_prefix(start));
        // CORPROF_E_UNSUPPORTED_CALL_SEQUENCE twice, E_FAIL, E_NOTIMPL.
        let tried = "0x80131363, 0x80131363, answered, 0x80004005, 0x80004001";
        ensure!(line("tried: ") == Some(tried), "{outcome}");
        // It was looked up in `select`.
        ensure!(line("name: ") == Some("Values.References.Object(object, object)"), "{outcome}");
        ensure!(line("not asked for: ").is_some_and(|text| text.contains("`FunctionHooks::VALUES`")), "{outcome}");
    }
    Ok(())
}

#[test]
fn all_values_are_read_by_inserted_code_and_the_results_are_the_same() -> Result<()> {
    for runtime in Runtime::all()? {
        // The own calls of `Generics` have some thirty values.
        let apps = [(APP, &[][..], 200), ("Tails", &[], 50), ("Generics", &[], 30), ("Calls", &["2"], 40_000)];
        for (app, args, least) in apps.into_iter().take(repetitions(3, apps.len())) {
            let bare = Run::new(&runtime, app).args(args).run()?;
            for by in ["il-all", "il"].into_iter().take(repetitions(1, 2)) {
                let run = Run::new(&runtime, app).args(args).profiler_named(LIBRARY, "ReadsValuesByIl");
                let outcome = run.env("VALUES_BY", by).run()?;
                let is_same = outcome.status == bare.status && outcome.stdout == bare.stdout;
                ensure!(is_same, "{bare}; with values by {by}: {outcome}");
                let counts = counts(&outcome)?;
                let count = |name| counts.get(name).copied().unwrap_or_default();
                ensure!(count("values") >= least, "{runtime}, {app}: {counts:?}");
                ensure!(count("unreadable") * 5 < count("values"), "{runtime}, {app}: {counts:?}");
                let ended = count("left") + count("tail");
                ensure!(ended <= count("entered") && count("left") > 0, "{runtime}, {app}: {counts:?}");
                ensure!(app != "Calls" || count("unwound") > 0, "{runtime}, {app}: {counts:?}");
                println!("{runtime}, {app}, {by}: {counts:?}");
                outcome.stderr.lines().filter(|line| line.starts_with("left out")).for_each(|line| println!("{line}"));
            }
        }
    }
    Ok(())
}

/// A type of the same name in another load context has another layout.
#[test]
fn values_are_not_read_as_another_load_context_has_them() -> Result<()> {
    let app = "TwoContexts";
    for runtime in Runtime::all_for_modern(app)? {
        for (profiler, by) in [("WritesValues", ""), ("WritesEitherWay", "il"), ("WritesEitherWay", "il-all")] {
            let outcome = Run::new(&runtime, app).profiler_named(LIBRARY, profiler).env("VALUES_BY", by).run()?;
            outcome.exited_with(0)?;
            let expected = "System.Private.Xml\n16 bytes in Held\n16 bytes in Held\n";
            ensure!(outcome.stdout == expected, "{profiler} {by}: {outcome}");
            let told: Vec<_> =
                outcome.stderr.lines().filter_map(|line| line.strip_prefix("enter Shapes.Size held=")).collect();
            let [first, second] = told[..] else { bail!("{profiler} {by}: {outcome}") };
            ensure!(
                first.contains("\"first\"") && second.contains("loaded several times"),
                "{profiler} {by}: {outcome}"
            );
        }
    }
    Ok(())
}

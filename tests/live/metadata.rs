//! Metadata and names: the facts of a program's source are found, on every runtime alike.

use anyhow::{Result, ensure};
use corprof_tests::{Difference, Outcome, Run, Runtime};

const LIBRARY: &str = "metadata";

/// Expects each of these lines in standard error.
fn says(outcome: &Outcome, lines: &[&str]) -> Result<()> {
    for line in lines {
        ensure!(outcome.stderr.lines().any(|said| said == *line), "expected the line {line:?} in {outcome}");
    }
    Ok(())
}

/// Runs Facts under the profiler that describes all of it.
fn facts(runtime: &Runtime) -> Result<Outcome> {
    let outcome = Run::new(runtime, "Facts").profiler_named(LIBRARY, "TellsFacts").run()?;
    outcome.exited_with(0)?;
    ensure!(outcome.stdout == "24\nfound\n", "the application prints something else: {outcome}");
    ensure!(!outcome.stderr.contains("failed") && !outcome.stderr.contains("corprof:"), "{outcome}");
    Ok(outcome)
}

#[test]
fn types_and_assemblies_are_as_in_the_source() -> Result<()> {
    for runtime in Runtime::all()? {
        let lines = [
            "assembly: Facts [0, 0, 0, 0] \"\" []",
            "module: Facts.dll 0x00000001",
            "reference: mscorlib [4, 0, 0, 0] \"\" [b7, 7a, 5c, 56, 19, 34, e0, 89]",
            "attribute of the assembly: Some(\"of the assembly\")",
            "attribute of nobody: None",
            "types: Facts.MarkerAttribute Facts.IShape Facts.Base Facts.Known`2 Nested Facts.Circle Facts.Native Facts.Program",
            "base: Facts.Base",
            "interface: Facts.IShape true",
            "nested: true true",
            "generic: 0 T [\"Facts.Base\", \"Facts.IShape\"]",
            "generic: 1 U []",
            "moved: System.String to System.Private.CoreLib",
            "nobody: None",
            "valid: true false",
            "absent: true",
        ];
        says(&facts(&runtime)?, &lines)?;
    }
    Ok(())
}

#[test]
fn members_are_as_in_the_source() -> Result<()> {
    for runtime in Runtime::all()? {
        let lines = [
            "field: Answer static=true Some(Int32(42)) Primitive(Int32)",
            "field: Far static=true Some(Int64(-5000000000)) Primitive(Int64)",
            "field: Half static=true Some(Float64(0.5)) Primitive(Float64)",
            "field: Letter static=true Some(Char(233)) Primitive(Char)",
            "field: Yes static=true Some(Bool(true)) Primitive(Bool)",
            "field: Text static=true Some(String(\"forty-two\")) Primitive(String)",
            "field: Nothing static=true Some(Null) Primitive(Object)",
            "field: names static=true None SzArray(Primitive(String))",
            "attribute of names: Facts.MarkerAttribute \"of a field\" 28",
            "in IL: Facts.Known<T, U>.Method(int32&, T&, string, int32, U)",
            "in C#: Facts.Known<T, U>.Method(ref int, ref T, string, int, U)",
            "among all: true",
            "param: 1 first out=false None",
            "param: 2 second out=true None",
            "param: 3 third out=false Some(String(\"default\"))",
            "param: 4 fourth out=false Some(Int32(-4))",
            "property: Item Primitive(String) 1 Some(\"get_Item\") None",
            "property: Size Primitive(Int32) 0 Some(\"get_Size\") Some(\"set_Size\")",
            "event: Changed System.EventHandler add_Changed",
            "native: facts_answer in libfacts cdecl=true",
            "libraries: 1",
            "native behind Main: None",
        ];
        says(&facts(&runtime)?, &lines)?;
    }
    Ok(())
}

#[test]
fn strings_and_references_are_as_in_the_source() -> Result<()> {
    for runtime in Runtime::all()? {
        let outcome = facts(&runtime)?;
        let lines = [
            "string: \"a literal, zero \\0 inside\"",
            "string: \"ñ\"",
            "string: \"found\"",
            "locals decode: true",
            "type specs decode: true",
            "method spec: Find [Primitive(String)]",
            "member: System.Console [Primitive(Int32)]",
            "member: System.Console [Primitive(String)]",
            "several members: true",
        ];
        says(&outcome, &lines)?;
        ensure!(!outcome.stderr.contains("not found again") && !outcome.stderr.contains("decode: false"), "{outcome}");
    }
    Ok(())
}

#[test]
fn what_is_added_is_read_back() -> Result<()> {
    for runtime in Runtime::all()? {
        let lines = [
            "before sees all",
            "emit sees all",
            "after sees all",
            "emit: Added.Library [1, 2, 3, 4] de-AT [1, 2, 3, 4, 5, 6, 7, 8]",
            "named: Added.Type.Inner.Native(string)",
            "nul: true",
        ];
        says(&facts(&runtime)?, &lines)?;
    }
    Ok(())
}

#[test]
fn names_are_spelt_as_in_il_and_as_in_csharp() -> Result<()> {
    for runtime in Runtime::all()? {
        let outcome = Run::new(&runtime, "Generics").profiler_named(LIBRARY, "NamesAll").run()?;
        outcome.exited_with(0)?;
        let lines = [
            "in IL: Kinds.Pair<Kinds.Point, int64>.Describe()",
            "in C#: Kinds.Pair<Kinds.Point, long>.Describe()",
            "in IL: Kinds.Outer<uint8>+Plain.Describe()",
            "in C#: Kinds.Outer<byte>.Plain.Describe()",
            "in IL: Kinds.Methods.Swap<int32>(int32&, int32&)",
            "in C#: Kinds.Methods.Swap<int>(ref int, ref int)",
            "in C#: Kinds.Methods.Swap<System.__Canon>(ref System.__Canon, ref System.__Canon)",
            "in IL: Kinds.Methods.Shapes(int32[], string[,], Kinds.Point[][], Kinds.Point&, \
             System.Collections.Generic.List<Kinds.Pair<int32, string>>, System.Nullable<int32>)",
            "in C#: Kinds.Methods.Shapes(int[], string[,], Kinds.Point[][], ref Kinds.Point, \
             System.Collections.Generic.List<Kinds.Pair<int, string>>, int?)",
        ];
        says(&outcome, &lines)?;
        // Its code is shared.
        let shared = if runtime.has(Difference::ClassOfSharedCode) {
            [
                "in IL: Kinds.Outer<System.__Canon>+Inner<Kinds.Point>.Describe()",
                "in C#: Kinds.Outer<System.__Canon>.Inner<Kinds.Point>.Describe()",
            ]
        } else {
            ["in IL: Kinds.Outer<T>+Inner<U>.Describe()", "in C#: Kinds.Outer<T>.Inner<U>.Describe()"]
        };
        says(&outcome, &shared)?;
    }
    Ok(())
}

#[test]
fn names_stay_right_while_modules_come_and_go() -> Result<()> {
    for runtime in Runtime::all()? {
        let outcome = Run::new(&runtime, "Unloads").args(["40"]).profiler_named(LIBRARY, "NamesAll").run()?;
        outcome.exited_with(0)?;
        ensure!(outcome.stdout == "unloaded 40 of 40\n", "{outcome}");
        says(&outcome, &["wrong=0 unloads=40 threads=40"])?;
        ensure!(!outcome.stderr.contains("corprof:"), "{outcome}");
    }
    Ok(())
}

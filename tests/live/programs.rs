//! The managed programs without any profiler: the other tests rely on their output and exit codes.

use std::time::Duration;

use anyhow::{Result, ensure};
use corprof_tests::{Run, Runtime, ensure_or_longer, patiently};

/// Runs `app` on every runtime, and expects the same of it everywhere.
fn expect(app: &str, args: &[&str], code: i32, stdout: &str) -> Result<()> {
    for runtime in Runtime::all()? {
        let outcome = Run::new(&runtime, app).args(args).run()?;
        outcome.exited_with(code)?;
        ensure!(outcome.stdout == stdout, "expected to read {stdout:?} from {outcome}");
    }
    Ok(())
}

#[test]
fn hello_greets() -> Result<()> {
    expect("Hello", &[], 0, "Hello, world!\n")?;
    expect("Hello", &["you", "me"], 42, "Hello, you and me!\n")
}

#[test]
fn exit_codes_come_through() -> Result<()> {
    expect("Exit", &["7", "2"], 7, "line 1 of 2\nline 2 of 2\n")?;
    expect("Exit", &["0", "0"], 0, "")
}

#[test]
fn standard_error_is_apart() -> Result<()> {
    for runtime in Runtime::all()? {
        let outcome = Run::new(&runtime, "Exit").args(["0", "1"]).run()?;
        assert_eq!((outcome.stdout.as_str(), outcome.stderr.as_str()), ("line 1 of 1\n", "exiting with 0\n"));
    }
    Ok(())
}

#[test]
fn churn_runs_all_threads() -> Result<()> {
    expect("Churn", &["1000", "100"], 0, "threads=1000 collections=100 checksum=500500\n")
}

#[test]
fn alloc_sums_up() -> Result<()> {
    for runtime in Runtime::all()? {
        let outcome = Run::new(&runtime, "Alloc").args(["100000", "4"]).run()?;
        outcome.exited_with(0)?;
        assert!(outcome.stdout.starts_with("objects=100000 checksum=12742320\nelapsed_ms="), "{outcome}");
    }
    Ok(())
}

#[test]
fn throw_counts() -> Result<()> {
    expect("Throw", &["5"], 0, "thrown=20 caught=15 filters=10 finallies=15\n")
}

#[test]
fn generics_name_themselves() -> Result<()> {
    let expected = "Pair<Int32, String>\nPair<String, Object>\nPair<Point, Int64>\nOuter<Int32>.Inner<String>\n\
                    Outer<String>.Inner<Point>\nOuter<Byte>.Plain\nSwap<Int32>\nSwap<String>\nShapes\n";
    expect("Generics", &[], 0, expected)
}

#[test]
fn sample_closes_the_same_orders_every_time() -> Result<()> {
    let expected = "shift 1: 180 orders: 136 packed, 29 restocked, 15 abandoned\n\
                    shift 2: 180 orders: 134 packed, 29 restocked, 17 abandoned\nclosed after 2 shifts\n";
    expect("Sample", &[], 0, expected)
}

#[test]
fn a_missing_program_or_profiler_is_named() -> Result<()> {
    for runtime in Runtime::all()? {
        let error = Run::new(&runtime, "NoSuchProgram").run().unwrap_err().to_string();
        assert!(error.contains("tests/managed/NoSuchProgram.cs"), "{error}");
        let error = Run::new(&runtime, "Hello").profiler("no_such_profiler").run().unwrap_err().to_string();
        assert!(error.contains("no_such_profiler"), "{error}");
    }
    Ok(())
}

#[test]
fn today_s_c_sharp_runs() -> Result<()> {
    const STDOUT: &str = "async 55\nstream 55\niterator 1 4 9 16 25\nrecord Point { X = 1, Y = 3 }\nspan bcd\n\
                          static abstract 4 3\nlambda 8\npattern axis 5 1 to 3 letter x\nregex 3\nfilter 2\n";
    for runtime in Runtime::all_for_modern("Modern")? {
        let outcome = Run::new(&runtime, "Modern").run()?;
        outcome.exited_with(0)?;
        ensure!(outcome.stdout == STDOUT, "expected to read {STDOUT:?} from {outcome}");
    }
    Ok(())
}

mod long {
    use super::*;

    #[test]
    fn a_run_that_takes_too_long_is_killed_and_shown() -> Result<()> {
        patiently(Runtime::all()?, |runtime, times| {
            let limit = Duration::from_secs(2 * times);
            let error =
                Run::new(runtime, "Sample").args(["--seconds", "600"]).timeout(limit).run().unwrap_err().to_string();
            // Under Wine and in the emulator limits are longer, by factors of `Run`'s own.
            let limit =
                if runtime.is_slow() { "not done after ".to_owned() } else { format!("not done after {limit:?}") };
            ensure!(error.contains(&limit) && error.contains(", so it was killed"), "{error}");
            ensure_or_longer!(error.contains("shift 1: 180 orders"), "{error}");
            Ok(())
        })
    }
}

//! The rules of a run.

use corprof_launch::exit;

use crate::target::System;

use super::plan::Plan;
use super::summary::ReportedValues;
use super::watch::Run;

/// The profiler's counts that must be zero.
const NEVER: [(&str, &str); 4] = [
    ("violations", "memory or a lock was touched during a suspension"),
    ("inconsistent", "the sampler's counts contradict each other, or a name is empty"),
    ("asked.unexpected", "a kept identifier was answered about in an unexpected way"),
    ("strays", "a hook came for a function that is not on top of the shadow stack"),
];

/// Whether the runtime's own fault has ended the run, after the profiler's end.
pub(super) fn is_ended_by_runtime(plan: &Plan, run: &Run, system: System) -> bool {
    let code = run.status.map(exit::code);
    code.is_some_and(|code| plan.ending.is_end_overtaken(code, system)) && has_shut_down(run)
}

fn has_shut_down(run: &Run) -> bool {
    run.stderr.contains("when=shutdown")
}

/// The faults of a run. `reference` is the program's output without a profiler.
pub(super) fn faults(plan: &Plan, run: &Run, reference: &str, system: System) -> Vec<String> {
    let mut faults = Vec::new();
    let expected = plan.ending.exit_code(system);
    let has_spoken = plan.ending.last_words().is_some_and(|words| run.stderr.contains(words));
    match run.status.map(|status| (status, exit::code(status))) {
        None => faults.push(format!("it hung, and was killed after {:.0?}", run.duration)),
        Some((_, code)) if has_spoken && plan.ending.is_abort_overtaken(code, system) => {}
        Some(_) if is_ended_by_runtime(plan, run, system) => {}
        Some((status, code)) if code != expected => faults.push(format!("exit code {expected} expected: {status}")),
        Some(_) => {}
    }
    let is_same = if expected == 0 { run.stdout == reference } else { reference.starts_with(&run.stdout) };
    if !is_same {
        faults.push("the application prints something else".to_owned());
    }
    faults
        .extend(run.stderr.lines().filter_map(|line| Some(format!("corprof says:{}", line.split_once("corprof:")?.1))));
    match run.stderr.lines().find_map(|line| Some(line.split_once("pulse:")?.1.split_once("stuck=")?.1)) {
        None => faults.push("the application did not get as far as its end".to_owned()),
        Some("") => {}
        Some(stuck) => faults.push(format!("threads that did not get on: {stuck}")),
    }
    let Some(told) = ReportedValues::last(&run.stderr, "stress:") else {
        // It reports twice a second, and at Shutdown.
        if plan.ending.is_orderly() {
            faults.push("the profiler has reported nothing".to_owned());
        }
        return faults;
    };
    if plan.ending.is_orderly() && !has_shut_down(run) {
        faults.push("the profiler has not heard of Shutdown".to_owned());
    }
    let [begun, ended] = ["collections.started", "collections.finished"].map(|key| told.get(key));
    // A background collection and one inside it may be running. More may have ended than begun: the runtime itself
    // reports a few ends without a begin.
    if begun > ended + 2 {
        faults.push(format!("{begun} collections began and {ended} ended"));
    }
    faults.extend(
        NEVER.iter().filter(|(key, _)| told.get(key) > 0).map(|(key, what)| format!("{} {what}", told.get(key))),
    );
    faults
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;
    use std::time::Duration;

    use super::super::plan::Ending;
    use super::*;

    const ERR: &str = "pulse: jobs=5 longest-away-ms=2 stuck=\nstress: when=shutdown rounds=7 violations=0\n";

    fn judged(ending: Ending, code: i32, stdout: &str, stderr: &str) -> String {
        judged_on(System::X64, ending, code, stdout, stderr)
    }

    fn judged_on(system: System, ending: Ending, code: i32, stdout: &str, stderr: &str) -> String {
        let plan = Plan { ending, ..Plan::new(0, &[]) };
        let run = Run {
            status: Some(ExitStatus::from_raw(code << 8)),
            stdout: stdout.to_owned(),
            stderr: stderr.to_owned(),
            duration: Duration::ZERO,
            threads: None,
        };
        faults(&plan, &run, "one\ntwo\n", system).join("; ")
    }

    #[test]
    fn a_run_that_kept_to_all_has_no_fault() {
        assert_eq!(judged(Ending::Whole, 0, "one\ntwo\n", ERR), "");
        assert_eq!(judged(Ending::Exit, 7, "one\n", ERR), "");
        assert_eq!(judged(Ending::Exit, 7, "", ERR), "");
    }

    #[test]
    fn background_collections_may_end_without_having_begun() {
        let counts = "stress: when=shutdown collections.started=311 collections.finished=313\n";
        assert_eq!(judged(Ending::Exit, 7, "one\n", &format!("{ERR}{counts}")), "");
    }

    #[test]
    fn an_abort_may_be_overtaken_after_the_last_words_only() {
        let spoken = format!("{ERR}Process terminated. as it was told to\n");
        for code in [134, 162, 139] {
            assert_eq!(judged(Ending::FailFast, code, "one\n", &spoken), "");
        }
        for (ending, code, stderr) in
            [(Ending::FailFast, 139, ERR), (Ending::Exit, 139, &spoken), (Ending::FailFast, 137, &spoken)]
        {
            assert!(judged(ending, code, "one\n", stderr).starts_with("exit code "), "{ending:?} {code}");
        }
    }

    #[test]
    fn on_musl_an_end_may_be_overtaken_after_that_of_the_profiler() {
        assert_eq!(judged_on(System::Musl, Ending::Exit, 139, "one\n", ERR), "");
        assert_eq!(judged_on(System::Musl, Ending::Whole, 139, "one\ntwo\n", ERR), "");
        let before = ERR.replace("shutdown", "running");
        for (system, ending, stderr) in [
            (System::X64, Ending::Exit, ERR),
            (System::Musl, Ending::Throw, ERR),
            (System::Musl, Ending::Exit, before.as_str()),
        ] {
            let judged = judged_on(system, ending, 139, "one\ntwo\n", stderr);
            assert!(judged.starts_with("exit code "), "{system:?}, {ending:?}: {judged}");
        }
    }

    #[test]
    fn each_fault_is_named() {
        for (ending, code, stdout, stderr, fault) in [
            (Ending::Whole, 0, "one\n", ERR.to_owned(), "prints something else"),
            (Ending::Exit, 7, "one\ntwp\n", ERR.to_owned(), "prints something else"),
            (Ending::Exit, 3, "one\n", ERR.to_owned(), "exit code 7 expected"),
            (Ending::Exit, 7, "one\n", ERR.replace("stuck=", "stuck=Locks,"), "did not get on: Locks"),
            (Ending::Exit, 7, "one\n", ERR.replace("violations=0", "violations=2"), "2 memory or a lock was touched"),
            (Ending::Exit, 7, "one\n", ERR.replace("shutdown", "running"), "not heard of Shutdown"),
            (Ending::Exit, 7, "one\n", format!("{ERR}x corprof: it panicked\n"), "corprof says: it panicked"),
            (Ending::Exit, 7, "one\n", format!("{ERR}stress: when=shutdown collections.started=3\n"), "3 collections"),
            (Ending::Exit, 7, "one\n", "stress: when=shutdown\n".to_owned(), "did not get as far"),
        ] {
            let judged = judged(ending, code, stdout, &stderr);
            assert!(judged.contains(fault) && !judged.contains(';'), "{fault}: {judged}");
        }
    }
}

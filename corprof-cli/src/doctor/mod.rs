//! `corprof doctor`: why a profiler is not loaded.

mod port;
mod variables;

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use corprof_diagnostics::Process;
use corprof_launch::application::{Application, Wait};
use corprof_launch::checks;
use corprof_launch::checks::{Finding, Place};
use corprof_launch::crash;
use corprof_launch::environment;
use corprof_launch::image::{self, Image};
use corprof_launch::processes;
use corprof_launch::runtime_messages::{self, RuntimeMessages};
use corprof_launch::signals::Interrupt;

use crate::embedded;
use crate::exit::{self, Failure, Outcome};
use crate::inspect::{self, Inspected, State, inspect};
use crate::output;
use crate::startup_wait::WaitsFor;

/// Find out why a profiler is not loaded.
///
/// Without arguments, checks the variables of this shell and the libraries that they name. With a PID, checks a running
/// process: its variables, its mapped files, its diagnostics port. With a command, starts it with the variables of this
/// shell, reads the runtime's own messages about profilers, and ends it.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  corprof doctor                     the variables of this shell
  corprof doctor 4711                a running process
  corprof doctor -- dotnet App.dll   starts it, reads the runtime's messages, ends it

Each finding has a name, which the book explains, and a cure. The exit code is 1 if there is a finding.")]
pub struct Args {
    /// Print a line of JSON for each finding: id, what, cure
    #[arg(long)]
    json: bool,

    /// The time limit for a process's answer, or for the first message of the started application's runtime
    #[arg(long, value_name = "SECONDS", default_value_t = 20)]
    wait: u64,

    /// The process id of a running process, or the command that starts an application
    #[arg(trailing_var_arg = true, value_name = "PID|COMMAND")]
    pub(crate) target: Vec<OsString>,
}

impl Args {
    /// The running process that is meant. A program may be called by a number too: `./4711`.
    fn pid(&self) -> Option<u32> {
        match self.target.as_slice() {
            [one] => one.to_str()?.parse().ok(),
            _ => None,
        }
    }
}

/// The findings, and the checks that passed.
#[derive(Debug, Default)]
struct Report {
    findings: Vec<Finding>,
    good: Vec<String>,
}

/// Runs the command.
///
/// # Errors
/// If there is no such process or program.
pub fn run(args: &Args) -> Outcome {
    if let [pid, option, ..] = args.target.as_slice()
        && pid.to_str().is_some_and(|word| word.parse::<u32>().is_ok())
        && option.to_str().is_some_and(|word| word.starts_with('-'))
    {
        let right = format!("corprof doctor {} {}", option.display(), pid.display());
        return Err(Failure::new(exit::USAGE, anyhow!("options come before the process id: {right}")));
    }
    let report = match (args.pid(), args.target.is_empty()) {
        (Some(pid), _) => of_process(pid, Duration::from_secs(args.wait.max(1)))?,
        (None, false) => of_command(args)?,
        (None, true) => of_shell(None)?,
    };
    let mut out = output::stdout();
    for finding in &report.findings {
        if args.json {
            writeln!(out, "{}", serde_json::to_string(finding)?)?;
        } else {
            writeln!(out, "{finding}")?;
        }
    }
    if !args.json {
        for good in &report.good {
            writeln!(out, "ok: {good}")?;
        }
        if report.findings.is_empty() {
            writeln!(out, "nothing wrong was found")?;
        }
    }
    Ok(if report.findings.is_empty() { ExitCode::SUCCESS } else { exit::NO.into() })
}

/// The variables of this process.
fn own_variables() -> Vec<(String, String)> {
    let text = |text: OsString| text.to_string_lossy().into_owned();
    std::env::vars_os().map(|(name, value)| (text(name), text(value))).collect()
}

fn of_shell(program: Option<&Image>) -> Result<Report> {
    let variables = own_variables();
    let value_of = |name: &str| inspect::value_in(&variables, name);
    // Without a program, a program of this system represents the application.
    let shell = if program.is_none() { Image::of_program(Path::new("/bin/sh")).ok() } else { None };
    let place =
        Place { program: program.or(shell.as_ref()), library_path: value_of("LD_LIBRARY_PATH").map(str::as_ref) };
    let mut findings = variables::check(value_of, None, place, None);
    findings.extend(cache());
    Ok(Report { findings, good: Vec::new() })
}

/// Whether the built-in profilers can be unpacked.
fn cache() -> Option<Finding> {
    if !embedded::is_there() {
        return None;
    }
    let error = embedded::library().err()?;
    let cure = "let this user write the folder, or name another one by CORPROF_CACHE";
    Some(Finding::new("cache-unwritable", format!("the built-in profilers cannot be used: {error:#}"), cure))
}

fn of_process(pid: u32, timeout: Duration) -> Result<Report, Failure> {
    let process = match Process::open(pid) {
        Ok(process) => process,
        Err(error) => {
            let finding = port::missing(pid, &error).ok_or(error)?;
            return Ok(Report { findings: vec![finding], good: Vec::new() });
        }
    };
    let mut report = of_seen(&inspect(&process, timeout), processes::has_own_files(pid));
    report.findings.extend(WaitsFor::of_process(pid).map(|waits_for| of_wait(pid, &waits_for)));
    Ok(report)
}

/// The findings about a process. If it `is_inside` a container, paths are of the container's file system.
fn of_seen(seen: &Inspected, is_inside: bool) -> Report {
    let pid = seen.pid;
    let mut report = Report::default();
    if let Some(error) = &seen.error {
        let cure = "if it is not stopped, is another tool connected to it? Try again later";
        report.findings.push(Finding::new("runtime-does-not-answer", error.clone(), cure));
    }
    let major = seen.runtime.as_ref().and_then(|version| checks::major(version));
    report.findings.extend(seen.runtime.as_ref().and_then(|version| checks::too_old(version)));
    report.good.push(format!("process {pid} runs .NET {}", seen.runtime.as_deref().unwrap_or("of an unknown version")));
    let Some(now) = &seen.variables else {
        let cure = "ask as the user of the process, or as root";
        report.findings.push(Finding::new("variables-not-seen", "its variables cannot be read", cure));
        return report;
    };
    report.findings.extend(of_inspected(seen, now, major, is_inside));
    of_crashes(now, major, &mut report);
    if seen.profiler == State::Mapped {
        for library in &seen.libraries {
            report.good.push(format!("{} is mapped", library.display()));
        }
        // A loaded profiler needs no variables: it may have attached.
        report.findings.retain(|finding| finding.id != "not-configured");
    }
    report
}

fn of_wait(pid: u32, waits_for: &WaitsFor) -> Finding {
    Finding::new("waits-to-be-resumed", format!("process {pid}: {}", waits_for.what()), waits_for.cure(pid))
}

/// What the runtime will tell of a crash, if it was asked to.
fn of_crashes(now: &[(String, String)], major: Option<u32>, report: &mut Report) {
    /// The first version that reports a crash without a dump.
    const FIRST: u32 = 11;
    let is_on = |setting| crash::is_on(setting, |name| inspect::value_in(now, name).map(str::to_owned));
    if !is_on(crash::REPORT) {
        return;
    }
    if is_on(crash::DUMP) || major.is_some_and(|major| major >= FIRST) {
        report.good.push(format!("a crash leaves the stacks of all threads (DOTNET_{})", crash::REPORT));
    } else if major.is_some() {
        let what = format!("DOTNET_{} does nothing before .NET {FIRST} without DOTNET_{}", crash::REPORT, crash::DUMP);
        let cure =
            format!("set DOTNET_{}=1 as well to have a crash write a dump and the stacks of all threads", crash::DUMP);
        report.findings.push(Finding::new("crash-report-is-off", what, cure));
    }
}

fn of_inspected(seen: &Inspected, now: &[(String, String)], major: Option<u32>, is_inside: bool) -> Vec<Finding> {
    let pid = seen.pid;
    let program = Image::open(Path::new(&format!("/proc/{pid}/exe"))).ok();
    // The loader outside the container would search folders outside the container.
    let program = program.map(|program| if is_inside { Image { interpreter: None, ..program } } else { program });
    if let Some(finding) = checks::runs_compiled_ahead(seen.mapped.as_ref(), program.as_ref()) {
        return vec![finding];
    }
    let value_of = |name: &str| inspect::value_in(now, name);
    let place = Place { program: program.as_ref(), library_path: value_of("LD_LIBRARY_PATH").map(str::as_ref) };
    let root = PathBuf::from(format!("/proc/{pid}/root"));
    let mut findings = variables::check(value_of, major, place, is_inside.then_some(root.as_path()));
    if let Some(at_start) = inspect::started_with(pid) {
        findings.extend(changed(&at_start, now));
    }
    if seen.profiler == State::Configured && seen.mapped.is_some() && findings.is_empty() {
        let what = "its variables ask for a profiler, and no library of one is mapped";
        let cure = "its `initialize` may have refused (look at its standard error), or it has detached; \
                    `corprof doctor -- COMMAND` hears what the runtime says";
        findings.push(Finding::new("configured-but-not-mapped", what, cure));
    }
    findings
}

/// A variable of profilers whose value has changed since the start of the process.
fn changed(at_start: &[(String, String)], now: &[(String, String)]) -> Option<Finding> {
    let names = environment::profiler_variables();
    let name = names.iter().find(|name| inspect::value_in(at_start, name) != inspect::value_in(now, name))?;
    let value = |variables| inspect::value_in(variables, name).unwrap_or("nothing").to_owned();
    let what = format!("{name} was {} when the process began, and is {} now", value(at_start), value(now));
    let cure = "a runtime reads these variables at its start only: set them before it starts, or attach the profiler";
    Some(Finding::new("variables-set-too-late", what, cure))
}

/// The time limit for the application to end normally, which lets the runtime remove its socket.
const LAST_WORDS: Duration = Duration::from_secs(3);
/// The interval between two looks for messages of the runtimes.
const LOOK: Duration = Duration::from_millis(20);

fn of_command(args: &Args) -> Result<Report, Failure> {
    let (name, arguments) = args.target.split_first().context("no command")?;
    let path = std::env::var_os("PATH");
    let program = image::find_program(name, path.as_deref())
        .ok_or_else(|| Failure::new(exit::NOT_FOUND, anyhow!("there is no program {}", name.display())))?;
    let image = Image::of_program(&program).ok();
    let mut report = of_shell(image.as_ref())?;
    if let Some(finding) = checks::compiled_ahead(image.as_ref()) {
        // It need not be started: there is no runtime that could say more.
        return Ok(Report { findings: vec![finding], good: Vec::new() });
    }
    let messages_of_runtimes = RuntimeMessages::new()?;
    let mut command = Interrupt::PassOn.command(&program);
    command.args(arguments).envs(messages_of_runtimes.variables()).stdin(Stdio::null());
    eprintln!("corprof: starting {}", program.display());
    let mut application = Application::start(&mut command, &program, Interrupt::PassOn)?;
    let end = Instant::now() + Duration::from_secs(args.wait);
    let mut wait = Wait::TimedOut;
    while Instant::now() < end && wait == Wait::TimedOut {
        wait = application.wait(LOOK).context("cannot wait for the application")?;
        if messages_of_runtimes.by_process()?.iter().any(|process| !process.messages.is_empty()) {
            break;
        }
    }
    let has_runtime = inspect_runtime(application.id());
    if !matches!(wait, Wait::Ended(_)) {
        eprintln!("corprof: ending the application");
        // `dotnet run` and scripts have child processes, which would run on.
        let family = processes::family(application.id());
        processes::end(&family, false);
        let end = Instant::now() + LAST_WORDS;
        // Signals do not shorten the time.
        while application.wait(end.saturating_duration_since(Instant::now()))? == Wait::Signal {}
        processes::end(&family, true);
        application.kill().context("cannot end the application")?;
    }
    said(&messages_of_runtimes, has_runtime, &mut report)?;
    Ok(report)
}

fn inspect_runtime(pid: u32) -> bool {
    let mut family = processes::family(pid).into_iter();
    family.any(|pid| processes::mapped(pid).is_some_and(|mapped| processes::has_runtime(&mapped)))
}

/// Sorts the messages of the runtimes into findings and passed checks.
fn said(messages_of_runtimes: &RuntimeMessages, has_runtime: bool, report: &mut Report) -> Result<()> {
    let processes = messages_of_runtimes.by_process()?;
    if processes.is_empty() && !has_runtime {
        let what = "no .NET runtime has started in the application";
        let cure = "is it a .NET application? One compiled ahead of time (NativeAOT) has no profilers, and others need .NET 8 or \
                    later";
        report.findings.push(Finding::new("no-runtime", what, cure));
    }
    for process in &processes {
        for message in &process.messages {
            let text = format!("process {}: {message}", process.pid);
            if message.contains("loaded successfully") {
                report.good.push(text);
            } else {
                let cure = runtime_messages::cure(message)
                    .unwrap_or("see the findings about variables and library, if there are any");
                report.findings.push(Finding::new("runtime-says", text, cure));
            }
        }
    }
    if !processes.is_empty() && processes.iter().all(|process| process.messages.is_empty()) {
        report.good.push("the runtime tried to load no profiler".into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn a_crash_report_that_does_nothing_is_named() {
        let findings = |major, pairs: &[(&str, &str)]| {
            let mut report = Report::default();
            of_crashes(&variables(pairs), major, &mut report);
            (report.findings.iter().map(|finding| finding.id).collect::<Vec<_>>(), report.good.len())
        };
        let on = ("DOTNET_EnableCrashReport", "1");
        let dump = ("DOTNET_DbgEnableMiniDump", "1");
        assert_eq!(findings(Some(10), &[dump]), (vec![], 0));
        assert_eq!(findings(Some(10), &[on]), (vec!["crash-report-is-off"], 0));
        assert_eq!(findings(Some(10), &[on, dump]), (vec![], 1));
        assert_eq!(findings(Some(11), &[on]), (vec![], 1));
        assert_eq!(findings(None, &[on]), (vec![], 0));
    }

    #[test]
    fn variables_that_came_too_late_are_named() {
        let now = variables(&[("CORECLR_ENABLE_PROFILING", "1"), ("HOME", "/x")]);
        let finding = changed(&variables(&[("HOME", "/y")]), &now).unwrap();
        assert_eq!(finding.id, "variables-set-too-late");
        assert!(finding.what.contains("CORECLR_ENABLE_PROFILING was nothing"), "{finding}");
        assert_eq!(changed(&now, &now), None);
    }

    #[test]
    fn what_cannot_be_seen_of_a_process_is_said() {
        let seen = Inspected {
            pid: u32::MAX,
            runtime: None,
            architecture: None,
            command: None,
            profiler: State::Unknown,
            libraries: Vec::new(),
            error: Some("no answer".into()),
            variables: None,
            mapped: None,
        };
        let ids = |seen: &Inspected| of_seen(seen, false).findings.iter().map(|finding| finding.id).collect::<Vec<_>>();
        assert_eq!(ids(&seen), ["runtime-does-not-answer", "variables-not-seen"]);
        let seen = Inspected { error: None, variables: Some(Vec::new()), ..seen };
        assert_eq!(ids(&seen), ["not-configured"]);
        let seen = Inspected { runtime: Some("6.0.36".into()), ..seen };
        assert_eq!(ids(&seen), ["runtime-too-old", "not-configured"]);
    }
}

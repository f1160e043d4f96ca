//! Runs one after another on one runtime, until the time is over.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use std::{env, fs};

use anyhow::{Context, Result, bail};
use corprof_launch::exit;

use crate::process::note;
use crate::stacks;
use crate::target::System;

use super::judge;
use super::plan::{Ending, Plan, arguments};
use super::summary::{ReportedValues, Summary};
use super::watch::{self, Run};

/// After this long a run is taken to hang. On an idle machine it takes some five seconds.
const LIMIT: Duration = Duration::from_secs(180);

/// After this long without a finished job, a thread of the program counts as stuck.
const PATIENCE: Duration = Duration::from_secs(40);

/// The factor for both limits if each instruction is emulated.
const EMULATED: u32 = 5;

/// The factor under Wine: on a busy machine (load 20 on two processors) the thread that throws exceptions gets no job
/// done in 40 s, without a profiler as well.
const UNDER_WINE: u32 = 3;

/// The usual number of lines: on an idle machine, so many take some five seconds.
pub const LINES: u32 = 12;

/// How many times a run without a profiler may fail. Under Wine one does now and then.
const TRIES: u32 = 3;

/// The amount of runs.
#[derive(Debug, Clone, Copy)]
pub enum Amount {
    /// Runs are begun for this long.
    Time(Duration),
    /// This many runs.
    Runs(u64),
}

/// Starts the program of tests/managed/Stress.cs, with or without the profiler of tests/profilers/stress.rs.
pub struct Bed<'b> {
    /// The runtime, for messages.
    pub runtime: String,
    /// The system that it is for.
    pub system: System,
    /// Whether each instruction is emulated, which is slow.
    pub is_emulated: bool,
    /// A command without the program's arguments; with the profiler's environment if asked for.
    pub command: Box<dyn Fn(bool) -> Result<Command> + 'b>,
    /// The folder for the output of failed runs.
    pub folder: PathBuf,
    /// The library [`PRELOADED`](super::PRELOADED), on Linux: without it a fault of the runtime may end a run.
    pub preloaded: Option<PathBuf>,
    /// The profiler's work that is part of every run.
    pub always: Vec<String>,
    /// Whether runs may end by `Environment.Exit` on another thread than `Main`'s. Under Wine some of these hang at
    /// their end, without a profiler as well: one in three to five on .NET 8, where coreclr waits inside its process
    /// detach, and on a busy machine 2 of 10 on .NET 10.
    pub exits: bool,
    /// How many lines the program prints if nothing interrupts it.
    pub lines: u32,
}

/// Removes the user's own settings of the runtime from `command`: they must not change the results. Has the C library
/// overwrite what is freed (glibc does), so that whoever reads it crashes.
pub(super) fn set_up(command: &mut Command) {
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy();
        let is_set_by_us = command.get_envs().any(|(set, _)| *set == *name);
        if !is_set_by_us && ["CORECLR_", "COMPlus_", "DOTNET_"].iter().any(|prefix| text.starts_with(prefix)) {
            command.env_remove(&name);
        }
    }
    command.env("MALLOC_PERTURB_", "165");
}

impl Bed<'_> {
    fn slowness(&self) -> u32 {
        match self {
            Self { is_emulated: true, .. } => EMULATED,
            Self { system: System::Windows, .. } => UNDER_WINE,
            _ => 1,
        }
    }

    fn limit(&self) -> Duration {
        LIMIT * self.slowness()
    }

    fn patience(&self) -> Duration {
        PATIENCE * self.slowness()
    }

    fn command(&self, is_profiled: bool, arguments: Vec<String>) -> Result<Command> {
        let mut command = (self.command)(is_profiled)?;
        set_up(&mut command);
        command.args(arguments).envs(self.preloaded.iter().map(|library| ("LD_PRELOAD", library)));
        Ok(command)
    }

    /// Runs the program over and over; the first run has the number `seed`, the next ones the following numbers.
    ///
    /// # Errors
    /// If the program cannot be started, or fails even without a profiler. A failed run is not an error: it is in the
    /// summary.
    pub fn stress(&self, seed: u64, amount: Amount) -> Result<Summary> {
        let folder = self.folder.join(format!("run-{seed}"));
        let alone = self.alone(&folder)?;
        // Timed from here on: under Wine on a busy machine the run without a profiler takes longer than a short
        // session.
        let start = Instant::now();
        let pulse = ReportedValues::last(&alone.stderr, "pulse:").unwrap_or_default();
        note(format_args!("{}: {:.1} s without a profiler", self.runtime, alone.duration.as_secs_f64()));
        let mut summary =
            Summary { runtime: self.runtime.clone(), away_alone: pulse.get("longest-away-ms"), ..Summary::default() };
        let is_over = |runs| match amount {
            Amount::Time(time) => start.elapsed() >= time,
            Amount::Runs(most) => runs >= most,
        };
        let mut number = 0;
        while !is_over(summary.runs) {
            let plan = Plan::new(seed.wrapping_add(number), &self.always);
            number += 1;
            if plan.ending.is_exit() && !self.exits {
                continue;
            }
            self.one(&plan, &alone.stdout, &mut summary)?;
            summary.elapsed = start.elapsed();
        }
        Ok(summary)
    }

    /// A run without a profiler. A failure says nothing about the profiler, and the run is repeated.
    fn alone(&self, folder: &Path) -> Result<Run> {
        let mut tries = 1;
        loop {
            let mut command =
                self.command(false, arguments(Ending::Whole, self.lines, Duration::ZERO, self.patience()))?;
            let run = watch::run(&mut command, folder, self.limit())?;
            if run.status.map(exit::code) == Some(0) {
                return Ok(run);
            }
            if tries == TRIES {
                bail!("the program fails without a profiler, {tries} times: {run:?}");
            }
            note(format_args!("{}: the program fails without a profiler; once more: {run:?}", self.runtime));
            tries += 1;
        }
    }

    /// One run; its files are kept if it fails.
    fn one(&self, plan: &Plan, reference: &str, summary: &mut Summary) -> Result<()> {
        let folder = self.folder.join(format!("run-{}", plan.number));
        let mut command = self.command(true, plan.arguments(self.lines, self.patience()))?;
        command.env("STRESS_PARTS", plan.parts.join(",")).envs(plan.settings.iter().copied());
        let mut run = watch::run(&mut command, &folder, self.limit())?;
        if self.system == System::Windows && run.has_not_begun() {
            note(format_args!("{}: run {}: Wine did not start the program; once more", self.runtime, plan.number));
            run = watch::run(&mut command, &folder, self.limit())?;
        }
        let faults = judge::faults(plan, &run, reference, self.system);
        summary.ended_by_runtime += u64::from(judge::is_ended_by_runtime(plan, &run, self.system));
        let [profiler, program] =
            ["stress:", "pulse:"].map(|mark| ReportedValues::last(&run.stderr, mark).unwrap_or_default());
        summary.runs += 1;
        summary.add(&profiler, &program);
        let rounds = profiler.get("rounds");
        let verdict = if faults.is_empty() { "ok" } else { "FAILED" };
        note(format_args!(
            "{}: run {}: {plan}: {:.1} s, {rounds} rounds: {verdict}",
            self.runtime,
            plan.number,
            run.duration.as_secs_f64(),
        ));
        if faults.is_empty() {
            return fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()));
        }
        if let Some(threads) = &run.threads {
            fs::write(folder.join("threads.txt"), threads).context("cannot write where the threads stand")?;
            note(format_args!("where the threads of run {} stand:\n{}", plan.number, stacks::in_short(threads)));
        }
        let failure = format!("run {} ({plan}): {}; see {}", plan.number, faults.join("; "), folder.display());
        note(format_args!("{failure}"));
        summary.failures.push(failure);
        Ok(())
    }
}

//! Counts the outcomes of the mutants, and keeps those that prove the verifier wrong.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;

use corprof_il::Body;

use super::drive::Outcome;
use super::{Ending, Mutant};

/// A runtime's outcomes of mutants, beside the verifier's verdicts.
#[derive(Debug)]
pub struct Tally {
    runtime: String,
    /// By verdict, mode and ending.
    counts: BTreeMap<(&'static str, &'static str, String), usize>,
    /// Mutants that the verifier took and the runtime did not.
    pub holes: Vec<String>,
    /// Mutants that the verifier in the process took and the runtime did not.
    pub live_holes: Vec<String>,
    /// Mutants that only the verifier in the process refuses, though it should know less than the one that reads all
    /// files; but for tokens of strings, which the runtime itself looks up there.
    pub live_refused: Vec<String>,
    /// Mutants that the verifier took, and which threw what it does not claim to rule out: tokens are not resolved.
    pub thrown: Vec<String>,
    /// Mutants that the verifier took and the runtime compiled.
    pub compiled: usize,
    /// Mutants that the verifier refused and the runtime compiled, by rule: of every so many that were refused, one was
    /// tried.
    pub refused: BTreeMap<&'static str, usize>,
    every_refused: usize,
}

impl Tally {
    pub(super) fn new(runtime: String, every_refused: usize) -> Self {
        let counts = BTreeMap::new();
        let refused = BTreeMap::new();
        Self {
            runtime,
            counts,
            holes: Vec::new(),
            live_holes: Vec::new(),
            live_refused: Vec::new(),
            thrown: Vec::new(),
            compiled: 0,
            refused,
            every_refused,
        }
    }

    pub(super) fn count(&mut self, mutant: &Mutant, is_optimised: bool, outcome: Outcome) {
        let Outcome { ending, verdict: live } = outcome;
        let mode = if is_optimised { "optimised" } else { "tier 0" };
        let verdict = if mutant.rule.is_some() { "refused" } else { "sound" };
        let is_bad = match &ending {
            Ending::Died(_) | Ending::Hung => true,
            Ending::Threw { exception, .. } => exception == "InvalidProgramException",
            _ => false,
        };
        match (mutant.rule, &live) {
            (_, Some(None)) if is_bad => self.live_holes.push(hole(mutant, mode, &ending)),
            (None, Some(Some(rule))) if rule != "BadToken" => {
                self.live_refused.push(format!("{rule}: {}", hole(mutant, mode, &ending)))
            }
            _ => {}
        }
        match mutant.rule {
            None if is_bad => self.holes.push(hole(mutant, mode, &ending)),
            None if ending == Ending::Compiled => self.compiled += 1,
            None if matches!(ending, Ending::Threw { .. }) => self.thrown.push(thrown(mutant, mode, &ending)),
            Some(rule) if ending == Ending::Compiled => *self.refused.entry(rule).or_default() += 1,
            _ => {}
        }
        let ending = match ending {
            Ending::Threw { exception, .. } => exception,
            other => format!("{other:?}"),
        };
        *self.counts.entry((verdict, mode, ending)).or_default() += 1;
    }

    /// Of the mutants that the runtime compiled, the share that the verifier refuses.
    #[must_use]
    pub fn refused_share(&self) -> f64 {
        self.share(self.refused.values().sum())
    }

    /// The share of so many of those that were refused and tried, in all that the runtime compiled.
    #[expect(clippy::cast_precision_loss, reason = "a share of some hundred thousand")]
    fn share(&self, tried: usize) -> f64 {
        let refused = self.refused.values().sum::<usize>() * self.every_refused;
        (tried * self.every_refused) as f64 / (self.compiled + refused).max(1) as f64
    }
}

fn thrown(mutant: &Mutant, mode: &str, ending: &Ending) -> String {
    let Ending::Threw { exception, message } = ending else { return String::new() };
    format!("{exception} ({mode}) after {}: {message} [{} {:#x}]", mutant.change, mutant.name, mutant.token)
}

fn hole(mutant: &Mutant, mode: &str, ending: &Ending) -> String {
    let text = Body::parse(&mutant.bytes).map(|body| body.display().to_string()).unwrap_or_default();
    let Mutant { name, token, change, bytes, .. } = mutant;
    let bytes: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{name} {token:#x}, {change}, {mode}: {ending:?}\n{text}\n{}", bytes.join(" "))
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}:", self.runtime)?;
        writeln!(
            f,
            "  in the process: {} accepted that the runtime does not take, {} refused by it only",
            self.live_holes.len(),
            self.live_refused.len()
        )?;
        for ((verdict, mode, ending), count) in &self.counts {
            writeln!(f, "  {verdict:8} {mode:10} {count:>7}  {ending}")?;
        }
        let percent = self.refused_share() * 100.0;
        let every = self.every_refused;
        writeln!(
            f,
            "  {percent:.1} % of what can be compiled is refused, by rule (of every {every} refused one was tried):"
        )?;
        let mut rules: Vec<_> = self.refused.iter().collect();
        rules.sort_unstable_by_key(|(rule, count)| (Reverse(**count), **rule));
        for (rule, count) in rules {
            writeln!(f, "  {:>6.2} % {count:>7}  {rule}", self.share(*count) * 100.0)?;
        }
        for thrown in &self.thrown {
            writeln!(f, "  accepted: {thrown}")?;
        }
        Ok(())
    }
}

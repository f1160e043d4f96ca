//! Samples Loops and WebLoops of `tests/managed/modern/` by signals, and counts the samples of each hot loop with the
//! right callers. At Shutdown it prints a line for each: `NAME: RIGHT of SAMPLES, compiled TIMES times`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use corprof::prelude::*;
use corprof::sampler::{Mode, Sampler, Strategy};

/// How often the program is sampled.
const INTERVAL: Duration = Duration::from_micros(250);

/// What is known of a loop.
#[derive(Default)]
struct Loop {
    samples: u64,
    right: u64,
    compiled: u64,
    /// A stack of a sample with other callers.
    wrong: Option<String>,
}

#[derive(Default, Profiler)]
#[profiler(clsid = "6E1B2C64-0A0E-4C9B-9B52-7D3B5E2F0001")]
struct Loops(Arc<Mutex<BTreeMap<String, Loop>>>);

/// The `X` of a method `HotX` or `CallsX`.
fn named<'n>(name: &'n str, prefix: &str) -> Option<&'n str> {
    let (place, _) = name.match_indices(prefix).find(|&(place, _)| name[..place].ends_with('.'))?;
    name[place + prefix.len()..].split(|letter: char| !letter.is_alphanumeric()).next()
}

/// Whether it is a method of the program, other than those that the compiler has made of lambdas and asynchronous
/// methods.
fn is_of_program(name: &str) -> bool {
    name.starts_with("Loops") && !name.starts_with("Loops+<")
}

/// Counts one sample, given its managed functions.
fn count(loops: &mut BTreeMap<String, Loop>, stack: &[Name]) {
    let Some(first) = stack.iter().position(|name| is_of_program(name)) else { return };
    // Between two loops.
    if named(&stack[first], "Calls").is_some() || is_beside(&stack[first]) {
        return;
    }
    let hot = stack.iter().enumerate().find_map(|(place, name)| Some((place, named(name, "Hot")?)));
    let called = |name: &Name| named(name, "Calls").map(ToOwned::to_owned);
    let is_right = hot.is_some_and(|(place, hot)| {
        let has_next = stack.get(place + 2).is_some_and(|name| name.starts_with("Loops"));
        stack.get(place + 1).and_then(called).as_deref() == Some(hot) && has_next
    });
    let name = match hot {
        Some((_, hot)) => hot.to_owned(),
        // A method that a loop calls.
        None => stack.iter().find_map(called).unwrap_or_else(|| "?".to_owned()),
    };
    let known = loops.entry(name).or_default();
    known.samples += 1;
    known.right += u64::from(is_right);
    if !is_right {
        known.wrong = Some(stack.join(" < "));
    }
}

/// Whether this method neither has a loop nor is called by one.
fn is_beside(name: &Name) -> bool {
    name.starts_with("Loops.Main") || name.starts_with("Loops.CompareFrames")
}

#[callbacks]
impl Callbacks for Loops {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        let profiler = Self::default();
        let loops = Arc::clone(&profiler.0);
        let sampler = Sampler::every(INTERVAL).mode(Mode::Cpu).strategy(Strategy::Signals);
        sampler.start(cx, move |round| {
            let Ok(mut loops) = loops.lock() else { return };
            let names = round.cx().names();
            for sample in round.samples() {
                let functions = sample.frames().iter().filter_map(|frame| frame.function);
                let stack: Vec<Name> = functions.map(|function| names.function(function)).collect();
                count(&mut loops, &stack);
            }
        })?;
        Ok(profiler)
    }

    fn jit_compilation_finished(&self, cx: &mut InCallback<'_>, function: FunctionId, _: Result<()>, _: bool) {
        let name = cx.names().function(function);
        if let (Some(hot), Ok(mut loops)) = (named(&name, "Hot"), self.0.lock()) {
            loops.entry(hot.to_owned()).or_default().compiled += 1;
        }
    }

    fn shutdown(&self, _: &mut InCallback<'_>) {
        let Ok(loops) = self.0.lock() else { return };
        for (name, Loop { samples, right, compiled, wrong }) in &*loops {
            eprintln!("{name}: {right} of {samples}, compiled {compiled} times");
            if let Some(wrong) = wrong {
                eprintln!("    {wrong}");
            }
        }
    }
}

//! The async callers of a sample, by what its thread had resumed.

use std::collections::HashMap;
use std::sync::Arc;

use corprof::prelude::*;
use corprof_profilers::known_callers;

use super::super::{Caller, Joined, Role, StackFrame, Waiting};
use super::runs::Run;
use super::{AT_LIMIT, AT_ROOT, AT_SOURCE, AT_UNKNOWN, AsyncProbe, FIRST_CLASS, Machine, locked};

/// What chains end at if a thread waits for the outermost method, or nobody does.
const NATURAL_ENDS: [&str; 2] = ["System.Threading.Tasks.Task.SetOnInvokeMres", "object"];

/// Joins samples with what the probe has noted.
pub(in crate::async_callers) struct ProbeCallers {
    probe: Arc<AsyncProbe>,
    /// Samples in resumed methods, and those whose callers were found.
    resumed: u64,
    joined: u64,
    /// What the chains of the latter end at.
    ends: HashMap<u32, u64>,
}

impl ProbeCallers {
    pub(in crate::async_callers) fn new(probe: Arc<AsyncProbe>) -> Self {
        Self { probe, resumed: 0, joined: 0, ends: HashMap::new() }
    }

    /// Finds the callers of a sample.
    pub(in crate::async_callers) fn join<'s, T>(&mut self, cx: &InNoGc<'_>, sample: &'s Waiting<T>) -> Joined<'s> {
        let frames = &*sample.frames;
        let is_box = |frame: &StackFrame| matches!(frame, StackFrame::Managed(_, Role::Box, _));
        let physical = Joined::physical(frames);
        let Some(innermost) = frames.iter().position(is_box) else { return physical };
        self.resumed += 1;
        // Methods of one box may call each other: `ExecuteFromThreadPool` calls `MoveNext`.
        // What was inlined between them is no frame of another.
        let physical_frames = frames.iter().filter(|frame| !matches!(frame, StackFrame::Inlined(..)));
        let boxes: Vec<bool> = physical_frames.map(is_box).collect();
        let depth = boxes.chunk_by(|inner, outer| inner == outer).filter(|run| run[0]).count();
        let Some((run, methods)) = self.run(sample, depth) else { return physical };
        let (inner, _) = frames.split_at(innermost);
        let resumed = methods.first().and_then(|resumed| {
            inner.iter().rposition(|frame| match frame {
                StackFrame::Managed(function, Role::StateMachine, _) => is_method(cx, *function, resumed),
                _ => false,
            })
        });
        let has_machine = inner.iter().any(|frame| matches!(frame, StackFrame::Managed(_, Role::StateMachine, _)));
        // Where the frame of the resumed method is not there, the box has not called it yet, or it has returned.
        let (count, awaiting) = match resumed {
            Some(place) => (place + 1, methods.get(1..).unwrap_or_default()),
            None if !has_machine && !methods.is_empty() => (innermost, methods.as_slice()),
            None => return physical,
        };
        self.joined += 1;
        *self.ends.entry(run.end).or_default() += 1;
        Joined {
            physical: frames.get(..count).unwrap_or(frames),
            awaiting: awaiting.iter().cloned().map(Caller::Machine).collect(),
            creators: Vec::new(),
        }
    }

    /// What the thread of the sample had resumed, and the methods of that.
    fn run<T>(&self, sample: &Waiting<T>, depth: usize) -> Option<(Run, Vec<Machine>)> {
        let runs = locked(&self.probe.threads).get(&sample.thread.0.as_raw()).cloned()?;
        let run = runs.at(self.probe.clock.at(sample.ticks), u16::try_from(depth).ok()?)?;
        let known = locked(&self.probe.known);
        let methods = run.methods.iter().map(|number| known.methods.get(*number as usize).cloned());
        let methods = methods.collect::<Option<Vec<_>>>()?;
        Some((run, methods))
    }

    /// What a reader of the profile should know.
    pub(in crate::async_callers) fn note(&self) -> Option<String> {
        let known = locked(&self.probe.known);
        let name = |end: u32| match end {
            AT_ROOT => None,
            AT_UNKNOWN => Some("a class that was met for the first time"),
            AT_LIMIT => Some("the limit of a chain's length"),
            AT_SOURCE => Some("an async iterator or a pooled ValueTask"),
            class => {
                let name = known.ends.get((class - FIRST_CLASS) as usize).map_or("?", |name| &**name);
                Some(name).filter(|name| !NATURAL_ENDS.contains(name))
            }
        };
        let mut early: Vec<_> = self.ends.iter().filter_map(|(end, count)| Some((*count, name(*end)?))).collect();
        early.sort_unstable_by(|a, b| b.cmp(a));
        let sum: u64 = early.iter().map(|(count, _)| count).sum();
        let ends = match early.first() {
            Some((_, most)) => {
                format!("; the callers of {:.1} % end early, at {most}", 100.0 * sum as f64 / self.joined as f64)
            }
            None => String::new(),
        };
        known_callers(self.joined, self.resumed, &ends)
    }
}

/// Whether a function is of this method, whatever its type arguments: those of a frame may be unknown.
pub(in crate::async_callers) fn is_method(cx: &InNoGc<'_>, function: FunctionId, machine: &Machine) -> bool {
    let info = cx.function_info(function);
    info.is_ok_and(|info| (info.module, info.token) == (machine.module, machine.method))
}

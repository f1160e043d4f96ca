//! The table of slow calls: for the terminal, and for the page, where each has a flame graph of its own.

use std::fmt::Write as _;
use std::time::Duration;

use rustc_hash::FxHashMap;

use crate::label::{self, Machine};
use crate::slow_calls::{CallEnding, SlowCall, SlowCalls};
use crate::view::{self, Look, visible};
use crate::{FrameId, FrameKind, Profile, StackId};

/// A row of the table. The page's has the same cells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Row {
    /// As [`COLUMNS`] names them.
    pub(crate) cells: [String; 6],
    pub(crate) call: String,
    /// The full name, with parameters.
    pub(crate) method: String,
    /// Where most of the time went.
    pub(crate) mostly: String,
}

/// The columns of numbers.
pub(crate) const COLUMNS: [&str; 6] = ["time", "running", "waiting", "samples", "at", "thread"];

impl Profile {
    /// Shows slow calls on the HTML page, above the flame graph: a click on one has the flame graph be of it. Their
    /// stacks are those of this profile; they are shown without the callers of the slow method.
    pub fn set_slow_calls(&mut self, mut calls: SlowCalls) {
        for call in &mut calls.slowest {
            for stack in &mut call.stacks {
                stack.stack = self.without_callers(stack.stack, &call.method);
            }
        }
        self.about.slow_calls = Some(calls);
    }

    /// The stack from the outermost call of a method on, below the root of waits if there is one. If the method is not
    /// in it, the whole stack.
    fn without_callers(&mut self, stack: StackId, method: &str) -> StackId {
        let mut frames: Vec<FrameId> = self.leaf_first(stack).collect();
        frames.reverse();
        let Some(begin) = frames.iter().position(|frame| self.frame_of(*frame).name == method) else { return stack };
        let is_wait = |frame: &FrameId| self.kind_of(&self.frame_of(*frame)) == FrameKind::Wait;
        let root = frames.first().copied().filter(|root| begin > 0 && is_wait(root));
        let rest = frames.get(begin..).unwrap_or_default().to_vec();
        self.stack_root_first(root.into_iter().chain(rest))
    }

    /// The slow calls as lines for a terminal; none if they are not set.
    #[must_use]
    pub fn slow_call_lines(&self) -> Vec<String> {
        let Some(calls) = &self.about.slow_calls else { return Vec::new() };
        let rows = self.slow_call_rows(calls);
        if rows.is_empty() {
            return vec![calls.summary()];
        }
        let mut lines = vec![format!("{}:", calls.summary())];
        let columns = COLUMNS.iter().enumerate();
        let width = |(column, title): (usize, &&str)| {
            let cells = rows.iter().filter_map(|row| row.cells.get(column)).map(|cell| cell.chars().count());
            cells.fold(title.len(), usize::max)
        };
        let widths: Vec<usize> = columns.map(width).collect();
        let mut line = |cells: &[&str], last: &str| {
            let mut text = String::new();
            for (cell, width) in cells.iter().zip(&widths) {
                let _ = write!(text, "{cell:>width$}  "); // a String takes all
            }
            lines.push(text + last);
        };
        line(&COLUMNS, "call");
        let indent: usize = widths.iter().map(|width| width + 2).sum();
        for row in rows {
            line(&row.cells.each_ref().map(String::as_str), &row.call);
            if !row.mostly.is_empty() {
                line(&[], &format!("{:indent$}  {}", "", row.mostly));
            }
        }
        lines
    }

    pub(crate) fn slow_call_rows(&self, calls: &SlowCalls) -> Vec<Row> {
        let looks = view::looks(self);
        calls.slowest.iter().map(|call| self.row(call, &looks)).collect()
    }

    fn row(&self, call: &SlowCall, looks: &[Look]) -> Row {
        let samples: u64 = call.stacks.iter().map(|stack| stack.samples).sum();
        let time = match call.end {
            CallEnding::StillRuns => format!("> {}", in_words(call.time)),
            CallEnding::Returned | CallEnding::Threw => in_words(call.time),
        };
        let ending = match call.end {
            CallEnding::Returned => "",
            CallEnding::Threw => " threw",
            CallEnding::StillRuns => " still runs",
        };
        let label = label::managed(&call.method, Machine::Async);
        // A part of an async method has none: `Orders.Load (async)`.
        let arguments = if label.ends_with(')') && call.arguments == "()" { "" } else { &call.arguments };
        Row {
            cells: [
                time,
                in_words(call.running),
                in_words(call.time.saturating_sub(call.running)),
                samples.to_string(),
                format!("{:.2} s", call.at.as_secs_f64()),
                visible(&call.thread),
            ],
            call: visible(&format!("{label}{arguments}{ending}")),
            method: visible(&call.method),
            mostly: self.mostly(call, looks),
        }
    }

    /// Where most of the time was: `80 % waits in Thread.Sleep, called by Orders.Load`.
    fn mostly(&self, call: &SlowCall, looks: &[Look]) -> String {
        let mut sums: FxHashMap<String, u64> = FxHashMap::default();
        let mut all = 0u64;
        for stack in &call.stacks {
            all = all.saturating_add(stack.weight);
            let Some(place) = self.place_of(stack.stack, looks) else { continue };
            let sum = sums.entry(place).or_default();
            *sum = sum.saturating_add(stack.weight);
        }
        let most = sums.into_iter().max_by(|(a, one), (b, other)| one.cmp(other).then_with(|| b.cmp(a)));
        most.map(|(place, weight)| format!("{:.0} % {place}", 100.0 * weight as f64 / all.max(1) as f64))
            .unwrap_or_default()
    }

    /// The innermost method of the user's in a stack, and what it has called.
    fn place_of(&self, stack: StackId, looks: &[Look]) -> Option<String> {
        let frames: Vec<&Look> = self.leaf_first(stack).filter_map(|frame| looks.get(frame.0 as usize)).collect();
        let is_waiting = frames.last().is_some_and(|look| look.kind == FrameKind::Wait);
        let verb = if is_waiting { "waits in" } else { "runs in" };
        let last = frames.len().saturating_sub(usize::from(is_waiting));
        let frames = frames.get(..last)?;
        let Some(mine) = frames.iter().position(|look| look.kind == FrameKind::User) else {
            return Some(format!("{verb} {}", visible(&frames.first()?.label)));
        };
        let label = |place: usize| frames.get(place).map(|look| visible(&look.label));
        let mine_label = label(mine)?;
        let callee = mine.checked_sub(1).and_then(label).filter(|label| !label.starts_with('['));
        Some(match callee {
            Some(callee) => format!("{verb} {callee}, called by {mine_label}"),
            None => format!("{verb} {mine_label}"),
        })
    }
}

/// A time with three digits.
fn in_words(time: Duration) -> String {
    if time.is_zero() {
        return "0 ms".to_owned();
    }
    let seconds = time.as_secs_f64();
    let (value, unit) = if seconds >= 1.0 {
        (seconds, "s")
    } else if seconds >= 1e-3 {
        (seconds * 1e3, "ms")
    } else {
        (seconds * 1e6, "µs")
    };
    let digits = if value >= 100.0 {
        0
    } else if value >= 10.0 {
        1
    } else {
        2
    };
    format!("{value:.digits$} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Frame, SlowStack, Unit};

    fn profile() -> Profile {
        let mut profile = Profile::summed("shop", Unit::Nanoseconds);
        let mut stack = |names: &[&str]| {
            let mut frames = Vec::new();
            for name in names {
                let is_native = name.starts_with('[');
                frames.push(profile.frame(if is_native { Frame::native(name) } else { Frame::managed(name) }));
            }
            profile.stack_root_first(frames)
        };
        let sleeps =
            stack(&["[waits]", "Shop.Orders.Load(int)", "System.Threading.Thread.Sleep(int)", "[native code]"]);
        let burns = stack(&["Shop.Orders.Load(int)"]);
        let stack = |stack, samples, weight| SlowStack { stack, samples, weight };
        let call = |arguments: &str, end, stacks| SlowCall {
            method: "Shop.Orders.Load(int)".to_owned(),
            arguments: arguments.to_owned(),
            thread: "worker".to_owned(),
            at: Duration::from_millis(1500),
            time: Duration::from_millis(250),
            running: Duration::from_micros(50_400),
            end,
            stacks,
        };
        let slowest = vec![
            call("(17)", CallEnding::Returned, vec![stack(sleeps, 8, 800), stack(burns, 2, 200)]),
            call("(18)", CallEnding::Threw, vec![stack(burns, 1, 5)]),
            call("(19)", CallEnding::StillRuns, Vec::new()),
        ];
        profile.set_slow_calls(SlowCalls { calls: 40, slow: 5, limit: "at least 50 ms".to_owned(), slowest });
        profile
    }

    #[test]
    fn slow_calls_are_a_table() {
        let lines = profile().slow_call_lines();
        assert_eq!(
            lines,
            [
                "slow calls: 5 of 40 traced calls took at least 50 ms; the 3 slowest:",
                "    time  running  waiting  samples      at  thread  call",
                "  250 ms  50.4 ms   200 ms       10  1.50 s  worker  Orders.Load(17)",
                "                                                       80 % waits in Thread.Sleep, called by Orders.Load",
                "  250 ms  50.4 ms   200 ms        1  1.50 s  worker  Orders.Load(18) threw",
                "                                                       100 % runs in Orders.Load",
                "> 250 ms  50.4 ms   200 ms        0  1.50 s  worker  Orders.Load(19) still runs",
            ]
        );
    }

    #[test]
    fn stacks_are_shown_from_the_slow_method_on() {
        let mut profile = profile();
        let calls = profile.about.slow_calls.as_ref().unwrap();
        let stack = calls.slowest[0].stacks[0].stack;
        let names: Vec<_> = profile.leaf_first(stack).map(|frame| profile.frame_of(frame).name).collect();
        let expected = ["[native code]", "System.Threading.Thread.Sleep(int)", "Shop.Orders.Load(int)", "[waits]"];
        assert_eq!(names, expected);
        assert_eq!(profile.without_callers(stack, "Shop.Else()"), stack);
    }

    #[test]
    fn it_is_said_that_there_is_none() {
        let mut profile = Profile::summed("shop", Unit::Nanoseconds);
        assert!(profile.slow_call_lines().is_empty());
        profile.set_slow_calls(SlowCalls { calls: 1, limit: "at least 1 s".to_owned(), ..SlowCalls::default() });
        assert_eq!(profile.slow_call_lines(), ["no slow call: none of 1 traced call took at least 1 s"]);
    }

    #[test]
    fn times_have_three_digits() {
        let words = |micros| in_words(Duration::from_micros(micros));
        assert_eq!(
            [words(7), words(70_400), words(704_000), words(12_345_000)],
            ["7.00 µs", "70.4 ms", "704 ms", "12.3 s"]
        );
    }
}

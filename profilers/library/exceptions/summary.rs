//! The answer of `exceptions`: its rows, its text, and its JSON.

use std::collections::HashMap;

use corprof::prelude::*;
use corprof_export::SourceLines;
use serde::Serialize;

use super::{Catcher, Counts, Kind};
use crate::code_frames::{CodeFrame, SourceFrame, Spelling};
use crate::own_frames::is_of_framework;
use crate::question::{Answer, Head, Report};

/// What a row shows of its kind.
#[derive(PartialEq, Eq, Hash)]
struct Shown {
    class: Name,
    thrower: Option<SourceFrame>,
    framework: Option<String>,
    catcher: Option<SourceFrame>,
    is_open: bool,
    spelling: Spelling,
}

impl Shown {
    fn of(kind: &Kind, lines: &mut SourceLines) -> Self {
        Self {
            class: kind.class.clone(),
            thrower: kind.thrower.as_ref().map(|frame| frame.in_source(None, lines)),
            framework: kind.framework.as_ref().map(|frame| frame.shown(None)),
            catcher: kind.catcher.frame().map(|frame| frame.in_source(None, lines)),
            is_open: kind.catcher == Catcher::Open,
            spelling: kind.thrower.as_ref().map(CodeFrame::spelling).unwrap_or_default(),
        }
    }
}

/// The answer.
#[derive(Serialize)]
pub(super) struct Summary {
    exceptions: u64,
    per_second: f64,
    /// The most frequent ones first.
    pub(super) kinds: Vec<Row>,
    /// How many further rows there are.
    further_kinds: usize,
}

#[derive(Serialize)]
pub(super) struct Row {
    class: String,
    pub(super) count: u64,
    per_second: f64,
    thrower: Option<SourceFrame>,
    framework: Option<String>,
    pub(super) catcher: Option<SourceFrame>,
    /// The answer came before a method that catches it was found.
    pub(super) is_open: bool,
    messages: Vec<Text>,
    /// The exceptions with other messages.
    other_messages: u64,
    /// The exceptions whose messages were not read.
    unread_messages: u64,
    /// Who has called the thrower in async code, the most frequent ones first.
    callers: Vec<Called>,
    /// The exceptions with other such callers.
    other_callers: u64,
}

#[derive(Serialize)]
struct Called {
    /// The methods below the thrower, then those that await them, the innermost first.
    frames: Vec<String>,
    count: u64,
}

#[derive(Serialize)]
struct Text {
    text: String,
    count: u64,
}

impl Summary {
    /// The summary of these rows. It reads files.
    pub(super) fn of(rows: HashMap<Kind, Counts>, lines: &mut SourceLines, seconds: f64, top: usize) -> Self {
        let mut merged: HashMap<Shown, Counts> = HashMap::new();
        for (kind, mut counts) in rows {
            counts.take_known();
            // The tiers of a method have places of their own in its IL, which are on one line.
            merged.entry(Shown::of(&kind, lines)).or_default().merge(counts);
        }
        let per_second = |count: u64| if seconds > 0.0 { count as f64 / seconds } else { 0.0 };
        let mut rows: Vec<(Shown, Counts)> = merged.into_iter().collect();
        rows.sort_by(|(shown, a), (other, b)| {
            let text = |frame: &Option<SourceFrame>| frame.as_ref().map(ToString::to_string);
            let names = |shown: &Shown| [Some(shown.class.to_string()), text(&shown.catcher), text(&shown.thrower)];
            b.count.cmp(&a.count).then_with(|| names(shown).cmp(&names(other)))
        });
        let row = |(shown, counts): (Shown, Counts)| {
            let messages = counts.messages.iter();
            let mut messages: Vec<_> =
                messages.map(|(text, count)| Text { text: text.clone(), count: *count }).collect();
            messages.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.text.cmp(&b.text)));
            let callers = counts.callers.iter();
            let mut callers: Vec<_> =
                callers.map(|(names, count)| Called { frames: shown.spelling.methods(names), count: *count }).collect();
            callers.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.frames.cmp(&b.frames)));
            Row {
                class: shown.class.to_string(),
                count: counts.count,
                per_second: per_second(counts.count),
                thrower: shown.thrower,
                framework: shown.framework,
                catcher: shown.catcher,
                is_open: shown.is_open,
                messages,
                other_messages: counts.others,
                unread_messages: counts.unread,
                callers,
                other_callers: counts.other_callers,
            }
        };
        let exceptions = rows.iter().map(|(_, counts)| counts.count).sum();
        let further_kinds = rows.len().saturating_sub(top);
        let kinds = rows.into_iter().take(top).map(row).collect();
        Self { exceptions, per_second: per_second(exceptions), kinds, further_kinds }
    }
}

impl Report for Summary {
    fn text(&self, head: &Head, answer: &mut Answer) {
        let Self { exceptions, per_second, kinds, further_kinds } = self;
        say!(answer, "{exceptions} exceptions in {:.1} s, {per_second:.1}/s", head.seconds);
        if !kinds.is_empty() {
            say!(answer, "{:>8} {:>9}  class and message", "count", "/s");
        }
        for row in kinds {
            say!(answer, "{:>8} {:>9.1}  {}{}", row.count, row.per_second, row.class, row.message());
            let framework = row.framework.as_ref().map(|method| format!(", by {method}")).unwrap_or_default();
            if let Some(thrower) = &row.thrower {
                say!(answer, "{:>20}thrown in {thrower}{framework}", "");
            }
            if let Some(callers) = row.callers() {
                say!(answer, "{:>20}called by {callers}", "");
            }
            match &row.catcher {
                Some(catcher) => say!(answer, "{:>20}caught in {catcher}", ""),
                None if row.is_open => say!(answer, "{:>20}not caught yet when this was printed", ""),
                None => say!(answer, "{:>20}not caught by a managed method", ""),
            }
        }
        if *further_kinds > 0 {
            say!(answer, "{further_kinds} further rows: --top, or EXCEPTIONS_TOP");
        }
    }
}

impl Row {
    /// The most frequent message, and how many others there are.
    fn message(&self) -> String {
        let Some(first) = self.messages.first() else { return String::new() };
        let text = first.text.replace(char::is_control, " ");
        let others = match (self.messages.len() - 1, self.other_messages) {
            (0, 0) => return format!(": {text}"),
            (others, 0) => others.to_string(),
            (others, _) => format!("more than {others}"),
        };
        let read = self.messages.iter().map(|message| message.count).sum::<u64>() + self.other_messages;
        let of = if self.unread_messages == 0 { "times".to_owned() } else { format!("of the {read} that were read") };
        format!(": {text} ({} {of}, and {others} other messages)", first.count)
    }

    /// The methods of the application among the most frequent callers, and how many others there are.
    fn callers(&self) -> Option<String> {
        let first = self.callers.first()?;
        let own: Vec<&str> = first.frames.iter().map(String::as_str).filter(|name| !is_of_framework(name)).collect();
        let shown = if own.is_empty() { first.frames.first()?.clone() } else { own.join(" < ") };
        let others = self.callers.len() - 1;
        let more = if self.other_callers > 0 { "more than " } else { "" };
        Some(match others {
            0 => shown,
            1 if more.is_empty() => format!("{shown} ({} times, and by another one)", first.count),
            _ => format!("{shown} ({} times, and by {more}{others} others)", first.count),
        })
    }
}

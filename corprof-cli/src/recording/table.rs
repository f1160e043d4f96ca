//! Rows of a picture: methods, lines, types or threads, with the most weight first.

use std::collections::HashMap;

use corprof_export::FrameKind;

use super::picture::Picture;
use super::{Frame, Sum, Thread};

/// The subject of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum By {
    Method,
    Line,
    Type,
    Thread,
    /// The values of the label that the picture keeps apart.
    Label,
}

/// A row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) name: String,
    /// Of the subject itself.
    pub(crate) own: Sum,
    /// With what it calls, calls of itself counted once.
    pub(crate) total: Sum,
}

/// The name of the row of stacks that have no frame, or no frame of the user's.
const NO_FRAMES: &str = "[no frames]";
const OTHER_CODE: &str = "[no code of yours]";
const NO_LABEL: &str = "[no label]";

/// The rows of a picture. `only_mine` counts what frameworks do for the code of yours that calls them.
pub(crate) fn rows(picture: &Picture, by: &By, only_mine: bool) -> Vec<Row> {
    let names: Vec<Option<String>> = picture.frames.iter().map(|frame| name_of(frame, by, only_mine)).collect();
    let mut rows: HashMap<&str, Row> = HashMap::new();
    let thread_names: Vec<String> = picture.threads.iter().map(title).collect();
    let mut on_stack: Vec<&str> = Vec::new();
    for (&(thread, stack, group), sum) in &picture.sums {
        on_stack.clear();
        match by {
            By::Thread => on_stack.extend(thread_names.get(thread as usize).map(String::as_str)),
            By::Label => on_stack.push(match picture.groups.get_index(group as usize).map(String::as_str) {
                None | Some("") => NO_LABEL,
                Some(value) => value,
            }),
            By::Type => {
                let innermost = picture.frames_of(stack).next().and_then(|frame| names.get(frame as usize));
                on_stack.push(innermost.and_then(Option::as_deref).unwrap_or("[no type]"));
            }
            By::Method | By::Line => {
                for frame in picture.frames_of(stack) {
                    if let Some(name) = names.get(frame as usize).and_then(Option::as_deref)
                        && !on_stack.contains(&name)
                    {
                        on_stack.push(name);
                    }
                }
                if on_stack.is_empty() {
                    on_stack.push(if only_mine { OTHER_CODE } else { NO_FRAMES });
                }
            }
        }
        for (depth, name) in on_stack.iter().enumerate() {
            let row = rows.entry(name).or_insert_with(|| Row {
                name: (*name).to_owned(),
                own: Sum::default(),
                total: Sum::default(),
            });
            row.total.add(*sum);
            if depth == 0 {
                row.own.add(*sum);
            }
        }
    }
    let mut rows: Vec<Row> = rows.into_values().collect();
    let key = |row: &Row| (row.own.weight, row.own.samples, row.total.weight, row.total.samples);
    rows.sort_unstable_by(|a, b| key(b).cmp(&key(a)).then_with(|| a.name.cmp(&b.name)));
    rows
}

/// The name of a frame in a table. None if it is in none.
fn name_of(frame: &Frame, by: &By, only_mine: bool) -> Option<String> {
    let is_type = frame.kind == FrameKind::Generated && frame.module.is_none();
    if *by == By::Type {
        return is_type.then(|| frame.name.split_once(' ').map_or(&*frame.name, |(_, name)| name).to_owned());
    }
    if is_type || only_mine && !is_mine(frame) {
        return None;
    }
    Some(match (&frame.place, by) {
        (Some((file, line)), By::Line) => {
            let file = file.rsplit(['/', '\\']).next().unwrap_or(file);
            format!("{} {file}:{line}", frame.name)
        }
        _ => frame.name.clone(),
    })
}

/// Whether a frame is of the user's code.
fn is_mine(frame: &Frame) -> bool {
    let shown = corprof_export::Frame::new(frame.kind, &frame.name);
    let shown = frame.module.as_deref().map_or(shown, |module| shown.in_module(module));
    shown.kind_found() == FrameKind::User
}

/// A thread by its name and number.
pub(crate) fn title(thread: &Thread) -> String {
    match (&thread.name, thread.id) {
        (Some(name), Some(id)) => format!("{name} ({id})"),
        (Some(name), None) => name.clone(),
        (None, Some(id)) => format!("thread {id}"),
        (None, None) => "thread".to_owned(),
    }
}

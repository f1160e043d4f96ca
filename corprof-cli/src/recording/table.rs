//! Rows of a picture: methods, lines, types or threads, with the most weight first.

use std::collections::HashMap;

use corprof_export::FrameKind;
use indexmap::IndexSet;
use rustc_hash::FxHashMap;

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
#[derive(Debug, Clone, Default, PartialEq, Eq)]
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
    let mut rows = match by {
        By::Method | By::Line => of_frames(picture, by, only_mine),
        By::Type => of_types(picture),
        By::Thread => {
            let names: Vec<String> = picture.threads.iter().map(title).collect();
            of_keys(picture, |(thread, _, _)| names.get(thread as usize).map_or("", String::as_str))
        }
        By::Label => {
            of_keys(picture, |(_, _, group)| match picture.groups.get_index(group as usize).map(String::as_str) {
                None | Some("") => NO_LABEL,
                Some(value) => value,
            })
        }
    };
    let key = |row: &Row| (row.own.weight, row.own.samples, row.total.weight, row.total.samples);
    rows.sort_unstable_by(|a, b| key(b).cmp(&key(a)).then_with(|| a.name.cmp(&b.name)));
    rows
}

/// A row for each name that sums have.
fn of_keys<'p>(picture: &'p Picture, name: impl Fn((u32, u32, u32)) -> &'p str) -> Vec<Row> {
    let mut rows: HashMap<&str, Sum> = HashMap::new();
    for (key, sum) in &picture.sums {
        rows.entry(name(*key)).or_default().add(*sum);
    }
    rows.into_iter().map(|(name, sum)| Row { name: name.to_owned(), own: sum, total: sum }).collect()
}

/// The innermost frames that are types.
fn of_types(picture: &Picture) -> Vec<Row> {
    of_keys(picture, |(_, stack, _)| {
        let innermost = picture.frames_of(stack).next().and_then(|frame| picture.frames.get_index(frame as usize));
        match innermost {
            Some(frame) if is_type(frame) => frame.name.split_once(' ').map_or(&*frame.name, |(_, name)| name),
            _ => "[no type]",
        }
    })
}

/// A row for each method or line.
fn of_frames(picture: &Picture, by: &By, only_mine: bool) -> Vec<Row> {
    let mut by_stack: FxHashMap<u32, Sum> = FxHashMap::default();
    for ((_, stack, _), sum) in &picture.sums {
        by_stack.entry(*stack).or_default().add(*sum);
    }
    let subjects = Subjects::new(picture, by, only_mine);
    let mut rows: Vec<Row> = subjects.names.into_iter().map(|name| Row { name, ..Row::default() }).collect();
    // The last stack, by its place, that a row was on.
    let mut seen = vec![usize::MAX; rows.len()];
    for (place, (stack, sum)) in by_stack.into_iter().enumerate() {
        let on_stack = picture.frames_of(stack).filter_map(|frame| subjects.of_frame.get(frame as usize).copied()?);
        let mut is_innermost = true;
        for subject in on_stack.chain([subjects.none]) {
            if subject == subjects.none && !is_innermost {
                break;
            }
            let (Some(row), Some(seen)) = (rows.get_mut(subject), seen.get_mut(subject)) else { continue };
            if *seen != place {
                row.total.add(sum);
                *seen = place;
            }
            if is_innermost {
                row.own.add(sum);
                is_innermost = false;
            }
        }
    }
    rows.retain(|row| row.total.samples > 0);
    rows
}

/// The subjects of rows, by frame.
pub(crate) struct Subjects {
    pub(crate) names: IndexSet<String>,
    /// None for frames that are in no row.
    pub(crate) of_frame: Vec<Option<usize>>,
    /// The one of stacks without any.
    pub(crate) none: usize,
}

impl Subjects {
    pub(crate) fn new(picture: &Picture, by: &By, only_mine: bool) -> Self {
        let mut names = IndexSet::new();
        let shown = picture.shown_names();
        let named = picture.frames.iter().zip(&shown).map(|(frame, name)| name_of(frame, name, by, only_mine));
        let of_frame = named.map(|name| name.map(|name| names.insert_full(name).0)).collect();
        let none = names.insert_full(if only_mine { OTHER_CODE } else { NO_FRAMES }.to_owned()).0;
        Self { names, of_frame, none }
    }
}

fn is_type(frame: &Frame) -> bool {
    frame.kind == FrameKind::Generated
}

/// The name of a frame in a table. None if it is in none.
fn name_of(frame: &Frame, name: &str, by: &By, only_mine: bool) -> Option<String> {
    if is_type(frame) || only_mine && !is_mine(frame) {
        return None;
    }
    Some(match (&frame.place, by) {
        (Some((file, line)), By::Line) => {
            let file = file.rsplit(['/', '\\']).next().unwrap_or(file);
            format!("{name} {file}:{line}")
        }
        _ => name.to_owned(),
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

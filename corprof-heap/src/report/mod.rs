//! A snapshot on a page: which classes take the memory, and which objects keep it. As text, JSON or an HTML file.
//!
//! The same snapshot gives the same bytes.

use std::io::{self, Write};

use serde::Serialize;

use crate::{ClassId, Dominators, Link, ObjectId, Path, Paths, RootKind, Total, Totals};

mod changes;
mod growth;
mod html;
mod names;
mod text;

pub use changes::Changes;
pub use growth::Growth;
pub use names::Names;

/// The size of a report.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The most classes, those that retain most first.
    pub classes: usize,
    /// The most objects, those that retain most first.
    pub objects: usize,
    /// The limit of listed steps of a path, half of them at either end.
    pub steps: usize,
}

impl Default for Options {
    /// 500 classes, 30 objects, 20 steps.
    fn default() -> Self {
        Self { classes: 500, objects: 30, steps: 20 }
    }
}

/// A report. [`Report::of`] makes it; it can be written several times.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    title: String,
    /// Milliseconds since 1970.
    taken: Option<u64>,
    /// Whether nothing is known to be missing or doubled.
    whole: bool,
    losses: String,
    objects: u64,
    bytes: u64,
    references: u64,
    weak_table_pairs: u64,
    unreachable_objects: u64,
    unreachable_bytes: u64,
    roots: Vec<Roots>,
    assemblies: Vec<Row>,
    classes: Vec<Row>,
    /// Number and sums of unlisted classes. There is no retained sum: it would count bytes twice.
    other_classes: u64,
    other_objects: u64,
    other_shallow: u64,
    largest: Vec<Object>,
}

/// How many objects roots of a kind hold.
#[derive(Clone, Debug, Serialize)]
struct Roots {
    kind: &'static str,
    count: u64,
}

/// The sums of a class or an assembly.
#[derive(Clone, Debug, Serialize)]
struct Row {
    name: String,
    /// That of a class; empty if unknown, and for an assembly.
    assembly: String,
    objects: u64,
    shallow: u64,
    retained: u64,
}

/// An object that nothing dominates.
#[derive(Clone, Debug, Serialize)]
struct Object {
    class: String,
    address: String,
    shallow: u64,
    retained: u64,
    /// How many objects it retains, itself among them.
    retained_objects: u64,
    /// A shortest way to it, from the root on.
    path: Vec<String>,
    /// The chain of largest objects below it in the dominator tree.
    holds: Vec<String>,
}

/// The number of listed objects below a large one.
const HOLDS: usize = 8;

impl Report {
    /// Gathers the contents, with these names.
    #[must_use]
    pub fn of(tree: &Dominators<'_>, options: Options, names: &Names) -> Self {
        let graph = tree.graph();
        let totals = Totals::of(tree);
        let classes = totals.by_retained();
        let (told, others) = classes.split_at(classes.len().min(options.classes));
        let paths = Paths::of(graph);
        let root_count = |kind: RootKind| graph.roots().iter().filter(|root| root.kind == kind).count() as u64;
        let roots = RootKind::ALL.iter().map(|&kind| Roots { kind: kind.name(), count: root_count(kind) });

        let row = |name: &str, assembly: &str, total: Total| Row {
            name: name.to_owned(),
            assembly: assembly.to_owned(),
            objects: total.objects,
            shallow: total.shallow,
            retained: total.retained,
        };
        let class = |&(class, total): &(ClassId, Total)| {
            let class = graph.class(class);
            row(names.class(class), &class.assembly, total)
        };
        let mut assemblies: Vec<Row> = totals
            .assemblies
            .iter()
            .map(|(name, total)| row(if name.is_empty() { "(unknown)" } else { name }, "", *total))
            .collect();
        assemblies.sort_by_key(|assembly| std::cmp::Reverse(assembly.retained)); // stable: else by name

        let object = |object: ObjectId| Object {
            class: names.of_object(graph, object).to_owned(),
            address: format!("{:#x}", graph.address(object)),
            shallow: graph.size(object),
            retained: tree.retained_bytes(object),
            retained_objects: tree.retained_count(object) as u64,
            path: paths.to(object).map(|path| told_path(tree, &path, options.steps, names)).unwrap_or_default(),
            holds: holds(tree, object, names),
        };
        Self {
            title: graph.title().to_owned(),
            taken: graph.taken(),
            whole: graph.losses().is_whole(),
            losses: graph.losses().to_string(),
            objects: totals.reachable.objects,
            bytes: totals.reachable.shallow,
            references: graph.reference_count() as u64,
            weak_table_pairs: graph.ephemeron_count() as u64,
            unreachable_objects: totals.unreachable.0,
            unreachable_bytes: totals.unreachable.1,
            roots: roots.filter(|roots| roots.count > 0).collect(),
            assemblies,
            classes: told.iter().map(class).collect(),
            other_classes: others.len() as u64,
            other_objects: others.iter().map(|(_, total)| total.objects).sum(),
            other_shallow: others.iter().fold(0, |sum, (_, total)| sum.saturating_add(total.shallow)),
            largest: tree.largest(options.objects).into_iter().map(object).collect(),
        }
    }

    /// Writes tables for a terminal.
    ///
    /// # Errors
    /// Those of `writer`.
    pub fn write_text(&self, writer: impl Write) -> io::Result<()> {
        text::write(self, writer)
    }

    /// Writes one JSON object, indented. Sizes are bytes; `retained` counts nothing twice within its row.
    ///
    /// # Errors
    /// Those of `writer`.
    pub fn write_json(&self, mut writer: impl Write) -> io::Result<()> {
        serde_json::to_writer_pretty(&mut writer, self)?;
        writer.write_all(b"\n")
    }

    /// Writes one HTML file that asks nothing of the network: tables that a click on a heading sorts, in light and
    /// dark.
    ///
    /// # Errors
    /// Those of `writer`.
    pub fn write_html(&self, writer: impl Write) -> io::Result<()> {
        html::write(self, writer)
    }

    /// Warnings about figures that may mislead.
    fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if !self.whole {
            warnings.push(format!("The dump is not whole: {}. Sizes and paths may be wrong.", self.losses));
        }
        if self.unreachable_objects > 0 {
            warnings.push(format!(
                "{} objects ({} bytes) are unreachable and not in the tables.",
                grouped(self.unreachable_objects),
                grouped(self.unreachable_bytes)
            ));
        }
        warnings
    }
}

/// The steps of a path in words; of a long one both ends.
fn told_path(tree: &Dominators<'_>, path: &Path<'_>, limit: usize, names: &Names) -> Vec<String> {
    let graph = tree.graph();
    let root = names.root(path.root);
    let step = |&(link, object): &(Link, ObjectId)| {
        let through = if link == Link::WeakTable { " (value in a weak table)" } else { "" };
        format!("{}{through}", names.of_object(graph, object))
    };
    let mut lines = vec![root, names.of_object(graph, path.root.object).to_owned()];
    let half = limit / 2;
    if path.steps.len() <= 2 * half {
        lines.extend(path.steps.iter().map(step));
    } else {
        lines.extend(path.steps[..half].iter().map(step));
        lines.push(format!("({} more)", grouped((path.steps.len() - 2 * half) as u64)));
        lines.extend(path.steps[path.steps.len() - half..].iter().map(step));
    }
    lines
}

/// From an object down, always to the one that retains most, while that is at least half of the first's retained bytes.
fn holds(tree: &Dominators<'_>, object: ObjectId, names: &Names) -> Vec<String> {
    let half = tree.retained_bytes(object) / 2;
    let largest = |&object: &ObjectId| {
        let largest =
            tree.dominated_by(object).max_by_key(|&below| (tree.retained_bytes(below), std::cmp::Reverse(below)))?;
        (tree.retained_bytes(largest) >= half).then_some(largest)
    };
    let down = std::iter::successors(largest(&object), largest).take(HOLDS);
    let step = |object| {
        let bytes = grouped(tree.retained_bytes(object));
        format!("{} ({bytes} bytes)", names.of_object(tree.graph(), object))
    };
    down.map(step).collect()
}

/// Without control characters: the application chooses the name.
fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// A number with commas between thousands.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A time in milliseconds since 1970 as `2026-11-22 18:25:00 UTC`.
fn date(milliseconds: u64) -> String {
    let seconds = milliseconds / 1000;
    let days = seconds / 86_400;
    let second = seconds % 86_400;
    // Years begin in March here, so that the odd day is the last; 719,468 days are between 1 March of year 0 and 1970.
    let days = days + 719_468;
    let era = days / 146_097;
    let day_of_era = days % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let hour = second / 3600;
    let minute = second / 60 % 60;
    let second = second % 60;
    format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

#[cfg(test)]
mod tests {
    use super::{date, grouped};

    #[test]
    fn numbers_and_dates_are_readable() {
        assert_eq!(
            [0, 12, 123, 1234, 123_456, 1_234_567].map(grouped),
            ["0", "12", "123", "1,234", "123,456", "1,234,567"]
        );
        assert_eq!(date(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(date(951_782_400_000), "2000-02-29 00:00:00 UTC");
        assert_eq!(date(1_795_371_907_999), "2026-11-22 18:25:07 UTC");
        let _ = date(u64::MAX);
    }
}

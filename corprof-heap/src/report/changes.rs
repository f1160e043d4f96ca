//! The changes between two snapshots, as text or JSON.

use std::io::{self, Write};

use serde::Serialize;

use super::{Names, grouped, plain};
use crate::Total;
use crate::diff::{Change, PathDiff, Summary, by_class};

/// A comparison. [`Changes::of`] makes it.
#[derive(Clone, Debug, Serialize)]
pub struct Changes {
    before: Side,
    after: Side,
    classes: Vec<Class>,
    /// Changed classes that are not listed.
    other_classes: u64,
    paths: Vec<Path>,
}

#[derive(Clone, Debug, Serialize)]
struct Side {
    title: String,
    /// Whether nothing is known to be missing or doubled.
    whole: bool,
}

#[derive(Clone, Debug, Serialize)]
struct Class {
    name: String,
    assembly: String,
    #[serde(flatten)]
    sums: Sums,
}

/// Classes from the top of the dominator tree down.
#[derive(Clone, Debug, Serialize)]
struct Path {
    classes: Vec<String>,
    #[serde(flatten)]
    sums: Sums,
}

/// Growth, and the sums of both snapshots.
#[derive(Clone, Debug, Serialize)]
struct Sums {
    retained_growth: i64,
    shallow_growth: i64,
    object_growth: i64,
    before: [u64; 3],
    after: [u64; 3],
}

impl Sums {
    fn of(change: Change) -> Self {
        let sums = |total: Total| [total.objects, total.shallow, total.retained];
        Self {
            retained_growth: change.retained_growth(),
            shallow_growth: change.shallow_growth(),
            object_growth: change.object_growth(),
            before: sums(change.before),
            after: sums(change.after),
        }
    }
}

impl Changes {
    /// Compares, and lists at most `classes` changed classes and `paths` grown paths, with these names.
    #[must_use]
    pub fn of(before: &Summary, after: &Summary, classes: usize, paths: usize, names: &Names) -> Self {
        let side = |summary: &Summary| Side { title: summary.title().to_owned(), whole: summary.is_whole() };
        let mut changed = by_class(before, after);
        changed.retain(|class| class.change.before != class.change.after);
        let other_classes = changed.len().saturating_sub(classes) as u64;
        changed.truncate(classes);
        let class = |class: crate::diff::ClassChange| Class {
            name: names.named(&class.assembly, &class.name).to_owned(),
            assembly: class.assembly,
            sums: Sums::of(class.change),
        };
        let diff = PathDiff::of(before, after);
        let path = |path: usize| Path {
            classes: diff.shown(path, names).into_iter().map(str::to_owned).collect(),
            sums: Sums::of(diff.change(path)),
        };
        Self {
            before: side(before),
            after: side(after),
            classes: changed.into_iter().map(class).collect(),
            other_classes,
            paths: diff.grown(paths).into_iter().map(path).collect(),
        }
    }

    /// Writes tables for a terminal.
    ///
    /// # Errors
    /// Those of `writer`.
    pub fn write_text(&self, mut out: impl Write) -> io::Result<()> {
        writeln!(out, "From {} to {}", plain(&self.before.title), plain(&self.after.title))?;
        for (side, name) in [(&self.before, "first"), (&self.after, "second")] {
            if !side.whole {
                writeln!(out, "Warning: the {name} dump is not whole, so differences may be its losses.")?;
            }
        }
        let row = |out: &mut dyn Write, sums: &Sums, name: &str| {
            let [retained, shallow, objects] =
                [sums.retained_growth, sums.shallow_growth, sums.object_growth].map(signed);
            writeln!(out, "{retained:>18} {shallow:>18} {objects:>14}  {}", plain(name))
        };
        writeln!(out, "\n{:>18} {:>18} {:>14}  class", "retained", "shallow", "objects")?;
        for class in &self.classes {
            let assembly = if class.assembly.is_empty() { String::new() } else { format!("  [{}]", class.assembly) };
            row(&mut out, &class.sums, &format!("{}{assembly}", class.name))?;
        }
        if self.other_classes > 0 {
            writeln!(out, "and {} more classes have changed", grouped(self.other_classes))?;
        }
        writeln!(out, "\n{:>18} {:>18} {:>14}  what has grown, by who keeps it", "retained", "shallow", "objects")?;
        for path in &self.paths {
            row(&mut out, &path.sums, &path.classes.join(" -> "))?;
        }
        out.flush()
    }

    /// Writes one JSON object, indented. The three numbers of `before` and `after` are objects, shallow and retained
    /// bytes.
    ///
    /// # Errors
    /// Those of `writer`.
    pub fn write_json(&self, mut writer: impl Write) -> io::Result<()> {
        serde_json::to_writer_pretty(&mut writer, self)?;
        writer.write_all(b"\n")
    }
}

/// A number with its sign.
fn signed(number: i64) -> String {
    let sign = match number {
        0 => "",
        1.. => "+",
        _ => "-",
    };
    format!("{sign}{}", grouped(number.unsigned_abs()))
}

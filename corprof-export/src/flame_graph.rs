//! Flame graphs as one drawing that needs no script: SVG, roots on top.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::fmt::Write as _;
use std::io::{self, Write};

use crate::caption::{Caption, thousands};
use crate::names::{Names, clipped};
use crate::view::{Item, Look, Node, View, looks, visible};
use crate::{FrameKind, Profile, Unit};

const WIDTH: f64 = 1200.0;
const MARGIN: f64 = 10.0;
const ROW: f64 = 18.0;
/// Of one character of the labels' monospaced font, at 11.5 pixels.
const LETTER: f64 = 6.92;
/// Boxes narrower than this are not drawn.
const NARROWEST: f64 = 0.25;
/// Characters of a caption's line.
const LINE: usize = 165;

const STYLE: &str = include_str!("flame_graph.css");

/// The kinds as the legend says them, with their class.
pub(crate) const LEGEND: [(&str, &str); 5] = [
    ("user", "your code"),
    ("framework", "framework"),
    ("native", "runtime and native"),
    ("wait", "waits"),
    ("generated", "generated"),
];

/// The class of a kind, in the drawing and in the page.
pub(crate) const fn class(kind: FrameKind) -> usize {
    match kind {
        FrameKind::Managed | FrameKind::User => 0,
        FrameKind::Framework => 1,
        FrameKind::Native | FrameKind::Runtime => 2,
        FrameKind::Wait => 3,
        FrameKind::Generated => 4,
    }
}

pub(crate) fn write(profile: &Profile, mut writer: impl Write) -> io::Result<()> {
    let looks = looks(profile);
    let view = View::new(profile, &looks);
    writer.write_all(
        Drawing { profile, names: Names::of(profile), looks: &looks, view: &view, svg: String::new() }
            .whole()
            .as_bytes(),
    )?;
    writer.flush()
}

struct Drawing<'a> {
    profile: &'a Profile,
    names: Names<'a>,
    looks: &'a [Look],
    view: &'a View,
    svg: String,
}

impl<'a> Drawing<'a> {
    fn whole(mut self) -> String {
        let mut y = 28.0;
        self.text("title", MARGIN, y, &self.profile.name);
        let caption = Caption::new(self.profile);
        let mut lines = vec![("facts", caption.facts.join(" · "))];
        lines.extend(caption.warnings.into_iter().map(|warning| ("warning", warning)));
        lines.extend(caption.notes.into_iter().map(|note| ("note", note)));
        if self.profile.is_only_my_code {
            lines.push(("note", "Only your code: frameworks are folded into the call that leads into them".to_owned()));
        }
        if self.view.idle > 0 {
            let share = self.view.idle_share() * 100.0;
            lines.push((
                "note",
                format!("Left out: threads of runtime and framework that wait, {share:.0}% of the samples' weight"),
            ));
        }
        for (class, line) in lines {
            for part in wrapped(&line) {
                y += 18.0;
                self.text(class, MARGIN, y, &part);
            }
        }
        y += 12.0;
        self.legend(y);
        let top = y + 26.0;
        let deepest = self.boxes(top);
        if self.view.total == 0 {
            self.text("facts", MARGIN, top + ROW, "No samples");
        }
        let height = top + f64::from(deepest + 1) * ROW + MARGIN;
        let title = escaped(&self.profile.name);
        format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" \
             height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"Profile of {title}\">\n\
             <style>{STYLE}</style>\n<rect class=\"paper\" width=\"100%\" height=\"100%\"/>\n{}</svg>\n",
            self.svg
        )
    }

    fn text(&mut self, class: &str, x: f64, y: f64, text: &str) {
        let text = escaped(text);
        let _ = writeln!(self.svg, "<text class=\"{class}\" x=\"{x}\" y=\"{y}\">{text}</text>");
    }

    fn legend(&mut self, y: f64) {
        let mut x = MARGIN;
        for (class, words) in LEGEND {
            let _ =
                writeln!(self.svg, "<rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"12\" height=\"12\" rx=\"2\"/>");
            self.text("note", x + 17.0, y + 10.5, words);
            x += 34.0 + words.len() as f64 * 7.0;
        }
    }

    /// Draws all boxes below `top`; the answer is the level of the deepest.
    fn boxes(&mut self, top: f64) -> u32 {
        let total = self.view.total;
        if total == 0 {
            return 1;
        }
        let width = WIDTH - 2.0 * MARGIN;
        self.one([MARGIN, top, width], total, "root", ["all"; 3], "all");
        // Siblings by weight, then by name: the widest is on the left, and the same profile makes the same picture.
        let nodes = &self.view.nodes;
        let mut order: Vec<usize> = (0..nodes.len()).collect();
        let key = |index: &usize| {
            let key =
                |node: &Node| (node.caller, node.item == Item::OtherCode, Reverse(node.total), self.label(node.item));
            nodes.get(*index).map(key)
        };
        order.sort_by_cached_key(key);
        let mut starts = vec![f64::NAN; nodes.len()];
        let mut next = vec![f64::NAN; nodes.len()];
        let mut root = MARGIN;
        let mut deepest = 0;
        // A caller's number is less than its callees', and sorting keeps callers apart: so the caller is placed first.
        for index in order {
            let Some(node) = nodes.get(index) else { continue };
            let wide = node.total as f64 / total as f64 * width;
            let place = match node.caller {
                Some(caller) => next.get_mut(caller),
                None => Some(&mut root),
            };
            let Some(place) = place else { continue };
            let x = *place;
            *place += wide;
            if let (Some(start), Some(next)) = (starts.get_mut(index), next.get_mut(index)) {
                (*start, *next) = (x, x);
            }
            if wide >= NARROWEST {
                deepest = deepest.max(node.depth + 1);
                let y = top + f64::from(node.depth + 1) * ROW;
                let (class, name) = match node.item {
                    Item::Frame(frame) => {
                        let kind = self.looks.get(frame.0 as usize).map_or(FrameKind::Native, |look| look.kind);
                        (LEGEND.get(class(kind)).map_or("", |(class, _)| class), self.names.name(frame))
                    }
                    _ => ("other", Cow::Borrowed("")),
                };
                let label = self.label(node.item);
                let labels = match node.item {
                    Item::Frame(frame) => self.looks.get(frame.0 as usize).map(|look| &look.shorter),
                    _ => None,
                };
                let labels = labels.map_or([label; 3], |[brief, method]| [label, brief, method]);
                self.one([x, y, wide], node.total, class, labels, if name.trim().is_empty() { label } else { &name });
            }
        }
        deepest
    }

    fn label(&self, item: Item) -> &'a str {
        match item {
            Item::Frame(frame) => self.looks.get(frame.0 as usize).map_or("", |look| &look.label),
            Item::NoFrames => "[no frames]",
            Item::OtherCode => "[no code of yours]",
            Item::Deeper => "[deeper]",
        }
    }

    /// Draws a box, with the longest of its labels that fits, else with the beginning of the shortest.
    fn one(&mut self, [x, y, wide]: [f64; 3], weight: u128, class: &str, labels: [&str; 3], name: &str) {
        let percent = weight as f64 / self.view.total as f64 * 100.0;
        let weight = weight_text(self.profile.unit, weight);
        let _ = write!(
            self.svg,
            "<g><title>{} ({weight}, {percent:.2}%)</title><rect class=\"{class}\" x=\"{x:.2}\" y=\"{y}\" width=\"{:.2}\" \
             height=\"{}\" rx=\"1.5\"/>",
            escaped(clipped(name)),
            (wide - 0.6).max(0.2),
            ROW - 1.0
        );
        let labels = labels.map(visible);
        let fitting = labels.iter().find(|label| cut(label, wide - 6.0).as_ref() == Some(*label)).cloned();
        let [.., shortest] = &labels;
        if let Some(label) = fitting.or_else(|| cut(shortest, wide - 6.0)) {
            let _ = write!(self.svg, "<text x=\"{:.2}\" y=\"{}\">{}</text>", x + 3.0, y + 12.5, escaped(&label));
        }
        self.svg.push_str("</g>\n");
    }
}

/// A weight with its unit.
fn weight_text(unit: Unit, weight: u128) -> String {
    let number = |weight: u128| thousands(u64::try_from(weight).unwrap_or(u64::MAX));
    match unit {
        Unit::Samples => format!("{} samples", number(weight)),
        Unit::Nanoseconds => format!("{} µs", number(weight / 1_000)),
        Unit::Bytes => format!("{} bytes", number(weight)),
    }
}

/// As much of a label as fits, from its beginning; none if that says nothing.
fn cut(label: &str, width: f64) -> Option<String> {
    // Characters of the Far East take twice the room.
    let room = |c: char| if c >= '\u{1100}' && !('\u{2000}'..='\u{2e7f}').contains(&c) { LETTER * 2.0 } else { LETTER };
    let mut used = 0.0;
    let mut end = 0;
    for (at, c) in label.char_indices() {
        used += room(c);
        if used > width + 0.01 {
            let kept = label.get(..end).unwrap_or_default();
            return (kept.chars().count() >= 2).then(|| format!("{kept}…"));
        }
        // Room for the ellipsis, should the next one not fit.
        if used + LETTER <= width + 0.01 {
            end = at + c.len_utf8();
        }
    }
    Some(label.to_owned())
}

/// A text in lines that are not too long, broken between words.
fn wrapped(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = vec![String::new()];
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.is_empty() || line.chars().count() + word.chars().count() < LINE => {
                if !line.is_empty() {
                    line.push(' ');
                }
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Text as text of an HTML or XML document, or as an attribute between double quotes. Characters that cannot be seen,
/// and those that turn the direction of text, are replaced.
///
/// ```
/// assert_eq!(corprof_export::escaped("List<int>"), "List&lt;int&gt;");
/// ```
#[must_use]
pub fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in visible(text).chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_cut_on_the_right() {
        assert_eq!(cut("Catalogue.Totals", 200.0).as_deref(), Some("Catalogue.Totals"));
        assert_eq!(cut("Catalogue.Totals", LETTER * 16.0).as_deref(), Some("Catalogue.Totals"));
        assert_eq!(cut("Catalogue.Totals", LETTER * 10.5).as_deref(), Some("Catalogue…"));
        assert_eq!(cut("Catalogue.Totals", LETTER * 2.0), None);
        assert_eq!(cut("日本語.メソッド", LETTER * 7.5).as_deref(), Some("日本語…"));
    }
}

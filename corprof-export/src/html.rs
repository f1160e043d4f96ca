//! The page: one HTML file with an interactive flame graph and a table of methods, which asks nothing of the network.
//!
//! `html/model.js` computes the view in the browser from sums by thread and stack; `html/page.js` draws it.
//! `html/moments.js` has the moments of a profile, if it tells them, and sums the stacks of those that are selected: in
//! a heat map, which `html/heat.js` draws, or in a timeline, which `html/timeline.js` draws. `html/slow.js` lists slow
//! calls.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::time::SystemTime;

use indexmap::IndexSet;
use rustc_hash::{FxBuildHasher, FxHashMap};
use serde::Serialize;

use crate::about::Mode;
use crate::caption::Caption;
use crate::flame_graph::{class, escaped};
use crate::heat::Packed;
use crate::names::Names;
use crate::profile::nanoseconds;
use crate::slow_call_table::{COLUMNS, Row};
use crate::table::Table;
use crate::view::looks;
use crate::{FrameId, Profile, SlowCall, SlowCalls, SlowStack, StackId, Unit, profile};

const PAGE: &str = include_str!("html/page.html");
const TABLE_STYLE: &str = include_str!("html/table.css");
/// Only pages with a heat map or a timeline have these.
const MOMENTS: &str = include_str!("html/moments.html");
const MOMENTS_STYLE: &str = include_str!("html/moments.css");
const MOMENTS_SCRIPT: &str = include_str!("html/moments.js");
const HEAT_SCRIPT: &str = include_str!("html/heat.js");
const TIMELINE_SCRIPT: &str = include_str!("html/timeline.js");
/// Only pages with slow calls have these.
const SLOW: &str = include_str!("html/slow.html");
const SLOW_STYLE: &str = include_str!("html/slow.css");
const SLOW_SCRIPT: &str = include_str!("html/slow.js");
/// The replacements for the placeholders of the page, in this order.
const PARTS: [(&str, &str); 10] = [
    ("{{title}}", ""),
    ("{{style}}", include_str!("html/page.css")),
    ("{{table}}", ""),
    ("{{moments}}", ""),
    ("{{slow}}", ""),
    ("{{data}}", ""),
    ("{{model}}", include_str!("html/model.js")),
    ("{{moments_script}}", ""),
    ("{{slow_script}}", ""),
    ("{{script}}", include_str!("html/page.js")),
];

pub(crate) fn write(profile: &Profile, mut writer: impl Write) -> io::Result<()> {
    let mut rest = PAGE;
    for (place, content) in PARTS {
        let Some((before, after)) = rest.split_once(place) else { continue };
        writer.write_all(before.as_bytes())?;
        match place {
            "{{title}}" => writer.write_all(escaped(&profile.name).as_bytes())?,
            "{{table}}" => {
                let table = profile.about.table.as_ref().map(table_html);
                writer.write_all(table.unwrap_or_default().as_bytes())?;
            }
            "{{moments}}" if profile.about.heat.is_some() => {
                write!(writer, "<style>\n{MOMENTS_STYLE}</style>\n{MOMENTS}")?;
            }
            "{{moments_script}}" => {
                if let Some(map) = &profile.about.heat {
                    let drawing = if map.is_timeline() { TIMELINE_SCRIPT } else { HEAT_SCRIPT };
                    write!(writer, "<script>\n{MOMENTS_SCRIPT}</script>\n<script>\n{drawing}</script>")?;
                }
            }
            "{{slow}}" if profile.about.slow_calls.is_some() => {
                write!(writer, "<style>\n{SLOW_STYLE}</style>\n{SLOW}")?;
            }
            "{{slow_script}}" if profile.about.slow_calls.is_some() => {
                write!(writer, "<script>\n{SLOW_SCRIPT}</script>")?;
            }
            "{{data}}" => {
                let json = serde_json::to_string(&Data::new(profile))?;
                InScript(&mut writer).write_all(json.as_bytes())?;
            }
            _ => writer.write_all(content.as_bytes())?,
        }
        rest = after;
    }
    writer.write_all(rest.as_bytes())?;
    writer.flush()
}

/// Writes JSON so that nothing in it can end the script element or be markup: the characters in question stand in
/// texts only, where JSON has another way to write them.
struct InScript<W>(W);

impl<W: Write> Write for InScript<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut start = 0;
        for (at, byte) in bytes.iter().enumerate() {
            let escape = match byte {
                b'<' => "\\u003c",
                b'>' => "\\u003e",
                b'&' => "\\u0026",
                _ => continue,
            };
            self.0.write_all(bytes.get(start..at).unwrap_or_default())?;
            self.0.write_all(escape.as_bytes())?;
            start = at + 1;
        }
        self.0.write_all(bytes.get(start..).unwrap_or_default())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// The data of the page. Columns are smaller than rows.
#[derive(Serialize)]
struct Data<'a> {
    about: About<'a>,
    texts: IndexSet<Box<str>, FxBuildHasher>,
    frames: Frames,
    stacks: Stacks,
    threads: Vec<Thread>,
    lines: Lines,
    /// With it, the stacks are in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    heat: Option<Packed<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    slow: Option<Slow>,
}

/// The slow calls.
#[derive(Serialize)]
struct Slow {
    summary: String,
    columns: [&'static str; 6],
    calls: Vec<OneSlow>,
}

/// A slow call: its row of the table, and what its flame graph is of, as of a thread.
#[derive(Serialize)]
struct OneSlow {
    cells: [String; 6],
    call: String,
    method: String,
    mostly: String,
    stack: Vec<i64>,
    weight: Vec<u64>,
}

#[derive(Serialize)]
struct About<'a> {
    name: &'a str,
    exporter: &'static str,
    /// `samples`, `nanoseconds` or `bytes`.
    unit: &'static str,
    facts: Vec<String>,
    warnings: Vec<String>,
    notes: Vec<String>,
    /// Milliseconds since 1970.
    started: Option<u64>,
    /// Whether threads that only wait are shown at first.
    #[serde(rename = "showsIdle")]
    shows_idle: bool,
    #[serde(rename = "onlyMine")]
    only_mine: bool,
}

/// Columns of texts' numbers; -1 is none.
#[derive(Serialize, Default)]
struct Frames {
    label: Vec<i64>,
    /// The label where there is less room.
    brief: Vec<i64>,
    /// And where there is hardly any.
    method: Vec<i64>,
    name: Vec<i64>,
    module: Vec<i64>,
    file: Vec<i64>,
    line: Vec<u32>,
    kind: Vec<usize>,
    /// Numbers of changes, and words about them. Empty if nothing is compared.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    change: Vec<u8>,
    #[serde(rename = "changeWords", skip_serializing_if = "Vec::is_empty")]
    change_words: Vec<i64>,
}

/// Those that were seen, with their callers, which come first; -1 is none.
#[derive(Serialize, Default)]
struct Stacks {
    caller: Vec<i64>,
    frame: Vec<u32>,
}

/// Lines of methods, by frame.
#[derive(Serialize, Default)]
struct Lines {
    frame: Vec<u32>,
    file: Vec<i64>,
    line: Vec<u32>,
    own: Vec<u64>,
    total: Vec<u64>,
}

#[derive(Serialize)]
struct Thread {
    title: String,
    /// Whether the application, or the runtime, has given it a name.
    #[serde(rename = "isNamed")]
    is_named: bool,
    id: u32,
    stack: Vec<i64>,
    weight: Vec<u64>,
}

impl<'a> Data<'a> {
    fn new(profile: &'a Profile) -> Self {
        let caption = Caption::new(profile);
        let about = About {
            name: &profile.name,
            exporter: concat!("corprof-export ", env!("CARGO_PKG_VERSION")),
            unit: match profile.unit {
                Unit::Samples => "samples",
                Unit::Nanoseconds => "nanoseconds",
                Unit::Bytes => "bytes",
            },
            facts: caption.facts,
            warnings: caption.warnings,
            notes: caption.notes,
            started: profile
                .started
                .and_then(|started| started.duration_since(SystemTime::UNIX_EPOCH).ok())
                .map(|since| nanoseconds(since) / 1_000_000),
            shows_idle: profile.about.mode != Some(Mode::Wall),
            only_mine: profile.is_only_my_code,
        };
        let mut data = Self {
            about,
            texts: IndexSet::default(),
            frames: Frames::default(),
            stacks: Stacks::default(),
            threads: Vec::new(),
            lines: Lines::default(),
            heat: None,
            slow: None,
        };
        let numbers = data.stacks(profile);
        data.frames(profile);
        data.lines(profile);
        data.threads = profile.threads.iter().map(|thread| of_thread(profile, thread, &numbers)).collect();
        data.slow = profile.about.slow_calls.as_ref().map(|calls| slow_calls(profile, calls, &numbers));
        if let Some(map) = &profile.about.heat {
            let stacks = std::mem::take(&mut data.stacks);
            data.heat = Some(map.packed(&stacks.caller, &stacks.frame, &numbers));
        }
        data
    }

    /// Adds the stacks that were seen, and returns their new numbers.
    fn stacks(&mut self, profile: &Profile) -> FxHashMap<StackId, i64> {
        let mut is_seen = vec![false; profile.stacks.len()];
        let of_threads = profile.threads.iter().flat_map(|thread| &thread.samples).map(|sample| sample.stack);
        let slowest = profile.about.slow_calls.iter().flat_map(|calls| &calls.slowest);
        let of_slow = slowest.flat_map(|call| &call.stacks).map(|stack| stack.stack);
        for stack in of_threads.chain(of_slow) {
            if let Some(is_seen) = is_seen.get_mut(stack.0 as usize) {
                *is_seen = true;
            }
        }
        for index in (0..is_seen.len()).rev() {
            let caller = profile.stacks.get_index(index).map(|&(caller, _)| caller.0 as usize);
            if is_seen.get(index) == Some(&true)
                && let Some(is_seen) = caller.and_then(|caller| is_seen.get_mut(caller))
            {
                *is_seen = true;
            }
        }
        let mut numbers = FxHashMap::default();
        for (stack, (&(caller, frame), is_seen)) in (0u32..).map(StackId).zip(profile.stacks.iter().zip(is_seen)) {
            if is_seen {
                numbers.insert(stack, self.stacks.frame.len() as i64);
                self.stacks.caller.push(numbers.get(&caller).copied().unwrap_or(-1));
                self.stacks.frame.push(frame.0);
            }
        }
        numbers
    }

    fn frames(&mut self, profile: &Profile) {
        let names = Names::of(profile);
        for (id, look) in (0u32..).map(FrameId).zip(looks(profile)) {
            let frame = profile.frame_of(id);
            let [brief, method] = &look.shorter;
            let columns = [
                self.text(Some(&look.label)),
                self.text(Some(brief)),
                self.text(Some(method)),
                self.text(Some(&names.name(id))),
                self.text(frame.module),
                self.text(frame.file),
            ];
            let table = &mut self.frames;
            let into = [
                &mut table.label,
                &mut table.brief,
                &mut table.method,
                &mut table.name,
                &mut table.module,
                &mut table.file,
            ];
            into.into_iter().zip(columns).for_each(|(column, text)| column.push(text));
            table.line.push(frame.line);
            table.kind.push(class(look.kind));
            if profile.about.changes.is_empty() {
                continue;
            }
            let change = profile.about.changes.get(&id);
            let words = self.text(change.map(|(_, words)| words.as_str()));
            self.frames.change.push(change.map_or(0, |(change, _)| change.number()));
            self.frames.change_words.push(words);
        }
    }

    fn lines(&mut self, profile: &Profile) {
        let mut lines: Vec<_> = profile.lines.iter().collect();
        lines.sort_unstable_by_key(|(place, _)| **place);
        for (&(frame, file, line), weight) in lines {
            let file = self.text(profile.texts.get_index(file as usize).map(|text| &**text));
            let table = &mut self.lines;
            table.frame.push(frame.0);
            table.file.push(file);
            table.line.push(line);
            table.own.push(weight.own);
            table.total.push(weight.total);
        }
    }

    fn text(&mut self, text: Option<&str>) -> i64 {
        let Some(text) = text else { return -1 };
        let known = self.texts.get_index_of(text);
        known.unwrap_or_else(|| self.texts.insert_full(text.into()).0) as i64
    }
}

fn of_thread(profile: &Profile, thread: &profile::Thread, numbers: &FxHashMap<StackId, i64>) -> Thread {
    let mut sums: FxHashMap<i64, u64> = FxHashMap::default();
    for sample in &thread.samples {
        let stack = numbers.get(&sample.stack).copied().unwrap_or(-1);
        let sum = sums.entry(stack).or_default();
        *sum = sum.saturating_add(sample.weight);
    }
    let mut sums: Vec<_> = sums.into_iter().filter(|(_, weight)| *weight > 0).collect();
    sums.sort_unstable();
    let (stack, weight) = sums.into_iter().unzip();
    let title = thread.title(profile.process);
    Thread { title, is_named: !thread.name.is_empty(), id: thread.id, stack, weight }
}

fn slow_calls(profile: &Profile, calls: &SlowCalls, numbers: &FxHashMap<StackId, i64>) -> Slow {
    let rows = profile.slow_call_rows(calls);
    let one = |(call, row): (&SlowCall, Row)| {
        let Row { cells, call: text, method, mostly } = row;
        let number = |stack: &SlowStack| (numbers.get(&stack.stack).copied().unwrap_or(-1), stack.weight);
        let (stack, weight) = call.stacks.iter().map(number).unzip();
        OneSlow { cells, call: text, method, mostly, stack, weight }
    };
    let calls_of_page = calls.slowest.iter().zip(rows).map(one).collect();
    Slow { summary: calls.summary(), columns: COLUMNS, calls: calls_of_page }
}

/// The table as part of the page, with how it looks, so that other pages do not have it.
fn table_html(table: &Table) -> String {
    let mut out = format!("<style>\n{TABLE_STYLE}");
    for column in table.columns_of_text() {
        let column = column + 1;
        let _ = writeln!(
            out,
            "#table :is(th, td):nth-child({column}) {{ text-align: left; white-space: normal; overflow-wrap: anywhere; \
             min-width: 26ch }}"
        );
    }
    let _ = write!(out, "</style>\n<details id=\"table\" open><summary>{}", escaped(&table.title));
    out.push_str("</summary><div><table><thead>");
    table_line(&mut out, "th", &table.columns);
    out.push_str("</thead><tbody>\n");
    table.rows.iter().for_each(|row| table_line(&mut out, "td", row));
    out.push_str("</tbody></table></div></details>");
    out
}

fn table_line(out: &mut String, tag: &str, cells: &[String]) {
    out.push_str("<tr>");
    for cell in cells {
        let _ = write!(out, "<{tag}>{}</{tag}>", escaped(cell)); // a String takes all
    }
    out.push_str("</tr>\n");
}

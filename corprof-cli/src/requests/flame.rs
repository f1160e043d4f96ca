//! Flame graphs of what requests did: their time by the methods that ran or waited, from the outermost one inwards.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use corprof_async::Chain;
use corprof_export::escaped;

use super::endpoints::Sums;
use super::timeline::{Does, Part};
use crate::async_trace::{Names, Traced};

/// The most rows of a graph.
const MOST_ROWS: usize = 80;
/// The least share of the whole that a box has, and that of one with a text.
const LEAST_BOX: f64 = 0.001;
const LEAST_TEXT: f64 = 0.03;

/// The time of some requests.
#[derive(Default)]
pub(super) struct Flame {
    /// How many requests. All times are shown as means of one.
    requests: u64,
    whole: Node,
}

/// A method, with those that it awaits.
#[derive(Default)]
struct Node {
    ticks: u64,
    /// The style of its box.
    class: &'static str,
    children: BTreeMap<String, Node>,
}

/// A box of a row, in shares of the whole.
struct Bar<'n> {
    from: f64,
    share: f64,
    name: &'n str,
    class: &'static str,
}

impl Flame {
    /// That of all requests of an endpoint.
    pub(super) fn of_endpoint(names: &mut Names<'_>, sums: &Sums) -> Self {
        let mut flame = Self { requests: sums.times.count(), ..Self::default() };
        for (chains, time) in &sums.runs {
            flame.add(names, chains, Does::Runs, *time);
        }
        for (chains, sums) in &sums.waits {
            flame.add(names, chains, Does::Waits, sums.waiting);
            flame.add(names, chains, Does::Queued, sums.queued);
        }
        flame.fill(sums.times.sum());
        flame
    }

    /// That of single requests, by their parts.
    pub(super) fn of_requests<'p>(names: &mut Names<'_>, requests: impl Iterator<Item = &'p [Part]>) -> Self {
        let mut flame = Self::default();
        let mut all = 0;
        for part in requests.inspect(|_| flame.requests += 1).flatten().collect::<Vec<_>>() {
            all += part.length();
            if part.does != Does::Nothing {
                flame.add(names, &part.chains, part.does, part.length());
            }
        }
        flame.fill(all);
        flame
    }

    /// Adds a time by the chain that counts of these.
    fn add(&mut self, names: &mut Names<'_>, chains: &[Chain], does: Does, ticks: u64) {
        if ticks == 0 {
            return;
        }
        self.whole.ticks += ticks;
        let mut node = &mut self.whole;
        if let Some(chain) = names.counting(chains) {
            for frame in chain.iter().rev().filter(|frame| frame.address != 0) {
                let class = if names.is_mine(frame.address) { "mine" } else { "framework" };
                node = node.child(names.label(frame.address), class, ticks);
            }
        }
        node.child(does.name().to_owned(), does.name(), ticks);
    }

    /// The rest of a sum of times is that of which nothing is told.
    fn fill(&mut self, all: u64) {
        let rest = all.saturating_sub(self.whole.ticks);
        if rest > 0 {
            self.whole.ticks += rest;
            self.whole.child(Does::Nothing.name().to_owned(), Does::Nothing.name(), rest);
        }
    }

    /// Writes it, with a title.
    pub(super) fn write(&self, out: &mut String, traced: &Traced, title: &str) -> anyhow::Result<()> {
        if self.whole.ticks == 0 {
            return Ok(());
        }
        let mean = traced.milliseconds(self.whole.ticks) / self.requests.max(1) as f64;
        writeln!(out, "<p>{}</p>\n<div class=\"flame\">", escaped(title))?;
        let mut rows: Vec<Vec<Bar<'_>>> = Vec::new();
        self.whole.place(&mut rows, 0, 0.0, self.whole.ticks as f64);
        for row in rows {
            write!(out, "<div class=\"row\">")?;
            for Bar { from, share, name, class } in row {
                let name = escaped(name);
                let (shown, thin) = if share >= LEAST_TEXT { (&name[..], "") } else { ("", " thin") };
                write!(
                    out,
                    "<i class=\"{class}{thin}\" style=\"left:{:.3}%;width:{:.3}%\" title=\"{name}: {:.2} ms, {:.1} %\">\
                     {shown}</i>",
                    100.0 * from,
                    100.0 * share,
                    mean * share,
                    100.0 * share
                )?;
            }
            writeln!(out, "</div>")?;
        }
        writeln!(out, "</div>")?;
        Ok(())
    }
}

impl Node {
    fn child(&mut self, name: String, class: &'static str, ticks: u64) -> &mut Self {
        let child = self.children.entry(name).or_default();
        child.class = class;
        child.ticks += ticks;
        child
    }

    /// Places the boxes of its children, the longest first.
    fn place<'n>(&'n self, rows: &mut Vec<Vec<Bar<'n>>>, depth: usize, from: f64, whole: f64) {
        let mut children: Vec<_> = self.children.iter().collect();
        children.sort_by_key(|(_, child)| std::cmp::Reverse(child.ticks));
        let mut from = from;
        for (name, child) in children {
            let share = child.ticks as f64 / whole;
            if share < LEAST_BOX || depth >= MOST_ROWS {
                break;
            }
            if rows.len() <= depth {
                rows.push(Vec::new());
            }
            rows[depth].push(Bar { from, share, name, class: child.class });
            child.place(rows, depth + 1, from, whole);
            from += share;
        }
    }
}

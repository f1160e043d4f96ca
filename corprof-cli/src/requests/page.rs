//! The page of requests: flame graphs of the endpoints, and the slow requests, each as a waterfall of what its
//! operations did and what it called. It has no script, and asks nothing of the network.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use corprof_async::Call;
use corprof_export::escaped;

use super::endpoints::{FinishedRequests, Slow};
use super::flame::Flame;
use super::timeline::{Part, parts_of};
use super::{Endpoint, Report, Slowest, UNTOLD_PARTS, optional};
use crate::async_trace::{Names, Traced};
use crate::exit::{self, Failure};

const STYLE: &str = include_str!("page.css");
/// What the colours mean: classes of the style, and texts.
const LEGEND: [(&str, &str); 5] = [
    ("runs", "runs"),
    ("waits", "waits"),
    ("queued", "queued in the thread pool"),
    ("call", "activities within"),
    ("unknown", "not told"),
];
/// The same of flame graphs.
const FLAME_LEGEND: [(&str, &str); 6] = [
    ("mine", "a method of the application, which awaits those below"),
    ("framework", "one of a framework"),
    ("runs", "runs"),
    ("waits", "waits"),
    ("queued", "queued in the thread pool"),
    ("unknown", "not told"),
];
/// The most endpoints with flame graphs.
const MOST_FLAMES: usize = 50;
/// The most operations and the most activities of a request that have a lane.
const MOST_LANES: usize = 40;
/// The most bars of a lane.
const MOST_BARS: usize = 500;
/// The least share of a request that an operation with a lane has.
const LEAST_LANE: f64 = 0.005;
/// The least share that has room for a text.
const LEAST_TEXT: f64 = 0.04;

/// The file of a page.
pub(super) struct Page(PathBuf);

/// A bar of a lane, in milliseconds from the beginning of the request on.
struct Bar {
    at: f64,
    ms: f64,
    class: &'static str,
    /// What stands in it.
    label: String,
    /// What the pointer shows of it.
    text: String,
}

impl Page {
    /// What hinders to write it is told now, as far as that can be known.
    pub(super) fn new(path: &Path) -> Result<Self, Failure> {
        let is_page = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("html"));
        if !is_page {
            let problem = anyhow!("{} is not a page: give it the extension .html", path.display());
            return Err(Failure::new(exit::USAGE, problem));
        }
        if !folder(path).is_dir() {
            let problem = anyhow!("cannot write {}: there is no folder {}", path.display(), folder(path).display());
            return Err(Failure::new(exit::USAGE, problem));
        }
        Ok(Self(path.to_owned()))
    }

    pub(super) fn write(
        self,
        traced: &Traced,
        names: &mut Names<'_>,
        report: &Report,
        finished: &FinishedRequests,
    ) -> anyhow::Result<()> {
        let text = text(traced, names, report, finished)?;
        let failed = || format!("cannot write {}", self.0.display());
        // A page that is there stays until this one is whole.
        let made = tempfile::Builder::new().make_in(folder(&self.0), |path| File::create_new(path));
        let mut file = made.with_context(failed)?;
        file.write_all(text.as_bytes()).with_context(failed)?;
        file.persist(&self.0).map_err(|error| error.error).with_context(failed)?;
        eprintln!("corprof: {} is written", self.0.display());
        Ok(())
    }
}

fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn text(
    traced: &Traced,
    names: &mut Names<'_>,
    report: &Report,
    finished: &FinishedRequests,
) -> anyhow::Result<String> {
    let mut out = String::new();
    let title = escaped(&report.title);
    write!(
        out,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <title>{title} – requests</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n\
         <p>{} requests in {:.1} s, by corprof {}</p>\n",
        report.requests,
        report.seconds,
        env!("CARGO_PKG_VERSION")
    )?;
    endpoints(&mut out, &report.endpoints)?;
    if traced.tells_operations {
        all_flames(&mut out, traced, names, report, finished)?;
    } else {
        let sentence = UNTOLD_PARTS.replacen('w', "W", 1);
        writeln!(out, "<p>{sentence}.</p>")?;
    }
    write!(out, "<h2>The slowest</h2>\n<p class=\"legend\">")?;
    for (class, meaning) in LEGEND {
        write!(out, "<span><i class=\"{class}\"></i>{meaning}</span>")?;
    }
    writeln!(out, "</p>")?;
    for (number, (slow, shown)) in finished.slowest.iter().zip(&report.slowest).enumerate() {
        request(&mut out, traced, names, slow, shown, number == 0)?;
    }
    write!(out, "</body>\n</html>\n")?;
    Ok(out)
}

fn all_flames(
    out: &mut String,
    traced: &Traced,
    names: &mut Names<'_>,
    report: &Report,
    finished: &FinishedRequests,
) -> anyhow::Result<()> {
    write!(out, "<h2>Flame graphs</h2>\n<p class=\"legend\">")?;
    for (class, meaning) in FLAME_LEGEND {
        write!(out, "<span><i class=\"{class}\"></i>{meaning}</span>")?;
    }
    writeln!(out, "</p>")?;
    for endpoint in report.endpoints.iter().take(MOST_FLAMES) {
        flames(out, traced, names, &endpoint.endpoint, finished)?;
    }
    Ok(())
}

fn endpoints(out: &mut String, endpoints: &[Endpoint]) -> anyhow::Result<()> {
    write!(out, "<h2>Endpoints</h2>\n<div class=\"table\"><table>\n<tr>")?;
    for head in ["requests", "mean ms", "p99 ms", "running", "waiting", "queued", "endpoint"] {
        write!(out, "<th>{head}</th>")?;
    }
    writeln!(out, "</tr>")?;
    for endpoint in endpoints {
        let each = |ms: f64| super::each(endpoint, ms);
        let Endpoint { requests, mean_ms, p99_ms, running_ms, waiting_ms, queued_ms, .. } = endpoint;
        write!(out, "<tr><td>{requests}</td><td>{mean_ms:.2}</td><td>{p99_ms:.2}</td>")?;
        for part in [running_ms, waiting_ms, queued_ms] {
            write!(out, "<td>{}</td>", optional(part.map(each)))?;
        }
        writeln!(out, "<td>{}</td></tr>", escaped(&endpoint.endpoint))?;
        for wait in super::shown(endpoint) {
            let [waiting, queued] = [optional(Some(each(wait.ms))), optional(wait.queued_ms.map(each))];
            write!(out, "<tr class=\"place\"><td></td><td></td><td></td><td></td><td>{waiting}</td><td>{queued}</td>")?;
            writeln!(out, "<td>waits at {}</td></tr>", escaped(&wait.place.to_string()))?;
        }
        for call in super::shown_calls(endpoint) {
            write!(
                out,
                "<tr class=\"place\"><td></td><td>{:.2}</td><td></td><td></td><td></td><td></td>",
                each(call.ms)
            )?;
            writeln!(out, "<td>in {}</td></tr>", escaped(&call.call))?;
        }
    }
    writeln!(out, "</table></div>")?;
    Ok(())
}

/// What an endpoint's requests did, and the slowest of them.
fn flames(
    out: &mut String,
    traced: &Traced,
    names: &mut Names<'_>,
    endpoint: &str,
    finished: &FinishedRequests,
) -> anyhow::Result<()> {
    let Some(sums) = finished.sums.get(endpoint) else { return Ok(()) };
    writeln!(out, "<details class=\"endpoint\"><summary>{}</summary>", escaped(endpoint))?;
    let count = sums.times.count();
    let mean = traced.milliseconds(sums.times.mean());
    Flame::of_endpoint(names, sums).write(out, traced, &format!("All {count} requests, {mean:.2} ms each"))?;
    let slowest = sums.slowest();
    let sum: u64 = slowest.iter().map(|(length, _)| length).sum();
    let mean = traced.milliseconds(sum) / slowest.len().max(1) as f64;
    let share = 100.0 * slowest.len() as f64 / count.max(1) as f64;
    let title = format!("The slowest {} ({share:.1} %), {mean:.2} ms each", slowest.len());
    Flame::of_requests(names, slowest.iter().map(|(_, parts)| &parts[..])).write(out, traced, &title)?;
    writeln!(out, "</details>")?;
    Ok(())
}

/// One request, with a lane for the whole, for each of its operations, and for each activity within.
fn request(
    out: &mut String,
    traced: &Traced,
    names: &mut Names<'_>,
    slow: &Slow,
    shown: &Slowest,
    is_open: bool,
) -> anyhow::Result<()> {
    let whole = shown.ms;
    let open = if is_open { " open" } else { "" };
    writeln!(out, "<details{open}><summary>{} <small>{whole:.2} ms</small></summary>", escaped(&shown.endpoint))?;
    let ids = [("trace", &shown.trace_id), ("span", &shown.span_id)];
    let ids = ids.into_iter().filter_map(|(name, id)| Some(format!("{name} {}", id.as_ref()?)));
    writeln!(out, "<p class=\"ids\">{}</p>", ids.collect::<Vec<_>>().join(", "))?;
    write!(out, "<div class=\"lane\"><span></span><span class=\"scale\">")?;
    for share in [0.0, 0.25, 0.5, 0.75, 1.0] {
        write!(out, "<span>{:.2} ms</span>", share * whole)?;
    }
    writeln!(out, "</span></div>")?;
    let all = slow.parts.iter().map(|part| bar(traced, names, slow, part)).collect::<Vec<_>>();
    lane(out, "whole", "the request", whole, &all)?;
    let mut left_out = 0;
    let mut lanes = 0;
    for operation in &slow.request.operations {
        let parts = parts_of(&slow.request, operation);
        let length = parts.last().map_or(0, |last| last.to.saturating_sub(parts.first().map_or(0, |first| first.from)));
        if lanes >= MOST_LANES || traced.milliseconds(length) < LEAST_LANE * whole {
            left_out += 1;
            continue;
        }
        lanes += 1;
        let chain = parts.iter().find_map(|part| part.chains.first());
        let name = chain.and_then(|chain| names.outermost(chain)).unwrap_or_else(|| "[not told]".to_owned());
        let bars = parts.iter().map(|part| bar(traced, names, slow, part)).collect::<Vec<_>>();
        lane(out, "operation", &name, whole, &bars)?;
    }
    for call in slow.request.calls.iter().take(MOST_LANES) {
        let name =
            if call.activity.display_name.is_empty() { &call.activity.name } else { &call.activity.display_name };
        lane(out, "activity", name, whole, &[call_bar(traced, slow, call)])?;
    }
    left_out += slow.request.calls.len().saturating_sub(MOST_LANES) + usize::try_from(slow.request.left_out)?;
    if left_out > 0 {
        writeln!(out, "<p>{left_out} short operations or activities are not shown</p>")?;
    }
    if traced.tells_operations {
        let title = "The same by methods: each box is a method that awaits the one below it";
        Flame::of_requests(names, std::iter::once(&slow.parts[..])).write(out, traced, title)?;
    }
    writeln!(out, "</details>")?;
    Ok(())
}

fn bar(traced: &Traced, names: &mut Names<'_>, slow: &Slow, part: &Part) -> Bar {
    let at = traced.milliseconds(part.from.saturating_sub(slow.request.from));
    let ms = traced.milliseconds(part.length());
    let does = part.does.name();
    if part.chains.is_empty() {
        return Bar { at, ms, class: does, label: does.to_owned(), text: does.to_owned() };
    }
    let text = names.place_of(&part.chains).to_string();
    Bar { at, ms, class: does, label: names.label_of_place(&part.chains), text }
}

fn call_bar(traced: &Traced, slow: &Slow, call: &Call) -> Bar {
    let (from, to) = slow.time_of(call);
    let at = traced.milliseconds(from - slow.request.from);
    let span = call.activity.span_id;
    let text = format!("{} (span {span:016x})", call.activity.source);
    Bar { at, ms: traced.milliseconds(to - from), class: "call", label: text.clone(), text }
}

fn lane(out: &mut String, class: &str, name: &str, whole: f64, bars: &[Bar]) -> anyhow::Result<()> {
    let name = escaped(name);
    write!(out, "<div class=\"lane {class}\"><span title=\"{name}\">{name}</span><span class=\"track\">")?;
    let mut longest: Vec<&Bar> = bars.iter().collect();
    longest.sort_by(|a, b| b.ms.total_cmp(&a.ms));
    longest.truncate(MOST_BARS);
    longest.sort_by(|a, b| a.at.total_cmp(&b.at));
    let percent = |ms: f64| if whole > 0.0 { 100.0 * ms / whole } else { 0.0 };
    for Bar { at, ms, class, label, text } in longest {
        let has_room = *ms >= LEAST_TEXT * whole;
        let thin = if has_room { "" } else { " thin" };
        let text = escaped(text);
        let shown = if has_room { escaped(label) } else { String::new() };
        write!(
            out,
            "<i class=\"{class}{thin}\" style=\"left:{:.3}%;width:{:.3}%\" \
             title=\"{class}: {text}, +{at:.2} ms, {ms:.2} ms\">{shown}</i>",
            percent(*at),
            percent(*ms)
        )?;
    }
    writeln!(out, "</span></div>")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_page_in_a_folder_can_be_written() {
        let dir = tempfile::tempdir().unwrap();
        assert!(Page::new(&dir.path().join("a.HTML")).is_ok() && Page::new(Path::new("a.html")).is_ok());
        let wrong = Page::new(&dir.path().join("a.svg")).err().unwrap();
        assert!(wrong.code == exit::USAGE && wrong.error.to_string().contains(".html"));
        let nowhere = Page::new(&dir.path().join("no/a.html")).err().unwrap();
        assert!(nowhere.error.to_string().contains("there is no folder"), "{}", nowhere.error);
    }

    #[test]
    fn bars_are_at_their_times_and_texts_are_no_markup() {
        let bar = |at, ms, text: &str| Bar { at, ms, class: "waits", label: text.to_owned(), text: text.to_owned() };
        let mut out = String::new();
        lane(&mut out, "operation", "A<B>", 200.0, &[bar(150.0, 50.0, "x\"><script>"), bar(0.0, 1.0, "short")])
            .unwrap();
        assert!(out.contains("left:75.000%;width:25.000%") && out.contains(">x&quot;&gt;&lt;script&gt;</i>"), "{out}");
        assert!(out.contains("A&lt;B&gt;") && !out.contains("<script"), "{out}");
        let short = out.find("left:0.000%;width:0.500%").unwrap();
        assert!(
            short < out.find("left:75").unwrap() && out.contains("waits: short, +0.00 ms, 1.00 ms\"></i>"),
            "{out}"
        );
    }
}

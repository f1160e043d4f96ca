//! `corprof requests`: which requests are slow, and what they wait for.

mod endpoints;
mod flame;
mod page;
mod timeline;

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Result, anyhow};
use corprof_async::Call;
use serde::Serialize;

use self::endpoints::name_of;
use self::endpoints::{CallSums, Endpoints, FinishedRequests, Slow, Sums};
pub(crate) use self::endpoints::{endpoint_of, is_asked};
use self::page::Page;
use self::timeline::Does;
use crate::async_trace::{self, Listened, Names, Place, Sort, Traced};
use crate::exit::{Failure, Outcome};
use crate::output;

/// The places that the table shows of an endpoint, and the least share of the waiting time that one of them has.
const PLACES: usize = 3;
const LEAST_SHARE: f64 = 0.05;
/// From this share on, a line says what is in no column.
const LEAST_UNTOLD: f64 = 0.1;
const UNTOLD: &str = "before the session, or not told by an application that ended by itself (Ctrl-C has it told)";
/// The endpoints without --rows.
const ROWS: usize = 20;
/// The activities within a slow request that are printed.
const MOST_CALLS: usize = 20;
const UNTOLD_PARTS: &str = "what ran and what waited is not known: only .NET 11 and later tell of async operations";
/// The slow requests on a page.
const ON_PAGE: usize = 20;
/// The least share of a slow request that a line of its timeline has. The rest is summed up.
const LEAST_PART: f64 = 0.005;

/// Show which requests of a service are slow, and what they wait for.
///
/// Listens to the activities of a process (`System.Diagnostics.Activity`, which ASP.NET Core makes for each request)
/// and to its async operations, over the diagnostics port: nothing is attached. At the end it prints the requests by
/// endpoint, with the time in which they ran and in which they waited, where they waited, and the slowest ones with all
/// that they did. The same for a .nettrace that was recorded with these events.
///
/// Only .NET 11 and later tell of async operations. Before that, the requests, how long they took, and the activities
/// within, such as calls of other services, are told, but not what ran and what waited.
///
/// A request runs while a thread works for it. It waits while none does: for input and output, timers, locks, other
/// requests, or a thread of the pool; for the last it is `queued`, not `waiting`: what resumes it is in the queue of
/// the thread pool. Where it waits is the innermost method of the application that awaits; `in` names
/// the framework's method below. Where several operations of a request wait at once, the one counts that goes on first,
/// of those of the application if there are some.
///
/// With a command, starts the application, whose runtime waits for the session before it runs managed code: no request
/// is missed. The answer comes at its end, after --duration, or at Ctrl-C, which then ends it. If this command is
/// killed, .NET processes that the application starts later wait for it in vain. What threads have held back when an
/// application ends by itself is not told; Ctrl-C has them tell it first.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  corprof requests 4711 --duration 10
  corprof requests 4711 --duration 60 --sort p99
  corprof requests 4711 --duration 60 --endpoint /orders --slowest 20
  corprof requests 4711 --duration 60 -o requests.html
  corprof requests -- dotnet App.dll
  corprof requests service.nettrace --json | jq '.endpoints[] | {endpoint, mean_ms}'

For a file: corprof record --events cpu,activity -o service.nettrace, or with more names of methods dotnet-trace collect --providers
'System.Runtime.CompilerServices.AsyncProfilerEventSource:0xF4DD:4,System.Diagnostics.Eventing.FrameworkEventSource:0x2:5,Microsoft-Diagnostics-DiagnosticSource:0x2:5:FilterAndPayloadSpecs=\"[AS]*\"'

Exits with 3 if the process is not there, or it told nothing; with a command, with the code of the
application, or with 0 if Ctrl-C ended it. Exit codes: corprof help exit-codes")]
pub struct Args {
    #[command(flatten)]
    listened: Listened,

    /// Only requests whose endpoint has this text in its name
    #[arg(long, value_name = "TEXT")]
    endpoint: Option<String>,

    /// What endpoints are ordered by
    #[arg(long, value_name = "TIME", value_enum, default_value_t)]
    sort: Sort,

    /// The most endpoints to print [default: 20, with --json all]
    #[arg(long, value_name = "N")]
    rows: Option<usize>,

    /// The number of slow requests that are shown whole [default: 1, on a page 20]
    #[arg(long, value_name = "N")]
    slowest: Option<usize>,

    /// Also write a page (.html): flame graphs of each endpoint and of its slowest requests, one of a hundred, and the
    /// slow requests as waterfalls, with what each of their operations did, and their calls
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// The document of --json. Times are in milliseconds.
#[derive(Debug, Serialize)]
struct Report {
    title: String,
    seconds: f64,
    requests: u64,
    /// Those that had not ended, and since when the first of them ran.
    unfinished: usize,
    oldest_unfinished_ms: Option<f64>,
    endpoints: Vec<Endpoint>,
    slowest: Vec<Slowest>,
}

#[derive(Debug, Serialize)]
struct Endpoint {
    endpoint: String,
    requests: u64,
    mean_ms: f64,
    p99_ms: f64,
    /// Of all requests together.
    total_ms: f64,
    /// If it was told, and so the next two.
    running_ms: Option<f64>,
    waiting_ms: Option<f64>,
    queued_ms: Option<f64>,
    waits: Vec<Waited>,
    /// The activities within.
    calls: Vec<Called>,
}

#[derive(Debug, Serialize)]
struct Called {
    call: String,
    calls: u64,
    ms: f64,
}

#[derive(Debug, Serialize)]
struct Waited {
    #[serde(flatten)]
    place: Place,
    ms: f64,
    queued_ms: Option<f64>,
}

impl Endpoint {
    /// What is in no column.
    fn untold_ms(&self) -> f64 {
        let Some(running) = self.running_ms else { return 0.0 };
        (self.total_ms - running - self.waited_ms()).max(0.0)
    }

    fn waited_ms(&self) -> f64 {
        self.waiting_ms.unwrap_or_default() + self.queued_ms.unwrap_or_default()
    }
}

impl Waited {
    fn whole(&self) -> f64 {
        self.ms + self.queued_ms.unwrap_or_default()
    }
}

#[derive(Debug, Serialize)]
struct Slowest {
    endpoint: String,
    ms: f64,
    trace_id: Option<String>,
    span_id: Option<String>,
    timeline: Vec<Line>,
    calls: Vec<SlowCall>,
}

#[derive(Debug, Serialize)]
struct SlowCall {
    at_ms: f64,
    ms: f64,
    call: String,
}

#[derive(Debug, Serialize)]
struct Line {
    at_ms: f64,
    ms: f64,
    /// `runs`, `waits`, `queued`, or `unknown`.
    does: &'static str,
    #[serde(flatten)]
    place: Place,
}

/// Runs the command.
///
/// # Errors
/// If the process or file tells nothing of requests, or the application is not started.
pub fn run(args: &Args) -> Outcome {
    let page = args.output.as_deref().map(Page::new).transpose()?;
    let most = args.slowest.unwrap_or(if page.is_some() { ON_PAGE } else { 1 });
    let endpoints = Endpoints::new(most, args.endpoint.clone());
    async_trace::follow(&args.listened, true, endpoints, |endpoints, traced| answer(args, page, endpoints, traced))
}

fn answer(args: &Args, page: Option<Page>, endpoints: Endpoints, traced: &Traced) -> Result<(), Failure> {
    traced.warn();
    let finished = endpoints.finish();
    if finished.sums.is_empty() {
        return Err(nothing(args));
    }
    if !traced.tells_operations {
        eprintln!("corprof: {UNTOLD_PARTS}");
    }
    let mut names = Names::new(traced, args.listened.names);
    let mut report = report(traced, &mut names, &finished, args.sort);
    if let Some(page) = page {
        page.write(traced, &mut names, &report, &finished)?;
        // The page has the others.
        report.slowest.truncate(args.slowest.unwrap_or(1));
    }
    let mut out = crate::output::stdout();
    if args.json {
        report.endpoints.truncate(args.rows.unwrap_or(usize::MAX));
        writeln!(out, "{}", serde_json::to_string(&report).map_err(anyhow::Error::from)?)?;
    } else {
        print(&report, args.rows.unwrap_or(ROWS), &mut out)?;
    }
    out.flush()?;
    Ok(())
}

fn nothing(args: &Args) -> Failure {
    let within =
        args.endpoint.as_ref().map(|text| format!(" whose endpoint has `{text}` in its name")).unwrap_or_default();
    anyhow!(
        "there were no requests{within}: a request is a System.Diagnostics.Activity that ended meanwhile, as ASP.NET Core makes \
         one for each. `corprof waits` shows where operations wait without them"
    )
    .into()
}

fn report(traced: &Traced, names: &mut Names<'_>, finished: &FinishedRequests, sort: Sort) -> Report {
    let mut endpoints: Vec<Endpoint> =
        finished.sums.iter().map(|(name, sums)| endpoint(traced, names, name, sums)).collect();
    let key = |endpoint: &Endpoint| sort.key(endpoint.total_ms, endpoint.mean_ms, endpoint.p99_ms);
    endpoints.sort_by(|a, b| key(b).total_cmp(&key(a)));
    let slowest = finished.slowest.iter().map(|slow| slowest(traced, names, slow)).collect();
    let requests = endpoints.iter().map(|endpoint| endpoint.requests).sum();
    let oldest = finished.unfinished.iter().max();
    Report {
        title: traced.title.clone(),
        seconds: traced.seconds,
        requests,
        unfinished: finished.unfinished.len(),
        oldest_unfinished_ms: oldest.map(|ticks| traced.milliseconds(*ticks)),
        endpoints,
        slowest,
    }
}

fn endpoint(traced: &Traced, names: &mut Names<'_>, name: &str, sums: &Sums) -> Endpoint {
    let ms = |ticks| traced.milliseconds(ticks);
    // Chains that differ further out are the same place.
    let mut places: Vec<Waited> = Vec::new();
    let queued = |ticks| (traced.tells_queue && traced.tells_operations).then(|| ms(ticks));
    for (chains, times) in &sums.waits {
        let place = names.place_of(chains);
        match places.iter_mut().find(|known| known.place == place) {
            Some(known) => {
                known.ms += ms(times.waiting);
                known.queued_ms = known.queued_ms.map(|known| known + ms(times.queued));
            }
            None => places.push(Waited { place, ms: ms(times.waiting), queued_ms: queued(times.queued) }),
        }
    }
    let call = |(call, sum): (&String, &CallSums)| Called { call: call.clone(), calls: sum.count, ms: ms(sum.time) };
    let mut calls: Vec<Called> = sums.calls.iter().map(call).collect();
    calls.sort_by(|a, b| b.ms.total_cmp(&a.ms).then_with(|| a.call.cmp(&b.call)));
    places.sort_by(|a, b| b.whole().total_cmp(&a.whole()).then_with(|| a.place.cmp(&b.place)));
    Endpoint {
        endpoint: name.to_owned(),
        requests: sums.times.count(),
        mean_ms: ms(sums.times.mean()),
        p99_ms: ms(sums.times.most()),
        total_ms: ms(sums.times.sum()),
        running_ms: traced.tells_operations.then(|| ms(sums.running)),
        waiting_ms: traced.tells_operations.then(|| ms(sums.waiting)),
        queued_ms: queued(sums.queued),
        waits: places,
        calls,
    }
}

fn slowest(traced: &Traced, names: &mut Names<'_>, slow: &Slow) -> Slowest {
    let ms = |ticks| traced.milliseconds(ticks);
    let timeline = slow.parts.iter().map(|part| Line {
        at_ms: ms(part.from.saturating_sub(slow.request.from)),
        ms: ms(part.length()),
        does: part.does.name(),
        place: names.place_of(&part.chains),
    });
    let ids = slow.request.activity.as_ref();
    let trace_id = ids.filter(|activity| activity.trace_id != 0).map(|activity| format!("{:032x}", activity.trace_id));
    let span_id = ids.filter(|activity| activity.span_id != 0).map(|activity| format!("{:016x}", activity.span_id));
    let timeline = timeline.collect();
    let call = |call: &Call| {
        let (from, to) = slow.time_of(call);
        SlowCall { at_ms: ms(from - slow.request.from), ms: ms(to - from), call: name_of(&call.activity) }
    };
    let calls = slow.request.calls.iter().map(call).collect();
    Slowest { endpoint: slow.endpoint.clone(), ms: ms(slow.length()), trace_id, span_id, timeline, calls }
}

/// The mean of an endpoint's request, of a sum.
#[allow(clippy::cast_precision_loss, reason = "a count of some hours")]
fn each(endpoint: &Endpoint, sum: f64) -> f64 {
    sum / endpoint.requests.max(1) as f64
}

/// The places that are shown of an endpoint.
fn shown(endpoint: &Endpoint) -> impl Iterator<Item = &Waited> {
    let all = endpoint.waited_ms();
    endpoint.waits.iter().take(PLACES).filter(move |wait| wait.whole() >= LEAST_SHARE * all)
}

/// The activities that are shown of an endpoint. Waits tell the same, and more.
fn shown_calls(endpoint: &Endpoint) -> impl Iterator<Item = &Called> {
    let is_shown = |call: &&Called| endpoint.waiting_ms.is_none() && call.ms >= LEAST_SHARE * endpoint.total_ms;
    endpoint.calls.iter().take(PLACES).filter(is_shown)
}

/// A time that may not be told.
fn optional(ms: Option<f64>) -> String {
    ms.map_or_else(|| "-".to_owned(), |ms| format!("{ms:.2}"))
}

fn print(report: &Report, rows: usize, out: &mut impl Write) -> Result<()> {
    writeln!(out, "{}, {:.1} s, {} requests\n", report.title, report.seconds, report.requests)?;
    writeln!(out, "requests    mean ms     p99 ms    running    waiting     queued  endpoint")?;
    for endpoint in report.endpoints.iter().take(rows) {
        let each = |sum: f64| each(endpoint, sum);
        let Endpoint { requests, mean_ms, p99_ms, running_ms, waiting_ms, queued_ms, .. } = endpoint;
        let [running, waiting, queued] = [running_ms, waiting_ms, queued_ms].map(|sum| optional(sum.map(each)));
        write!(out, "{requests:>8} {mean_ms:>10.2} {p99_ms:>10.2} {running:>10} {waiting:>10} {queued:>10}")?;
        writeln!(out, "  {}", endpoint.endpoint)?;
        let all = endpoint.waited_ms();
        for wait in shown(endpoint) {
            let percent = 100.0 * wait.whole() / all;
            let queued = wait.queued_ms.map_or_else(String::new, |sum| format!("{:.2}", each(sum)));
            let waiting = format!("{:.2}", each(wait.ms));
            writeln!(out, "{waiting:>52} {queued:>10}  {percent:>3.0} %  waits at {}", wait.place)?;
        }
        for Called { call, ms, .. } in shown_calls(endpoint) {
            let percent = 100.0 * ms / endpoint.total_ms;
            let mean = format!("{:.2}", each(*ms));
            writeln!(out, "{mean:>19} {:>43}  {percent:>3.0} %  in {call}", "")?;
        }
        let untold = endpoint.untold_ms();
        if untold >= LEAST_UNTOLD * endpoint.total_ms {
            let percent = 100.0 * untold / endpoint.total_ms;
            let mean = format!("{:.2}", each(untold));
            writeln!(out, "{mean:>19} {:>43}  {percent:>3.0} %  in no column: {UNTOLD}", "")?;
        }
    }
    let more = report.endpoints.len().saturating_sub(rows);
    if more > 0 {
        writeln!(out, "{more} more endpoints: --rows")?;
    }
    if let Some(oldest) = report.oldest_unfinished_ms {
        let unfinished = output::count(report.unfinished, "request");
        writeln!(out, "{unfinished} had not ended, and are in no row: the oldest ran for {oldest:.2} ms")?;
    }
    for slow in &report.slowest {
        writeln!(out)?;
        let trace = slow.trace_id.as_ref().map(|id| format!(", trace {id}")).unwrap_or_default();
        let span = slow.span_id.as_ref().map(|id| format!(", span {id}")).unwrap_or_default();
        writeln!(out, "slowest: {}, {:.2} ms{trace}{span}", slow.endpoint, slow.ms)?;
        if slow.timeline.iter().all(|line| line.does == Does::Nothing.name()) {
            print_calls(slow, out)?;
            continue;
        }
        let shown = slow.timeline.iter().filter(|line| line.ms >= LEAST_PART * slow.ms);
        for Line { at_ms, ms, does, place } in shown {
            let at = format!("+{at_ms:.2}");
            match *does {
                "unknown" => writeln!(out, "{at:>12} {ms:>10.2}  unknown")?,
                does => writeln!(out, "{at:>12} {ms:>10.2}  {does:<6}  {place}")?,
            }
        }
        let rest: f64 = slow.timeline.iter().filter(|line| line.ms < LEAST_PART * slow.ms).map(|line| line.ms).sum();
        if rest > 0.0 {
            writeln!(out, "{:>12} {rest:>10.2}  in shorter parts", "")?;
        }
    }
    Ok(())
}

/// The activities within, where nothing else is told.
fn print_calls(slow: &Slowest, out: &mut impl Write) -> Result<()> {
    for SlowCall { at_ms, ms, call } in slow.calls.iter().take(MOST_CALLS) {
        let at = format!("+{at_ms:.2}");
        writeln!(out, "{at:>12} {ms:>10.2}  in {call}")?;
    }
    if let Some(more @ 1..) = slow.calls.len().checked_sub(MOST_CALLS) {
        writeln!(out, "{:>12} {:>10}  and {more} more: --json has all", "", "")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_that_is_in_no_column_is_told() {
        let printed = |running_ms: f64| {
            let endpoint = Endpoint {
                endpoint: "GET /orders".to_owned(),
                requests: 2,
                mean_ms: 15.0,
                p99_ms: 16.0,
                total_ms: 30.0,
                running_ms: Some(running_ms),
                waiting_ms: Some(8.0),
                queued_ms: None,
                waits: Vec::new(),
                calls: Vec::new(),
            };
            let report = Report {
                title: String::new(),
                seconds: 1.0,
                requests: 2,
                unfinished: 0,
                oldest_unfinished_ms: None,
                endpoints: vec![endpoint],
                slowest: Vec::new(),
            };
            let mut out = Vec::new();
            print(&report, ROWS, &mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        assert!(
            printed(4.0).contains("  9.00   ") && printed(4.0).contains(" 60 %  in no column: before"),
            "{}",
            printed(4.0)
        );
        assert!(!printed(20.0).contains("in no column"));
    }
}

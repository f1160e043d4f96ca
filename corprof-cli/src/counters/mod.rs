//! `corprof counters`: the values of a process's meters and event counters.

mod news;
mod output;
mod session;
mod table;

use std::collections::BTreeSet;
use std::io::Write;
use std::process::ExitCode;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use corprof_diagnostics::{Level, Process, Provider, SessionConfig};
use corprof_launch::processes;
use uuid::Uuid;

pub(crate) use self::news::{News, Reading, Value};
pub(crate) use self::session::Session;

use self::news::{Instrument, METERS, Series};
use self::output::Lines;
use self::table::{Counters, Row, View};
use crate::attach_request::leave_alone_if_stopped;
use crate::exit::Outcome;
use crate::inspect::title;
use crate::options::{self, seconds};
use crate::screen::{self, Pressed, Screen};
use crate::signals::Signals;

/// The keywords of the provider of meters.
const VALUES: u64 = 0x2;
const INSTRUMENTS: u64 = 0x4;
/// A keyword that event sources do not use: their counters have none and come with any, and events with keywords stay
/// away.
const COUNTERS_ONLY: u64 = 1 << 43;
/// The duration without a terminal.
const DURATION: Duration = Duration::from_secs(5);
/// The time limit for a list of instruments.
const LIST: Duration = Duration::from_secs(30);
/// After so long without values it is asked whether the process is stopped.
const SILENCE: Duration = Duration::from_secs(5);
/// The time without values after which the command gives up.
const PATIENCE: Duration = Duration::from_secs(120);
/// The interval at which the terminal is asked for keys.
const LOOK: Duration = Duration::from_millis(100);

/// Show the values of a process's meters and event counters, live.
///
/// NAME is a meter or an event source, or one instrument of it, `METER\INSTRUMENT`. Without any, the runtime's own are
/// shown (System.Runtime: collections, allocations, exceptions, thread pool, processor time, …). --list names the
/// instruments that a process has. Meters of ASP.NET Core: Microsoft.AspNetCore.Hosting,
/// Microsoft.AspNetCore.Server.Kestrel, System.Net.Http.
///
/// `per second` is the rate of a counter in the last interval, or of a histogram's values; `value` is the total of a
/// counter, or a size; p50, p95 and p99 are percentiles of a histogram in the last interval. An event source that has
/// the name of a meter is not shown twice.
///
/// Without a terminal it prints one table after --duration. With --json or --csv it prints the values as they come,
/// until Ctrl-C, --duration, or the end of the process.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  corprof counters 4711
  corprof counters 4711 System.Runtime Microsoft.AspNetCore.Hosting
  corprof counters 4711 'MyCompany.Shop\\orders.open' --interval 5
  corprof counters 4711 --csv --duration 60 > counters.csv
  corprof counters 4711 --list

Keys: q, Esc or Ctrl-C quit; p or space pauses the display; arrows and page keys scroll.

Exits with 3 if there is no such process, it is not a .NET process, it belongs to another user, or it sent no values. Exit codes:
corprof help exit-codes")]
pub struct Args {
    /// The process, as `corprof ps` numbers it
    #[arg(value_parser = options::pid)]
    pid: u32,

    /// A meter, an event source, or METER\INSTRUMENT [default: System.Runtime]
    #[arg(value_name = "NAME", value_parser = name)]
    names: Vec<String>,

    /// List the meters of the process with their instruments, and end
    #[arg(long, conflicts_with_all = ["names", "json", "csv", "duration"])]
    list: bool,

    /// The interval of the values, in seconds
    #[arg(long, value_name = "SECONDS", value_parser = interval, default_value = "1")]
    interval: f64,

    /// End after this many seconds [default without a terminal: 5; with --json or --csv: never]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    duration: Option<f64>,

    /// Print a line of JSON for each value: time (Unix, in seconds), source, counter, tags, unit, per_second, value,
    /// histogram (count, sum, quantiles)
    #[arg(long, conflicts_with = "csv")]
    json: bool,

    /// Print CSV, with the columns of --json
    #[arg(long)]
    csv: bool,

    /// The most series that are measured: an instrument has one for each set of tags
    #[arg(long, value_name = "N", default_value_t = 1000)]
    max_series: u32,

    /// The most series of histograms that are measured
    #[arg(long, value_name = "N", default_value_t = 100)]
    max_histograms: u32,
}

/// Parses a name, which is sent inside of a list.
fn name(text: &str) -> Result<String, String> {
    if text.is_empty() {
        return Err("give a meter, an event source, or METER\\INSTRUMENT".to_owned());
    }
    if text.contains([',', ';', '=', '"', '\n', '\r']) {
        return Err(
            "a runtime cannot be asked for a name with a comma, a semicolon, `=`, a quotation mark or a line break"
                .to_owned(),
        );
    }
    Ok(text.to_owned())
}

/// Parses an interval: the runtime takes no shorter one.
fn interval(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.1..=3600.0).contains(seconds));
    seconds.ok_or_else(|| "give a number of seconds from 0.1 to 3600".to_owned())
}

/// Runs the command.
///
/// # Errors
/// If the process is not there, or sends no values.
pub fn run(args: &Args) -> Outcome {
    leave_alone_if_stopped(args.pid)?;
    let process = Process::open(args.pid)?;
    let signals = Signals::catch().context("cannot catch signals")?;
    if args.list {
        list(args.pid, &process, &signals)?;
        return Ok(ExitCode::SUCCESS);
    }
    let watched = Watched {
        pid: args.pid,
        session: Session::start(process.client(), config(args)),
        counters: Counters::of(names(args)),
        start: Instant::now(),
        interval: Duration::from_secs_f64(args.interval),
        duration: args.duration.map(Duration::from_secs_f64),
        news: Instant::now(),
    };
    let lines = match () {
        () if args.json => Some(Lines::Json),
        () if args.csv => Some(Lines::Csv),
        () => None,
    };
    match lines {
        Some(lines) => stream(watched, lines, &signals)?,
        None if screen::is_there() => live(watched, &signals)?,
        None => once(watched, &signals)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The session for the requested counters.
fn config(args: &Args) -> SessionConfig {
    let names = names(args);
    let Args { interval, max_series, max_histograms, .. } = args;
    let arguments = format!(
        // SHARED: other tools may read meters as well.
        "SessionId=SHARED;SharedIdentifier={};Metrics={};RefreshInterval={interval};MaxTimeSeries={max_series};\
         MaxHistograms={max_histograms}",
        Uuid::new_v4(),
        names.join(","),
    );
    let meters = Provider::new(METERS, VALUES, Level::Informational).with_arguments(arguments);
    let sources: BTreeSet<&str> = names.iter().map(|name| name.split('\\').next().unwrap_or(name)).collect();
    let sources = sources.into_iter().map(|source| {
        let arguments = format!("EventCounterIntervalSec={interval}");
        Provider::new(source, COUNTERS_ONLY, Level::Critical).with_arguments(arguments)
    });
    SessionConfig::new([meters].into_iter().chain(sources)).with_buffer_mb(4)
}

/// What is to be shown.
fn names(args: &Args) -> Vec<String> {
    if args.names.is_empty() { vec!["System.Runtime".to_owned()] } else { args.names.clone() }
}

/// The session, and what it has delivered.
struct Watched {
    pid: u32,
    session: Session,
    counters: Counters,
    start: Instant,
    interval: Duration,
    duration: Option<Duration>,
    /// When the last value came.
    news: Instant,
}

/// Why a command goes on, or does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    /// All values of an interval were shown, or the limit of a look is over.
    Pause,
    /// There may be more.
    More,
    /// The duration is over, or the process has ended.
    End,
}

impl Watched {
    /// Waits for news, not for long. `show` is told of each value.
    fn next(&mut self, mut show: impl FnMut(&Series, &Row) -> Result<()>) -> Result<Next> {
        let news = match self.session.next(LOOK) {
            Ok(news) => news.context("cannot read the counters")?,
            Err(RecvTimeoutError::Disconnected) => return Ok(Next::End),
            Err(RecvTimeoutError::Timeout) if self.news.elapsed() > SILENCE && processes::is_stopped(self.pid) => {
                bail!("process {0} is stopped, and sends no values. It runs on after: kill -CONT {0}", self.pid)
            }
            Err(RecvTimeoutError::Timeout) if self.news.elapsed() > PATIENCE => bail!(self.silence()),
            Err(RecvTimeoutError::Timeout) => return Ok(self.pause()),
        };
        if matches!(news, News::Interval(_)) {
            self.counters.add(news);
            return Ok(self.pause());
        }
        if let Some((series, row)) = self.counters.add(news) {
            show(series, row)?;
            self.news = Instant::now();
        }
        Ok(Next::More)
    }

    /// Between two intervals. The first values come after two of them, on a busy machine later.
    fn pause(&self) -> Next {
        let late = self.duration.and_then(|duration| self.start.elapsed().checked_sub(duration));
        let is_over = late.is_some_and(|late| !self.counters.is_empty() || late >= SILENCE + 2 * self.interval);
        if is_over { Next::End } else { Next::Pause }
    }

    fn silence(&self) -> String {
        format!(
            "process {} has sent no values for {} s: does it wait at its start (`corprof resume`), or has it no such counters? See --list",
            self.pid,
            PATIENCE.as_secs()
        )
    }

    /// Says what is missing, and an error if there is nothing at all.
    fn conclude(&self) -> Result<()> {
        for trouble in self.counters.troubles() {
            eprintln!("corprof: {trouble}");
        }
        if self.counters.is_empty() && !processes::is_there(self.pid) {
            bail!("process {} has ended before it has sent values", self.pid);
        }
        if self.counters.is_empty() {
            bail!(
                "process {} has sent no values before the end: does it wait at its start (`corprof resume`), or has it no \
                 such counters? See --list",
                self.pid
            );
        }
        for name in self.counters.without_values() {
            eprintln!("corprof: no values of {name}: has the process such counters? See --list");
        }
        Ok(())
    }
}

/// Prints lines until the end.
fn stream(mut watched: Watched, lines: Lines, signals: &Signals) -> Result<()> {
    let mut out = crate::output::stdout();
    lines.head(&mut out)?;
    loop {
        let next = watched.next(|series, row| lines.value(series, row, &mut out))?;
        if next != Next::More {
            out.flush()?;
        }
        if next == Next::End || signals.is_interrupted() {
            return watched.conclude();
        }
    }
}

/// Prints one table at the end.
fn once(mut watched: Watched, signals: &Signals) -> Result<()> {
    watched.duration.get_or_insert(DURATION);
    while watched.next(|_, _| Ok(()))? != Next::End && !signals.is_interrupted() {}
    watched.conclude()?;
    let mut out = crate::output::stdout();
    writeln!(out, "{}", title(watched.pid))?;
    for line in watched.counters.lines() {
        writeln!(out, "{line}")?;
    }
    Ok(out.flush()?)
}

/// Shows the table until a key ends it.
fn live(mut watched: Watched, signals: &Signals) -> Result<()> {
    let mut view = View::new(title(watched.pid));
    let mut screen = Screen::open()?;
    screen.draw(|frame| view.draw(frame))?;
    loop {
        let next = watched.next(|_, _| Ok(()))?;
        if next == Next::Pause {
            view.update(&watched.counters);
            screen.draw(|frame| view.draw(frame))?;
        }
        if next == Next::End || signals.is_interrupted() || is_quit(&mut view, &mut screen)? {
            break;
        }
    }
    drop(screen);
    watched.conclude()
}

/// Reacts to keys that were pressed. Whether one of them ends the command.
fn is_quit(view: &mut View, screen: &mut Screen) -> Result<bool> {
    while let Some(pressed) = screen::next_key(Duration::ZERO, |key| view.press(key))? {
        match pressed {
            Pressed::Quit => return Ok(true),
            Pressed::Change => screen.draw(|frame| view.draw(frame))?,
            Pressed::Nothing => {}
        }
    }
    Ok(false)
}

/// Prints the meters of the process with their instruments.
fn list(pid: u32, process: &Process, signals: &Signals) -> Result<()> {
    let arguments = format!("SessionId=SHARED;SharedIdentifier={}", Uuid::new_v4());
    let meters = Provider::new(METERS, INSTRUMENTS, Level::Informational).with_arguments(arguments);
    let session = Session::start(process.client(), SessionConfig::new([meters]).with_buffer_mb(4));
    let mut instruments: BTreeSet<Instrument> = BTreeSet::new();
    let end = Instant::now() + LIST;
    loop {
        match session.next(LOOK) {
            Ok(news) => match news.context("cannot read the list")? {
                News::Instrument(instrument) => {
                    instruments.insert(instrument);
                }
                News::AllTold => break,
                News::Trouble(trouble) => bail!("there is no list of process {pid}: {trouble}"),
                _ => {}
            },
            Err(RecvTimeoutError::Disconnected) => bail!("process {pid} has ended"),
            Err(RecvTimeoutError::Timeout) if signals.is_interrupted() => bail!("interrupted before the list came"),
            // The runtime tells the instruments to the first of several sessions only.
            Err(RecvTimeoutError::Timeout) if Instant::now() >= end => bail!(
                "process {pid} has sent no list within {} s: is it stopped, or does another tool read its meters?",
                LIST.as_secs()
            ),
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
    drop(session);
    print_list(&instruments)
}

fn print_list(instruments: &BTreeSet<Instrument>) -> Result<()> {
    let mut out = crate::output::stdout();
    if instruments.is_empty() {
        writeln!(out, "There are no meters. The runtime's own exist from .NET 9 on; event counters cannot be listed.")?;
    }
    let mut meter = None;
    for instrument in instruments {
        let Instrument { name, kind, unit, description, .. } = instrument;
        if meter != Some(&instrument.meter) {
            meter = Some(&instrument.meter);
            writeln!(out, "{}", instrument.meter)?;
        }
        // `Counter`1` is a Counter<T>.
        let kind = kind.split('`').next().unwrap_or(kind);
        let unit = if unit.is_empty() { String::new() } else { format!(", {unit}") };
        let description = if description.is_empty() { String::new() } else { format!(": {description}") };
        writeln!(out, "    {name} ({kind}{unit}){description}")?;
    }
    Ok(out.flush()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_do_not_break_the_list() {
        assert_eq!(name("Shop\\orders"), Ok("Shop\\orders".to_owned()));
        for wrong in ["", "A,B", "A;B", "A=B", "\"A"] {
            assert!(name(wrong).is_err(), "{wrong}");
        }
        assert!(interval("0.1").is_ok() && interval("0").is_err() && interval("NaN").is_err());
    }
}

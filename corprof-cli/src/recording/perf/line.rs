//! The lines of `perf script`: a head for each event, below it the frames of its stack, and an empty line.

use std::time::Duration;

/// A line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Line<'a> {
    /// Nothing, or a comment such as those of `--header`.
    Nothing,
    /// An event begins.
    Head(Head<'a>),
    Frame(Frame<'a>),
    /// It is none of these.
    Damaged,
}

/// The first line of an event: `dotnet 4712/4713 [001] 5125.598389: 5025125 cpu-clock:pppH: REST`. What is before the
/// time may lack, except for one number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Head<'a> {
    /// The name of the thread.
    pub(super) name: &'a str,
    pub(super) process: Option<u64>,
    pub(super) thread: u64,
    /// By the clock of the recording.
    pub(super) at: Duration,
    /// Without modifiers: `cpu-clock`.
    pub(super) event: &'a str,
    /// What a tracepoint says.
    pub(super) rest: &'a str,
    /// Of a sample without stack: where it was.
    pub(super) frame: Option<Frame<'a>>,
}

/// `7f63a8231b Shop::Pay()[Tier1]+0x1b (/tmp/perf-4712.map)`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Frame<'a> {
    /// Without the distance. None: perf does not know it.
    pub(super) symbol: Option<&'a str>,
    /// The file that is mapped there.
    pub(super) file: Option<&'a str>,
}

/// What perf writes for what it does not know.
const UNKNOWN: &str = "[unknown]";
/// Behind the path of a file that is no longer there.
const DELETED: &str = " (deleted)";

impl<'a> Line<'a> {
    pub(super) fn new(line: &'a str) -> Self {
        let text = line.trim();
        if text.is_empty() || text.starts_with('#') {
            return Self::Nothing;
        }
        if line.starts_with([' ', '\t'])
            && let Some(frame) = Frame::new(text)
        {
            return Self::Frame(frame);
        }
        // Names of threads that are shorter than others begin with blanks as well.
        match Head::new(text) {
            Some(head) if head.event.starts_with("PERF_RECORD_") => Self::Nothing,
            Some(head) => Self::Head(head),
            None => Self::Damaged,
        }
    }
}

impl<'a> Head<'a> {
    fn new(text: &'a str) -> Option<Self> {
        // The name of a thread may have blanks and colons, so the time is looked for.
        text.match_indices(": ").find_map(|(end, _)| {
            let before = text.get(..end)?;
            let (before, word) = before.rsplit_once(char::is_whitespace)?;
            Self::of(before.trim_end(), time(word)?, text.get(end + 1..)?.trim_start())
        })
    }

    /// That of what is before and after the time.
    fn of(before: &'a str, at: Duration, after: &'a str) -> Option<Self> {
        let before = match before.rsplit_once(char::is_whitespace) {
            Some((rest, processor)) if processor.starts_with('[') => rest.trim_end(),
            _ => before,
        };
        let (name, numbers) = before.rsplit_once(char::is_whitespace).unwrap_or(("", before));
        let (process, thread) = match numbers.split_once('/') {
            Some((process, thread)) => (Some(process.parse().ok()?), thread.parse().ok()?),
            None => (None, numbers.parse().ok()?),
        };
        let (first, behind) = after.split_once(char::is_whitespace).unwrap_or((after, ""));
        // For how much of the event the sample stands.
        let is_period = first.bytes().all(|byte| byte.is_ascii_digit());
        let after = if is_period { behind.trim_start() } else { after };
        let (event, rest) = after.split_once(char::is_whitespace).unwrap_or((after, ""));
        let event = if event.starts_with("PERF_RECORD_") { event } else { without_modifiers(event.strip_suffix(':')?) };
        let rest = rest.trim();
        let frame = if event.contains(':') { None } else { Frame::new(rest) };
        Some(Self { name: name.trim(), process, thread, at, event, rest, frame })
    }
}

impl<'a> Frame<'a> {
    fn new(text: &'a str) -> Option<Self> {
        let (address, rest) = text.split_once(char::is_whitespace)?;
        if address.is_empty() || !address.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        let rest = rest.trim_start();
        let is_deleted = rest.ends_with(" (deleted))");
        let ending = if is_deleted { DELETED.len() + 1 } else { 1 };
        let inner = rest.get(..rest.len().checked_sub(ending)?)?;
        if !rest.ends_with(')') {
            return None;
        }
        let (symbol, file) = match inner.rsplit_once(" (") {
            Some((symbol, file)) => (symbol.trim_end(), file),
            // Without a symbol.
            None => (UNKNOWN, inner.strip_prefix('(')?),
        };
        let is_known = |name: &&str| !name.is_empty() && *name != UNKNOWN;
        let symbol = Some(without_distance(symbol)).filter(is_known);
        Some(Self { symbol, file: Some(file).filter(|file| is_known(file) && *file != "inlined") })
    }
}

/// `5125.598389`: seconds with six or nine digits.
fn time(text: &str) -> Option<Duration> {
    let (seconds, part) = text.split_once('.')?;
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(seconds) || !is_number(part) || part.len() > 9 {
        return None;
    }
    let nanoseconds: u32 = format!("{part:0<9}").parse().ok()?;
    Some(Duration::new(seconds.parse().ok()?, nanoseconds))
}

/// The name of an event, of `cpu-clock:pppH`, `cpu_core/cycles/P` or `sched:sched_switch`.
fn without_modifiers(event: &str) -> &str {
    if let [_, event, ..] = event.split('/').collect::<Vec<_>>()[..] {
        return event;
    }
    let is_modifier = |text: &str| text.chars().all(|letter| "ukhIGHpPSDWeb".contains(letter));
    match event.rsplit_once(':') {
        Some((name, last)) if is_modifier(last) => name,
        _ => event,
    }
}

/// Without the `+0x1b` behind a symbol.
fn without_distance(symbol: &str) -> &str {
    match symbol.rsplit_once("+0x") {
        Some((name, distance)) if distance.bytes().all(|byte| byte.is_ascii_hexdigit()) => name,
        _ => symbol,
    }
}

/// The threads before and after a switch, of what `sched:sched_switch` says.
pub(super) fn switched(rest: &str) -> Option<(u64, u64)> {
    let number = |name: &str| {
        let (_, behind) = rest.split_once(name)?;
        behind.split(|letter: char| !letter.is_ascii_digit()).next()?.parse().ok()
    };
    if let (Some(from), Some(to)) = (number("prev_pid="), number("next_pid=")) {
        return Some((from, to));
    }
    // `dotnet:4713 [120] S ==> kworker/u8:0:15 [120]`, as perf writes with its library for tracepoints.
    let (from, to) = rest.split_once(" ==> ")?;
    let number = |text: &str| text.split_once(" [")?.0.rsplit_once(':')?.1.parse().ok();
    Some((number(from)?, number(to)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(line: &str) -> Head<'_> {
        match Line::new(line) {
            Line::Head(head) => head,
            other => panic!("{line}: {other:?}"),
        }
    }

    fn frame<'a>(symbol: Option<&'a str>, file: Option<&'a str>) -> Line<'a> {
        Line::Frame(Frame { symbol, file })
    }

    #[test]
    fn heads_are_read_with_any_fields_before_the_time() {
        let at = Duration::from_micros(52_425_598_389);
        let is = |line, name, process, thread, event| {
            let head = head(line);
            assert_eq!((head.name, head.process, head.thread, head.at, head.event), (name, process, thread, at, event));
        };
        is("dotnet 27350 52425.598389:    5025125 cpu-clock: ", "dotnet", None, 27350, "cpu-clock");
        is("  .NET TP Worker 27/28 [001] 52425.598389: 1 cycles:P: ", ".NET TP Worker", Some(27), 28, "cycles");
        is("a: b 1.5: 28 52425.598389:  cpu_core/cycles/P: ", "a: b 1.5:", None, 28, "cycles");
    }

    #[test]
    fn frames_are_read_with_blanks_and_parentheses_in_names() {
        let method = "instance void [Shares] Shares+<Main>c__AnonStorey0::<>m__0(int32, class A`1<int32>)[QuickJitted]";
        let line = format!("\t    7f6302a8231b {method}+0x1b (/tmp/perf-28067.map)");
        assert_eq!(Line::new(&line), frame(Some(method), Some("/tmp/perf-28067.map")));
        assert_eq!(
            Line::new("\t 3ed53f [unknown] (/memfd:doublemapper (deleted))"),
            frame(None, Some("/memfd:doublemapper"))
        );
        assert_eq!(
            Line::new("\tffffffff81 do_fsync+0x3b ([kernel.kallsyms])"),
            frame(Some("do_fsync"), Some("[kernel.kallsyms]"))
        );
        assert_eq!(Line::new("\t 1f operator+ (inlined)"), frame(Some("operator+"), None));
        assert_eq!(Line::new("\t 1f ([unknown])"), frame(None, None));
        // Without stacks, it stands behind the event.
        assert_eq!(
            head("x 1 1.000001: 7 cycles: ff main+0x1 (/bin/x)").frame,
            Some(Frame { symbol: Some("main"), file: Some("/bin/x") })
        );
    }

    #[test]
    fn other_lines_are_nothing_or_damaged() {
        for line in ["", "   ", "# captured on: Fri Nov 27", "x 1 1.000001: PERF_RECORD_COMM exec: x:1/1"] {
            assert_eq!(Line::new(line), Line::Nothing, "{line}");
        }
        for line in [
            "no event",
            "\tno frame (x)",
            "\tff main (/bin",
            "x y 1.0: cycles:",
            "x 1 1.0000000001: cycles:",
            "x 1 1.0: cycles",
            "\tff )",
        ] {
            assert_eq!(Line::new(line), Line::Damaged, "{line}");
        }
    }

    #[test]
    fn switches_tell_both_threads() {
        let line = "dotnet 7 [001] 1.000001: sched:sched_switch: prev_comm=a b prev_pid=7 prev_prio=120 prev_state=S ==> next_comm=c next_pid=9 next_prio=1";
        let head = head(line);
        assert_eq!((head.event, switched(head.rest)), ("sched:sched_switch", Some((7, 9))));
        assert_eq!(switched("dotnet:4713 [120] S ==> kworker/u8:0:15 [120]"), Some((4713, 15)));
        assert_eq!(switched("anything"), None);
    }
}

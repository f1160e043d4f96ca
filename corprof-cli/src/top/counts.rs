//! The processor time of methods: what the built-in profiler `top` writes, and rates over the last seconds.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::time::Duration;

/// What the profiler has written. All numbers are sums since its start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Snapshot {
    pub(super) elapsed: Duration,
    pub(super) rounds: u64,
    /// The time for which the rounds have suspended the application; unknown by EventPipe.
    pub(super) suspended: Option<Duration>,
    pub(super) threads: u64,
    /// The processor time of all managed threads; by EventPipe the time in which they were in managed code.
    pub(super) processor: Duration,
    /// What distorts the times, if anything does.
    pub(super) distortion: Option<String>,
    /// What is known of the callers of resumed async methods.
    pub(super) note: Option<String>,
    /// The methods that were seen within the last two minutes.
    pub(super) methods: Vec<Method>,
}

/// A method, by a number of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Method {
    pub(super) number: usize,
    pub(super) name: String,
    /// The source line, if lines are counted.
    pub(super) place: Option<Place>,
    pub(super) times: Times,
}

/// A line of a source file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    /// The path of the source, as its compiler was told it.
    pub(super) file: String,
    pub(super) line: u32,
}

/// As `Orders.cs:41`.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, line } = self;
        write!(f, "{}:{line}", file.rsplit(['/', '\\']).next().unwrap_or(file))
    }
}

/// Processor time in a method.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Times {
    /// In the method itself.
    pub(super) own: Duration,
    /// In the method and in what it calls.
    pub(super) total: Duration,
}

impl Times {
    fn add(&mut self, other: Self) {
        self.own += other.own;
        self.total += other.total;
    }

    fn since(self, earlier: Self) -> Self {
        Self { own: self.own.saturating_sub(earlier.own), total: self.total.saturating_sub(earlier.total) }
    }
}

impl Snapshot {
    /// Parses the file; none if it has another format.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        if lines.next()? != "top 1" {
            return None;
        }
        let mut snapshot = Self::default();
        for line in lines {
            let (word, rest) = line.split_once(' ')?;
            let milliseconds = || rest.parse().ok().map(Duration::from_millis);
            match word {
                "elapsed" => snapshot.elapsed = milliseconds()?,
                "rounds" => snapshot.rounds = rest.parse().ok()?,
                "suspended" => snapshot.suspended = Some(milliseconds()?),
                "threads" => snapshot.threads = rest.parse().ok()?,
                "processor" => snapshot.processor = milliseconds()?,
                "distortion" => snapshot.distortion = Some(rest.to_owned()),
                "note" => snapshot.note = Some(rest.to_owned()),
                "method" => {
                    let mut parts = rest.splitn(4, ' ');
                    let number = parts.next()?.parse().ok()?;
                    let mut microseconds = || parts.next()?.parse().ok().map(Duration::from_micros);
                    let times = Times { own: microseconds()?, total: microseconds()? };
                    snapshot.methods.push(Method { number, name: parts.next()?.to_owned(), place: None, times });
                }
                "line" => {
                    let mut parts = rest.splitn(5, ' ');
                    let number = parts.next()?.parse().ok()?;
                    let mut microseconds = || parts.next()?.parse().ok().map(Duration::from_micros);
                    let times = Times { own: microseconds()?, total: microseconds()? };
                    let line = parts.next()?.parse().ok()?;
                    let (name, file) = parts.next()?.split_once('\t')?;
                    let place = (line > 0).then(|| Place { file: file.to_owned(), line });
                    snapshot.methods.push(Method { number, name: name.to_owned(), place, times });
                }
                _ => return None,
            }
        }
        Some(snapshot)
    }
}

/// A row of the table.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) place: Option<Place>,
    /// Since the start.
    pub(super) times: Times,
    /// In the last seconds, in per cent of one processor.
    pub(super) own_percent: f64,
    /// The same.
    pub(super) total_percent: f64,
}

/// The column by which the table is sorted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Column {
    /// Own time of the last seconds.
    Own,
    /// Total time of the last seconds.
    Total,
    /// Own time since the start.
    OwnSum,
    /// Total time since the start.
    TotalSum,
}

/// A time between two snapshots.
#[derive(Debug, Default)]
struct Interval {
    length: Duration,
    processor: Duration,
    methods: Vec<(usize, Times)>,
}

/// The snapshots so far.
#[derive(Debug)]
pub(super) struct Counts {
    /// The length of the last seconds; none: percentages are since the start.
    window: Option<Duration>,
    last: Snapshot,
    methods: HashMap<usize, Method>,
    intervals: VecDeque<Interval>,
}

impl Counts {
    /// Percentages are of the last `window`; without one, of the time since the start.
    pub(super) fn new(window: Option<Duration>) -> Self {
        Self { window, last: Snapshot::default(), methods: HashMap::new(), intervals: VecDeque::new() }
    }

    /// Adds a snapshot. Whether it is a new one.
    pub(super) fn add(&mut self, mut snapshot: Snapshot) -> bool {
        if snapshot.elapsed <= self.last.elapsed {
            return false;
        }
        let mut interval = Interval {
            length: snapshot.elapsed.saturating_sub(self.last.elapsed),
            processor: snapshot.processor.saturating_sub(self.last.processor),
            methods: Vec::new(),
        };
        for method in snapshot.methods.drain(..) {
            let Method { number, times, .. } = method;
            let known = self.methods.entry(number).or_insert(Method { times: Times::default(), ..method });
            let since = times.since(known.times);
            if since != Times::default() {
                interval.methods.push((number, since));
            }
            known.times = times;
        }
        self.last = snapshot;
        let Some(window) = self.window else { return true };
        self.intervals.push_back(interval);
        // As many whole intervals as the window needs.
        while let Some(first) = self.intervals.front()
            && self.length().saturating_sub(first.length) >= window
        {
            self.intervals.pop_front();
        }
        true
    }

    /// The last snapshot, without methods.
    pub(super) fn last(&self) -> &Snapshot {
        &self.last
    }

    /// The processor time of all managed threads in the last seconds, in per cent of one processor.
    pub(super) fn processor_percent(&self) -> f64 {
        self.percent(match self.window {
            Some(_) => self.intervals.iter().map(|interval| interval.processor).sum(),
            None => self.last.processor,
        })
    }

    /// What samples stand for in the last seconds, likewise. None for lines, which are only those of the application.
    pub(super) fn sampled_percent(&self) -> Option<f64> {
        if self.methods.values().any(|method| method.place.is_some()) {
            return None;
        }
        Some(self.percent(match self.window {
            Some(_) => self.intervals.iter().flat_map(|interval| &interval.methods).map(|(_, times)| times.own).sum(),
            None => self.methods.values().map(|method| method.times.own).sum(),
        }))
    }

    /// The length of the last seconds.
    fn length(&self) -> Duration {
        match self.window {
            Some(_) => self.intervals.iter().map(|interval| interval.length).sum(),
            None => self.last.elapsed,
        }
    }

    fn percent(&self, time: Duration) -> f64 {
        let length = self.length().as_secs_f64();
        if length > 0.0 { 100.0 * time.as_secs_f64() / length } else { 0.0 }
    }

    /// The table, the largest first.
    pub(super) fn rows(&self, column: Column) -> Vec<Row> {
        let mut recent: HashMap<usize, Times> = HashMap::new();
        for (number, times) in self.intervals.iter().flat_map(|interval| &interval.methods) {
            recent.entry(*number).or_default().add(*times);
        }
        let row = |method: &Method| {
            let Method { number, name, place, times } = method;
            let recent = if self.window.is_some() { recent.get(number).copied().unwrap_or_default() } else { *times };
            let [own_percent, total_percent] = [recent.own, recent.total].map(|time| self.percent(time));
            Row { name: name.clone(), place: place.clone(), times: *times, own_percent, total_percent }
        };
        let mut rows: Vec<Row> = self.methods.values().map(row).collect();
        sort(&mut rows, column);
        rows
    }
}

/// Sorts by the column, then by the other times, then by name, so that equal rows keep their places.
pub(super) fn sort(rows: &mut [Row], column: Column) {
    let keys = |row: &Row| {
        let sums = [row.times.own, row.times.total].map(|time| time.as_secs_f64());
        let [own_sum, total_sum] = sums;
        match column {
            Column::Own => [row.own_percent, row.total_percent, own_sum, total_sum],
            Column::Total => [row.total_percent, row.own_percent, total_sum, own_sum],
            Column::OwnSum => [own_sum, total_sum, row.own_percent, row.total_percent],
            Column::TotalSum => [total_sum, own_sum, row.total_percent, row.own_percent],
        }
    };
    rows.sort_by(|a, b| {
        let by_time = keys(b).partial_cmp(&keys(a)).unwrap_or(std::cmp::Ordering::Equal);
        by_time.then_with(|| a.name.cmp(&b.name)).then_with(|| a.place.cmp(&b.place))
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A snapshot of these methods: number, own and total milliseconds.
    fn snapshot(seconds: u64, methods: &[(usize, u64, u64)]) -> Snapshot {
        let line = |(number, own, total): &(usize, u64, u64)| {
            format!("method {number} {} {} M{number}(int, string)\n", own * 1000, total * 1000)
        };
        let methods: String = methods.iter().map(line).collect();
        let head = format!("top 1\nelapsed {}\nrounds 7\nsuspended 3\nthreads 2\n", seconds * 1000);
        Snapshot::parse(&format!("{head}processor {}\n{methods}", seconds * 500)).unwrap()
    }

    fn shown(counts: &Counts, column: Column) -> Vec<(String, f64, f64, u128)> {
        let rows = counts.rows(column).into_iter();
        rows.map(|row| (row.name, row.own_percent, row.total_percent, row.times.total.as_millis())).collect()
    }

    #[test]
    fn the_format_of_the_profiler_is_parsed() {
        let parsed = snapshot(2, &[(3, 100, 200)]);
        assert_eq!((parsed.rounds, parsed.threads), (7, 2));
        assert_eq!((parsed.suspended, parsed.processor), (Some(Duration::from_millis(3)), Duration::from_secs(1)));
        let times = Times { own: Duration::from_millis(100), total: Duration::from_millis(200) };
        let method = Method { number: 3, name: "M3(int, string)".to_owned(), place: None, times };
        assert_eq!(parsed.methods, [method]);
        for wrong in [
            "",
            "top 2\n",
            "top 1\nelapsed x\n",
            "top 1\nmethod 1 2 3\n",
            "top 1\nother 1\n",
            "top 1\nline 1 2 3 4 M()\n",
        ] {
            assert_eq!(Snapshot::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn lines_are_parsed_and_sorted_within_their_method() {
        let text = "top 1\nelapsed 1000\nline 0 500000 500000 41 A.B(int, C d)\t/src/A b.cs\n\
                    line 1 0 500000 0 A.B(int, C d)\t\nline 2 500000 500000 7 A.B(int, C d)\tC:\\x\\A b.cs\n";
        let mut counts = Counts::new(None);
        assert!(counts.add(Snapshot::parse(text).unwrap()));
        let rows = counts.rows(Column::Own);
        let places: Vec<_> = rows.iter().map(|row| row.place.as_ref().map(ToString::to_string)).collect();
        assert_eq!(places, [Some("A b.cs:41".to_owned()), Some("A b.cs:7".to_owned()), None]);
        assert!(rows.iter().all(|row| row.name == "A.B(int, C d)"));
        assert!((rows[0].own_percent - 50.0).abs() < 1e-9);
    }

    #[test]
    fn percentages_are_of_the_last_seconds_and_sums_since_the_start() {
        let mut counts = Counts::new(Some(Duration::from_secs(2)));
        assert!(shown(&counts, Column::Own).is_empty());
        assert!(counts.add(snapshot(1, &[(1, 500, 1000), (2, 400, 400)])));
        assert!(!counts.add(snapshot(1, &[(1, 500, 1000)])), "the same one again");
        let name = |number: usize| format!("M{number}(int, string)");
        assert_eq!(shown(&counts, Column::Own), [(name(1), 50.0, 100.0, 1000), (name(2), 40.0, 40.0, 400)]);
        // A snapshot may be missed, and has no methods that were not seen for long.
        assert!(counts.add(snapshot(3, &[(2, 2400, 2400)])));
        assert_eq!(shown(&counts, Column::Own), [(name(2), 100.0, 100.0, 2400), (name(1), 0.0, 0.0, 1000)]);
        assert!(counts.add(snapshot(4, &[(1, 500, 3000), (2, 2400, 2400)])));
        assert_eq!(shown(&counts, Column::Own)[0].0, name(2), "two of the last three seconds");
        assert_eq!(shown(&counts, Column::TotalSum)[0].0, name(1));
        assert!((counts.processor_percent() - 50.0).abs() < 1e-9);
        assert_eq!(counts.last().rounds, 7);
    }

    #[test]
    fn without_a_window_percentages_are_since_the_start() {
        let mut counts = Counts::new(None);
        assert!(counts.add(snapshot(1, &[(1, 0, 1000)])));
        assert!(counts.add(snapshot(4, &[(1, 1000, 3000)])));
        assert_eq!(shown(&counts, Column::Own), [("M1(int, string)".to_owned(), 25.0, 75.0, 3000)]);
        assert!((counts.processor_percent() - 50.0).abs() < 1e-9);
    }

    #[test]
    fn rows_are_sorted_by_the_column_and_then_by_name() {
        let times = |own, total| Times { own: Duration::from_secs(own), total: Duration::from_secs(total) };
        let row = |name: &str, times, own_percent, total_percent| Row {
            name: name.to_owned(),
            place: None,
            times,
            own_percent,
            total_percent,
        };
        let mut rows = [
            row("a", times(1, 9), 3.0, 50.0),
            row("b", times(2, 8), 2.0, 60.0),
            row("d", times(0, 0), 1.0, 1.0),
            row("c", times(0, 0), 1.0, 1.0),
        ];
        for (column, expected) in
            [(Column::Own, "abcd"), (Column::Total, "bacd"), (Column::OwnSum, "bacd"), (Column::TotalSum, "abcd")]
        {
            sort(&mut rows, column);
            assert_eq!(rows.iter().map(|row| row.name.as_str()).collect::<String>(), expected, "{column:?}");
        }
    }
}

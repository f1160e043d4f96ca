//! The table of counters: their last values, as text, and how it is drawn and controlled in a terminal.

use std::collections::{BTreeMap, BTreeSet};

use ratatui::Frame;
use ratatui::crossterm::event::KeyEvent;
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;

use super::news::{News, Reading, Series, Value};
use crate::screen::{Pressed, Scroll};

/// The width of a number.
const WIDTH: usize = 11;
/// The columns of numbers: without histograms the first two.
const TITLES: [&str; 5] = ["per second", "value", "p50", "p95", "p99"];
const HELP: &str = " q quit   p pause   ↑ ↓ scroll ";

/// The last values of all counters.
#[derive(Debug, Default)]
pub(super) struct Counters {
    /// The sources that are shown, and single counters, `SOURCE\COUNTER`.
    wanted: Vec<String>,
    rows: BTreeMap<Series, Row>,
    /// The meters that are measured: an event source of the same name has nothing new.
    meters: BTreeSet<String>,
    /// The interval of the meters, in seconds.
    interval: f64,
    troubles: BTreeSet<String>,
    /// Whether somebody else reads other meters.
    is_shared: bool,
}

/// A counter's last value.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Row {
    pub(super) unit: String,
    pub(super) per_second: Option<f64>,
    pub(super) value: Option<f64>,
    pub(super) histogram: Option<Histogram>,
}

/// What is known of several values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Histogram {
    pub(super) count: u64,
    pub(super) sum: f64,
    pub(super) quantiles: [Option<f64>; 3],
}

impl Counters {
    /// Those that are wanted: sources, or single counters of one, `SOURCE\COUNTER`.
    pub(super) fn of(wanted: Vec<String>) -> Self {
        Self { wanted, ..Self::default() }
    }

    /// Takes the news in. The counter whose value it is, if it is one that is shown.
    pub(super) fn add(&mut self, news: News) -> Option<(&Series, &Row)> {
        match news {
            News::Interval(seconds) => self.interval = seconds,
            News::Measured(meter) => self.measure(meter),
            News::Trouble(trouble) => {
                self.troubles.insert(trouble);
            }
            News::Instrument(_) | News::AllTold => {}
            News::Reading(reading) => {
                if !self.is_shown(&reading) {
                    return None;
                }
                let series = reading.series.clone();
                if reading.is_of_meter {
                    // A second reader is not told when its measuring began.
                    self.measure(series.source.clone());
                }
                self.rows.insert(series.clone(), Row::new(reading, self.interval));
                return self.rows.get_key_value(&series);
            }
        }
        None
    }

    /// The event source of the meter's name is not shown from now on.
    fn measure(&mut self, meter: String) {
        if !self.meters.contains(&meter) {
            self.rows.retain(|series, _| series.source != meter);
            self.meters.insert(meter);
        }
    }

    /// Whether a reading is shown. An event source sends all of its counters, and the runtime sends to all readers of
    /// meters what one of them wants.
    fn is_shown(&mut self, reading: &Reading) -> bool {
        let Series { source, name, .. } = &reading.series;
        let is_wanted = self.wanted.iter().any(|wanted| match wanted.split_once('\\') {
            Some((wanted, counter)) => wanted == source && counter == name,
            None => wanted == source,
        });
        if reading.is_of_meter {
            self.is_shared |= !is_wanted;
            return is_wanted;
        }
        is_wanted && !self.meters.contains(source)
    }

    /// The wanted names of which there is no value.
    pub(super) fn without_values(&self) -> Vec<&str> {
        let has_value = |wanted: &&String| {
            self.rows.keys().any(|series| match wanted.split_once('\\') {
                Some((source, counter)) => series.source == source && series.name == counter,
                None => series.source == **wanted,
            })
        };
        self.wanted.iter().filter(|wanted| !has_value(wanted)).map(String::as_str).collect()
    }

    /// Whether there is a value.
    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// What is missing, and why.
    pub(super) fn troubles(&self) -> Vec<String> {
        let mut troubles: Vec<String> = self.troubles.iter().cloned().collect();
        if self.is_shared && self.meters.is_empty() {
            troubles.push(format!(
                "another tool reads the meters of this process, each {} s: the runtime adds meters only for a reader with the \
                 same --interval, --max-series and --max-histograms",
                self.interval
            ));
        }
        troubles
    }

    /// The lines of the table: a title, then each source with its counters.
    pub(super) fn lines(&self) -> Vec<String> {
        let has_histograms = self.rows.values().any(|row| row.histogram.is_some());
        let columns = if has_histograms { TITLES.len() } else { 2 };
        let titles: String = TITLES.iter().take(columns).map(|title| format!("{title:>WIDTH$}")).collect();
        let mut lines = vec![format!("{titles}  counter")];
        let mut source = None;
        for (series, row) in &self.rows {
            if source != Some(&series.source) {
                source = Some(&series.source);
                lines.push(series.source.clone());
            }
            lines.push(format!("{}  {}", row.numbers(columns), label(series, &row.unit)));
        }
        lines
    }
}

impl Row {
    fn new(reading: Reading, interval: f64) -> Self {
        let mut row = Self { unit: reading.unit, per_second: None, value: None, histogram: None };
        let rate = |count: f64, seconds: f64| (seconds > 0.0).then(|| count / seconds);
        match reading.value {
            Value::Rate { count, total, seconds } => {
                row.per_second = count.and_then(|count| rate(count, seconds.unwrap_or(interval)));
                row.value = total;
            }
            Value::Gauge(value) => row.value = Some(value),
            Value::Histogram { count, sum, quantiles } => {
                #[allow(clippy::cast_precision_loss, reason = "a count of some seconds")]
                let counted = count as f64;
                row.per_second = rate(counted, interval);
                row.histogram = Some(Histogram { count, sum, quantiles });
            }
        }
        row
    }

    fn numbers(&self, columns: usize) -> String {
        let [median, most, nearly_all] = self.histogram.map(|histogram| histogram.quantiles).unwrap_or_default();
        let numbers = [self.per_second, self.value, median, most, nearly_all];
        let numbers = numbers.iter().take(columns);
        numbers.map(|number| format!("{:>WIDTH$}", number.map(shown).unwrap_or_default())).collect()
    }
}

/// A counter's name, tags and unit.
fn label(series: &Series, unit: &str) -> String {
    let tags = if series.tags.is_empty() { String::new() } else { format!("{{{}}}", series.tags) };
    // The unit of a thing that is counted stands in braces, which say nothing to a reader.
    let unit = unit.trim_matches(['{', '}']);
    let unit = if unit.is_empty() { String::new() } else { format!("  ({unit})") };
    format!("{}{tags}{unit}", series.name).replace(char::is_control, " ")
}

/// A number in at most ten characters.
fn shown(number: f64) -> String {
    let size = number.abs();
    if size >= 1e15 {
        return format!("{number:.3e}");
    }
    for (limit, divisor, letter) in [(1e12, 1e9, "G"), (1e9, 1e6, "M")] {
        if size >= limit {
            return format!("{:.1} {letter}", number / divisor);
        }
    }
    if number.fract() == 0.0 {
        return format!("{number:.0}");
    }
    match size {
        1000.0.. => format!("{number:.1}"),
        1.0.. => format!("{number:.2}"),
        0.001.. => format!("{number:.5}"),
        _ => format!("{number:.2e}"),
    }
}

/// What a terminal shows.
#[derive(Debug)]
pub(super) struct View {
    title: String,
    lines: Vec<String>,
    /// Of the lines below the titles.
    scroll: Scroll,
}

impl View {
    pub(super) fn new(title: String) -> Self {
        Self { title, lines: Vec::new(), scroll: Scroll::default() }
    }

    /// Shows these values, unless it is paused.
    pub(super) fn update(&mut self, counters: &Counters) {
        if !self.scroll.is_paused {
            self.lines = counters.lines();
            self.lines.extend(counters.troubles());
        }
    }

    /// Reacts to a key.
    pub(super) fn press(&mut self, key: KeyEvent) -> Pressed {
        // The first line is always there.
        let last = self.lines.len().saturating_sub(2);
        self.scroll.press(key, last)
    }

    /// Draws it into a terminal of any size.
    pub(super) fn draw(&self, frame: &mut Frame<'_>) {
        let areas =
            Layout::vertical([Constraint::Length(1), Constraint::Length(1), Constraint::Min(0), Constraint::Length(1)]);
        let [head, titles, table, help] = areas.areas(frame.area());
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let paused = if self.scroll.is_paused { "PAUSED  " } else { "" };
        frame.render_widget(Line::styled(format!("corprof counters  {paused}{}", self.title), bold), head);
        let Some((first, lines)) = self.lines.split_first() else {
            frame.render_widget(Line::raw("waiting for the first values"), titles);
            return;
        };
        frame.render_widget(Line::styled(first.as_str(), bold), titles);
        for (line, row) in lines.iter().skip(self.scroll.first).zip(table.rows()) {
            frame.render_widget(Line::raw(line.as_str()), row);
        }
        frame.render_widget(Line::styled(HELP, Style::new().add_modifier(Modifier::REVERSED)), help);
    }
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use ratatui::crossterm::event::KeyCode;

    use super::*;

    fn reading(source: &str, name: &str, tags: &str, is_of_meter: bool, value: Value) -> News {
        let series = Series { source: source.into(), name: name.into(), tags: tags.into() };
        News::Reading(Reading { series, unit: "{order}".into(), is_of_meter, value })
    }

    fn rate(count: f64, seconds: Option<f64>) -> Value {
        Value::Rate { count: Some(count), total: Some(40.0), seconds }
    }

    #[test]
    fn wanted_names_without_values_are_known() {
        let mut counters = Counters::of(["Shop\\sold", "Shop\\sodl", "Shpo"].map(str::to_owned).to_vec());
        counters.add(reading("Shop", "sold", "kind=tea", true, rate(30.0, None)));
        assert_eq!(counters.without_values(), ["Shop\\sodl", "Shpo"]);
    }

    fn shop() -> Counters {
        let mut counters = Counters::of(vec!["Shop".into()]);
        counters.add(News::Interval(2.0));
        counters.add(reading("Shop", "sold", "kind=tea", true, rate(30.0, None)));
        counters.add(reading("Shop", "queue", "", true, Value::Gauge(-1.5)));
        let quantiles = [Some(0.25), Some(1.0), Some(1234.56)];
        counters.add(reading("Shop", "waits", "", true, Value::Histogram { count: 4, sum: 9.0, quantiles }));
        counters
    }

    #[test]
    fn the_table_has_a_line_for_each_series() {
        let lines = shop().lines();
        let expected = [
            " per second      value        p50        p95        p99  counter",
            "Shop",
            "                 -1.50                                   queue  (order)",
            "      15         40                                   sold{kind=tea}  (order)",
            "       2               0.25000          1     1234.6  waits  (order)",
        ];
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(lines.iter().map(|line| words(line)).collect::<Vec<_>>(), expected.map(words));
        let ends = |line: &String| line.find("order").is_none_or(|_| line.len() > 5 * WIDTH);
        assert!(lines.iter().all(ends), "{lines:?}");
    }

    #[test]
    fn percentiles_have_columns_if_there_is_a_histogram() {
        let mut counters = Counters::of(vec!["Shop".into()]);
        counters.add(reading("Shop", "queue", "", true, Value::Gauge(7.0)));
        assert_eq!(
            counters.lines(),
            [" per second      value  counter", "Shop", "                     7  queue  (order)"]
        );
    }

    #[test]
    fn a_meter_hides_the_event_source_of_its_name() {
        let mut counters = Counters::of(vec!["System.Runtime".into(), "Shop".into(), "Other\\rate".into()]);
        let old = || reading("System.Runtime", "gc-count", "", false, rate(1.0, Some(1.0)));
        assert!(counters.add(old()).is_some());
        counters.add(News::Measured("System.Runtime".to_owned()));
        assert!(counters.is_empty() && counters.add(old()).is_none() && counters.is_empty());
        counters.add(reading("Shop", "sold", "", true, rate(1.0, None)));
        assert!(counters.add(reading("Shop", "sold", "", false, rate(1.0, Some(1.0)))).is_none());
        let (_, row) = counters.add(reading("Other", "rate", "", false, rate(3.0, Some(1.5)))).unwrap();
        assert_eq!(row.per_second, Some(2.0), "an event source's own interval");
        assert!(counters.add(reading("Other", "else", "", false, rate(3.0, Some(1.5)))).is_none());
    }

    #[test]
    fn the_meters_of_another_reader_are_not_shown() {
        let mut counters = Counters::of(vec!["Shop".into()]);
        counters.add(News::Interval(0.5));
        assert!(counters.troubles().is_empty());
        assert!(counters.add(reading("Bank", "sold", "", true, rate(1.0, None))).is_none());
        let [trouble] = &counters.troubles()[..] else { panic!("{:?}", counters.troubles()) };
        assert!(trouble.contains("each 0.5 s"), "{trouble}");
        assert!(counters.add(reading("Shop", "sold", "", true, rate(1.0, None))).is_some());
        assert!(counters.troubles().is_empty(), "its limits are the same");
    }

    #[test]
    fn numbers_are_short() {
        for (number, text) in [
            (0.0, "0"),
            (12.0, "12"),
            (0.25, "0.25000"),
            (1234.56, "1234.6"),
            (123_456_789.0, "123456789"),
            (5.3e9, "5300.0 M"),
            (7.25e12, "7250.0 G"),
            (1e16, "1.000e16"),
            (0.000_012, "1.20e-5"),
        ] {
            assert_eq!(shown(number), text);
            assert!(shown(-number).len() < WIDTH, "{number}");
        }
    }

    #[test]
    fn the_terminal_shows_it_and_scrolls() {
        let mut view = View::new("process 7".to_owned());
        let drawn = |view: &View| {
            let mut terminal = Terminal::new(TestBackend::new(80, 6)).unwrap();
            terminal.draw(|frame| view.draw(frame)).unwrap();
            terminal.backend().to_string()
        };
        assert!(drawn(&view).contains("waiting for the first values"));
        view.update(&shop());
        let text = drawn(&view);
        assert!(text.contains("corprof counters  process 7") && text.contains("sold{kind=tea}"), "{text}");
        assert!(!text.contains("waits"), "{text}");
        assert_eq!(view.press(KeyCode::End.into()), Pressed::Change);
        assert!(drawn(&view).contains("waits"));
        view.press(KeyCode::Char('p').into());
        view.update(&Counters::default());
        assert!(drawn(&view).contains("PAUSED") && drawn(&view).contains("waits"));
        assert_eq!(view.press(KeyCode::Char('x').into()), Pressed::Nothing);
        assert_eq!(view.press(KeyCode::Esc.into()), Pressed::Quit);
    }
}

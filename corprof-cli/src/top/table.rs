//! The table: its numbers as text, and how it is drawn and controlled in a terminal.

use std::time::Duration;

use ratatui::Frame;
use ratatui::crossterm::event::{KeyCode, KeyEvent};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Cell, Row as Cells, Table};

use super::counts::{Column, Counts, Row, sort};
use super::rates::{Counter, Delivered};
use crate::event_pipe_samples::LIMITS;
use crate::inspect;
use crate::screen::{Pressed, Scroll};

/// Of less processor time, and of a smaller part of it, it is not said what no sample stands for, in per cent.
const LEAST_PERCENT: f64 = 5.0;
const LEAST_MISSED: f64 = 20.0;

/// The columns before the method: keyword of `--sort`, title, width.
const COLUMNS: [(Column, &str, u16); 4] = [
    (Column::Own, "own %", 7),
    (Column::Total, "total %", 8),
    (Column::OwnSum, "own s", 9),
    (Column::TotalSum, "total s", 9),
];
const HELP: &str = " q detach and quit   1 2 3 4 sort by column   p pause   ↑ ↓ scroll ";

/// The condition of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Condition {
    /// The profiler has not written yet.
    Starts,
    Runs,
    /// The profiler has not written for this long.
    Silent(Duration),
    Ended,
}

/// What the terminal shows.
#[derive(Debug)]
pub(super) struct View {
    /// The process id and the command line.
    process: String,
    condition: Condition,
    summary: String,
    rates: String,
    /// Empty if nothing distorts the times.
    distortion: String,
    rows: Vec<Row>,
    column: Column,
    scroll: Scroll,
}

impl View {
    pub(super) fn new(pid: u32, command: Option<&str>, column: Column) -> Self {
        // The path of the program would hide the rest.
        let command = inspect::without_folder(command.unwrap_or_default());
        Self {
            process: format!("process {pid}  {command}"),
            condition: Condition::Starts,
            summary: String::new(),
            rates: String::new(),
            distortion: String::new(),
            rows: Vec::new(),
            column,
            scroll: Scroll::default(),
        }
    }

    /// Shows these numbers, unless it is paused. The condition of the process is always shown.
    pub(super) fn update(&mut self, condition: Condition, counts: &Counts, delivered: &Delivered) {
        self.condition = condition;
        if !self.scroll.is_paused && condition != Condition::Starts {
            self.summary = summary(counts);
            self.rates = rates(delivered, |counter| counter.rate);
            self.distortion = counts.last().distortion.clone().unwrap_or_default();
            self.rows = counts.rows(self.column);
        }
    }

    /// Reacts to a key.
    pub(super) fn press(&mut self, key: KeyEvent) -> Pressed {
        let last = self.rows.len().saturating_sub(1);
        let KeyCode::Char(digit @ '1'..='4') = key.code else { return self.scroll.press(key, last) };
        let index = digit as usize - '1' as usize;
        if let Some((column, ..)) = COLUMNS.get(index) {
            self.column = *column;
            sort(&mut self.rows, *column);
            self.scroll.first = 0;
        }
        Pressed::Change
    }

    /// Draws it into a terminal of any size.
    pub(super) fn draw(&self, frame: &mut Frame<'_>) {
        let [head, table, help] =
            Layout::vertical([Constraint::Length(4), Constraint::Min(0), Constraint::Length(1)]).areas(frame.area());
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let title = format!("corprof top  {}{}", self.state(), self.process);
        let lines = [
            (title.as_str(), bold),
            (self.summary.as_str(), Style::new()),
            (self.rates.as_str(), Style::new()),
            (self.distortion.as_str(), Style::new().fg(Color::Red)),
        ];
        for ((line, style), row) in lines.into_iter().zip(0..) {
            let area = Rect { y: head.y + row, height: 1, ..head }.intersection(head);
            frame.render_widget(Line::styled(line, style), area);
        }
        frame.render_widget(self.table(table), table);
        frame.render_widget(Line::styled(HELP, Style::new().add_modifier(Modifier::REVERSED)), help);
    }

    /// What the user must not overlook comes first.
    fn state(&self) -> String {
        let paused = if self.scroll.is_paused { "PAUSED  " } else { "" };
        match self.condition {
            Condition::Starts => "attached, waiting for the first numbers  ".to_owned(),
            Condition::Runs => paused.to_owned(),
            Condition::Silent(time) => format!("{paused}NO NUMBERS FOR {} s  ", time.as_secs()),
            Condition::Ended => format!("{paused}HAS ENDED  "),
        }
    }

    fn table(&self, area: Rect) -> Table<'_> {
        let numbers: u16 = COLUMNS.iter().map(|(_, _, width)| width + 1).sum();
        let width = usize::from(area.width.saturating_sub(numbers));
        let titles = COLUMNS.map(|(column, title, columns)| {
            let style = Style::new().add_modifier(Modifier::BOLD);
            let is_sorted = column == self.column;
            let title = if is_sorted { format!("▼{title}") } else { title.to_owned() };
            Cell::from(format!("{title:>0$}", usize::from(columns))).style(if is_sorted {
                style.add_modifier(Modifier::UNDERLINED)
            } else {
                style
            })
        });
        let titles = titles.into_iter().chain([Cell::from("method").style(Style::new().add_modifier(Modifier::BOLD))]);
        let shown = self.rows.iter().skip(self.scroll.first).take(usize::from(area.height));
        let rows = shown.map(|row| Cells::new(cells(row).into_iter().chain([fitting_row(row, width)])));
        let widths = COLUMNS.map(|(_, _, width)| Constraint::Length(width));
        Table::new(rows, widths.into_iter().chain([Constraint::Min(0)])).header(Cells::new(titles))
    }
}

/// The numbers of a row, aligned to the right.
fn cells(row: &Row) -> [String; 4] {
    let values = [row.own_percent, row.total_percent, row.times.own.as_secs_f64(), row.times.total.as_secs_f64()];
    let mut decimals = [1, 1, 2, 2].into_iter();
    let mut widths = COLUMNS.into_iter().map(|(_, _, width)| usize::from(width));
    values.map(|value| {
        let width = widths.next().unwrap_or_default();
        let decimals = decimals.next().unwrap_or_default();
        format!("{value:>width$.decimals$}")
    })
}

/// The table as plain text, with at most `most` rows.
pub(super) fn text(counts: &Counts, delivered: &Delivered, column: Column, most: usize) -> String {
    let rows = counts.rows(column);
    let mut text = format!("{}\n{}\n\n", summary(counts), rates(delivered, Counter::mean));
    let titles = COLUMNS.map(|(_, title, width)| format!("{title:>0$}", usize::from(width)));
    text.push_str(&format!("{} method\n", titles.join(" ")));
    for row in rows.iter().take(most) {
        text.push_str(&format!("{} {}{}\n", cells(row).join(" "), row.name, place(row)));
    }
    let last = counts.last();
    for line in last.distortion.iter().chain(&last.note) {
        text.push_str(&format!("\n{line}\n"));
    }
    text
}

fn summary(counts: &Counts) -> String {
    let last = counts.last();
    let seconds = last.elapsed.as_secs_f64().max(0.001);
    let percent = counts.processor_percent();
    let threads = last.threads;
    let rounds = last.rounds as f64 / seconds;
    match last.suspended {
        Some(suspended) => {
            let suspended = 100.0 * suspended.as_secs_f64() / seconds;
            let unsampled = unsampled(counts);
            format!(
                "processor {percent:.0} %{unsampled}  threads {threads}  {seconds:.0} s  {rounds:.0} samplings/s suspended it for {suspended:.1} % of the time"
            )
        }
        None => {
            format!("managed code {percent:.0} %  threads {threads}  {seconds:.0} s  {rounds:.0} samplings/s {LIMITS}")
        }
    }
}

/// What of the processor time no sample stands for, if that is much: short work on many threads.
fn unsampled(counts: &Counts) -> String {
    let Some(sampled) = counts.sampled_percent() else { return String::new() };
    let all = counts.processor_percent();
    let missed = 100.0 * (all - sampled) / all;
    if all < LEAST_PERCENT || missed < LEAST_MISSED { String::new() } else { format!(" ({missed:.0} % unsampled)") }
}

/// Rates of events, each chosen by `rate`.
fn rates(delivered: &Delivered, rate: impl Fn(&Counter) -> f64) -> String {
    let Some(rates) = &delivered.rates else {
        return match &delivered.problem {
            Some(problem) => format!("no rates of events: {problem}"),
            None => "no rates of events yet".to_owned(),
        };
    };
    let [first, second, third] = rates.collections.each_ref().map(&rate);
    let mut text = format!(
        "allocated {}/s  exceptions {:.1}/s  collections {first:.1} {second:.1} {third:.1}/s",
        bytes(rate(&rates.allocated)),
        rate(&rates.exceptions),
    );
    if let Some(percent) = rates.gc_percent {
        text.push_str(&format!("  in GC {percent:.0} %"));
    }
    if let Some(megabytes) = rates.heap_mb {
        text.push_str(&format!("  heap {megabytes:.0} MB"));
    }
    text
}

fn bytes(count: f64) -> String {
    match count {
        count if count >= 1e9 => format!("{:.1} GB", count / 1e9),
        count if count >= 1e6 => format!("{:.1} MB", count / 1e6),
        count => format!("{:.1} kB", count / 1e3),
    }
}

/// Where the row's line is, behind the method.
fn place(row: &Row) -> String {
    row.place.as_ref().map(|place| format!(" in {place}")).unwrap_or_default()
}

/// Method and line in at most `width` columns: the line is kept as long as it fits.
fn fitting_row(row: &Row, width: usize) -> String {
    let place = place(row);
    match width.checked_sub(place.chars().count()) {
        Some(rest) if rest > 0 => fitting(&row.name, rest) + &place,
        _ => fitting(place.trim_start_matches(" in "), width),
    }
}

/// The name in at most `width` columns: without its parameters if it is too long, then without its beginning.
fn fitting(name: &str, width: usize) -> String {
    if name.chars().count() <= width {
        return name.to_owned();
    }
    let short = name.split('(').next().unwrap_or(name);
    let length = short.chars().count();
    if length < width {
        return format!("{short}…");
    }
    let kept: String = short.chars().skip(length + 1 - width.max(1).min(length)).collect();
    if width == 0 { String::new() } else { format!("…{kept}") }
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use ratatui::crossterm::event::KeyModifiers;

    use super::super::counts::Snapshot;
    use super::super::rates::Rates;
    use super::*;

    fn counts() -> Counts {
        let mut counts = Counts::new(Some(Duration::from_secs(5)));
        let text = "top 1\nelapsed 2000\nrounds 190\nsuspended 20\nthreads 9\nprocessor 3000\n\
                    method 0 1500000 1500000 Pool.Burn(int)\n\
                    method 1 20000 900000 Pool.Sixty()\n\
                    method 2 10000 1600000 A.Very.Long.Namespace.With.Many.Parts.Pool.Works(System.Collections.Generic.List<int>)\n";
        assert!(counts.add(Snapshot::parse(text).unwrap()));
        counts
    }

    fn delivered() -> Delivered {
        let counter = |rate| Counter { sum: rate * 4.0, seconds: 2.0, rate };
        let collections = [counter(4.0), counter(1.0), counter(0.0)];
        let rates = Rates {
            allocated: counter(12_300_000.0),
            exceptions: counter(3.0),
            collections,
            gc_percent: Some(2.0),
            heap_mb: Some(45.4),
        };
        Delivered { rates: Some(rates), problem: None }
    }

    fn view() -> View {
        let mut view = View::new(4711, Some("/usr/bin/dotnet Pool.dll"), Column::Own);
        view.update(Condition::Runs, &counts(), &delivered());
        view
    }

    /// The lines of a terminal of this size.
    fn drawn(view: &View, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| view.draw(frame)).unwrap();
        let buffer = terminal.backend().buffer().clone();
        let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
        (0..height).map(line).collect()
    }

    fn press(view: &mut View, code: KeyCode) -> Pressed {
        view.press(KeyEvent::new(code, KeyModifiers::NONE))
    }

    #[test]
    fn the_table_is_drawn() {
        let expected = [
            "corprof top  process 4711  dotnet Pool.dll",
            "processor 150 % (49 % unsampled)  threads 9  2 s  95 samplings/s suspended it for 1.0 % of the time",
            "allocated 12.3 MB/s  exceptions 3.0/s  collections 4.0 1.0 0.0/s  in GC 2 %  heap 45 MB",
            "",
            " ▼own %  total %     own s   total s method",
            "   75.0     75.0      1.50      1.50 Pool.Burn(int)",
            "    1.0     45.0      0.02      0.90 Pool.Sixty()",
            "    0.5     80.0      0.01      1.60 A.Very.Long.Namespace.With.Many.Parts.Pool.Works…",
            "",
            " q detach and quit   1 2 3 4 sort by column   p pause   ↑ ↓ scroll",
        ];
        assert_eq!(drawn(&view(), 100, 10), expected);
    }

    #[test]
    fn samples_by_event_pipe_are_told_apart() {
        let mut counts = Counts::new(None);
        let elapsed = Duration::from_secs(2);
        counts.add(Snapshot { elapsed, rounds: 400, threads: 3, processor: elapsed / 2, ..Snapshot::default() });
        let line = summary(&counts);
        assert_eq!(
            line.split(", ").next(),
            Some("managed code 50 %  threads 3  2 s  200 samplings/s by EventPipe: threads stop at safe points")
        );
    }

    #[test]
    fn a_small_terminal_shows_the_ends_of_names() {
        let lines = drawn(&view(), 60, 8);
        assert_eq!(lines[5], "   75.0     75.0      1.50      1.50 Pool.Burn(int)");
        assert_eq!(lines[6], "    1.0     45.0      0.02      0.90 Pool.Sixty()");
        assert!(lines[7].starts_with(" q detach"));
        let mut view = view();
        press(&mut view, KeyCode::Char('2'));
        let lines = drawn(&view, 60, 8);
        assert_eq!(lines[4], "  own % ▼total %     own s   total s method");
        assert_eq!(lines[5], "    0.5     80.0      0.01      1.60 ….Many.Parts.Pool.Works");
        for (width, height) in [(1, 1), (10, 3), (37, 5), (200, 2)] {
            drawn(&view, width, height);
        }
    }

    #[test]
    fn keys_sort_scroll_pause_and_quit() {
        let mut view = view();
        let first = |view: &View| drawn(view, 100, 10)[5].split_whitespace().last().unwrap_or_default().to_owned();
        assert_eq!(press(&mut view, KeyCode::Char('4')), Pressed::Change);
        assert!(first(&view).ends_with("Works…"));
        press(&mut view, KeyCode::Down);
        assert_eq!(first(&view), "Pool.Burn(int)");
        for (key, expected) in [(KeyCode::End, 2), (KeyCode::Down, 2), (KeyCode::PageUp, 0), (KeyCode::Up, 0)] {
            press(&mut view, key);
            assert_eq!(view.scroll.first, expected);
        }
        assert_eq!(press(&mut view, KeyCode::Char('x')), Pressed::Nothing);
        press(&mut view, KeyCode::Char('p'));
        view.update(Condition::Runs, &Counts::new(None), &Delivered::default());
        assert_eq!(view.rows.len(), 3);
        assert!(drawn(&view, 100, 10)[0].starts_with("corprof top  PAUSED  process 4711"));
        press(&mut view, KeyCode::Char(' '));
        view.update(Condition::Ended, &Counts::new(None), &Delivered::default());
        assert!(view.rows.is_empty());
        let lines = drawn(&view, 100, 10);
        assert!(lines[0].starts_with("corprof top  HAS ENDED  process 4711"));
        assert_eq!(lines[2], "no rates of events yet");
        assert_eq!(press(&mut view, KeyCode::Char('c')), Pressed::Nothing);
        let mut view = View::new(7, None, Column::Own);
        view.update(Condition::Starts, &Counts::new(None), &Delivered::default());
        let lines = drawn(&view, 100, 10);
        assert!(lines[0].contains("waiting for the first numbers") && lines[1].is_empty(), "{lines:?}");
        for quit in [
            KeyEvent::from(KeyCode::Char('q')),
            KeyCode::Esc.into(),
            KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL),
        ] {
            assert_eq!(view.press(quit), Pressed::Quit);
        }
    }

    #[test]
    fn plain_text_has_averages_and_whole_names() {
        let text = text(&counts(), &delivered(), Column::Total, 2);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[1].starts_with("allocated 24.6 MB/s  exceptions 6.0/s  collections 8.0 2.0 0.0/s"), "{text}");
        assert_eq!(lines[3], "  own %  total %     own s   total s method");
        assert!(lines[4].ends_with("Pool.Works(System.Collections.Generic.List<int>)"), "{text}");
        assert_eq!(lines.len(), 6);
    }

    #[test]
    fn lines_stand_behind_their_methods() {
        let line = "top 1\nelapsed 1000\nprocessor 1000\nline 0 700000 700000 41 My.Pool.Burn(int)\t/src/Pool.cs\n";
        let mut counts = Counts::new(None);
        counts.add(Snapshot::parse(line).unwrap());
        let text = text(&counts, &delivered(), Column::Own, 1);
        assert!(text.ends_with("   70.0     70.0      0.70      0.70 My.Pool.Burn(int) in Pool.cs:41\n"), "{text}");
        let row = &counts.rows(Column::Own)[0];
        for width in 0..50 {
            assert!(fitting_row(row, width).chars().count() <= width, "{width}");
        }
        assert_eq!(fitting_row(row, 27), "My.Pool.Burn… in Pool.cs:41");
        assert_eq!(fitting_row(row, 20), "….Burn in Pool.cs:41");
    }

    #[test]
    fn a_problem_of_the_session_is_shown() {
        let delivered = Delivered { rates: None, problem: Some("refused".to_owned()) };
        assert_eq!(rates(&delivered, Counter::mean), "no rates of events: refused");
    }

    #[test]
    fn names_fit_into_any_width() {
        for width in 0..40 {
            let fitted = fitting("Namespace.Größe.Method(int, string)", width);
            assert!(fitted.chars().count() <= width, "{width}: {fitted}");
        }
        assert_eq!(fitting("A.B(int)", 8), "A.B(int)");
        assert_eq!(fitting("A.B(int)", 7), "A.B…");
        assert_eq!(fitting("A.B(int)", 3), "….B");
    }
}

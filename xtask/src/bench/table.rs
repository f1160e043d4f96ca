//! The results: as text on standard output, and as JSON for tools.

use std::fmt::Write;

use anyhow::{Context, Result};
use serde::Serialize;

use super::samples::Compared;

/// One line of the table.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Line {
    /// The measurement.
    pub(super) row: &'static str,
    /// The profiler, or the part of it.
    pub(super) of: &'static str,
    pub(super) figure: f64,
    pub(super) unit: &'static str,
    /// The ratio to the same in C.
    pub(super) ratio: Option<f64>,
    /// The middle half of the rounds: of the ratio if there is one, otherwise of the figure.
    pub(super) spread: Option<(f64, f64)>,
    /// The limit of the ratio, if there is one, otherwise of the figure.
    pub(super) target: Option<f64>,
}

impl Line {
    /// A figure without ratio and target.
    pub(super) fn stated(row: &'static str, of: &'static str, figure: f64, unit: &'static str) -> Self {
        Self { row, of, figure, unit, ratio: None, spread: None, target: None }
    }

    /// The same with its spread.
    pub(super) fn spread(self, spread: (f64, f64)) -> Self {
        Self { spread: Some(spread), ..self }
    }

    /// The same with its ratio to C.
    pub(super) fn ratio(self, ratio: Compared) -> Self {
        Self { ratio: Some(ratio.value), spread: Some(ratio.spread), ..self }
    }

    /// The same with a target.
    pub(super) fn target(self, target: f64) -> Self {
        Self { target: Some(target), ..self }
    }

    /// Whether the target is missed, if there is one. NaN misses it.
    pub(super) fn is_over(&self) -> Option<bool> {
        let value = self.ratio.unwrap_or(self.figure);
        self.target.map(|target| value.is_nan() || value > target)
    }

    fn cells(&self) -> [String; 8] {
        // Whole KiB and events are precise enough; times need hundredths.
        let decimals = if self.unit.starts_with("KiB") || self.unit.starts_with("events") { 0 } else { 2 };
        let digits = if self.ratio.is_some() { 3 } else { decimals };
        let text =
            |value: Option<f64>, digits: usize| value.map(|value| format!("{value:.digits$}")).unwrap_or_default();
        let target_digits = if self.ratio.is_some() { 2 } else { digits };
        [
            self.row.to_owned(),
            self.of.to_owned(),
            text(Some(self.figure), decimals),
            self.unit.to_owned(),
            text(self.ratio, 3),
            self.spread.map(|(low, high)| format!("{low:.digits$} to {high:.digits$}")).unwrap_or_default(),
            self.target.map(|target| format!("<= {target:.target_digits$}")).unwrap_or_default(),
            match self.is_over() {
                Some(true) => "OVER",
                Some(false) => "ok",
                None => "",
            }
            .to_owned(),
        ]
    }
}

/// The table, with its head.
pub(super) fn text(lines: &[Line]) -> String {
    let head = ["row", "under", "figure", "unit", "ratio to C", "middle half", "target", ""].map(str::to_owned);
    let rows: Vec<_> = std::iter::once(head).chain(lines.iter().map(Line::cells)).collect();
    let mut widths = [0; 8];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    let mut table = String::new();
    for row in &rows {
        let [name, of, figure, unit, ratio, spread, target, verdict] = row;
        let [w0, w1, w2, w3, w4, w5, w6, _] = widths;
        let line = format!(
            "{name:w0$}  {of:w1$}  {figure:>w2$} {unit:w3$}  {ratio:>w4$}  {spread:w5$}  {target:w6$}  {verdict}"
        );
        // Writing to a string cannot fail.
        let _ = writeln!(table, "{}", line.trim_end());
    }
    table
}

/// The same as JSON: the lines, each with whether it missed its target, and the runtime.
pub(super) fn json(lines: &[Line], runtime: &str) -> Result<String> {
    #[derive(Serialize)]
    struct Judged<'a> {
        #[serde(flatten)]
        line: &'a Line,
        over: Option<bool>,
    }
    let lines: Vec<_> = lines.iter().map(|line| Judged { line, over: line.is_over() }).collect();
    let value = serde_json::json!({ "runtime": runtime, "lines": lines });
    serde_json::to_string_pretty(&value).map(|text| text + "\n").context("cannot write the results as JSON")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines() -> [Line; 3] {
        let ratio = Compared { value: 1.0612, spread: (1.01, 1.09) };
        [
            Line::stated("storm", "C", 34.04, "ns"),
            Line::stated("storm", "corprof", 36.1, "ns").ratio(ratio).target(1.05),
            Line::stated("memory", "corprof", 352.0, "KiB").spread((340.0, 360.0)).target(2048.0),
        ]
    }

    #[test]
    fn the_ratio_is_judged_if_there_is_one() {
        assert_eq!(lines().map(|line| line.is_over()), [None, Some(true), Some(false)]);
        assert_eq!(Line::stated("x", "y", f64::NAN, "z").target(1.0).is_over(), Some(true));
    }

    #[test]
    fn the_table_is_aligned_and_says_what_is_over() {
        let expected = "\
row     under    figure unit  ratio to C  middle half     target
storm   C         34.04 ns
storm   corprof   36.10 ns         1.061  1.010 to 1.090  <= 1.05  OVER
memory  corprof     352 KiB               340 to 360      <= 2048  ok
";
        assert_eq!(text(&lines()), expected);
    }

    #[test]
    fn json_has_the_verdict_in_each_line() {
        let value: serde_json::Value = serde_json::from_str(&json(&lines(), "x").unwrap()).unwrap();
        assert_eq!(value["lines"][1]["over"], true);
        assert_eq!(value["lines"][1]["ratio"], 1.0612);
        assert!(value["lines"][0]["over"].is_null());
    }
}

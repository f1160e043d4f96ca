//! Counters as lines of JSON and of CSV.

use std::io::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Result;
use serde_json::json;

use super::news::{QUANTILES, Series};
use super::table::Row;

/// The format of the lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lines {
    Json,
    Csv,
}

impl Lines {
    /// Writes what comes before the values.
    pub(super) fn head(self, out: &mut impl Write) -> Result<()> {
        if self == Self::Csv {
            let columns = [
                "time",
                "source",
                "counter",
                "tags",
                "unit",
                "per_second",
                "value",
                "count",
                "sum",
                "p50",
                "p95",
                "p99",
            ];
            out.write_all(&record(columns)?)?;
        }
        Ok(())
    }

    /// Writes a value.
    pub(super) fn value(self, series: &Series, row: &Row, out: &mut impl Write) -> Result<()> {
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        let Series { source, name, tags } = series;
        let Row { unit, per_second, value, histogram } = row;
        let quantiles = histogram.map(|histogram| histogram.quantiles).unwrap_or_default();
        match self {
            Self::Json => {
                let quantiles: serde_json::Map<_, _> =
                    QUANTILES.iter().zip(quantiles).map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
                let line = json!({
                    "time": time,
                    "source": source,
                    "counter": name,
                    "tags": tags,
                    "unit": unit,
                    "per_second": per_second,
                    "value": value,
                    "histogram": histogram.map(|known| {
                        json!({ "count": known.count, "sum": known.sum, "quantiles": quantiles })
                    }),
                });
                writeln!(out, "{line}")?;
            }
            Self::Csv => {
                let number = |number: Option<f64>| number.map(|number| number.to_string()).unwrap_or_default();
                let mut columns = vec![format!("{time:.3}"), source.clone(), name.clone(), tags.clone(), unit.clone()];
                columns.extend([number(*per_second), number(*value)]);
                columns.push(histogram.map(|histogram| histogram.count.to_string()).unwrap_or_default());
                columns.push(number(histogram.map(|histogram| histogram.sum)));
                columns.extend(quantiles.map(number));
                out.write_all(&record(columns)?)?;
            }
        }
        Ok(())
    }
}

/// A line of CSV.
fn record<C: AsRef<[u8]>>(columns: impl IntoIterator<Item = C>) -> Result<Vec<u8>> {
    let mut line = csv::Writer::from_writer(Vec::new());
    line.write_record(columns)?;
    Ok(line.into_inner()?)
}

#[cfg(test)]
mod tests {
    use super::super::table::Histogram;
    use super::*;

    fn series() -> Series {
        Series { source: "Shop".into(), name: "waits".into(), tags: "kind=tea,size=1".into() }
    }

    fn written(lines: Lines, row: &Row) -> String {
        let mut out = Vec::new();
        lines.head(&mut out).unwrap();
        lines.value(&series(), row, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn lines_have_all_that_is_known() {
        let quantiles = [Some(1.0), None, Some(2.5)];
        let histogram = Some(Histogram { count: 3, sum: 4.5, quantiles });
        let row = Row { unit: "s".into(), per_second: Some(1.5), value: None, histogram };
        let csv = written(Lines::Csv, &row);
        let (head, line) = csv.split_once('\n').unwrap();
        assert_eq!(head, "time,source,counter,tags,unit,per_second,value,count,sum,p50,p95,p99");
        assert!(line.ends_with(",Shop,waits,\"kind=tea,size=1\",s,1.5,,3,4.5,1,,2.5\n"), "{line}");
        let json: serde_json::Value = serde_json::from_str(&written(Lines::Json, &row)).unwrap();
        assert_eq!(json["counter"], "waits");
        assert_eq!(json["value"], serde_json::Value::Null);
        assert_eq!(
            json["histogram"],
            json!({ "count": 3, "sum": 4.5, "quantiles": { "0.5": 1.0, "0.95": null, "0.99": 2.5 } })
        );
        let gauge = Row { unit: String::new(), per_second: None, value: Some(2.0), histogram: None };
        assert!(written(Lines::Csv, &gauge).ends_with(",,,2,,,,,\n"));
    }
}

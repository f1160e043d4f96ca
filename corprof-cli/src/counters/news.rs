//! What the events of counters and meters say.

use corprof_nettrace::events::{Event, Record, Value as Field};

/// The provider of all meters.
pub(crate) const METERS: &str = "System.Diagnostics.Metrics";

/// The quantiles of a histogram that the runtime sends, as it writes them.
pub(crate) const QUANTILES: [&str; 3] = ["0.5", "0.95", "0.99"];

/// What a session of counters delivers.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum News {
    /// A new interval begins: what follows was measured in the one before, which lasted this many seconds.
    Interval(f64),
    /// A counter's value.
    Reading(Reading),
    /// The instruments of this meter are measured from now on.
    Measured(String),
    /// There is this instrument.
    Instrument(Instrument),
    /// All instruments that exist now were told.
    AllTold,
    /// Something is missing, for this reason.
    Trouble(String),
}

/// Which values belong together: the same counter with the same tags.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Series {
    /// The meter, or the event source.
    pub(crate) source: String,
    pub(crate) name: String,
    /// `KEY=VALUE,KEY=VALUE`.
    pub(crate) tags: String,
}

/// A counter's value in an interval.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Reading {
    pub(crate) series: Series,
    pub(crate) unit: String,
    /// Whether it is of a meter, and not of an event source.
    pub(crate) is_of_meter: bool,
    pub(crate) value: Value,
}

/// The value, by its kind.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    /// Something that happens.
    Rate {
        /// In the interval; unknown in the first one of an observed counter.
        count: Option<f64>,
        /// Since the instrument exists, or was first measured. Event sources do not tell it.
        total: Option<f64>,
        /// The interval of an event source, in seconds. Meters tell it by [`News::Interval`].
        seconds: Option<f64>,
    },
    /// Something that has a size: the last value, or the mean of the interval.
    Gauge(f64),
    /// Several values in the interval.
    Histogram {
        count: u64,
        sum: f64,
        /// Those of [`QUANTILES`].
        quantiles: [Option<f64>; 3],
    },
}

/// An instrument of a meter.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Instrument {
    pub(crate) meter: String,
    pub(crate) name: String,
    pub(crate) kind: String,
    pub(crate) unit: String,
    pub(crate) description: String,
}

impl News {
    /// What the event says; none if it is about something else.
    pub(crate) fn of(event: &Event<'_>) -> Option<Self> {
        if event.provider().name() != METERS {
            return counter(event).map(Self::Reading);
        }
        let text = |name: &str| text_of(event.field(name));
        let name = event.name();
        if name == "CollectionStart" {
            let ticks = |name: &str| event.field(name).and_then(Field::as_u64);
            let interval = ticks("intervalEndTime")?.saturating_sub(ticks("intervalStartTime")?);
            return Some(Self::Interval(seconds_of(interval)));
        }
        if name == "BeginInstrumentReporting" {
            return Some(Self::Measured(text("meterName")));
        }
        if name == "InstrumentPublished" {
            return Some(Self::Instrument(Instrument {
                meter: text("meterName"),
                name: text("instrumentName"),
                kind: text("instrumentType"),
                unit: text("unit"),
                description: text("description"),
            }));
        }
        if name == "InitialInstrumentEnumerationComplete" {
            return Some(Self::AllTold);
        }
        if let Some(trouble) = trouble(event) {
            return Some(Self::Trouble(trouble));
        }
        let value = if name == "CounterRateValuePublished" || name == "UpDownCounterRateValuePublished" {
            let total = text("value").parse().ok();
            let is_rate = name == "CounterRateValuePublished";
            // What goes up and down has a size, not a rate.
            if is_rate {
                Value::Rate { count: text("rate").parse().ok(), total, seconds: None }
            } else {
                Value::Gauge(total?)
            }
        } else if name == "GaugeValuePublished" {
            Value::Gauge(text("lastValue").parse().ok()?)
        } else if name == "HistogramValuePublished" {
            let count = event.field("count").and_then(Field::as_u64).unwrap_or_default();
            let sum = event.field("sum").and_then(Field::as_f64).unwrap_or_default();
            Value::Histogram { count, sum, quantiles: quantiles(&text("quantiles")) }
        } else {
            return None;
        };
        let series = Series { source: text("meterName"), name: text("instrumentName"), tags: text("tags") };
        Some(Self::Reading(Reading { series, unit: text("unit"), is_of_meter: true, value }))
    }
}

fn text_of(field: Option<Field<'_>>) -> String {
    field.and_then(Field::as_text).map(|text| text.to_string()).unwrap_or_default()
}

/// Seconds from units of 100 ns.
#[allow(clippy::cast_precision_loss, reason = "an interval is short")]
fn seconds_of(ticks: u64) -> f64 {
    ticks as f64 / 1e7
}

/// The values of `0.5=1;0.95=2;0.99=3`.
fn quantiles(text: &str) -> [Option<f64>; 3] {
    let value = |wanted: &str| {
        let mut pairs = text.split(';').filter_map(|pair| pair.split_once('='));
        pairs.find(|(quantile, _)| *quantile == wanted)?.1.parse().ok()
    };
    QUANTILES.map(value)
}

/// What is missing, and what to do about it.
fn trouble(event: &Event<'_>) -> Option<String> {
    let text = |name: &str| text_of(event.field(name));
    let name = event.name();
    if name == "Error" {
        return Some(format!("the runtime's meters failed: {}", first_line(&text("errorMessage"))));
    }
    if name == "TimeSeriesLimitReached" {
        return Some("there are more series than --max-series, and the rest is not measured".to_owned());
    }
    if name == "HistogramLimitReached" {
        return Some("there are more histograms than --max-histograms, and the rest is not measured".to_owned());
    }
    if name == "ObservableInstrumentCallbackError" {
        return Some(format!(
            "an observed instrument of the application failed: {}",
            first_line(&text("errorMessage"))
        ));
    }
    if name == "MultipleSessionsNotSupportedError" {
        return Some("another tool reads the meters of this process and does not share them: end it first".to_owned());
    }
    None
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

/// The counter of an event source, if the event is of one.
fn counter(event: &Event<'_>) -> Option<Reading> {
    let fields = event.fields().find_map(|(_, value)| named(value.as_record()?, 3))?;
    let number = |name: &str| fields.field(name).and_then(Field::as_f64);
    let series = Series {
        source: event.provider().name().to_string(),
        name: text_of(fields.field("Name")),
        tags: text_of(fields.field("Metadata")),
    };
    let value = match number("Increment") {
        Some(count) => Value::Rate { count: Some(count), total: None, seconds: number("IntervalSec") },
        None => Value::Gauge(number("Mean")?),
    };
    let unit = text_of(fields.field("DisplayUnits"));
    Some(Reading { series, unit, is_of_meter: false, value })
}

/// The first record with a name: the runtime packs the fields of a counter into records of one field.
fn named(record: Record<'_>, depth: u8) -> Option<Record<'_>> {
    if record.field("Name").is_some() {
        return Some(record);
    }
    let depth = depth.checked_sub(1)?;
    record.fields().find_map(|(_, value)| named(value.as_record()?, depth))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_read_by_their_names() {
        assert_eq!(quantiles("0.5=1;0.95=2.5;0.99=1E-05"), [Some(1.0), Some(2.5), Some(1e-5)]);
        assert_eq!(quantiles("0.99=3;0.5=x;;0.9"), [None, None, Some(3.0)]);
        assert_eq!(quantiles(""), [None; 3]);
    }

    #[test]
    fn an_interval_is_in_seconds() {
        assert!((seconds_of(12_500_000) - 1.25).abs() < 1e-12);
    }
}

//! Tables of methods, with numbers of calls and times.

use std::fmt;
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use crate::{Error, write};

/// Sums of a method's calls; as text, a row of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Method<'a> {
    /// Its name, or another subject of the line.
    pub name: &'a str,
    /// How often it was called.
    pub calls: u64,
    /// The time from the beginnings to the ends of its calls, one within another counted once.
    pub inclusive: Duration,
    /// The inclusive time without the time of callees.
    pub exclusive: Duration,
    /// The part of the exclusive time that its threads spent on a processor.
    pub cpu: Duration,
    /// How long its calls waited without a thread, suspended by the runtime. No other time has it.
    pub waiting: Duration,
}

impl Method<'_> {
    /// The line above the others.
    pub const HEADER: &'static str = "       calls   inclusive ms   exclusive ms   processor ms     waiting ms  method";

    /// Writes a CSV file (RFC 4180) with a header and times in nanoseconds.
    ///
    /// # Errors
    /// If it cannot be written; a file that was there is then as it was.
    pub fn write_csv(path: impl AsRef<Path>, methods: &[Self]) -> Result<(), Error> {
        write::replace(path.as_ref(), |file| Self::csv(file, methods))
    }

    fn csv(file: impl Write, methods: &[Self]) -> io::Result<()> {
        let mut table = csv::WriterBuilder::new().terminator(csv::Terminator::CRLF).from_writer(file);
        table.write_record(["method", "calls", "inclusive_ns", "exclusive_ns", "cpu_ns", "waiting_ns"])?;
        for Method { name, calls, inclusive, exclusive, cpu, waiting } in methods {
            let times = [inclusive, exclusive, cpu, waiting].map(Duration::as_nanos);
            let numbers = [u128::from(*calls)].into_iter().chain(times).map(|number| number.to_string());
            table.write_record([(*name).to_owned()].into_iter().chain(numbers))?;
        }
        table.flush()
    }
}

impl fmt::Display for Method<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [inclusive, exclusive, cpu, waiting] =
            [self.inclusive, self.exclusive, self.cpu, self.waiting].map(|time| time.as_secs_f64() * 1e3);
        write!(f, "{:>12} {inclusive:>14.3} {exclusive:>14.3} {cpu:>14.3} {waiting:>14.3}  {}", self.calls, self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_stand_below_the_header_and_names_are_quoted() {
        let method = Method {
            name: "A.B(int32, \"x\")",
            calls: 3,
            inclusive: Duration::from_micros(1500),
            exclusive: Duration::from_nanos(7000),
            cpu: Duration::from_nanos(2000),
            waiting: Duration::from_millis(2),
        };
        let line = "           3          1.500          0.007          0.002          2.000  A.B(int32, \"x\")";
        assert_eq!(method.to_string(), line);
        assert_eq!(method.to_string().find("A.B"), Method::HEADER.find("method"));
        let mut csv = Vec::new();
        Method::csv(&mut csv, &[method]).unwrap();
        let expected = "method,calls,inclusive_ns,exclusive_ns,cpu_ns,waiting_ns\r\n\"A.B(int32, \"\"x\"\")\",3,1500000,7000,2000,2000000\r\n";
        assert_eq!(String::from_utf8(csv).unwrap(), expected);
    }
}

//! What the sampler tells the command about its file, in a file beside SAMPLER_STOP: a word, then lines for the
//! terminal.
//!
//! `written`: the lines are those of every format, then the busiest methods with their own shares, then slow calls.
//! `empty`: there is no file, for this reason. `failed`: the error.

use std::time::Duration;

use corprof::prelude::*;
use corprof::sampler::{Mode, Report};
use corprof_export::Profile;

/// The methods that are named.
const MOST: usize = 5;

/// The text of the file.
pub(super) fn text(profile: &Profile, error: Option<&BoxError>, why_empty: Option<&str>) -> String {
    if let Some(error) = error {
        return format!("failed\n{error}\n");
    }
    if let Some(why_empty) = why_empty {
        return format!("empty\n{why_empty}\n");
    }
    let busiest = profile.busiest(MOST).into_iter().map(|(share, method)| format!("{:5.1} %  {method}", 100.0 * share));
    let lines: Vec<String> = profile.caption().into_iter().chain(busiest).chain(profile.slow_call_lines()).collect();
    format!("written\n{}\n", lines.join("\n"))
}

/// Why a profile has no samples.
pub(super) fn why_empty(report: &Report, elapsed: Duration) -> String {
    let seconds = elapsed.as_secs_f64();
    let Report { rounds, skipped, cpu_time, waited, .. } = report;
    if *rounds == 0 {
        return if elapsed.is_zero() {
            "the application ended before sampling began".to_owned()
        } else {
            format!("no round of the sampler in {seconds:.1} s ({skipped})")
        };
    }
    let looks = if *rounds == 1 { "1 round".to_owned() } else { format!("{rounds} rounds") };
    let looks = format!("{looks} in {seconds:.1} s ({skipped})");
    if report.mode == Mode::Wall {
        return format!("{looks} saw no managed thread");
    }
    let used = cpu_time.as_secs_f64();
    if *waited > 0 {
        return format!(
            "{looks} saw threads at work {waited} times, and each waited before it had stopped: record longer"
        );
    }
    format!(
        "{looks} saw no thread at work; all used {used:.2} s of processor time. Record longer, or waits by --mode wall"
    )
}

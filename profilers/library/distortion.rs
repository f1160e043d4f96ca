//! What distorts a profile of processor time where signals cannot be sent, or do not show which threads are running.
//!
//! Each text has the greatest error that was measured where the truth is known. The measurements, and the commands that
//! repeat them, are in `book/src/how-a-profile-lies.md`.

use corprof::sampler::{Mode, Report, Strategy};

const AT_SAFEPOINTS: &str = "Threads were stopped at safepoints: code between two of them is charged to the next call \
                             or end of a loop. Known shares were off by up to 9 points. A busy machine allows few \
                             rounds";
const OF_READY_THREADS: &str = "Threads that wait for a processor count as working where they lost it, often a system \
                                call: on a full machine such a call had up to 11 points too much";

/// What distorts the profile of this report, if anything does.
pub(crate) fn of(report: &Report) -> Option<&'static str> {
    if report.mode != Mode::Cpu {
        return None;
    }
    match report.strategy {
        Strategy::SuspendedRuntime => Some(AT_SAFEPOINTS),
        Strategy::Signals if report.samples_ready_threads => Some(OF_READY_THREADS),
        _ => None,
    }
}

//! `--async-probe`: an attached profiler may change code to find async callers, where the runtime does not tell them.

use corprof_diagnostics::Process;

use crate::async_trace;

/// The option.
pub(crate) const OPTION: &str = "--async-probe";

/// The word of a setting of async callers that has a profiler change code.
pub(crate) const WORD: &str = "probe";

/// Whether a probe finds callers in this process that the runtime would not tell.
pub(crate) fn is_needed(process: &Process) -> bool {
    let info = process.client().process_info();
    !info.is_ok_and(|info| info.clr_major() >= Some(async_trace::FIRST))
}

/// The word of a setting of async callers.
pub(crate) fn stacks(is_physical: bool, changes_code: bool) -> &'static str {
    match () {
        () if is_physical => "physical",
        () if changes_code => WORD,
        () => "async",
    }
}

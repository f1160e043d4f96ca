//! The name of a snapshot.

use corprof_diagnostics::ProcessInfo;

/// The name of a snapshot of the process.
pub(super) fn title(info: &ProcessInfo) -> String {
    if info.entry_assembly.is_empty() { info.command_line.clone() } else { info.entry_assembly.clone() }
}

//! What the command says about a profiler that prints each event because no file was named.

use corprof_launch::launch::{self, Changes};
use corprof_profilers::table::{LOGGER, Profiler, TRACER};

/// The profilers, the settings of their files, and what they do without.
const HINTS: [(&Profiler, &str, &str); 2] = [
    (
        &TRACER,
        "TRACER_OUT",
        "`tracer` prints every call: for a file that https://ui.perfetto.dev opens, `corprof tracer -o calls.pftrace`, or \
         --env TRACER_OUT=calls.pftrace",
    ),
    (
        &LOGGER,
        "LOGGER_DIR",
        "`logger` prints every event on the application's standard error: for a file of each thread, \
         --env LOGGER_DIR=events",
    ),
];

/// The line about a profiler whose file neither `changes` nor the environment names.
fn of(profiler: &Profiler, changes: &Changes) -> Option<&'static str> {
    let (_, variable, hint) = HINTS.iter().find(|(of, ..)| of.name == profiler.name)?;
    launch::value_of(changes, variable).is_none().then_some(*hint)
}

/// Prints it, unless the user wants errors only.
pub(crate) fn print(profiler: &Profiler, changes: &Changes, is_quiet: bool) {
    if let Some(hint) = of(profiler, changes).filter(|_| !is_quiet) {
        eprintln!("corprof: {hint}");
    }
}

#[cfg(test)]
mod tests {
    use corprof_profilers::table::LOCKS;

    use super::*;

    #[test]
    fn a_file_that_is_not_named_is() {
        let mut changes = Changes::default();
        assert!(of(&TRACER, &changes).is_some_and(|hint| hint.contains("calls.pftrace")));
        assert!(of(&LOGGER, &changes).is_some_and(|hint| hint.contains("LOGGER_DIR")));
        assert_eq!(of(&LOCKS, &changes), None);
        changes.insert("TRACER_OUT".to_owned(), Some("a.json".into()));
        assert_eq!(of(&TRACER, &changes), None);
    }
}

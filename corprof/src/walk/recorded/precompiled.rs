//! In which libraries precompiled code has run, and from where on.
//!
//! Asked about an address in precompiled code, the runtime goes back to the next method that has run. If none has, it
//! reads what is before its table, and crashes. Behind code that has run it may be asked about any address.

use std::ops::Range;
use std::time::{Duration, Instant};

use crate::system::mappings::{mappings, read_mappings};

/// How long it does not look for libraries again, which takes a millisecond.
const PAUSE: Duration = Duration::from_millis(50);

/// The code of libraries, as far as some of it is known to have run.
#[derive(Default)]
pub(super) struct Precompiled {
    libraries: Vec<Library>,
    looked: Option<Instant>,
}

/// The code of a library in memory.
struct Library {
    range: Range<usize>,
    /// Where the first method begins that has run.
    first: usize,
}

impl Precompiled {
    /// The method that begins here has run. `is_compiled` says whether it is in no library; it is asked only where the
    /// library is not known.
    pub(super) fn has_run(&mut self, start: usize, is_compiled: impl FnOnce() -> bool) {
        if let Some(library) = self.libraries.iter_mut().find(|library| library.range.contains(&start)) {
            library.first = library.first.min(start);
            return;
        }
        if is_compiled() {
            return;
        }
        if self.looked.is_some_and(|looked| looked.elapsed() < PAUSE) {
            return; // It is recorded when the method is looked up again.
        }
        self.looked = Some(Instant::now());
        let text = read_mappings().unwrap_or_default();
        let mapping = mappings(&text).find(|mapping| mapping.range.contains(&start));
        self.libraries.extend(mapping.map(|mapping| Library { range: mapping.range, first: start }));
    }

    /// Whether a method before this address, in the same library, has run.
    pub(super) fn is_after_code_that_has_run(&self, address: usize) -> bool {
        self.libraries.iter().any(|library| (library.first..library.range.end).contains(&address))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_behind_code_that_has_run_may_be_asked_about() {
        let own = read_mappings as fn() -> _ as usize;
        let mut precompiled = Precompiled::default();
        precompiled.has_run(own, || true);
        assert!(!precompiled.is_after_code_that_has_run(own));
        precompiled.has_run(own, || false);
        let is_after = [own - 1, own, own + 64].map(|address| precompiled.is_after_code_that_has_run(address));
        assert_eq!(is_after, [false, true, true]);
        precompiled.has_run(own - 64, || true);
        precompiled.has_run(own, || false);
        assert!(precompiled.is_after_code_that_has_run(own - 1));

        let range = precompiled.libraries[0].range.clone();
        assert!(!precompiled.is_after_code_that_has_run(range.end));
        assert_eq!(precompiled.libraries.len(), 1);
    }
}

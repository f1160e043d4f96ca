//! Inconsistencies and losses of a dump.

use std::fmt::{self, Display, Formatter};

/// Counts of parts that were lost or came twice, made while the graph was built. All zero for a dump that is whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Losses {
    /// References to addresses at which no object was reported. They are left out.
    pub unknown_targets: u64,
    /// References from addresses at which no object was reported. They are left out.
    pub unknown_sources: u64,
    /// Roots that hold no reported object. They are left out.
    pub unknown_roots: u64,
    /// Pairs of weak tables whose key, value or table was not reported. They are left out.
    pub unknown_ephemerons: u64,
    /// Objects reported a second time in the same way. They count once.
    pub repeated_objects: u64,
    /// Objects reported a second time with another class or size. The first report counts.
    pub conflicting_objects: u64,
    /// References that objects announced and that never came.
    pub missing_references: u64,
    /// References that no object had announced. They are left out.
    pub surplus_references: u64,
    /// Blocks that are missing between those that came.
    pub missing_blocks: u64,
    /// Blocks of a second dump that followed in the same stream. They are left out.
    pub repeated_blocks: u64,
    /// Blocks that do not have the length they claim. They are left out.
    pub malformed_blocks: u64,
    /// 1 if the stream ended before the dump did.
    pub missing_end: u64,
}

impl Losses {
    /// Each count with its meaning.
    pub(crate) fn counts(&self) -> [(&'static str, u64); 12] {
        [
            ("references to unknown addresses", self.unknown_targets),
            ("references from unknown addresses", self.unknown_sources),
            ("roots of unknown objects", self.unknown_roots),
            ("weak-table pairs with unknown objects", self.unknown_ephemerons),
            ("objects reported twice", self.repeated_objects),
            ("objects reported twice with different class or size", self.conflicting_objects),
            ("announced references that never came", self.missing_references),
            ("references that no object announced", self.surplus_references),
            ("blocks missing", self.missing_blocks),
            ("blocks of a second dump", self.repeated_blocks),
            ("malformed blocks", self.malformed_blocks),
            ("end of the dump missing", self.missing_end),
        ]
    }

    pub(crate) fn from_counts(counts: [u64; 12]) -> Self {
        let [
            unknown_targets,
            unknown_sources,
            unknown_roots,
            unknown_ephemerons,
            repeated_objects,
            conflicting_objects,
            missing_references,
            surplus_references,
            missing_blocks,
            repeated_blocks,
            malformed_blocks,
            missing_end,
        ] = counts;
        Self {
            unknown_targets,
            unknown_sources,
            unknown_roots,
            unknown_ephemerons,
            repeated_objects,
            conflicting_objects,
            missing_references,
            surplus_references,
            missing_blocks,
            repeated_blocks,
            malformed_blocks,
            missing_end,
        }
    }

    /// Whether objects or references are missing, so that sizes are too small and paths may be wrong. Doubled
    /// parts are not missing.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        let Self { unknown_targets, unknown_sources, unknown_roots, unknown_ephemerons, .. } = *self;
        let Self { missing_references, surplus_references, missing_blocks, malformed_blocks, missing_end, .. } = *self;
        let unknown = unknown_targets | unknown_sources | unknown_roots | unknown_ephemerons;
        let missing = missing_references | surplus_references | missing_blocks | malformed_blocks | missing_end;
        unknown | missing != 0
    }

    /// Whether a second dump, or part of one, was in the input. The first one counts.
    #[must_use]
    pub fn is_doubled(&self) -> bool {
        self.repeated_objects | self.conflicting_objects | self.repeated_blocks != 0
    }

    /// Whether everything that was said fits together.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        *self == Self::default()
    }
}

impl Display for Losses {
    /// `no loss`, or the counts that are not zero, separated by commas.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.is_whole() {
            return f.write_str("no loss");
        }
        let mut separator = "";
        for (meaning, count) in self.counts().into_iter().filter(|&(_, count)| count > 0) {
            write!(f, "{separator}{count} {meaning}")?;
            separator = ", ";
        }
        Ok(())
    }
}

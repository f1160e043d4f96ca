//! The names of the runtime's keywords.

use crate::generated::keywords::KEYWORDS;
use crate::keywords::Keywords;

impl Keywords {
    /// The runtime's keyword of this name, as in `GC` or `GCKeyword`; capitals do not matter.
    #[must_use]
    pub fn of(name: &str) -> Option<Self> {
        let short = |name: &str| name.strip_suffix("Keyword").unwrap_or(name).to_ascii_lowercase();
        let wanted = short(name);
        KEYWORDS.iter().find(|(name, _)| short(name) == wanted).map(|&(_, bit)| Self(bit))
    }

    /// The names of the runtime's keywords among them, as the manifest has them.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        KEYWORDS.iter().filter(move |(_, bit)| self.0 & bit != 0).map(|&(name, _)| name)
    }
}

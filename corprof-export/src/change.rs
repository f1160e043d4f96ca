//! How methods differ from those of another profile.

/// The difference of a method from the same one in an older profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Change {
    /// None that is more than chance.
    Noise,
    /// It takes more itself.
    More,
    /// It takes less itself.
    Less,
    /// What it calls takes more.
    MoreBelow,
    /// What it calls takes less.
    LessBelow,
}

impl Change {
    /// Its number in the page.
    pub(crate) const fn number(self) -> u8 {
        match self {
            Self::Noise => 0,
            Self::More => 1,
            Self::MoreBelow => 2,
            Self::Less => 3,
            Self::LessBelow => 4,
        }
    }
}

//! How methods differ from those of another profile.

use crate::{FrameId, Profile};

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

impl Profile {
    /// Says how a method differs from an older profile, with words for it. The HTML page then colours methods by their
    /// changes, and not by their kinds.
    ///
    /// ```
    /// # use corprof_export::{Change, Frame, Profile, Unit};
    /// let mut profile = Profile::new("shop", Unit::Samples);
    /// let total = profile.frame(Frame::managed("Shop.Order.Total()"));
    /// profile.set_change(total, Change::More, "5 % before, 9 % now");
    /// ```
    pub fn set_change(&mut self, frame: FrameId, change: Change, words: impl Into<String>) {
        self.about.changes.insert(frame, (change, words.into()));
    }
}

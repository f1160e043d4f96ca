//! Shares the memory of equal chains.

use rustc_hash::FxHashSet;

use crate::frame::{Chain, Frame};

/// The chains that were seen lately.
#[derive(Debug, Default)]
pub(super) struct Chains {
    /// Each operation that goes on is looked up, with all of its frames.
    known: FxHashSet<Chain>,
    frames: Vec<Frame>,
}

/// How many chains are remembered. A service has some hundred.
const MOST: usize = 1024;

impl Chains {
    /// The chain of these frames, at most `most` of them.
    pub(super) fn share(&mut self, frames: impl Iterator<Item = Frame>, most: usize) -> Chain {
        self.frames.clear();
        self.frames.extend(frames.take(most));
        if let Some(chain) = self.known.get(&self.frames[..]) {
            return chain.clone();
        }
        if self.known.len() >= MOST {
            self.known.clear();
        }
        let chain = Chain::from(&self.frames[..]);
        self.known.insert(chain.clone());
        chain
    }
}

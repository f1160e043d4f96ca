//! Which methods await the ones that were sampled. From .NET 11 on the runtime tells what its threads run, some time
//! after they have run it: when they have nothing to do for a second, or when they are asked (`questions`).

use corprof_async::{
    AskedMethods, Decoder, LogicalFrame, LogicalStack, LogicalStacks, Outcome, PROVIDER, STACK_KEYWORDS,
};
use corprof_diagnostics::{Level, Provider};

use super::Sample;
use crate::trace_methods::Methods;

/// The source that tells it.
pub(super) fn provider(level: Level) -> Provider {
    Provider::new(PROVIDER, STACK_KEYWORDS, level)
}

/// What threads have told of the operations that they run.
#[derive(Debug)]
pub(super) struct AsyncCallers {
    decoder: Decoder,
    stacks: LogicalStacks,
    /// The last one that was joined: its memory is used again.
    logical: LogicalStack,
    /// All threads have told what they ran up to this time.
    answered_until: u64,
}

impl AsyncCallers {
    pub(super) fn new() -> Self {
        let (decoder, stacks, logical) = (Decoder::new(), LogicalStacks::new(), LogicalStack::new());
        Self { decoder, stacks, logical, answered_until: 0 }
    }

    /// Takes what a thread has written. Where it is damaged, samples keep their physical stacks.
    pub(super) fn take(&mut self, payload: &[u8], written: u64) {
        if let Ok(buffer) = self.decoder.decode(payload) {
            self.stacks.take_buffer(&buffer, written, |_step| {});
        }
    }

    /// All threads have told what they ran up to this time.
    pub(super) fn answered(&mut self, until: u64) {
        self.answered_until = self.answered_until.max(until);
    }

    /// Whether it has come what the sample's thread ran, and who awaits that. An operation from before `since` is taken
    /// for one that does not end.
    pub(super) fn is_told(&self, sample: &Sample, since: u64) -> bool {
        self.is_known(sample) && !self.stacks.awaits_an_end(sample.thread, sample.ticks, since)
    }

    fn is_known(&self, sample: &Sample) -> bool {
        self.stacks.known_until(sample.thread).max(self.answered_until) >= sample.ticks
    }

    /// The stack of a sample down to the method that was resumed, and then those that await it; none if nobody does, or
    /// if that is not known.
    pub(super) fn join(
        &mut self,
        sample: &Sample,
        physical: &[LogicalFrame],
        methods: &Methods,
    ) -> Option<&[LogicalFrame]> {
        // What the thread ran last may be over.
        if !self.is_known(sample) {
            return None;
        }
        self.stacks.active(sample.thread, sample.ticks)?;
        let addresses: Vec<u64> = physical.iter().map(|frame| frame.address).collect();
        let asked = AskedMethods::new(|address| methods.id_and_name(address, sample.ticks));
        self.stacks.join(sample.thread, sample.ticks, &addresses, &asked, &mut self.logical);
        let is_joined = matches!(self.logical.outcome, Outcome::Stitched | Outcome::Beyond);
        is_joined.then_some(&self.logical.frames)
    }

    /// No sample from before will be joined.
    pub(super) fn forget(&mut self, until: u64) {
        self.stacks.release(until);
    }
}

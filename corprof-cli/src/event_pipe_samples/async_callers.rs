//! Which methods await the ones that were sampled. From .NET 11 on the runtime tells what its threads run, some time
//! after they have run it.

use corprof_async::{
    AskedMethods, Decoder, LogicalFrame, LogicalStack, LogicalStacks, Outcome, PROVIDER, STACK_KEYWORDS,
};
use corprof_diagnostics::{Level, Provider};

use super::Sample;
use crate::trace_methods::Methods;

/// The source that tells it.
pub(super) fn provider() -> Provider {
    Provider::new(PROVIDER, STACK_KEYWORDS, Level::Informational)
}

/// What threads have told of the operations that they run.
#[derive(Debug)]
pub(super) struct AsyncCallers {
    decoder: Decoder,
    stacks: LogicalStacks,
    /// The last one that was joined: its memory is used again.
    logical: LogicalStack,
}

impl AsyncCallers {
    pub(super) fn new() -> Self {
        Self { decoder: Decoder::new(), stacks: LogicalStacks::new(), logical: LogicalStack::new() }
    }

    /// Takes what a thread has written. Where it is damaged, samples keep their physical stacks.
    pub(super) fn take(&mut self, payload: &[u8], written: u64) {
        if let Ok(buffer) = self.decoder.decode(payload) {
            self.stacks.take_buffer(&buffer, written, |_step| {});
        }
    }

    /// The stack of a sample down to the method that was resumed, and then those that await it; none if nobody does, or
    /// if that is not known.
    pub(super) fn join(
        &mut self,
        sample: &Sample,
        physical: &[LogicalFrame],
        methods: &Methods,
    ) -> Option<&[LogicalFrame]> {
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

//! Which methods await the ones that were sampled. From .NET 11 on the runtime tells what its threads run, some time
//! after they have run it: when they have nothing to do for a second, or when they are asked (`questions`).

use corprof_async::{
    AskedMethods, Decoder, LogicalFrame, LogicalStack, LogicalStacks, Outcome, PROVIDER, STACK_KEYWORDS,
};
use corprof_diagnostics::{Level, Provider};

use crate::trace_methods::Methods;

/// The source that tells it.
pub(super) fn provider(level: Level) -> Provider {
    Provider::new(PROVIDER, STACK_KEYWORDS, level)
}

/// What threads have told of the operations that they run.
#[derive(Debug)]
pub(crate) struct AsyncCallers {
    decoder: Decoder,
    stacks: LogicalStacks,
    /// The last one that was joined: its memory is used again.
    logical: LogicalStack,
}

impl AsyncCallers {
    pub(crate) fn new() -> Self {
        Self { decoder: Decoder::new(), stacks: LogicalStacks::new(), logical: LogicalStack::new() }
    }

    /// Takes what a thread has written. Where it is damaged, samples keep their physical stacks.
    pub(crate) fn take(&mut self, payload: &[u8], written: u64) {
        if let Ok(buffer) = self.decoder.decode(payload) {
            self.stacks.take_buffer(&buffer, written, |_step| {});
        }
    }

    /// All threads have told what they ran up to this time.
    pub(crate) fn answered(&mut self, until: u64) {
        self.stacks.settle_all(until);
    }

    /// Whether it has come what the thread ran at this time, and who awaits that. An operation from before `since` is taken
    /// for one that does not end.
    pub(crate) fn is_told(&self, thread: u64, ticks: u64, since: u64) -> bool {
        self.is_known(thread, ticks) && !self.stacks.awaits_an_end(thread, ticks, since)
    }

    fn is_known(&self, thread: u64, ticks: u64) -> bool {
        self.stacks.known_until(thread) >= ticks
    }

    /// The stack of a sample down to the method that was resumed, and then those that await it; none if nobody does, or
    /// if that is not known.
    pub(crate) fn join(
        &mut self,
        thread: u64,
        ticks: u64,
        physical: &[LogicalFrame],
        methods: &Methods,
    ) -> Option<&[LogicalFrame]> {
        // What the thread ran last may be over.
        if !self.is_known(thread, ticks) {
            return None;
        }
        self.stacks.active(thread, ticks)?;
        let addresses: Vec<u64> = physical.iter().map(|frame| frame.address).collect();
        let asked = AskedMethods::new(|address| methods.id_and_name(address, ticks));
        self.stacks.join(thread, ticks, &addresses, &asked, &mut self.logical);
        let is_joined = matches!(self.logical.outcome, Outcome::Stitched | Outcome::Beyond);
        is_joined.then_some(&self.logical.frames)
    }

    /// No sample from before will be joined.
    pub(crate) fn forget(&mut self, until: u64) {
        self.stacks.release(until);
    }
}

//! What the sampler hands to the profiler: the stacks of one moment.

use std::time::Duration;

use crate::id::{Inert, ThreadId};
use crate::names::Name;
use crate::profiler_thread::ProfilerThread;

use super::report::{Report, Verdict};
use super::sample_buffer::{SampleBuffer, SampledFrame, Stack};

/// A managed thread, as the sampler knows it in this round.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SampledThread {
    /// The managed thread. It may have ended since it was walked, so it tells threads apart, and cannot be asked about.
    pub id: Inert<ThreadId>,
    /// The operating system's thread that carried it.
    pub os_id: Option<u32>,
    /// What it is called, if the application has given it a name since the profiler was loaded.
    pub name: Option<Name>,
    /// How long it has run on a processor since it was last looked at, which was in the round before; none the first time,
    /// and where the system does not tell. With [`Strategy::Signals`](super::Strategy::Signals), what its sample stands for.
    pub cpu_time: Option<Duration>,
}

/// The stacks of one moment, and what has become of the sampler so far.
///
/// All threads run again: the profiler may take its time, ask for memory, names and locks. If it takes longer than the
/// interval, rounds are skipped.
#[derive(Debug)]
pub struct Round<'r, 't> {
    pub(crate) cx: &'r mut ProfilerThread<'t>,
    pub(crate) threads: &'r [SampledThread],
    pub(crate) buffer: &'r SampleBuffer,
    pub(crate) elapsed: Duration,
    pub(crate) report: &'r Report,
    pub(crate) natives: Option<&'r dyn NativeNames>,
    pub(crate) is_last: bool,
}

/// What native functions are called.
pub(crate) trait NativeNames {
    fn name(&self, address: usize) -> Option<String>;
}

impl std::fmt::Debug for dyn NativeNames + '_ {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("NativeNames")
    }
}

/// The stack of one thread in one moment.
#[derive(Clone, Copy)]
pub struct Sample<'r> {
    thread: &'r SampledThread,
    stack: &'r Stack,
    buffer: &'r SampleBuffer,
}

impl<'r, 't> Round<'r, 't> {
    /// The context of the sampler's thread, for names above all.
    pub fn cx(&self) -> &ProfilerThread<'t> {
        self.cx
    }

    /// The same, for what may start a collection.
    pub fn cx_mut(&mut self) -> &mut ProfilerThread<'t> {
        self.cx
    }

    /// The stacks: one for each thread that has managed frames. In a round in which nobody runs there may be none.
    pub fn samples(&self) -> impl Iterator<Item = Sample<'r>> + use<'r, 't> {
        let Self { threads, buffer, .. } = *self;
        let samples = buffer.stacks().iter().filter(|stack| Verdict::of(buffer, stack).is_sample());
        samples.filter_map(|stack| Some(Sample { thread: threads.get(stack.thread)?, stack, buffer }))
    }

    /// The native function at an address, such as the [`ip`](SampledFrame::ip) of a frame that has no managed function:
    /// `libc.so.6!memset`, or `libcoreclr.so!` where the library has no name for it. None for an address in no library, as in the
    /// runtime's stubs, and with other strategies than [`Strategy::Signals`](super::Strategy::Signals).
    ///
    /// For all but the innermost frame the address is where the function goes on after a call, so ask for the byte before.
    pub fn native_name(&self, address: usize) -> Option<String> {
        self.natives.and_then(|natives| natives.name(address))
    }

    /// How much time the round stands for: from the one before until now. More than the interval, if rounds were skipped.
    pub fn elapsed(&self) -> Duration {
        self.elapsed
    }

    /// Makes this the last round: the sampler ends when the closure returns.
    pub fn end_sampling(&mut self) {
        self.is_last = true;
    }

    /// What the sampler has done so far, this round included.
    pub fn report(&self) -> &'r Report {
        self.report
    }
}

impl<'r> Sample<'r> {
    /// Whose stack it is.
    pub fn thread(&self) -> &'r SampledThread {
        self.thread
    }

    /// The frames, the leaf first. A function may have been unloaded since: names of such say so.
    pub fn frames(&self) -> &'r [SampledFrame] {
        self.buffer.frames(self.stack)
    }

    /// The time that the sample stands for: samples are added up by weight, and not counted.
    ///
    /// With [`Mode::Cpu`](super::Mode::Cpu) it is the processor time that its thread has used since the last sample, so that what
    /// adds up is what the system says the thread has used; a round that comes very late is made up for by several samples.
    /// With [`Mode::Wall`](super::Mode::Wall) it is the time since the last round, which is more than the interval if rounds
    /// were skipped.
    pub fn weight(&self) -> Duration {
        self.stack.weight
    }

    /// Whether the thread waited: it was neither on a processor, nor could it have gone on. Never with
    /// [`Mode::Cpu`](super::Mode::Cpu), nor where the system does not say.
    pub fn is_waiting(&self) -> bool {
        self.stack.is_waiting
    }

    /// Whether the outer frames are missing, for want of room.
    pub fn is_truncated(&self) -> bool {
        self.stack.is_cut
    }

    /// Whether the runtime could not walk to the end.
    pub fn is_incomplete(&self) -> bool {
        Verdict::of(self.buffer, self.stack) == Verdict::Incomplete
    }
}

impl std::fmt::Debug for Sample<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sample").field("thread", self.thread).field("frames", &self.frames()).finish()
    }
}

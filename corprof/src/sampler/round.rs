//! The data that the sampler passes to the profiler: the stacks of one moment.

use std::time::Duration;

use crate::id::{FunctionId, Inert, ThreadId};
use crate::names::Name;
use crate::profiler_thread::ProfilerThread;
use crate::walk::native_function::NativeFunction;
use crate::walk::stack_writer::SampledFrame;

use super::report::{Report, Verdict};
use super::sample_buffer::{SampleBuffer, Stack};

/// A managed thread in one round.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SampledThread {
    /// The managed thread. It may have ended since it was walked, so the id can be compared, but not passed to calls.
    pub id: Inert<ThreadId>,
    /// The operating-system thread that carried it.
    pub os_id: Option<u32>,
    /// Its name, if the application has set it since the profiler was loaded.
    pub name: Option<Name>,
    /// Its processor time since the round before; none in its first round, and if the system does not report it. With
    /// [`Strategy::Signals`](super::Strategy::Signals), and with [`Strategy::Seeded`](super::Strategy::Seeded) in
    /// [`Mode::Cpu`](super::Mode::Cpu), the weight of its sample.
    pub cpu_time: Option<Duration>,
    /// How often it had run before it was walked: a number that grows whenever it runs. None where walks are made by
    /// the thread itself.
    pub(crate) run_count: Option<u64>,
}

/// The stacks of one moment, and the sampler's report so far.
///
/// All threads run again: the profiler may take its time, allocate, look up names and take locks. If it takes longer
/// than the interval, rounds are skipped.
#[derive(Debug)]
pub struct Round<'r, 't> {
    pub(crate) cx: &'r mut ProfilerThread<'t>,
    pub(crate) threads: &'r [SampledThread],
    pub(crate) buffer: &'r SampleBuffer,
    pub(crate) elapsed: Duration,
    pub(crate) report: &'r Report,
    pub(crate) natives: Option<&'r dyn NativeFunctions>,
    pub(crate) is_last: bool,
}

/// Finds native functions.
pub(crate) trait NativeFunctions {
    fn function(&self, address: usize) -> Option<NativeFunction>;
}

impl std::fmt::Debug for dyn NativeFunctions + '_ {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("NativeFunctions")
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
    /// The context of the sampler's thread, above all for names.
    pub fn cx(&self) -> &ProfilerThread<'t> {
        self.cx
    }

    /// The same context, for calls that may start a collection.
    pub fn cx_mut(&mut self) -> &mut ProfilerThread<'t> {
        self.cx
    }

    /// The stacks: one for each thread with managed frames. A round in which no thread runs may have none.
    pub fn samples(&self) -> impl Iterator<Item = Sample<'r>> + use<'r, 't> {
        let Self { threads, buffer, .. } = *self;
        let samples = buffer.stacks().iter().filter(|stack| Verdict::of(buffer, stack).is_sample());
        samples.filter_map(|stack| Some(Sample { thread: threads.get(stack.thread)?, stack, buffer }))
    }

    /// Whether the function of a frame is still the one that the thread had. When a dynamic method ends, the next may get
    /// its identifier, and all that the runtime tells of it is of the other: look the name up first, and ask then.
    pub fn is_still(&self, function: FunctionId, sample: &Sample<'_>) -> bool {
        self.cx.liveness().is_still(function, sample.ticks())
    }

    /// The native function at an address, such as the [`ip`](SampledFrame::ip) of a frame without a managed function:
    /// `libc.so.6!memset`, or `libcoreclr.so (no symbols)` if the library has no name for it. None for an address
    /// outside all libraries, for instance in the runtime's stubs, and with other strategies than
    /// [`Strategy::Signals`](super::Strategy::Signals).
    ///
    /// Except in the innermost frame, the address is the return address of a call: ask for the byte before it.
    pub fn native_name(&self, address: usize) -> Option<String> {
        self.native_function(address).map(|function| function.name)
    }

    /// The same, with the range of its code.
    pub fn native_function(&self, address: usize) -> Option<NativeFunction> {
        self.natives.and_then(|natives| natives.function(address))
    }

    /// The time from the round before to this one. It is longer than the interval if rounds were skipped.
    pub fn elapsed(&self) -> Duration {
        self.elapsed
    }

    /// Makes this the last round: the sampler ends when the closure returns.
    pub fn end_sampling(&mut self) {
        self.is_last = true;
    }

    /// The sampler's results so far, including this round.
    pub fn report(&self) -> &'r Report {
        self.report
    }
}

impl<'r> Sample<'r> {
    /// The thread of this stack.
    pub fn thread(&self) -> &'r SampledThread {
        self.thread
    }

    /// The frames, the leaf first. A function may have been unloaded since; its name then says so. That of a dynamic
    /// method may be another's by then: see [`Round::is_still`].
    pub fn frames(&self) -> &'r [SampledFrame] {
        self.buffer.frames(self.stack)
    }

    /// The time that the sample stands for: add samples up by weight instead of counting them.
    ///
    /// With [`Mode::Cpu`](super::Mode::Cpu) it is the thread's processor time since its last sample, so that the sum is
    /// the processor time that the system reports for the thread; the time of a very late round is spread over several
    /// samples. With [`Mode::Wall`](super::Mode::Wall) it is the time since the last round, which is longer than the
    /// interval if rounds were skipped.
    pub fn weight(&self) -> Duration {
        self.stack.weight
    }

    /// When the thread had this stack, in ticks of [`ticks`](super::ticks).
    pub fn ticks(&self) -> u64 {
        self.stack.ticks
    }

    /// Whether the thread was waiting: it was neither running nor runnable. Always `false` with
    /// [`Mode::Cpu`](super::Mode::Cpu), and if the system does not report it.
    pub fn is_waiting(&self) -> bool {
        self.stack.marks.is_waiting
    }

    /// Whether the outer frames are missing, for lack of room.
    pub fn is_truncated(&self) -> bool {
        self.stack.marks.is_cut
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

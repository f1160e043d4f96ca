//! The slowest calls of traced methods with their samples.
//!
//! A sample belongs to the calls that its thread was inside of at its time. So it waits until the thread's outermost
//! call has ended, and is then one of the slow calls' among those, or dropped.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use corprof::prelude::*;
use corprof_export::{Profile, SlowCall, SlowCalls, SlowStack, StackId};
use corprof_profilers::TracePattern;
use corprof_profilers::settings::{SettingError, Settings};

use super::traced_calls::{TracedCall, TracedCalls};

/// How many samples of a thread wait. If there are more, neighbours become one.
const MOST_WAITING: usize = 20_000;

/// A sample of a thread inside of a traced call.
#[derive(Clone, Copy, Debug)]
pub(super) struct SampleInCall<S> {
    /// When the thread had this stack, in ticks.
    pub(super) ticks: u64,
    pub(super) stack: S,
    pub(super) is_waiting: bool,
    /// How many samples it stands for, and their time in nanoseconds.
    pub(super) count: u64,
    pub(super) weight: u64,
}

/// Gives samples to calls, and keeps the slowest calls.
pub(super) struct Joiner<S> {
    most: usize,
    /// The slowest first.
    kept: Vec<JoinedCall<S>>,
    /// By thread, in the order of their times, more or less.
    waiting: HashMap<u32, Vec<SampleInCall<S>>>,
}

/// A call with its samples.
#[derive(Clone)]
pub(super) struct JoinedCall<S> {
    pub(super) call: TracedCall,
    /// By stack: how many samples there are, and what they weigh.
    pub(super) stacks: HashMap<S, (u64, u64)>,
    /// The time of the samples in which the thread ran.
    pub(super) sampled_running: u64,
}

impl<S: Copy + Eq + Hash> JoinedCall<S> {
    fn new(call: TracedCall, samples: &[SampleInCall<S>]) -> Self {
        let mut joined = Self { call, stacks: HashMap::new(), sampled_running: 0 };
        let inside: Vec<_> = samples.iter().filter(|sample| joined.contains(sample.ticks)).collect();
        inside.into_iter().for_each(|sample| joined.add(sample));
        joined
    }

    fn contains(&self, ticks: u64) -> bool {
        (self.call.began..=self.call.ended).contains(&ticks)
    }

    fn add(&mut self, sample: &SampleInCall<S>) {
        let (count, weight) = self.stacks.entry(sample.stack).or_default();
        *count += sample.count;
        *weight += sample.weight;
        if !sample.is_waiting {
            self.sampled_running += sample.weight;
        }
    }

    /// How long its thread has run, in nanoseconds.
    pub(super) fn running(&self) -> u64 {
        self.call.cpu_time.unwrap_or(self.sampled_running).min(self.call.length())
    }
}

impl<S: Copy + Eq + Hash> Joiner<S> {
    pub(super) fn new(most: usize) -> Self {
        Self { most, kept: Vec::new(), waiting: HashMap::new() }
    }

    /// A slow call has ended.
    pub(super) fn add_call(&mut self, call: TracedCall) {
        let place = self.kept.partition_point(|kept| kept.call.length() >= call.length());
        if place >= self.most {
            return;
        }
        let samples = self.waiting.get(&call.thread).map(Vec::as_slice).unwrap_or_default();
        self.kept.insert(place, JoinedCall::new(call, samples));
        self.kept.truncate(self.most);
    }

    /// How long a call has to take at least to be kept.
    pub(super) fn least(&self) -> u64 {
        let last = self.kept.get(self.most.saturating_sub(1));
        last.map_or(0, |last| last.call.length())
    }

    /// Adds a sample to the ended calls that it belongs to. It waits if its thread is inside of a call since `begun`.
    pub(super) fn add_sample(&mut self, thread: u32, sample: SampleInCall<S>, begun: Option<u64>) {
        let of_thread = self.kept.iter_mut().filter(|kept| kept.call.thread == thread);
        of_thread.filter(|kept| kept.contains(sample.ticks)).for_each(|kept| kept.add(&sample));
        if begun.is_none_or(|begun| begun > sample.ticks) {
            return;
        }
        let waiting = self.waiting.entry(thread).or_default();
        waiting.push(sample);
        if waiting.len() >= MOST_WAITING {
            *waiting = thinned(waiting);
        }
    }

    /// Whether a sample of a thread would be added.
    pub(super) fn wants(&self, thread: u32, ticks: u64, begun: Option<u64>) -> bool {
        let is_inside = begun.is_some_and(|begun| begun <= ticks);
        is_inside || self.kept.iter().any(|kept| kept.call.thread == thread && kept.contains(ticks))
    }

    /// Drops the samples that belong to no call that still runs.
    pub(super) fn forget(&mut self, begun: impl Fn(u32) -> Option<u64>) {
        self.waiting.retain(|thread, samples| {
            let begun = begun(*thread);
            samples.retain(|sample| begun.is_some_and(|begun| begun <= sample.ticks));
            !samples.is_empty()
        });
    }

    /// The slowest calls, those that still run among them.
    fn slowest(&self, running: Vec<TracedCall>) -> Vec<JoinedCall<S>> {
        let mut all = self.kept.clone();
        for call in running {
            let samples = self.waiting.get(&call.thread).map(Vec::as_slice).unwrap_or_default();
            all.push(JoinedCall::new(call, samples));
        }
        all.sort_by_key(|joined| std::cmp::Reverse(joined.call.length()));
        all.truncate(self.most);
        all
    }
}

/// Half as many samples for the same time: of each two, the first stands for both.
fn thinned<S: Copy>(samples: &[SampleInCall<S>]) -> Vec<SampleInCall<S>> {
    let both = |pair: &[SampleInCall<S>]| {
        let first = *pair.first()?;
        let (count, weight) =
            pair.iter().fold((0, 0), |(count, weight), sample| (count + sample.count, weight + sample.weight));
        Some(SampleInCall { count, weight, ..first })
    };
    samples.chunks(2).filter_map(both).collect()
}

/// Reads what is traced; none if that is nothing. `has_file` is whether the profile is written.
pub(super) fn traced(
    settings: &Settings,
    has_file: bool,
    delay: Duration,
) -> Result<Option<Arc<TracedCalls>>, SettingError> {
    let trace = settings.of("SAMPLER_TRACE");
    let patterns = trace.parsed(TracePattern::parse_all)?;
    if patterns.is_empty() {
        return Ok(None);
    }
    if cfg!(not(target_os = "linux")) {
        return Err(trace.error("slow calls are kept on Linux only: unset it"));
    }
    if !has_file {
        return Err(trace.error("slow calls are not sent: give a file by SAMPLER_OUT as well"));
    }
    Ok(Some(trace.parsed(|_| TracedCalls::new(&patterns, delay))?))
}

/// The slow calls of a recording.
pub(super) struct SlowCallStore {
    pub(super) traced: Arc<TracedCalls>,
    pub(super) joiner: Joiner<StackId>,
    /// The names of threads that kept calls may be of.
    names: HashMap<u32, Name>,
    /// What became of the methods: those that could not be traced.
    notes: Vec<String>,
}

impl SlowCallStore {
    pub(super) fn new(traced: Arc<TracedCalls>, most: usize) -> Self {
        Self { traced, joiner: Joiner::new(most), names: HashMap::new(), notes: Vec::new() }
    }

    /// Since when a thread is inside of a traced call, and whether a sample of it then would be kept.
    ///
    /// First it is asked whether the thread is inside, and then the ended calls are taken: so a call that ends between
    /// the two is among them.
    pub(super) fn wants(&mut self, thread: u32, ticks: u64) -> Option<Option<u64>> {
        let begun = self.traced.begun(thread);
        self.take_ended();
        self.joiner.wants(thread, ticks, begun).then_some(begun)
    }

    /// Takes the slow calls that have ended since the last time.
    pub(super) fn take_ended(&mut self) {
        let ended = self.traced.take_ended();
        if !ended.is_empty() {
            ended.into_iter().for_each(|call| self.joiner.add_call(call));
            self.traced.set_least(self.joiner.least());
        }
    }

    /// Drops what is not needed any more.
    pub(super) fn forget(&mut self) {
        self.take_ended();
        let traced = &self.traced;
        self.joiner.forget(|thread| traced.begun(thread));
    }

    /// Names a thread.
    pub(super) fn name_thread(&mut self, thread: u32, name: Option<&Name>) {
        let Some(name) = name else { return };
        match self.names.entry(thread) {
            Entry::Occupied(known) if known.get() == name => {}
            known => {
                known.insert_entry(name.clone());
            }
        }
    }

    /// What became of the methods.
    pub(super) fn set_notes(&mut self, notes: Vec<String>) {
        self.notes = notes;
    }

    /// Shows the slow calls in a profile.
    pub(super) fn show(&mut self, profile: &mut Profile) {
        self.take_ended();
        let traced = &self.traced;
        let running = traced.running();
        // Those that still run are calls, too, and slow ones.
        let still = running.len() as u64;
        let slowest = self.joiner.slowest(running);
        let (calls, slow) = traced.counts();
        profile.set_slow_calls(SlowCalls {
            calls: calls + still,
            slow: slow + still,
            limit: traced.limit(),
            slowest: slowest.iter().map(|joined| self.call(joined)).collect(),
        });
        for note in &self.notes {
            profile.note(note.clone());
        }
        profile.set_note("trace", note_of_unmatched(&traced.unmatched()));
        profile.set_skipped("slow calls that came too fast to be looked at", traced.lost());
    }

    fn call(&self, joined: &JoinedCall<StackId>) -> SlowCall {
        let call = &joined.call;
        let stacks = joined.stacks.iter();
        let mut stacks: Vec<SlowStack> =
            stacks.map(|(&stack, &(samples, weight))| SlowStack { stack, samples, weight }).collect();
        stacks.sort_unstable_by_key(|stack| stack.stack);
        let name = self.names.get(&call.thread).map(ToString::to_string);
        SlowCall {
            method: self.traced.method(call.method),
            arguments: call.arguments.clone(),
            thread: name.unwrap_or_else(|| call.thread.to_string()),
            // On Linux a tick is a nanosecond.
            at: Duration::from_nanos(call.began.saturating_sub(self.traced.from())),
            time: Duration::from_nanos(call.length()),
            running: Duration::from_nanos(joined.running()),
            end: call.ending,
            stacks,
        }
    }
}

/// What the profile says of patterns that have matched no method so far: nothing if each has matched one.
fn note_of_unmatched(patterns: &[&str]) -> String {
    if patterns.is_empty() {
        return String::new();
    }
    let patterns: Vec<_> = patterns.iter().map(|pattern| format!("'{pattern}'")).collect();
    format!(
        "--trace {} has matched no method that was compiled. Give names as the profile has them, such as \
         'Shop.Orders.Load' or 'Shop.Orders.*': namespace, class, method; upper and lower case differ",
        patterns.join(" ")
    )
}

#[cfg(test)]
mod tests {
    use corprof_export::CallEnding;

    use super::*;

    fn call(thread: u32, began: u64, ended: u64) -> TracedCall {
        let ending = CallEnding::Returned;
        TracedCall { method: 0, arguments: format!("({began})"), thread, began, ended, cpu_time: None, ending }
    }

    fn sample(ticks: u64, stack: char) -> SampleInCall<char> {
        SampleInCall { ticks, stack, is_waiting: stack == 'w', count: 1, weight: 10 }
    }

    /// Each kept call with the numbers of its samples by stack.
    fn kept(joiner: &Joiner<char>) -> Vec<(String, Vec<(char, u64)>)> {
        let stacks = |joined: &JoinedCall<char>| {
            let mut stacks: Vec<_> = joined.stacks.iter().map(|(stack, (count, _))| (*stack, *count)).collect();
            stacks.sort_unstable();
            stacks
        };
        joiner.slowest(Vec::new()).iter().map(|joined| (joined.call.arguments.clone(), stacks(joined))).collect()
    }

    #[test]
    fn samples_belong_to_the_calls_that_their_thread_was_inside_of() {
        let mut joiner = Joiner::new(9);
        // Thread 1 is inside of a call from 100 to 200, within it of another from 140 to 170.
        for ticks in [90, 110, 150, 160, 190] {
            joiner.add_sample(1, sample(ticks, if ticks == 160 { 'w' } else { 'r' }), Some(100));
        }
        joiner.add_sample(2, sample(150, 'r'), None);
        joiner.add_call(call(1, 140, 170));
        joiner.add_call(call(1, 100, 200));
        // It was taken in time, and came late.
        joiner.add_sample(1, sample(165, 'r'), None);
        joiner.add_sample(1, sample(201, 'r'), None);
        joiner.add_sample(2, sample(150, 'r'), None);
        let expected = [("(100)", vec![('r', 4), ('w', 1)]), ("(140)", vec![('r', 2), ('w', 1)])];
        assert_eq!(kept(&joiner), expected.map(|(call, stacks)| (call.to_owned(), stacks)));
        let all = joiner.slowest(Vec::new());
        assert_eq!(all.iter().map(JoinedCall::running).collect::<Vec<_>>(), [40, 20], "as sampled");
    }

    #[test]
    fn only_the_slowest_are_kept() {
        let mut joiner = Joiner::<char>::new(2);
        assert_eq!(joiner.least(), 0);
        for (began, length) in [(100, 50), (200, 70), (300, 60), (400, 10), (500, 70)] {
            joiner.add_call(call(1, began, began + length));
        }
        assert_eq!(kept(&joiner).into_iter().map(|(call, _)| call).collect::<Vec<_>>(), ["(200)", "(500)"]);
        assert_eq!(joiner.least(), 70);
        let running = TracedCall { ending: CallEnding::StillRuns, ..call(3, 600, 900) };
        let slowest: Vec<_> = joiner.slowest(vec![running]).iter().map(|joined| joined.call.thread).collect();
        assert_eq!(slowest, [3, 1]);
    }

    #[test]
    fn samples_wait_as_long_as_their_call_runs() {
        let mut joiner = Joiner::<char>::new(2);
        joiner.add_sample(1, sample(150, 'r'), Some(100));
        joiner.add_sample(2, sample(150, 'r'), Some(100));
        joiner.forget(|thread| (thread == 1).then_some(100));
        assert!(joiner.waiting.contains_key(&1) && !joiner.waiting.contains_key(&2));
        assert!(joiner.wants(1, 160, Some(100)) && !joiner.wants(1, 160, None) && !joiner.wants(1, 90, Some(100)));
        // The call was a fast one; the thread is in the next.
        joiner.forget(|_| Some(170));
        assert!(joiner.waiting.is_empty());
    }

    #[test]
    fn a_long_call_has_bounded_samples_for_its_whole_time() {
        let mut joiner = Joiner::<char>::new(2);
        let count = 3 * MOST_WAITING as u64;
        for ticks in 0..count {
            joiner.add_sample(1, sample(100 + ticks, 'r'), Some(100));
            assert!(joiner.waiting.get(&1).unwrap().len() < MOST_WAITING);
        }
        joiner.add_call(call(1, 100, 100 + count));
        let all = joiner.slowest(Vec::new());
        assert_eq!(all.first().unwrap().stacks.get(&'r'), Some(&(count, 10 * count)));
    }
}

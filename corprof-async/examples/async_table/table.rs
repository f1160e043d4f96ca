//! The table of a trace. The tests compare it with those of another decoder.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::error::Error;

use corprof_async::trace::nettrace::Reader;
use corprof_async::trace::{TraceEvent, add_method, classify};
use corprof_async::{
    Action, Buffer, Decoder, Frame, Limits, LogicalStack, LogicalStacks, MethodTable, Methods, Outcome, SubEvent, Wait,
    Waits, WrapperMatch,
};
use serde_json::{Map, Value, json};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// The largest number of frames that the runtime writes.
const MOST_FRAMES: usize = 255;

/// The table of the bytes of a trace.
pub(crate) fn table(bytes: &[u8], leaf: &str, marks: &[String]) -> Result<Value> {
    let mut methods = MethodTable::new();
    let mut reader = Reader::new(bytes);
    let frequency = reader.trace()?.ticks_per_second;
    while let Some(event) = reader.next_event()? {
        add_method(&event, &mut methods);
    }
    let mut counts = Counts::default();
    // The other decoder follows chains and creators alone.
    let mut limits = Limits::default();
    limits.awaiters = 0;
    let mut stacks = LogicalStacks::with_limits(limits);
    let mut waits = Waits::new(usize::MAX, usize::MAX);
    let mut totals = WaitTotals { methods: &methods, frequency: frequency as f64, places: HashMap::new() };
    let mut decoder = Decoder::new();
    let mut reader = Reader::new(bytes);
    while let Some(event) = reader.next_event()? {
        let Some(TraceEvent::Buffer { payload, written }) = classify(&event) else { continue };
        let buffer = decoder.decode(payload)?;
        counts.add(&buffer, &methods);
        stacks.take_buffer(&buffer, written, |step| waits.push(step, |wait| totals.add(&wait)));
    }
    waits.release(u64::MAX, |wait| totals.add(&wait));

    let mut join = Join::new(leaf, marks, &methods);
    let mut reader = Reader::new(bytes);
    while let Some(event) = reader.next_event()? {
        if let Some(TraceEvent::Sample { thread, ticks, stack }) = classify(&event) {
            join.add(&stacks, thread, ticks, &stack.addresses().collect::<Vec<_>>());
        }
    }
    let mut table = counts.json(&methods);
    let join = join.json(stacks.stats().interleaved);
    table.extend([("waits_ms".to_owned(), totals.json()), ("join".to_owned(), join)]);
    Ok(Value::Object(table))
}

/// Counts of sub-events and callstacks.
#[derive(Default)]
struct Counts {
    buffers: u64,
    sub_events: u64,
    by_id: BTreeMap<u8, u64>,
    dispatchers: HashSet<u64>,
    callstacks: BTreeMap<u8, Callstacks>,
}

#[derive(Default)]
struct Callstacks {
    count: u64,
    frames: u64,
    zero: u64,
    unresolved: u64,
    at_start: u64,
    without_frames: u64,
    index_not_zero: u64,
    at_most: u64,
    by_address: HashSet<Vec<Frame>>,
    by_name: HashSet<String>,
    by_first_names: HashMap<String, u64>,
    /// The first in time of those with the most frames.
    deepest: Vec<Frame>,
    deepest_ticks: u64,
}

impl Counts {
    fn add(&mut self, buffer: &Buffer<'_>, methods: &MethodTable) {
        self.buffers += 1;
        for (id, SubEvent { action, ticks }) in buffer.sub_events().numbered() {
            self.sub_events += 1;
            *self.by_id.entry(id).or_default() += 1;
            match action {
                Action::Create { dispatcher, .. } | Action::Resume { dispatcher, .. } => {
                    self.dispatchers.insert(dispatcher);
                }
                Action::Stack(callstack) => {
                    self.dispatchers.insert(callstack.dispatcher);
                    let frames = callstack.frames.collect();
                    self.callstacks.entry(id).or_default().add(ticks, callstack.wrapper_index, frames, methods);
                }
                _ => {}
            }
        }
    }

    fn json(&self, methods: &MethodTable) -> Map<String, Value> {
        let by_id: Map<String, Value> = self.by_id.iter().map(|(id, count)| (id.to_string(), json!(count))).collect();
        let callstacks: Map<String, Value> =
            self.callstacks.iter().map(|(id, callstacks)| (id.to_string(), callstacks.json(methods))).collect();
        let table = [
            ("buffers", json!(self.buffers)),
            ("sub_events", json!(self.sub_events)),
            ("sub_events_by_id", by_id.into()),
            ("dispatcher_ids", json!(self.dispatchers.len())),
            ("callstacks", callstacks.into()),
        ];
        table.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
    }
}

/// The names of the frames that have a method.
fn names<'a>(frames: &'a [Frame], methods: &'a MethodTable) -> impl Iterator<Item = &'a str> {
    let frames = frames.iter().filter(|frame| frame.address != 0);
    frames.map(|frame| methods.name_at(frame.address).unwrap_or("?"))
}

fn joined<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.collect::<Vec<_>>().join(" < ")
}

impl Callstacks {
    fn add(&mut self, ticks: u64, wrapper_index: u8, frames: Vec<Frame>, methods: &MethodTable) {
        self.count += 1;
        self.frames += frames.len() as u64;
        for Frame { address, .. } in &frames {
            self.zero += u64::from(*address == 0);
            self.unresolved += u64::from(*address != 0 && methods.method_at(*address).is_none());
            self.at_start += u64::from(methods.is_start(*address));
        }
        self.without_frames += u64::from(frames.is_empty());
        self.index_not_zero += u64::from(wrapper_index != 0);
        self.at_most += u64::from(frames.len() == MOST_FRAMES);
        self.by_name.insert(joined(names(&frames, methods)));
        *self.by_first_names.entry(joined(names(&frames, methods).take(12))).or_default() += 1;
        let depth = frames.len();
        let deepest = self.deepest.len();
        if depth > deepest || (depth == deepest && ticks < self.deepest_ticks) {
            self.deepest.clone_from(&frames);
            self.deepest_ticks = ticks;
        }
        self.by_address.insert(frames);
    }

    fn json(&self, methods: &MethodTable) -> Value {
        let mut top: Vec<(&String, &u64)> = self.by_first_names.iter().collect();
        top.sort_by_key(|(name, count)| (u64::MAX - **count, *name));
        let top: Map<String, Value> =
            top.into_iter().take(8).map(|(name, count)| (name.clone(), json!(count))).collect();
        json!({
            "count": self.count,
            "frames": self.frames,
            "frames_zero": self.zero,
            "frames_unresolved": self.unresolved,
            "frames_at_method_start": self.at_start,
            "without_frames": self.without_frames,
            "index_not_zero": self.index_not_zero,
            "at_255": self.at_most,
            "distinct_stacks_by_address": self.by_address.len(),
            "distinct_stacks_by_name": self.by_name.len(),
            "deepest": self.deepest.len(),
            "deepest_names_first_12": names(&self.deepest, methods).take(12).collect::<Vec<_>>(),
            "deepest_last": names(&self.deepest, methods).last(),
            "top_stacks_by_name": top,
        })
    }
}

/// Waits by the first two names of their place.
struct WaitTotals<'a> {
    methods: &'a MethodTable,
    frequency: f64,
    places: HashMap<String, (u64, u64, u64)>,
}

impl WaitTotals<'_> {
    fn add(&mut self, wait: &Wait) {
        let place = wait.place.as_deref().unwrap_or_default();
        let total = self.places.entry(joined(names(place, self.methods).take(2))).or_default();
        let ticks = wait.to - wait.from;
        total.0 += 1;
        total.1 += ticks;
        total.2 = total.2.max(ticks);
    }

    fn json(&self) -> Value {
        let milliseconds = |ticks: u64| (ticks as f64 * 1e3 / self.frequency * 1e3).round_ties_even() / 1e3;
        let places = self.places.iter().map(|(place, (count, total, longest))| {
            let totals = json!({"count": count, "total": milliseconds(*total), "longest": milliseconds(*longest)});
            (place.clone(), totals)
        });
        Value::Object(places.collect())
    }
}

/// Counts of samples.
struct Join<'a> {
    leaf: &'a str,
    marks: &'a [String],
    methods: &'a MethodTable,
    stack: LogicalStack,
    samples: u64,
    outcomes: HashMap<Outcome, u64>,
    wrappers: HashMap<WrapperMatch, u64>,
    differs_in_time: u64,
    with_leaf: u64,
    physical: BTreeMap<String, u64>,
    logical: BTreeMap<String, u64>,
}

impl<'a> Join<'a> {
    fn new(leaf: &'a str, marks: &'a [String], methods: &'a MethodTable) -> Self {
        Self {
            leaf,
            marks,
            methods,
            stack: LogicalStack::new(),
            samples: 0,
            outcomes: HashMap::new(),
            wrappers: HashMap::new(),
            differs_in_time: 0,
            with_leaf: 0,
            physical: BTreeMap::new(),
            logical: BTreeMap::new(),
        }
    }

    fn add(&mut self, stacks: &LogicalStacks, thread: u64, ticks: u64, physical: &[u64]) {
        self.samples += 1;
        stacks.join(thread, ticks, physical, self.methods, &mut self.stack);
        *self.outcomes.entry(self.stack.outcome).or_default() += 1;
        if let Some(wrapper) = self.stack.wrapper {
            *self.wrappers.entry(wrapper).or_default() += 1;
            let is_known = ticks <= stacks.known_until(thread);
            self.differs_in_time += u64::from(wrapper == WrapperMatch::Differs && is_known);
        }
        let mut names = physical.iter().filter_map(|address| self.methods.name_at(*address));
        if !names.any(|name| name == self.leaf) {
            return;
        }
        self.with_leaf += 1;
        let on_physical = self.mark(physical.iter().copied());
        let on_logical = self.mark(self.stack.frames.iter().map(|frame| frame.address));
        *self.physical.entry(on_physical).or_default() += 1;
        *self.logical.entry(on_logical).or_default() += 1;
    }

    /// The first mark in the name of a method.
    fn mark(&self, addresses: impl Iterator<Item = u64>) -> String {
        let names: Vec<&str> = addresses.filter_map(|address| self.methods.name_at(address)).collect();
        let mark = self.marks.iter().find(|mark| names.iter().any(|name| name.contains(&mark[..])));
        mark.map_or_else(|| "-".to_owned(), Clone::clone)
    }

    fn json(&self, interleaved: u64) -> Value {
        let outcome = |outcome| self.outcomes.get(&outcome).copied().unwrap_or_default();
        let wrapper = |found| self.wrappers.get(&found).copied().unwrap_or_default();
        let marked = |by_mark: &BTreeMap<String, u64>| {
            by_mark.iter().filter(|(mark, _)| *mark != "-").map(|(_, count)| count).sum::<u64>()
        };
        let with_all = |by_mark: &BTreeMap<String, u64>| {
            let mut all = by_mark.clone();
            if self.samples > 0 {
                self.marks.iter().for_each(|mark| _ = all.entry(mark.clone()).or_default());
            }
            all
        };
        let mut odd = Map::new();
        if interleaved > 0 {
            odd.insert("complete method not top 18".to_owned(), json!(interleaved));
        }
        json!({
            "samples": self.samples,
            "samples_inside_a_dispatcher": self.samples - outcome(Outcome::Outside),
            "stitched": outcome(Outcome::Stitched),
            "no_chain_member_on_the_physical_stack": outcome(Outcome::NoMatch),
            "entry_without_callstack": outcome(Outcome::NoChain),
            "position_beyond_the_255_frames": outcome(Outcome::Beyond),
            "with_wrapper_frame": self.wrappers.values().sum::<u64>(),
            "wrapper_position_matches_physical_method": wrapper(WrapperMatch::Method),
            "wrapper_position_differs": wrapper(WrapperMatch::Differs),
            "wrapper_position_differs_before_the_threads_last_flush": self.differs_in_time,
            "wrapper_position_at_a_zero_frame": wrapper(WrapperMatch::ZeroFrame),
            "leaf": self.leaf,
            "samples_with_leaf": self.with_leaf,
            "leaf_samples_with_a_mark_on_the_physical_stack": marked(&self.physical),
            "leaf_samples_with_a_mark_on_the_logical_stack": marked(&self.logical),
            "by_mark_physical": with_all(&self.physical),
            "by_mark_logical": with_all(&self.logical),
            "odd": odd,
        })
    }
}

//! A recording of any length is joined while it comes, with the result of joining it as a whole, and little memory.

#![cfg(feature = "nettrace")]

use std::collections::{HashMap, VecDeque};
use std::error::Error;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use corprof_async::trace::nettrace::Reader;
use corprof_async::trace::{TraceEvent, add_method, classify};
use corprof_async::{Decoder, LogicalStack, LogicalStacks, MethodTable, Outcome};
use lzma_rust2::XzReader;

type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

/// A sample: thread, time, stack.
type Sample = (u64, u64, Vec<u64>);

/// How the samples of a trace were joined, and how much was held at most.
#[derive(Debug, Default)]
struct Joined {
    outcomes: HashMap<(Outcome, usize), u64>,
    held: (usize, usize),
}

impl Joined {
    fn add(&mut self, stacks: &LogicalStacks, (thread, ticks, physical): &Sample, methods: &MethodTable) {
        let mut stack = LogicalStack::new();
        stacks.join(*thread, *ticks, physical, methods, &mut stack);
        *self.outcomes.entry((stack.outcome, stack.frames.len())).or_default() += 1;
        let (states, operations) = stacks.held();
        self.held = (self.held.0.max(states), self.held.1.max(operations));
    }
}

/// Joins the samples of a trace, each as soon as a sample comes that is `delay` ticks younger.
fn join(bytes: &[u8], methods: &MethodTable, delay: u64) -> Result<Joined> {
    let mut joined = Joined::default();
    let mut stacks = LogicalStacks::new();
    let mut decoder = Decoder::new();
    let mut samples: VecDeque<Sample> = VecDeque::new();
    let mut reader = Reader::new(bytes);
    while let Some(event) = reader.next_event()? {
        match classify(&event) {
            Some(TraceEvent::Buffer { payload, written }) => {
                stacks.take_buffer(&decoder.decode(payload)?, written, |_| {});
            }
            Some(TraceEvent::Sample { thread, ticks, stack }) => {
                samples.push_back((thread, ticks, stack.addresses().collect()));
                let now = ticks.saturating_sub(delay);
                while let Some(sample) = due(&mut samples, now) {
                    joined.add(&stacks, &sample, methods);
                    stacks.release(sample.1);
                }
            }
            _ => {}
        }
    }
    samples.iter().for_each(|sample| joined.add(&stacks, sample, methods));
    Ok(joined)
}

/// Traces of some seconds in which all threads write their buffers several times a second, because sessions come and
/// go. They are beside the repository.
fn traces() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/nettrace/async");
    let names = ["console_ra_toggled", "console_sm_toggled"];
    names.map(|name| folder.join(format!("{name}.nettrace.xz"))).into_iter().filter(|path| path.exists()).collect()
}

#[test]
fn what_is_released_was_joined_as_a_whole_recording_is() -> Result {
    for path in traces() {
        let mut bytes = Vec::new();
        XzReader::new(File::open(&path)?, true).read_to_end(&mut bytes)?;
        let mut methods = MethodTable::new();
        let mut reader = Reader::new(&bytes[..]);
        while let Some(event) = reader.next_event()? {
            add_method(&event, &mut methods);
        }
        let whole = join(&bytes, &methods, u64::MAX)?;
        let streamed = join(&bytes, &methods, 1_000_000_000)?;
        assert_eq!(streamed.outcomes, whole.outcomes, "{}", path.display());
        let ((states, operations), (all_states, all_operations)) = (streamed.held, whole.held);
        assert!(states < all_states && operations < all_operations, "{streamed:?} held, {whole:?} as a whole");
    }
    Ok(())
}

/// The oldest sample, if it is not younger.
fn due(samples: &mut VecDeque<Sample>, until: u64) -> Option<Sample> {
    let (_, ticks, _) = samples.front()?;
    if *ticks > until {
        return None;
    }
    samples.pop_front()
}

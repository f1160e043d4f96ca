//! From samples to a profile, for all formats.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::time::SystemTime;

use corprof_async::Origin;
use corprof_export::{Frame, FrameId, Mode, Profile, STARTED_BY, SourceLines, StackId, ThreadId, Unit};
use corprof_launch::processes;

use super::{Gathered, LIMITS, MISSING, Sample, UNKNOWN};

/// A standstill for a larger share of the time is a warning.
const MUCH: f64 = 0.1;

/// Which samples are in a profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Those of managed code.
    Managed,
    /// All.
    All,
}

/// The profile of the process, which has this name.
pub(crate) fn profile(
    gathered: &Gathered,
    kind: Kind,
    name: &str,
    pid: u32,
    started: SystemTime,
    lost: u64,
) -> Profile {
    let profile = Profile::new(format!("{name} (EventPipe)"), Unit::Nanoseconds);
    let profile = profile.of_process(pid).started_at(started).in_mode(Mode::Wall);
    let mut drawn = Drawn {
        profile,
        threads: HashMap::new(),
        stacks: HashMap::new(),
        placed: HashSet::new(),
        lines: SourceLines::new(),
        pid,
    };
    let mut left_out = 0;
    for sample in &gathered.samples {
        if kind == Kind::Managed && !gathered.is_managed(sample) {
            left_out += 1;
            continue;
        }
        drawn.add(gathered, sample);
    }
    let mut profile = drawn.profile;
    profile.set_duration(gathered.duration());
    let seconds = gathered.duration().as_secs_f64();
    if seconds > 0.0 {
        profile.set_rate_reached(gathered.rounds() as f64 / seconds);
    }
    profile.warn(warning());
    if let Some(share) = gathered.standstill() {
        let percent = 100.0 * share;
        let text = format!("The runtime's sampler had the application stand still for {percent:.1} % of the time.");
        if share > MUCH { profile.warn(text) } else { profile.note(text) }
    }
    profile.set_skipped("samples of native code and of waits", left_out);
    profile.set_skipped("events that the runtime has dropped", lost);
    profile
}

/// What a picture says of samples of this kind, as a sentence.
fn warning() -> String {
    let mut letters = LIMITS.chars();
    let first = letters.next().map(|letter| letter.to_ascii_uppercase());
    format!("{}.", first.into_iter().chain(letters).collect::<String>())
}

struct Drawn {
    profile: Profile,
    threads: HashMap<u64, ThreadId>,
    /// By the numbers of the samples.
    stacks: HashMap<usize, StackId>,
    /// The frames whose file and line have been looked up.
    placed: HashSet<FrameId>,
    lines: SourceLines,
    pid: u32,
}

impl Drawn {
    fn add(&mut self, gathered: &Gathered, sample: &Sample) {
        let stack = match self.stacks.get(&sample.stack) {
            Some(stack) => *stack,
            None => self.stack(gathered, sample),
        };
        let id = u32::try_from(sample.thread).unwrap_or_default();
        let thread = *self.threads.entry(sample.thread).or_insert_with(|| {
            let name = thread_name(self.pid, sample.thread).unwrap_or_default();
            self.profile.thread(id, name)
        });
        let weight = u64::try_from(sample.weight.as_nanos()).unwrap_or(u64::MAX);
        self.profile.sample(thread, sample.at, stack, weight);
    }

    fn stack(&mut self, gathered: &Gathered, sample: &Sample) -> StackId {
        let mut frames = Vec::new();
        let mut has_creators = false;
        for (origin, method) in gathered.frames(sample) {
            if origin == Origin::Creator && !has_creators {
                has_creators = true;
                frames.push(self.profile.frame(Frame::runtime(STARTED_BY)));
            }
            frames.push(match method {
                None => self.profile.frame(Frame::native(UNKNOWN)),
                Some(method) => match method.definition {
                    None => self.profile.frame(Frame::managed(method.name)),
                    Some((module, token)) => self.frame_of(method.name, module, token),
                },
            });
        }
        if gathered.is_cut(sample) {
            frames.push(self.profile.frame(Frame::native(MISSING)));
        }
        let stack = self.profile.stack_leaf_first(frames);
        self.stacks.insert(sample.stack, stack);
        stack
    }

    fn frame_of(&mut self, name: &str, module: &Path, token: u32) -> FrameId {
        let frame = self.profile.frame(Frame::managed(name).in_module(&module.to_string_lossy()));
        if self.placed.insert(frame)
            && let Some((file, line)) = self.lines.of_method(&processes::file_of(self.pid, module), token)
        {
            self.profile.place(frame, file, line);
        }
        frame
    }
}

/// The name of a thread, as the system knows it: at most 15 bytes. An unnamed thread has the name of the process there.
pub(crate) fn thread_name(pid: u32, thread: u64) -> Option<String> {
    let comm = |file: String| std::fs::read_to_string(file).ok();
    let name = comm(format!("/proc/{pid}/task/{thread}/comm"))?;
    let is_of_process = comm(format!("/proc/{pid}/comm")).as_ref() == Some(&name);
    (!is_of_process).then(|| name.trim().to_owned())
}

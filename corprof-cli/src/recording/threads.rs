//! The threads of a recording.

use corprof_nettrace::Event;
use rustc_hash::FxHashMap;

/// A thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Thread {
    pub(crate) process: Option<u64>,
    /// The system's number of it.
    pub(crate) id: Option<u64>,
    pub(crate) name: Option<String>,
    /// Whether its events are looked at.
    pub(super) is_wanted: bool,
}

/// Which threads are looked at.
#[derive(Debug, Clone, Default)]
pub(crate) struct ThreadChoice {
    /// Numbers, or globs of names. Empty: all.
    pub(crate) threads: Vec<ThreadPattern>,
    pub(crate) process: Option<u64>,
}

/// A thread by number or name.
#[derive(Debug, Clone)]
pub(crate) enum ThreadPattern {
    Id(u64),
    Name(globset::GlobMatcher),
}

impl ThreadChoice {
    fn takes(&self, process: Option<u64>, id: Option<u64>, name: Option<&str>) -> bool {
        let is_one = |pattern: &ThreadPattern| match pattern {
            ThreadPattern::Id(wanted) => id == Some(*wanted),
            ThreadPattern::Name(glob) => name.is_some_and(|name| glob.is_match(name)),
        };
        let is_wanted = self.threads.is_empty() || self.threads.iter().any(is_one);
        is_wanted && self.process.is_none_or(|wanted| process == Some(wanted))
    }
}

/// The threads so far.
#[derive(Debug, Default)]
pub(super) struct Threads {
    threads: Vec<Thread>,
    /// By process and number of the system, or by number in the trace.
    known: FxHashMap<(Option<u64>, Result<u64, u64>), u32>,
    /// By number in the trace, until the next sequence point, which may give it to another thread.
    current: FxHashMap<u64, u32>,
    last: Option<(u64, u32)>,
}

impl Threads {
    /// The number of an event's thread.
    pub(super) fn of(&mut self, event: &Event<'_>, choice: &ThreadChoice) -> u32 {
        let index = event.thread();
        if let Some((last, number)) = self.last
            && last == index
        {
            return number;
        }
        let number = match self.current.get(&index) {
            Some(number) => *number,
            None => self.resolve(event, choice),
        };
        self.last = Some((index, number));
        number
    }

    fn resolve(&mut self, event: &Event<'_>, choice: &ThreadChoice) -> u32 {
        let index = event.thread();
        let name = event.thread_info().and_then(|thread| thread.name.clone()).filter(|name| !name.is_empty());
        let number = self.add(event.process_id(), event.os_thread_id().ok_or(index), name, choice);
        self.current.insert(index, number);
        number
    }

    /// The number of a thread that is told with its system's number and name.
    pub(super) fn named(&mut self, process: Option<u64>, id: u64, name: &str, choice: &ThreadChoice) -> u32 {
        self.add(process, Ok(id), Some(name.to_owned()).filter(|name| !name.is_empty()), choice)
    }

    fn add(
        &mut self,
        process: Option<u64>,
        number: Result<u64, u64>,
        name: Option<String>,
        choice: &ThreadChoice,
    ) -> u32 {
        let id = number.ok();
        let threads = &mut self.threads;
        let number = *self.known.entry((process, number)).or_insert_with(|| {
            threads.push(Thread { process, id, name: None, is_wanted: false });
            u32::try_from(threads.len() - 1).unwrap_or(u32::MAX)
        });
        if let Some(thread) = self.get_mut(number) {
            // A later name is the better one.
            thread.name = name.or(thread.name.take());
            thread.is_wanted = choice.takes(process, id, thread.name.as_deref());
        }
        number
    }

    fn get_mut(&mut self, number: u32) -> Option<&mut Thread> {
        self.threads.get_mut(number as usize)
    }

    pub(super) fn get(&self, number: u32) -> Option<&Thread> {
        self.threads.get(number as usize)
    }

    /// Numbers may mean other threads from now on.
    pub(super) fn sequence_point(&mut self) {
        self.current.clear();
        self.last = None;
    }

    pub(super) fn into_threads(self) -> Vec<Thread> {
        self.threads
    }
}

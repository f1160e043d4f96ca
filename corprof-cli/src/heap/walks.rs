//! The runtime's walks over the heap in the events of a session, told apart by time.
//!
//! A runtime sends the events of one thread after those of another, so the events of a collection come in any order:
//! under the server collector its end before its start. Therefore nothing here depends on the order, except that the
//! parts of one walk are in order, because one thread writes them.
//!
//! While a dump is requested, the runtime walks the heap in each collection, also in one that the application has
//! begun. The dump is the walk in the forced collection, which leaves only what is alive.

use std::time::Duration;

use corprof_heap::{BulkReader, GraphBuilder};
use corprof_nettrace::events::views::{GcRestartEnd, GcStart, GcSuspendBegin, GcSuspendEnd};
use corprof_nettrace::events::{Event, GcKind, GcReason};

/// One walk over the heap.
struct Walk {
    reader: BulkReader,
    /// The thread that writes its parts.
    thread: u64,
    /// The time of its first part.
    begin: Duration,
    /// Whether more parts may come: the thread has not ended the suspension.
    is_open: bool,
}

/// The start of a collection.
struct Start {
    when: Duration,
    /// Whether it is a blocking one of the whole heap that a tool or the application has requested.
    is_forced: bool,
}

/// All walks of a session, and the events that limit them.
pub(super) struct Walks {
    title: String,
    is_64_bit: bool,
    walks: Vec<Walk>,
    starts: Vec<Start>,
    /// Begins and ends of attempts to suspend the application.
    suspensions: Vec<Duration>,
    restarts: Vec<Duration>,
}

/// The complete walk in a forced collection.
struct Complete {
    /// Its place among the walks.
    index: usize,
    /// The application stood still from then on.
    since: Option<Duration>,
    /// The application ran again from then on.
    until: Duration,
}

/// A dump.
pub(super) struct Walked {
    pub(super) reader: BulkReader,
    /// The time that the application stood still for it.
    pub(super) pause: Option<Duration>,
}

impl Walks {
    /// No walk yet of the heap of `title`.
    pub(super) fn new(title: String, is_64_bit: bool) -> Self {
        Self { title, is_64_bit, walks: Vec::new(), starts: Vec::new(), suspensions: Vec::new(), restarts: Vec::new() }
    }

    /// Takes an event of the runtime that `thread` wrote at the time `when`. Returns whether it is a part of a walk.
    pub(super) fn event(&mut self, event: &Event<'_>, thread: u64, when: Duration) -> bool {
        if let Ok(id) = u16::try_from(event.id())
            && BulkReader::reads(id)
        {
            self.part(id, event.payload(), thread, when);
            return true;
        }
        if let Ok(start) = event.decode::<GcStart>() {
            let is_full = start.generation == 2 && start.kind != GcKind::BACKGROUND;
            self.starts.push(Start { when, is_forced: is_full && start.reason == GcReason::INDUCED });
        } else if event.decode::<GcSuspendBegin>().is_ok() || event.decode::<GcSuspendEnd>().is_ok() {
            self.suspensions.push(when);
        } else if event.decode::<GcRestartEnd>().is_ok() {
            self.restart(thread, when);
        }
        false
    }

    fn part(&mut self, id: u16, payload: &[u8], thread: u64, when: Duration) {
        let open = self.walks.iter().position(|walk| walk.is_open && walk.thread == thread);
        let index = match open {
            Some(index) => index,
            // The runtime may walk once more as the session ends.
            None if self.complete().is_some_and(|complete| when > complete.until) => return,
            None => {
                let reader = BulkReader::new(GraphBuilder::new(&self.title), self.is_64_bit);
                self.walks.push(Walk { reader, thread, begin: when, is_open: true });
                self.walks.len() - 1
            }
        };
        self.walks[index].reader.event(id, payload);
    }

    fn restart(&mut self, thread: u64, when: Duration) {
        self.restarts.push(when);
        for walk in self.walks.iter_mut().filter(|walk| walk.thread == thread) {
            walk.is_open = false;
        }
    }

    /// Whether a walk in a forced collection is complete.
    pub(super) fn is_complete(&self) -> bool {
        self.complete().is_some()
    }

    fn complete(&self) -> Option<Complete> {
        self.walks.iter().enumerate().find_map(|(index, walk)| {
            let start = self.starts.iter().filter(|start| start.when <= walk.begin).max_by_key(|start| start.when)?;
            if !start.is_forced {
                return None;
            }
            // It is a blocking collection: no thread of the application runs before its end.
            let until = self.restarts.iter().copied().filter(|restart| *restart >= walk.begin).min()?;
            let since = self.suspensions.iter().copied().filter(|suspension| *suspension <= walk.begin).max();
            Some(Complete { index, since, until })
        })
    }

    /// The dump, if it is complete.
    pub(super) fn finish(mut self) -> Option<Walked> {
        let Complete { index, since, until } = self.complete()?;
        let walk = self.walks.swap_remove(index);
        let pause = since.map(|since| until.saturating_sub(since));
        Some(Walked { reader: walk.reader, pause })
    }
}

#[cfg(test)]
mod tests {
    use corprof_nettrace::events::Provider;

    use super::*;

    /// The diagnostics server, which requests the dump, and two threads of the server collector.
    const REQUESTER: u64 = 1;
    const COLLECTOR: u64 = 2;
    const OTHER_COLLECTOR: u64 = 3;

    const INDUCED: u32 = 1;
    const SMALL: u32 = 0;

    fn walks() -> Walks {
        Walks::new("shop".to_owned(), true)
    }

    fn send(walks: &mut Walks, id: u32, version: u32, payload: &[u8], thread: u64, when: u64) -> bool {
        let event = Event::new(Provider::RUNTIME, id, version, payload, true);
        walks.event(&event, thread, Duration::from_millis(when))
    }

    fn start(walks: &mut Walks, generation: u32, reason: u32, thread: u64, when: u64) {
        let fields = [9, generation, reason, 0].map(u32::to_le_bytes).concat();
        let payload = [&fields[..], &[0; 10]].concat();
        assert!(!send(walks, 1, 2, &payload, thread, when));
    }

    fn suspend(walks: &mut Walks, thread: u64, when: u64) {
        assert!(!send(walks, 8, 1, &[0; 2], thread, when));
    }

    fn restart(walks: &mut Walks, thread: u64, when: u64) {
        assert!(!send(walks, 3, 1, &[0; 2], thread, when));
    }

    /// One object of the address `address` that a root holds.
    fn walk(walks: &mut Walks, address: u64, thread: u64, when: u64) {
        let block = |entries: &[u8]| [&[0, 0, 0, 0, 1, 0, 0, 0, 0, 0][..], entries].concat();
        let object = [address, 24, 7, 0].map(u64::to_le_bytes).concat();
        assert!(send(walks, 18, 0, &block(&object), thread, when));
        let root = [&address.to_le_bytes()[..], &[0; 13]].concat();
        assert!(send(walks, 16, 0, &block(&root), thread, when + 1));
    }

    /// The addresses of the objects of the dump, and its pause in milliseconds.
    fn dump(walks: Walks) -> Option<(Vec<u64>, Option<u128>)> {
        let Walked { reader, pause } = walks.finish()?;
        let graph = reader.finish().unwrap();
        assert!(!graph.losses().is_cut() && !graph.losses().is_doubled(), "{}", graph.losses());
        let addresses = graph.objects().map(|object| graph.address(object)).collect();
        Some((addresses, pause.map(|pause| pause.as_millis())))
    }

    #[test]
    fn the_end_may_come_before_the_start() {
        let mut walks = walks();
        suspend(&mut walks, COLLECTOR, 10);
        walk(&mut walks, 0x1000, COLLECTOR, 50);
        restart(&mut walks, COLLECTOR, 60);
        assert!(!walks.is_complete());
        // As the server collector does: another of its threads is the first to arrive, and reports the start.
        start(&mut walks, 2, INDUCED, OTHER_COLLECTOR, 11);
        assert!(walks.is_complete());
        assert_eq!(dump(walks), Some((vec![0x1000], Some(50))));
    }

    #[test]
    fn a_walk_in_a_collection_of_the_application_is_left_out() {
        let mut walks = walks();
        // Its own is under way when the dump is requested.
        start(&mut walks, 0, SMALL, COLLECTOR, 10);
        walk(&mut walks, 0x1000, COLLECTOR, 20);
        restart(&mut walks, COLLECTOR, 30);
        assert!(!walks.is_complete());
        suspend(&mut walks, COLLECTOR, 40);
        start(&mut walks, 2, INDUCED, OTHER_COLLECTOR, 41);
        walk(&mut walks, 0x2000, COLLECTOR, 50);
        restart(&mut walks, COLLECTOR, 60);
        assert_eq!(dump(walks), Some((vec![0x2000], Some(20))));
    }

    #[test]
    fn threads_come_in_any_order() {
        let mut walks = walks();
        start(&mut walks, 2, INDUCED, REQUESTER, 40);
        walk(&mut walks, 0x2000, REQUESTER, 50);
        start(&mut walks, 0, SMALL, COLLECTOR, 10);
        walk(&mut walks, 0x1000, COLLECTOR, 20);
        restart(&mut walks, COLLECTOR, 30);
        assert!(!walks.is_complete());
        restart(&mut walks, REQUESTER, 60);
        assert_eq!(dump(walks), Some((vec![0x2000], None)));
    }

    #[test]
    fn a_collection_without_a_walk_is_no_dump() {
        let mut walks = walks();
        start(&mut walks, 2, INDUCED, COLLECTOR, 10);
        restart(&mut walks, COLLECTOR, 20);
        assert!(!walks.is_complete());
    }

    #[test]
    fn a_walk_at_the_end_of_the_session_is_left_out() {
        let mut walks = walks();
        start(&mut walks, 2, INDUCED, REQUESTER, 10);
        walk(&mut walks, 0x1000, REQUESTER, 20);
        restart(&mut walks, REQUESTER, 30);
        start(&mut walks, 2, INDUCED, REQUESTER, 40);
        walk(&mut walks, 0x2000, REQUESTER, 50);
        assert_eq!(walks.walks.len(), 1);
        restart(&mut walks, REQUESTER, 60);
        assert_eq!(dump(walks), Some((vec![0x1000], None)));
    }
}

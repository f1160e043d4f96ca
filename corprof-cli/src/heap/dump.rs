//! A dump of the heap over the diagnostics port, event by event into the graph.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use corprof_diagnostics::{
    Client, EventPipeSession, FullBuffer, KeywordSet, Level, ProcessInfo, Provider, Rundown, SessionConfig,
};
use corprof_heap::{GraphBuilder, HeapGraph};
use corprof_nettrace::events::views::{BulkType, ModuleDCEnd};
use corprof_nettrace::events::{Keywords, Provider as EventProvider};
use corprof_nettrace::{Event, Reader};

use super::cost::Cost;
use super::names::Names;
use super::ranges::Ranges;
use super::title::title;
use super::walks::{Walked, Walks};

/// The time between two checks for Ctrl-C, in a session without events.
const POLL: Duration = Duration::from_millis(200);

/// This long without a part of the heap, after the begin of a dump, means that its end was lost.
const SILENCE: Duration = Duration::from_secs(30);

/// A session lasts at most this many times the longest time without a part of the heap.
const LONGEST: u32 = 10;

/// Keywords of the rundown: modules, at the end of the session.
const MODULES_AT_END: u64 = 0x8 | 0x100;

/// A received dump.
pub(super) struct Dump {
    walked: Walked,
    names: Names,
    cost: Cost,
}

/// What a session has brought so far.
struct Session {
    walks: Walks,
    names: Names,
    clock: Clock,
    generations: Ranges,
}

/// The limits of a session. Events that are not part of the heap do not extend them: an application writes such events
/// for ever.
struct Clock {
    timeout: Duration,
    begin: Instant,
    /// The time of the last part of the heap.
    part: Option<Instant>,
    /// The time when the runtime was requested to end the session.
    stop: Option<Instant>,
}

impl Clock {
    fn new(timeout: Duration, begin: Instant) -> Self {
        Self { timeout, begin, part: None, stop: None }
    }

    /// Whether the end of the dump must have been lost.
    fn is_silent(&self, now: Instant) -> bool {
        self.part.is_some_and(|part| now.duration_since(part) > SILENCE.min(self.timeout / 2))
    }

    /// Checks that no limit has passed.
    fn check(&self, now: Instant) -> Result<()> {
        let Self { timeout, begin, part, stop } = *self;
        let last = stop.or(part).unwrap_or(begin);
        let waiting = match (part, stop) {
            (_, Some(_)) => "the session does not end",
            (Some(_), None) => "in the middle of the dump",
            (None, None) => "no dump begins",
        };
        ensure!(
            now.duration_since(last) < timeout,
            "the process has sent no part of the heap for {timeout:?}: {waiting}"
        );
        let longest = timeout.saturating_mul(LONGEST);
        ensure!(now.duration_since(begin) < longest, "the dump takes longer than {longest:?}, and was thrown away");
        Ok(())
    }
}

impl Dump {
    /// Requests a dump and reads it to its end.
    pub(super) fn take(
        client: &Client,
        info: &ProcessInfo,
        buffer_mb: u32,
        timeout: Duration,
        stop: &AtomicBool,
    ) -> Result<Self> {
        let is_64_bit = !matches!(info.architecture.as_str(), "x86" | "arm32" | "arm");
        // .NET 8 and older report all loaded modules and types, or none.
        let rundown = if info.clr_major().is_some_and(|major| major >= 9) {
            Rundown::Keywords(MODULES_AT_END)
        } else {
            Rundown::Default
        };
        // Where the generations are is told with what collections move.
        let keywords =
            KeywordSet::HEAP_DUMP | KeywordSet::new(Keywords::GC_HEAP_SURVIVAL_AND_MOVEMENT, Level::Informational);
        let config = SessionConfig::new([Provider::runtime(keywords)])
            .with_buffer_mb(buffer_mb)
            .with_full_buffer(FullBuffer::WaitIfPossible)
            .with_rundown(rundown);
        let begin = Instant::now();
        forget_types(client, timeout)?;
        let mut events = client.start_session(&config)?;
        events.set_read_timeout(Some(POLL));
        let mut reader = Reader::new(events);
        let mut session = Session {
            walks: Walks::new(title(info), is_64_bit),
            names: Names::default(),
            clock: Clock::new(timeout, Instant::now()),
            generations: Ranges::default(),
        };
        session.read(&mut reader, stop)?;
        let stats = reader.stats();
        ensure!(
            stats.lost == 0,
            "the process dropped {} events, so that the dump is cut and was thrown away: give it more room by --buffer-mb (it had \
             {buffer_mb})",
            stats.lost
        );
        let mut walked = session.walks.finish().context(
            "the session ended before the dump did, and what came was thrown away: has the process ended, or did another tool end \
             the session?",
        )?;
        for (start, length) in session.generations.gaps() {
            walked.reader.builder().frozen(start, length);
        }
        let cost = Cost {
            bytes: stats.bytes,
            took: begin.elapsed(),
            pauses: walked.pause.into_iter().collect(),
            collections: 1,
            collects_at_end: info.clr_major().is_some_and(|major| major < 10),
            ..Cost::default()
        };
        Ok(Self { walked, names: session.names, cost })
    }

    pub(super) fn builder(&mut self) -> &mut GraphBuilder {
        self.walked.reader.builder()
    }

    /// The graph, if no part is missing or duplicate.
    ///
    /// The names come from the files of process `pid`, too.
    pub(super) fn finish(mut self, pid: u32) -> Result<(HeapGraph, Cost)> {
        self.names.read_metadata(pid);
        let builder = self.walked.reader.builder();
        let undescribed: Vec<u64> = builder.undescribed_classes().collect();
        for key in undescribed {
            if let Some((name, module)) = self.names.of(key) {
                builder.class(key, &name, &module, 0);
                if let Some(method) = self.names.method_of(key) {
                    builder.class_method(key, method);
                }
            }
        }
        let graph = self.walked.reader.finish()?;
        let losses = graph.losses();
        ensure!(
            !losses.is_cut(),
            "the dump is cut, and was thrown away: {losses}. Take it again, with more --buffer-mb"
        );
        ensure!(
            !losses.is_doubled(),
            "another tool took a dump at the same time, and both are mixed ({losses}): take it again when that is done"
        );
        ensure!(!graph.is_empty(), "the dump has no objects: the runtime has not made one");
        self.cost.objects = graph.len();
        Ok((graph, self.cost))
    }
}

impl Session {
    fn read(&mut self, reader: &mut Reader<EventPipeSession>, stop: &AtomicBool) -> Result<()> {
        loop {
            match reader.next_event() {
                Ok(None) => return Ok(()),
                Ok(Some(event)) => self.event(&event),
                Err(error) if error.is_timeout() => {}
                Err(error) => return Err(error).context("the dump is cut, and was thrown away"),
            }
            if stop.load(Ordering::Relaxed) {
                // The connection closes, and the session with it.
                bail!("the dump was stopped, and thrown away");
            }
            let now = Instant::now();
            self.clock.check(now)?;
            // After a silence its end was lost: at the end of the session, the counts show what else was.
            if self.clock.stop.is_none() && (self.walks.is_complete() || self.clock.is_silent(now)) {
                reader.get_mut().stop()?;
                self.clock.stop = Some(now);
            }
        }
    }

    fn event(&mut self, event: &Event<'_>) {
        let decoded = event.decoded();
        if decoded.provider() == EventProvider::RUNDOWN {
            if let Ok(module) = decoded.decode::<ModuleDCEnd<'_>>() {
                self.names.module(&module);
            }
            return;
        }
        if decoded.provider() != EventProvider::RUNTIME {
            return;
        }
        if let Ok(types) = decoded.decode::<BulkType<'_>>() {
            self.names.add(types);
        } else if self.generations.event(&decoded) {
            // It comes before the heap.
        } else if self.walks.event(&decoded, event.capture_thread(), event.since_start()) {
            self.clock.part = Some(Instant::now());
        }
    }
}

/// Resets the runtime's record of reported type names: until a session ends, it reports each type once.
fn forget_types(client: &Client, timeout: Duration) -> Result<()> {
    let config = SessionConfig::new([Provider::runtime(KeywordSet::PROFILER)]);
    let begin = Instant::now();
    let mut session = client.start_session(&config)?;
    session.set_read_timeout(Some(timeout));
    session.stop()?;
    let mut reader = Reader::new(session);
    while reader.next_event()?.is_some() {
        ensure!(begin.elapsed() < timeout, "the runtime does not end a session within {timeout:?}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use corprof_heap::BulkReader;

    use super::*;

    /// A dump of one object that a root holds, as the runtime's blocks.
    fn receive(dump: &mut Dump) {
        let block = |entries: &[u8]| [&[0, 0, 0, 0, 1, 0, 0, 0, 0, 0][..], entries].concat();
        let object = [0x1000_u64, 24, 7, 0].map(u64::to_le_bytes).concat();
        dump.walked.reader.event(18, &block(&object));
        let root = [&0x1000_u64.to_le_bytes()[..], &[0; 13]].concat();
        dump.walked.reader.event(16, &block(&root));
    }

    #[test]
    fn two_mixed_dumps_are_refused() {
        let dump = || Dump {
            walked: Walked { reader: BulkReader::new(GraphBuilder::new("shop"), true), pause: None },
            names: Names::default(),
            cost: Cost::default(),
        };
        let mut one = dump();
        receive(&mut one);
        assert_eq!(one.finish(0).unwrap().0.len(), 1);
        let mut two = dump();
        receive(&mut two);
        receive(&mut two);
        let error = two.finish(0).unwrap_err().to_string();
        assert!(
            error.contains("another tool took a dump at the same time") && error.contains("take it again"),
            "{error}"
        );
    }

    #[test]
    fn a_session_has_limits_whatever_the_application_writes() {
        let begin = Instant::now();
        let after = |seconds| begin + Duration::from_secs(seconds);
        let mut clock = Clock::new(Duration::from_secs(20), begin);
        assert!(clock.check(after(19)).is_ok() && !clock.is_silent(after(19)));
        assert!(clock.check(after(20)).unwrap_err().to_string().contains("no dump begins"));

        clock.part = Some(after(19));
        assert!(!clock.is_silent(after(29)) && clock.is_silent(after(30)));
        assert!(clock.check(after(38)).is_ok());
        assert!(clock.check(after(39)).unwrap_err().to_string().contains("in the middle of the dump"));

        clock.stop = Some(after(30));
        assert!(clock.check(after(49)).is_ok());
        assert!(clock.check(after(50)).unwrap_err().to_string().contains("the session does not end"));

        let endless = Clock { part: Some(after(199)), ..Clock::new(Duration::from_secs(20), begin) };
        assert!(endless.check(after(199)).is_ok());
        assert!(endless.check(after(200)).unwrap_err().to_string().contains("longer than 200s"));
    }
}

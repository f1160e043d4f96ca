//! A dump of the heap over the diagnostics port, event by event into the graph.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use corprof_diagnostics::events::views::{
    BulkType, GcEnd, GcRestartEnd, GcStart, GcSuspendBegin, GcSuspendEnd, ModuleDCEnd,
};
use corprof_diagnostics::events::{Event, GcKind, GcReason, Provider as EventProvider};
use corprof_diagnostics::nettrace::Reader;
use corprof_diagnostics::{Client, EventPipeSession, KeywordSet, ProcessInfo, Provider, Rundown, SessionConfig};
use corprof_heap::{BulkReader, GraphBuilder, HeapGraph};

use super::cost::Cost;
use super::names::Names;

/// The time between two checks for Ctrl-C, in a session without events.
const POLL: Duration = Duration::from_millis(200);

/// A silence of this length after the begin of a dump means that its end was lost.
const SILENCE: Duration = Duration::from_secs(30);

/// Keywords of the rundown: modules, at the end of the session.
const MODULES_AT_END: u64 = 0x8 | 0x100;

/// A received dump.
pub(super) struct Dump {
    reader: BulkReader,
    names: Names,
    cost: Cost,
    /// The collection that the dump is made in, and whether it has ended.
    collection: Option<u32>,
    has_ended: bool,
    /// The time when the suspension of the application began.
    stopped: Option<Duration>,
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
        let config = SessionConfig::new([Provider::runtime(KeywordSet::HEAP_DUMP)])
            .with_buffer_mb(buffer_mb)
            .with_rundown(rundown);
        let begin = Instant::now();
        forget_types(client, timeout)?;
        let mut session = client.start_session(&config)?;
        session.set_read_timeout(Some(POLL));
        let builder = GraphBuilder::new(super::title(info));
        let mut dump = Self {
            reader: BulkReader::new(builder, is_64_bit),
            names: Names::default(),
            cost: Cost::default(),
            collection: None,
            has_ended: false,
            stopped: None,
        };
        let mut reader = Reader::new(session);
        dump.read(&mut reader, timeout, stop)?;
        let stats = reader.stats();
        ensure!(
            stats.lost == 0,
            "the process dropped {} events, so that the dump is cut and was thrown away: give it more room by --buffer-mb (it had \
             {buffer_mb})",
            stats.lost
        );
        ensure!(
            dump.has_ended,
            "the session ended before the dump did, and what came was thrown away: has the process ended, or did another tool end the \
             session?"
        );
        dump.cost.bytes = stats.bytes;
        dump.cost.collects_at_end = info.clr_major().is_some_and(|major| major < 10);
        dump.cost.took = begin.elapsed();
        Ok(dump)
    }

    fn read(&mut self, reader: &mut Reader<EventPipeSession>, timeout: Duration, stop: &AtomicBool) -> Result<()> {
        let mut last = Instant::now();
        let mut is_given_up = false;
        loop {
            match reader.next_event() {
                Ok(None) => break,
                Ok(Some(event)) => {
                    self.event(&event.decoded(), event.since_start());
                    last = Instant::now();
                }
                Err(error) if error.is_timeout() => {
                    if !is_given_up && self.collection.is_some() && last.elapsed() > SILENCE.min(timeout / 2) {
                        // Its end was lost: the counts show which other events were lost.
                        reader.get_mut().stop()?;
                        is_given_up = true;
                        last = Instant::now();
                    }
                    let waiting =
                        if self.collection.is_some() { "in the middle of the dump" } else { "no dump begins" };
                    ensure!(last.elapsed() < timeout, "the process has sent nothing for {timeout:?}: {waiting}");
                }
                Err(error) => return Err(error).context("the dump is cut, and was thrown away"),
            }
            if stop.load(Ordering::Relaxed) {
                // The connection closes, and the session with it.
                bail!("the dump was stopped, and thrown away");
            }
            if self.has_ended {
                reader.get_mut().stop()?;
            }
        }
        Ok(())
    }

    fn event(&mut self, event: &Event<'_>, when: Duration) {
        if event.provider() == EventProvider::RUNDOWN {
            if let Ok(module) = event.decode::<ModuleDCEnd<'_>>() {
                self.names.module(&module);
            }
            return;
        }
        if event.provider() != EventProvider::RUNTIME {
            return;
        }
        if let Ok(types) = event.decode::<BulkType<'_>>() {
            self.names.add(types);
        } else if let Ok(start) = event.decode::<GcStart>() {
            if start.reason == GcReason::INDUCED && start.generation == 2 && start.kind != GcKind::BACKGROUND {
                self.cost.collections += 1;
                self.collection.get_or_insert(start.number);
            }
        } else if let Ok(end) = event.decode::<GcEnd>() {
            self.has_ended |= self.collection == Some(end.number);
        } else if event.decode::<GcSuspendBegin>().is_ok() {
            self.stopped = Some(when);
        } else if event.decode::<GcSuspendEnd>().is_ok() {
            // Before this event some threads still run.
            self.stopped = Some(when);
        } else if event.decode::<GcRestartEnd>().is_ok() {
            if let Some(since) = self.stopped.take() {
                self.cost.pauses.push(when.saturating_sub(since));
                // It is a blocking one: nobody runs before its end, which may have been lost.
                self.has_ended |= self.collection.is_some();
            }
        } else if self.cost.collections < 2 {
            // What comes in a second collection is a second dump: the one that ends the session.
            if let Ok(id) = u16::try_from(event.id()) {
                self.reader.event(id, event.payload());
            }
        }
    }

    pub(super) fn builder(&mut self) -> &mut GraphBuilder {
        self.reader.builder()
    }

    /// The graph, if no part is missing or duplicate.
    ///
    /// The names come from the files of process `pid`, too.
    pub(super) fn finish(mut self, pid: u32) -> Result<(HeapGraph, Cost)> {
        self.names.read_metadata(pid);
        let builder = self.reader.builder();
        let undescribed: Vec<u64> = builder.undescribed_classes().collect();
        for key in undescribed {
            if let Some((name, module)) = self.names.of(key) {
                builder.class(key, &name, &module, 0);
            }
        }
        let graph = self.reader.finish()?;
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

/// Resets the runtime's record of reported type names: until a session ends, it reports each type once.
fn forget_types(client: &Client, timeout: Duration) -> Result<()> {
    let config = SessionConfig::new([Provider::runtime(KeywordSet::PROFILER)]);
    let mut session = client.start_session(&config)?;
    session.set_read_timeout(Some(timeout));
    session.stop()?;
    let mut reader = Reader::new(session);
    while reader.next_event()?.is_some() {}
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A dump of one object that a root holds, as the runtime's blocks.
    fn receive(dump: &mut Dump) {
        let block = |entries: &[u8]| [&[0, 0, 0, 0, 1, 0, 0, 0, 0, 0][..], entries].concat();
        let object = [0x1000_u64, 24, 7, 0].map(u64::to_le_bytes).concat();
        dump.reader.event(18, &block(&object));
        let root = [&0x1000_u64.to_le_bytes()[..], &[0; 13]].concat();
        dump.reader.event(16, &block(&root));
    }

    #[test]
    fn two_mixed_dumps_are_refused() {
        let dump = || Dump {
            reader: BulkReader::new(GraphBuilder::new("shop"), true),
            names: Names::default(),
            cost: Cost::default(),
            collection: None,
            has_ended: true,
            stopped: None,
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
}

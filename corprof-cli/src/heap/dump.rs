//! A dump of the heap over the diagnostics port, event by event into the graph.

use std::collections::HashMap;
use std::fmt::{self, Display, Formatter};
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

/// The cost of a snapshot for the application.
#[derive(Debug, Default)]
pub(super) struct Cost {
    objects: usize,
    bytes: u64,
    took: Duration,
    /// The durations of the suspensions.
    pauses: Vec<Duration>,
    /// Forced collections of the whole heap that the events report.
    collections: u32,
    /// Whether one more collection follows that no event reports: on .NET 8, not on 10.
    collects_at_end: bool,
}

/// Names of types and modules, as they come.
#[derive(Debug, Default)]
struct Names {
    types: HashMap<u64, TypeName>,
    modules: HashMap<u64, String>,
}

#[derive(Debug)]
struct TypeName {
    name: String,
    module: u64,
    rank: u32,
    parameters: Vec<u64>,
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
                self.names.modules.insert(module.module_id, stem(&module.il_path.to_string()));
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
    pub(super) fn finish(mut self) -> Result<(HeapGraph, Cost)> {
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

impl Names {
    fn add(&mut self, types: BulkType<'_>) {
        for ty in types.values {
            let rank = if ty.flags & 8 != 0 { (ty.flags >> 8 & 0x3f).max(1) } else { 0 };
            let (name, parameters) = (ty.name.to_string(), ty.type_parameters.collect());
            self.types.insert(ty.type_id, TypeName { name, module: ty.module_id, rank, parameters });
        }
    }

    /// Name and assembly of a type.
    fn of(&self, key: u64) -> Option<(String, String)> {
        let ty = self.types.get(&key)?;
        let module = self.modules.get(&ty.module).cloned().unwrap_or_default();
        Some((self.spelled(key, 8)?, module))
    }

    fn spelled(&self, key: u64, depth: u32) -> Option<String> {
        let ty = self.types.get(&key)?;
        let depth = depth.checked_sub(1)?;
        let parameter = |&key: &u64| self.spelled(key, depth).unwrap_or_else(|| "?".to_owned());
        if ty.rank > 0 {
            let element = ty.parameters.first().map_or_else(|| "?".to_owned(), parameter);
            return Some(format!("{element}[{}]", ",".repeat(ty.rank as usize - 1)));
        }
        if ty.parameters.is_empty() || ty.name.contains('[') {
            return Some(ty.name.clone());
        }
        let parameters: Vec<String> = ty.parameters.iter().map(parameter).collect();
        Some(format!("{}<{}>", ty.name, parameters.join(", ")))
    }
}

/// The name of a file without folder and extension, for paths of any system.
fn stem(path: &str) -> String {
    let file = path.rsplit(['/', '\\']).next().unwrap_or(path);
    file.rsplit_once('.').map_or(file, |(stem, _)| stem).to_owned()
}

impl Display for Cost {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { objects, bytes, took, pauses, collections, collects_at_end } = self;
        let (megabytes, seconds) = (*bytes as f64 / 1e6, took.as_secs_f64());
        write!(f, "{objects} objects, {megabytes:.1} MB sent in {seconds:.1} s; ")?;
        let plural = if *collections == 1 { "collection was" } else { "collections were" };
        write!(f, "{collections} {plural} forced; the application stood still for")?;
        if pauses.is_empty() {
            return f.write_str(" an unknown time");
        }
        for (index, pause) in pauses.iter().enumerate() {
            write!(f, "{} {:.0} ms", if index > 0 { " and" } else { "" }, pause.as_secs_f64() * 1e3)?;
        }
        if *collects_at_end { f.write_str("; the runtime collects once more as the session ends") } else { Ok(()) }
    }
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
        assert_eq!(one.finish().unwrap().0.len(), 1);
        let mut two = dump();
        receive(&mut two);
        receive(&mut two);
        let error = two.finish().unwrap_err().to_string();
        assert!(
            error.contains("another tool took a dump at the same time") && error.contains("take it again"),
            "{error}"
        );
    }

    #[test]
    fn types_are_spelled_with_what_they_are_made_of() {
        let mut names = Names::default();
        let mut add = |key, name: &str, rank, parameters: &[u64]| {
            let ty = TypeName { name: name.to_owned(), module: 7, rank, parameters: parameters.to_vec() };
            names.types.insert(key, ty);
        };
        add(1, "System.String", 0, &[]);
        add(2, "System.Collections.Generic.List`1", 0, &[1]);
        add(3, "", 1, &[2]);
        add(4, "", 2, &[9]);
        add(5, "Self", 0, &[5]);
        names.modules.insert(7, stem(r"C:\app\Shop.dll"));
        assert_eq!(names.of(3).unwrap().0, "System.Collections.Generic.List`1<System.String>[]");
        assert_eq!(names.of(4).unwrap(), ("?[,]".to_owned(), "Shop".to_owned()));
        assert!(names.of(5).unwrap().0.len() < 100, "a circle ends");
        assert!(names.of(6).is_none());
        assert_eq!(stem("/usr/lib/System.Private.CoreLib.dll"), "System.Private.CoreLib");
    }
}

//! One dump, from the request to the stop of its session: what each event changes.

use std::any::Any;
use std::time::{Duration, Instant};

use corprof_events::views::{GcRestartEnd, GcStart, GcSuspendBegin, GcSuspendEnd};
use corprof_events::{Event, GcKind, GcReason, Provider};
use rustc_hash::FxHashMap;

use super::blocks::{Blocks, is_block};
use super::fields::FieldReader;
use super::{BlockSink, HeapDumpCost, HeapDumpError};
use crate::error::Result;
use crate::id::ClassId;
use crate::session::{DeliveredEvent, Info};

/// How far the dump is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// No collection that could be the dump's.
    Waiting,
    /// In a forced collection of the whole heap, which may be the dump's or the application's own.
    Collecting,
    /// In the dump's collection.
    Dumping,
    /// The dump is complete. What comes now belongs to others.
    Ended,
}

/// A dump that is under way.
pub(super) struct Run {
    sink: Option<Box<dyn BlockSink>>,
    fields: Option<FieldReader>,
    stage: Stage,
    blocks: Blocks,
    classes: FxHashMap<u64, Option<ClassId>>,
    /// The last class: neighbours are often of one class.
    class: u64,
    sink_error: Option<std::io::Error>,
    cost: HeapDumpCost,
    requested: Instant,
    /// When the first and the last block came.
    delivery: Option<(Instant, Instant)>,
    /// When all threads were suspended, and whether it was for a collection that the session forces.
    suspended: Option<Instant>,
    is_forced: bool,
    pub(super) has_events: bool,
    /// The result of the session's calls, when the session is stopped.
    pub(super) session_result: Option<Result<()>>,
    /// The caller has given up.
    pub(super) is_abandoned: bool,
}

impl Run {
    pub(super) fn new(sink: Box<dyn BlockSink>, fields: Option<FieldReader>) -> Self {
        Self {
            sink: Some(sink),
            fields,
            stage: Stage::Waiting,
            blocks: Blocks::default(),
            classes: FxHashMap::default(),
            class: 0,
            sink_error: None,
            cost: HeapDumpCost::default(),
            requested: Instant::now(),
            delivery: None,
            suspended: None,
            is_forced: false,
            has_events: false,
            session_result: None,
            is_abandoned: false,
        }
    }

    /// Whether the dump is complete.
    pub(super) fn has_ended(&self) -> bool {
        self.stage == Stage::Ended
    }

    /// Whether a block has come.
    pub(super) fn has_begun(&self) -> bool {
        self.delivery.is_some()
    }

    /// Takes no more blocks.
    pub(super) fn give_up(&mut self) {
        self.is_abandoned = true;
        self.stage = Stage::Ended;
        self.sink = None;
    }

    /// Takes an event of the runtime's provider. Returns whether it is a block of a dump.
    ///
    /// The events of collections may come several times, if other sessions of the profiler ask for them.
    pub(super) fn event(&mut self, info: &Info, event: DeliveredEvent<'_>) -> bool {
        self.has_events = true;
        if is_block(event.id) {
            self.block(info, event.id, event.data);
            return true;
        }
        let event = Event::new(Provider::RUNTIME, event.id, event.version, event.data, usize::BITS == 64);
        if let Ok(start) = event.decode::<GcStart>() {
            if start.reason == GcReason::INDUCED && start.generation == 2 && start.kind != GcKind::BACKGROUND {
                self.is_forced = true;
                match self.stage {
                    Stage::Waiting | Stage::Collecting => self.stage = Stage::Collecting,
                    Stage::Dumping | Stage::Ended => {}
                }
            }
        } else if event.decode::<GcSuspendBegin>().is_ok() || event.decode::<GcSuspendEnd>().is_ok() {
            // The later of the two counts: before it some threads still run.
            self.suspended = Some(Instant::now());
        } else if event.decode::<GcRestartEnd>().is_ok() {
            self.resumed();
        }
        false
    }

    /// Whether a collection is under way that is the dump's or may become it.
    pub(super) fn is_collecting(&self) -> bool {
        matches!(self.stage, Stage::Collecting | Stage::Dumping)
    }

    /// The threads run again.
    fn resumed(&mut self) {
        let Some(since) = self.suspended.take() else { return };
        if std::mem::take(&mut self.is_forced) {
            match self.stage {
                Stage::Dumping => {
                    self.cost.pause = since.elapsed();
                    self.stage = Stage::Ended;
                }
                Stage::Collecting => self.stage = Stage::Waiting,
                Stage::Ended => self.cost.later_pauses.push(since.elapsed()),
                Stage::Waiting => {}
            }
        }
    }

    fn block(&mut self, info: &Info, event: u32, payload: &[u8]) {
        match self.stage {
            Stage::Collecting | Stage::Dumping => self.stage = Stage::Dumping,
            // Of another tool's dump: ours has not begun, or is complete.
            Stage::Waiting | Stage::Ended => {
                self.cost.foreign_blocks += 1;
                return;
            }
        }
        let now = Instant::now();
        self.delivery.get_or_insert((now, now));
        let classes = &mut self.classes;
        let last = &mut self.class;
        let mut fields = self.fields.as_mut().zip(self.sink.as_mut());
        let mut result = Ok(());
        let is_new = self.blocks.add(event, payload, |object, class| {
            if class != *last {
                *last = class;
                // As an identifier at once, so that it is known to be dead if its module is unloaded before its name is
                // asked for.
                classes.entry(class).or_insert_with(|| info.class(class as usize));
            }
            if let Some((fields, sink)) = &mut fields
                && result.is_ok()
            {
                result = fields.read(info, object, class, sink.as_mut());
            }
        });
        if self.sink_error.is_none() {
            self.sink_error = result.err();
        }
        if is_new
            && self.sink_error.is_none()
            && let Some(sink) = &mut self.sink
            && let Err(error) = sink.block(event as u16, payload)
        {
            self.sink_error = Some(error);
        }
        let end = Instant::now();
        self.cost.handling += end - now;
        if let Some((_, last)) = &mut self.delivery {
            *last = end;
        }
    }

    /// Whether one of the session's calls has failed.
    pub(super) fn has_failed(&self) -> bool {
        matches!(self.session_result, Some(Err(_)))
    }

    /// What the dump has come to, when its session is stopped.
    pub(super) fn finish<S: BlockSink>(mut self) -> Result<super::HeapDump<S>, HeapDumpError> {
        self.session_result.unwrap_or(Ok(()))?;
        if let Some(error) = self.sink_error {
            return Err(HeapDumpError::Sink(error));
        }
        if self.blocks.repeated > 0 {
            return Err(HeapDumpError::Doubled(self.blocks.repeated));
        }
        if let Some(fault) = self.blocks.cut() {
            return Err(HeapDumpError::Cut(fault));
        }
        let lost = || HeapDumpError::Cut("its sink has gone".to_owned());
        let mut sink = self.sink.take().ok_or_else(lost)?;
        sink.end().map_err(HeapDumpError::Sink)?;
        let sink = (sink as Box<dyn Any>).downcast::<S>().map_err(|_| lost())?;
        let delivery = self.delivery.map_or(Duration::ZERO, |(first, last)| last - first);
        let mut classes: Vec<_> = self.classes.into_iter().filter_map(|(key, class)| Some((key, class?))).collect();
        classes.sort_unstable_by_key(|&(key, _)| key);
        let Blocks { objects, references, bytes, count, .. } = self.blocks;
        let took = self.requested.elapsed();
        let cost = HeapDumpCost { objects, references, bytes, blocks: count, delivery, took, ..self.cost };
        Ok(super::HeapDump { sink: *sink, classes, cost })
    }
}

//! Reads a trace from its beginning to its end.

use std::io::Read;

use crate::blocks::{Fault, Frame, Kind, OpenBlock};
use crate::buffer::Buffer;
use crate::error::{Error, FormatError, FormatErrorKind};
use crate::event::{Event, Item, SequencePoint};
use crate::limits::Limits;
use crate::metadata::Metadata;
use crate::objects::{self, Layout};
use crate::tables::Tables;
use crate::trace::Trace;
use crate::{labels, stacks};

/// Reads events from a source, while it is written or afterwards.
///
/// ```no_run
/// use corprof_nettrace::Reader;
///
/// let mut reader = Reader::new(std::fs::File::open("app.nettrace")?);
/// println!("process {:?}", reader.trace()?.process_id);
/// while let Some(event) = reader.next_event()? {
///     println!("{:?} {} {}", event.since_start(), event.metadata().provider, event.metadata().event_id);
/// }
/// println!("{} events, {} lost", reader.stats().events, reader.stats().lost);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Reader<R> {
    buffer: Buffer<R>,
    limits: Limits,
    start: Option<(Layout, Trace)>,
    tables: Tables,
    block: Option<OpenBlock>,
    stats: Stats,
    failure: Option<FormatError>,
    is_at_end: bool,
}

/// Counts of the events so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Events that were read.
    pub events: u64,
    /// Events that the runtime dropped, as far as gaps in their numbers and sequence points show. Gaps that the trace
    /// ends in show only if a sequence point follows them, as the runtime writes one at the end of a session.
    pub lost: u64,
    /// Sequence points.
    pub sequence_points: u64,
    /// Blocks that this reader does not know, and has skipped.
    pub skipped_blocks: u64,
    /// Bytes of the trace, up to the end of the last block that is done with.
    pub bytes: u64,
}

/// The next item of a trace.
enum Found {
    /// Where its payload is in the window, and the row of its definition.
    Event((usize, usize), usize),
    SequencePoint(u64),
    End,
}

impl<R: Read> Reader<R> {
    /// Reads nothing yet. The source need not be buffered.
    pub fn new(source: R) -> Self {
        Self::with_limits(source, Limits::default())
    }

    /// With other limits on memory.
    pub fn with_limits(source: R, limits: Limits) -> Self {
        Self {
            buffer: Buffer::new(source),
            limits,
            start: None,
            tables: Tables::default(),
            block: None,
            stats: Stats::default(),
            failure: None,
            is_at_end: false,
        }
    }

    /// The header of the trace.
    ///
    /// # Errors
    /// If the source does not begin as a trace, or fails.
    pub fn trace(&mut self) -> Result<&Trace, Error> {
        self.read_start()?;
        match &self.start {
            Some((_, trace)) => Ok(trace),
            None => Err(FormatError { kind: FormatErrorKind::NotNettrace, offset: 0 }.into()),
        }
    }

    /// The next event, or nothing at the end of the trace.
    ///
    /// # Errors
    /// If the source fails, after which reading can go on; if the trace is damaged, ends in the middle, is of a newer
    /// version or needs too much memory, after which it cannot.
    pub fn next_event(&mut self) -> Result<Option<Event<'_>>, Error> {
        loop {
            match self.find()? {
                Found::Event(payload, row) => return self.event(payload, row).map(Some),
                Found::SequencePoint(_) => {}
                Found::End => return Ok(None),
            }
        }
    }

    /// The next event or sequence point, or nothing at the end of the trace.
    ///
    /// # Errors
    /// As [`next_event`](Self::next_event).
    pub fn next_item(&mut self) -> Result<Option<Item<'_>>, Error> {
        match self.find()? {
            Found::Event(payload, row) => self.event(payload, row).map(|event| Some(Item::Event(event))),
            Found::SequencePoint(ticks) => Ok(Some(Item::SequencePoint(SequencePoint { ticks }))),
            Found::End => Ok(None),
        }
    }

    /// How much has been read, and how much was lost.
    #[must_use]
    pub fn stats(&self) -> Stats {
        Stats { lost: self.tables.sequences.lost(), bytes: self.buffer.offset(), ..self.stats }
    }

    /// The source.
    pub fn get_ref(&self) -> &R {
        self.buffer.source()
    }

    /// The source, of which more may have been read than was handed out.
    pub fn get_mut(&mut self) -> &mut R {
        self.buffer.source_mut()
    }

    /// The source. Bytes that the reader has already read are lost.
    pub fn into_inner(self) -> R {
        self.buffer.into_source()
    }

    fn fail(&mut self, kind: FormatErrorKind) -> Error {
        let error = self.failure.insert(FormatError { kind, offset: self.buffer.offset() });
        Error::Format(error.clone())
    }

    fn failed(&mut self, fault: Fault) -> Error {
        match fault {
            Fault::Io(error) => Error::Io(error),
            Fault::Format(kind) => self.fail(kind),
        }
    }

    fn read_start(&mut self) -> Result<(), Error> {
        if let Some(failure) = &self.failure {
            return Err(Error::Format(failure.clone()));
        }
        if self.start.is_none() {
            let start = objects::read_start(&mut self.buffer, &self.limits);
            self.start = Some(start.map_err(|fault| self.failed(fault))?);
        }
        Ok(())
    }

    #[inline]
    fn find(&mut self) -> Result<Found, Error> {
        self.read_start()?;
        match self.step() {
            Ok(found) => Ok(found),
            Err(fault) => Err(self.failed(fault)),
        }
    }

    fn step(&mut self) -> Result<Found, Fault> {
        loop {
            if let Some(block) = &mut self.block {
                if let Some(payload) = block.advance(self.buffer.window())? {
                    let header = block.header();
                    self.tables.sequences.event(header.capture_thread, header.sequence, self.limits.threads)?;
                    let row = self.tables.metadata.row_of(header.metadata_id);
                    let row =
                        row.ok_or(FormatErrorKind::Corrupt("an event refers to a definition that is not there"))?;
                    self.stats.events += 1;
                    return Ok(Found::Event(payload, row));
                }
                self.buffer.consume(block.frame().total);
                self.block = None;
            }
            if self.is_at_end {
                return Ok(Found::End);
            }
            let layout = self.start.as_ref().map(|(layout, _)| *layout);
            let frame = match layout {
                Some(Layout::Blocks) => objects::next_block(&mut self.buffer, &self.limits)?,
                _ => objects::next_object(&mut self.buffer, &self.limits)?,
            };
            let is_v6 = layout == Some(Layout::Blocks);
            let found = self.take_block(frame, is_v6)?;
            if self.block.is_none() {
                self.buffer.consume(frame.total);
            }
            if let Some(found) = found {
                return Ok(found);
            }
        }
    }

    /// Processes a block. A block of events is only opened.
    fn take_block(&mut self, frame: Frame, is_v6: bool) -> Result<Option<Found>, FormatErrorKind> {
        let contents = frame.contents(self.buffer.window());
        match (frame.kind, is_v6) {
            (Kind::End, _) => self.is_at_end = true,
            (Kind::Events, _) => self.block = Some(OpenBlock::open(frame, self.buffer.window(), is_v6)?),
            (Kind::Metadata, true) => self.tables.metadata_rows(contents, &self.limits)?,
            (Kind::Metadata, false) => {
                let mut block = OpenBlock::open(frame, self.buffer.window(), is_v6)?;
                while let Some((start, end)) = block.advance(self.buffer.window())? {
                    let payload = self.buffer.window().get(start..end).unwrap_or_default();
                    let metadata = Metadata::read(payload);
                    let metadata =
                        metadata.map_err(|_| FormatErrorKind::Corrupt("a definition of an event is too short"))?;
                    self.tables.metadata.add(metadata, self.limits.metadata_bytes)?;
                }
            }
            (Kind::Stacks, _) => stacks::read_block(contents, &mut self.tables.stacks, self.limits.stack_bytes)?,
            (Kind::SequencePoint, _) => {
                let ticks = if is_v6 {
                    self.tables.sequence_point_v6(contents, &self.limits)?
                } else {
                    self.tables.sequence_point(contents, &self.limits)?
                };
                self.stats.sequence_points += 1;
                return Ok(Some(Found::SequencePoint(ticks)));
            }
            (Kind::Labels, _) => labels::read_block(contents, &mut self.tables.labels, self.limits.label_bytes)?,
            (Kind::Threads, _) => self.tables.threads.read_block(contents, self.limits.thread_bytes)?,
            (Kind::RemovedThreads, _) => self.tables.remove_threads(contents, &self.limits)?,
            (Kind::Trace, _) => return Err(FormatErrorKind::Corrupt("it describes itself twice")),
            (Kind::Unknown, _) => self.stats.skipped_blocks += 1,
        }
        Ok(None)
    }

    fn event(&self, (start, end): (usize, usize), row: usize) -> Result<Event<'_>, Error> {
        let parts = (&self.block, &self.start, self.tables.metadata.get(row));
        let (Some(block), Some((_, trace)), Some(metadata)) = parts else {
            // All three were there when the event was found.
            let kind = FormatErrorKind::Corrupt("an event refers to a definition that is not there");
            return Err(FormatError { kind, offset: self.buffer.offset() }.into());
        };
        let payload = self.buffer.window().get(start..end).unwrap_or_default();
        Ok(Event { header: block.header(), metadata, payload, tables: &self.tables, trace })
    }
}

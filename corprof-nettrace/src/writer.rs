//! Writes a trace of version 6.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::fmt::{self, Debug, Formatter};
use std::io::Write;
use std::mem;

use crate::blocks::{self, BLOCK_HEADER, IS_COMPRESSED, Kind};
use crate::encode;
use crate::error::WriteError;
use crate::event::Event;
use crate::header::Header;
use crate::interned::Interned;
use crate::labels::Label;
use crate::metadata::Metadata;
use crate::new_event::NewEvent;
use crate::objects::MAGIC;
use crate::reader::Stats;
use crate::sequence::LARGEST_GAP;
use crate::threads::Thread;
use crate::trace::{NEWEST, Trace};

/// Bytes that are held before they are written as blocks.
const BUFFERED: usize = 64 * 1024;

/// Bytes of stacks, and of label lists, that are remembered so that each is written once.
const REMEMBERED: usize = 4 << 20;

/// What an `EVENT_RECORD`, as which TraceEvent hands out events, has room for. With a stack come eight bytes.
const LONGEST_PAYLOAD: usize = u16::MAX as usize;
const LARGEST_STACK: usize = u16::MAX as usize - 8;
/// A block has a list as a whole.
const LARGEST_LABELS: usize = 1 << 20;

/// The latest time, in ticks: readers have it with a sign.
const LAST_TICK: u64 = i64::MAX.cast_unsigned();

/// Writes a `.nettrace` of version 6 into a sink, block by block.
///
/// Definitions and threads come before the events that refer to them. Events are written in the order of the calls;
/// each thread's own must be in order of time.
///
/// ```
/// use std::time::SystemTime;
///
/// use corprof_nettrace::{Metadata, NewEvent, Reader, Thread, Trace, UtcTime, Writer};
///
/// let now = UtcTime::from_system_time(SystemTime::now()).ok_or("no clock")?;
/// let mut writer = Writer::new(Vec::new(), &Trace::new(now, 0, 1_000_000_000))?;
/// writer.define_event(&Metadata::new(1, "Shop", 1, "Order"))?;
/// writer.define_thread(&Thread::new(1))?;
/// let mut order = NewEvent::new(1, 1, 1_000);
/// order.stack = &[0x7f00_1234, 0x7f00_1000];
/// writer.write(&order)?;
/// let bytes = writer.finish()?;
///
/// let mut reader = Reader::new(&bytes[..]);
/// let event = reader.next_event()?.ok_or("no event")?;
/// assert_eq!((event.metadata().name.as_str(), event.ticks()), ("Order", 1_000));
/// assert!(event.stack().addresses().eq([0x7f00_1234, 0x7f00_1000]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Crashes
///
/// The sink gets whole blocks, in one call each time that 64 KB have come, or at [`flush`](Self::flush). A trace that
/// is cut at any byte, because the process died or the disk is full, reads up to the last block before the cut. Sinks
/// need no buffer. PerfView and dotnet-trace refuse a trace without an end: the example `copy` of this crate gives it
/// one.
///
/// # Memory
///
/// Bounded, apart from the definitions and some 50 bytes for each thread that was not
/// [removed](Self::remove_thread): 64 KB of events, and a few megabytes of stacks and labels. Whoever reads the trace
/// holds all stacks between two sequence points, so call [`sequence_point`](Self::sequence_point) every few megabytes;
/// if all events are sorted, the writer does so by itself.
pub struct Writer<W> {
    sink: W,
    pointer_size: u32,
    definitions: HashMap<u32, Metadata>,
    /// Of the events that were copied: the definition in the source with this number, and its number here.
    copied: HashMap<u32, (Metadata, u32)>,
    threads: HashMap<u64, Progress>,
    /// Threads that were removed since the last sequence point.
    removed: HashSet<u64>,
    stacks: Interned,
    labels: Interned,
    /// Rows to be written.
    new_definitions: Vec<u8>,
    new_threads: Vec<u8>,
    /// Blocks of events to be written, and the one that is being filled.
    blocks: Vec<u8>,
    block: Block,
    /// No event that follows is older.
    oldest_allowed: u64,
    youngest: u64,
    stack_scratch: Vec<u8>,
    label_scratch: Vec<u8>,
    stats: Stats,
    is_broken: bool,
}

/// How far a thread has come.
#[derive(Debug, Default)]
struct Progress {
    /// The number and the time of its last event.
    number: u32,
    ticks: u64,
    /// The number of its last event in the source of a copy.
    copied: u32,
    /// Lost events that no event tells of yet.
    has_lost: bool,
}

/// A block of events that is being filled.
#[derive(Debug, Default)]
struct Block {
    events: Vec<u8>,
    last: Header,
    oldest: u64,
    youngest: u64,
}

impl Block {
    fn push(&mut self, header: Header, payload: &[u8]) {
        if self.events.is_empty() {
            self.oldest = header.ticks;
        }
        header.write_next(&self.last, &mut self.events);
        self.events.extend(payload);
        self.oldest = self.oldest.min(header.ticks);
        self.youngest = self.youngest.max(header.ticks);
        self.last = header;
    }

    /// Whether the event cannot follow the last one in the same block. Times are written as differences without a sign;
    /// and TraceEvent takes an event that is not sorted for one of the thread that captured the event before.
    fn ends_before(&self, header: &Header) -> bool {
        let is_other_thread = header.capture_thread != self.last.capture_thread;
        !self.events.is_empty() && (header.ticks < self.last.ticks || is_other_thread && !header.is_sorted)
    }

    /// Appends the block, and begins the next.
    fn take(&mut self, out: &mut Vec<u8>) {
        if self.events.is_empty() {
            return;
        }
        let mut head = Vec::with_capacity(BLOCK_HEADER.into());
        head.extend(BLOCK_HEADER.to_le_bytes());
        head.extend(IS_COMPRESSED.to_le_bytes());
        head.extend(self.oldest.to_le_bytes());
        head.extend(self.youngest.to_le_bytes());
        blocks::write(out, Kind::Events, &[&head, &self.events]);
        *self = Self::default();
    }
}

/// What an event refers to, as bytes.
struct Parts<'a> {
    stack: &'a [u8],
    labels: &'a [u8],
    payload: &'a [u8],
}

impl<W: Write> Writer<W> {
    /// Writes the header of the trace at once. Process and processors of `trace` become
    /// [properties](Trace::properties); its version does not matter.
    ///
    /// # Errors
    /// If a value of `trace` is impossible, or the sink fails.
    pub fn new(mut sink: W, trace: &Trace) -> Result<Self, WriteError> {
        let contents = trace.write_block()?;
        let mut out = MAGIC.to_vec();
        for number in [0, NEWEST, 0] {
            out.extend(number.to_le_bytes());
        }
        blocks::write(&mut out, Kind::Trace, &[&contents]);
        sink.write_all(&out)?;
        sink.flush()?;
        Ok(Self {
            sink,
            pointer_size: trace.pointer_size,
            definitions: HashMap::new(),
            copied: HashMap::new(),
            threads: HashMap::new(),
            removed: HashSet::new(),
            stacks: Interned::new(),
            labels: Interned::new(),
            new_definitions: Vec::new(),
            new_threads: Vec::new(),
            blocks: Vec::new(),
            block: Block::default(),
            oldest_allowed: 0,
            youngest: 0,
            stack_scratch: Vec::new(),
            label_scratch: Vec::new(),
            stats: Stats { bytes: out.len() as u64, ..Stats::default() },
            is_broken: false,
        })
    }

    /// Adds the definition of an event, under its own [`id`](Metadata::id). Once more the same does nothing. Fields
    /// whose description is not known are left out.
    ///
    /// # Errors
    /// If another definition has this number, if a value is impossible or too long for the format, or if the sink
    /// fails.
    pub fn define_event(&mut self, metadata: &Metadata) -> Result<(), WriteError> {
        self.check()?;
        if let Some(before) = self.definitions.get(&metadata.id) {
            let what = "definition";
            let number = metadata.id.into();
            return if before == metadata { Ok(()) } else { Err(WriteError::Redefined { what, number }) };
        }
        let mut row = Vec::new();
        metadata.write_row(&mut row)?;
        self.new_definitions.extend(encode::length16("the definition of an event", &row)?);
        self.new_definitions.extend(row);
        self.definitions.insert(metadata.id, metadata.clone());
        self.flush_if_full()
    }

    /// Adds a thread, under its own [`index`](Thread::index).
    ///
    /// # Errors
    /// If another thread has this index, or had it since the last sequence point; if it is too long for the format; or
    /// if the sink fails.
    pub fn define_thread(&mut self, thread: &Thread) -> Result<(), WriteError> {
        self.check()?;
        let number = thread.index;
        if self.threads.contains_key(&number) || self.removed.contains(&number) {
            return Err(WriteError::Redefined { what: "thread", number });
        }
        let mut row = Vec::new();
        thread.write_row(&mut row);
        self.new_threads.extend(encode::length16("a thread", &row)?);
        self.new_threads.extend(row);
        self.threads.insert(number, Progress::default());
        self.flush_if_full()
    }

    /// No further event refers to this thread. Writes what has come so far.
    ///
    /// # Errors
    /// If there is no such thread, or if the sink fails.
    pub fn remove_thread(&mut self, index: u64) -> Result<(), WriteError> {
        self.check()?;
        let progress = self.threads.remove(&index).ok_or(WriteError::UnknownThread(index))?;
        self.removed.insert(index);
        let mut out = self.take_pending();
        let mut row = Vec::new();
        encode::varuint(&mut row, index);
        encode::varuint(&mut row, progress.number.into());
        blocks::write(&mut out, Kind::RemovedThreads, &[&row]);
        self.put(&out)
    }

    /// Adds an event.
    ///
    /// # Errors
    /// If its definition or a thread is not there, if it comes out of order, if it is too long, or if the sink fails.
    pub fn write(&mut self, event: &NewEvent<'_>) -> Result<(), WriteError> {
        let mut stack = mem::take(&mut self.stack_scratch);
        let mut labels = mem::take(&mut self.label_scratch);
        stack.clear();
        labels.clear();
        Label::write_list(event.labels, &mut labels);
        let result = self.write_stack(event.stack.iter().copied(), &mut stack).and_then(|()| {
            let header = Header {
                metadata_id: event.metadata_id,
                thread: event.thread,
                capture_thread: event.capture_thread,
                processor: event.processor,
                ticks: event.ticks,
                is_sorted: event.is_sorted,
                ..Header::default()
            };
            self.push(header, event.lost_before, &Parts { stack: &stack, labels: &labels, payload: event.payload })
        });
        self.stack_scratch = stack;
        self.label_scratch = labels;
        result
    }

    /// Adds a copy of an event that was read, with all that it refers to. The copy of a thread of versions 4 and 5 has
    /// the number of the system's thread. A definition keeps its number if that is free. All events of a trace that
    /// come from copies are of one source.
    ///
    /// # Errors
    /// As [`write`](Self::write), [`define_event`](Self::define_event) and [`define_thread`](Self::define_thread).
    pub fn copy(&mut self, event: &Event<'_>) -> Result<(), WriteError> {
        self.check()?;
        let metadata_id = self.copy_definition(event.metadata())?;
        for index in [event.thread(), event.capture_thread()] {
            if !self.threads.contains_key(&index) {
                self.define_thread(&event.thread_of(index))?;
            }
        }
        let number = event.sequence_number();
        let before = self.threads.get(&event.capture_thread()).map_or(0, |progress| progress.copied);
        let gap = number.wrapping_sub(before).wrapping_sub(1);
        // A step back is another thread of the system with the same number.
        let lost = if gap <= LARGEST_GAP { gap } else { number.saturating_sub(1) };
        let header = Header { metadata_id, labels: 0, stack: 0, ..*event.header };
        let labels = event.label_bytes();
        let mut stack = Cow::Borrowed(event.stack().as_bytes());
        if event.trace.pointer_size != self.pointer_size {
            let mut bytes = Vec::new();
            self.write_stack(event.stack().addresses(), &mut bytes)?;
            stack = bytes.into();
        }
        self.push(header, lost, &Parts { stack: &stack, labels: &labels, payload: event.payload() })?;
        if let Some(progress) = self.threads.get_mut(&event.capture_thread()) {
            progress.copied = number;
        }
        Ok(())
    }

    /// Says that `thread` has lost so many events after its last one.
    ///
    /// # Errors
    /// If there is no such thread.
    pub fn lose(&mut self, thread: u64, events: u32) -> Result<(), WriteError> {
        self.check()?;
        let progress = self.threads.get_mut(&thread).ok_or(WriteError::UnknownThread(thread))?;
        progress.number = progress.number.wrapping_add(events);
        progress.has_lost |= events > 0;
        self.stats.lost += u64::from(events);
        Ok(())
    }

    /// Promises that all events so far are at most as young as `ticks`, and all that follow at least; and writes what
    /// has come so far. A reader then forgets stacks and labels.
    ///
    /// # Errors
    /// If an event so far is younger, or if the sink fails.
    pub fn sequence_point(&mut self, ticks: u64) -> Result<(), WriteError> {
        self.check()?;
        let after = self.youngest.max(self.oldest_allowed);
        if ticks < after {
            return Err(WriteError::OutOfOrder { ticks, after });
        }
        if ticks > LAST_TICK {
            return Err(WriteError::Impossible("a time has at most 63 bits"));
        }
        let mut out = self.take_pending();
        self.point(ticks, &mut out);
        self.put(&out)
    }

    /// Writes what has come so far, and flushes the sink.
    ///
    /// # Errors
    /// If the sink fails.
    pub fn flush(&mut self) -> Result<(), WriteError> {
        self.check()?;
        let out = self.take_pending();
        self.put(&out)
    }

    /// Ends the trace, and returns the sink.
    ///
    /// # Errors
    /// If the sink fails, now or before.
    pub fn finish(mut self) -> Result<W, WriteError> {
        self.check()?;
        let mut out = self.take_pending();
        // TraceEvent hands out events that are not sorted at a sequence point at the latest.
        self.point(self.youngest.max(self.oldest_allowed), &mut out);
        blocks::write(&mut out, Kind::End, &[]);
        self.put(&out)?;
        Ok(self.sink)
    }

    /// How much was written, and how much the trace says was lost.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// The sink, which has the blocks so far.
    pub fn get_ref(&self) -> &W {
        &self.sink
    }

    /// The same, to end by hand what the writer gave up after a failure.
    pub fn get_mut(&mut self) -> &mut W {
        &mut self.sink
    }

    fn check(&self) -> Result<(), WriteError> {
        if self.is_broken { Err(WriteError::Broken) } else { Ok(()) }
    }

    /// The addresses in the width of the trace.
    fn write_stack(&self, addresses: impl Iterator<Item = u64>, out: &mut Vec<u8>) -> Result<(), WriteError> {
        for address in addresses {
            if self.pointer_size == 8 {
                out.extend(address.to_le_bytes());
                continue;
            }
            let narrow = u32::try_from(address).map_err(|_| {
                WriteError::Impossible("an address of a stack has more bytes than a pointer of the trace")
            })?;
            out.extend(narrow.to_le_bytes());
        }
        Ok(())
    }

    /// The number of the definition here.
    fn copy_definition(&mut self, metadata: &Metadata) -> Result<u32, WriteError> {
        if let Some((before, id)) = self.copied.get(&metadata.id)
            && before == metadata
        {
            return Ok(*id);
        }
        let mut copy = metadata.clone();
        if self.definitions.get(&copy.id).is_some_and(|before| *before != copy) {
            // The source has ended the definitions up to there.
            copy.id = self.definitions.keys().max().map_or(1, |last| last.saturating_add(1));
        }
        self.define_event(&copy)?;
        self.copied.insert(metadata.id, (metadata.clone(), copy.id));
        Ok(copy.id)
    }

    /// Adds an event, whose sequence number, stack and labels are not in `header` yet.
    fn push(&mut self, mut header: Header, lost: u32, parts: &Parts<'_>) -> Result<(), WriteError> {
        self.check()?;
        self.check_references(&header)?;
        let size = |what, bytes: &[u8], limit| {
            let size = bytes.len();
            if size > limit { Err(WriteError::TooLong { what, size, limit }) } else { Ok(()) }
        };
        size("the payload of an event", parts.payload, LONGEST_PAYLOAD)?;
        size("a stack", parts.stack, LARGEST_STACK)?;
        size("a list of labels", parts.labels, LARGEST_LABELS)?;
        self.bound_memory(&header)?;
        header.payload_size = u32::try_from(parts.payload.len()).unwrap_or(u32::MAX);
        header.stack = numbered(self.stacks.number(parts.stack, |out| {
            out.extend(u32::try_from(parts.stack.len()).unwrap_or(u32::MAX).to_le_bytes());
            out.extend(parts.stack);
        }))?;
        header.labels = numbered(self.labels.number(parts.labels, |out| out.extend(parts.labels)))?;
        let progress = self.threads.entry(header.capture_thread).or_default();
        header.sequence = progress.number.wrapping_add(lost).wrapping_add(1);
        progress.number = header.sequence;
        progress.ticks = header.ticks;
        progress.has_lost = false;
        if header.is_sorted {
            self.oldest_allowed = header.ticks;
        }
        self.youngest = self.youngest.max(header.ticks);
        self.stats.events += 1;
        self.stats.lost += u64::from(lost);
        if self.block.ends_before(&header) {
            self.block.take(&mut self.blocks);
        }
        self.block.push(header, parts.payload);
        self.flush_if_full()
    }

    fn check_references(&self, header: &Header) -> Result<(), WriteError> {
        if !self.definitions.contains_key(&header.metadata_id) {
            return Err(WriteError::UnknownEvent(header.metadata_id));
        }
        if !self.threads.contains_key(&header.thread) {
            return Err(WriteError::UnknownThread(header.thread));
        }
        let Some(progress) = self.threads.get(&header.capture_thread) else {
            return Err(WriteError::UnknownThread(header.capture_thread));
        };
        let ticks = header.ticks;
        let after = self.oldest_allowed.max(progress.ticks);
        if ticks < after {
            return Err(WriteError::OutOfOrder { ticks, after });
        }
        if ticks > LAST_TICK {
            return Err(WriteError::Impossible("a time has at most 63 bits"));
        }
        Ok(())
    }

    /// Forgets stacks and labels before an event, if there are too many: at a sequence point if it is certain that one
    /// can be here, so that readers forget them as well.
    fn bound_memory(&mut self, next: &Header) -> Result<(), WriteError> {
        if self.stacks.cost().max(self.labels.cost()) < REMEMBERED {
            return Ok(());
        }
        if next.is_sorted && next.ticks >= self.youngest {
            return self.sequence_point(self.youngest.max(self.oldest_allowed));
        }
        self.stacks.forget();
        self.labels.forget();
        Ok(())
    }

    /// Appends a sequence point, before which all is written.
    fn point(&mut self, ticks: u64, out: &mut Vec<u8>) {
        let mut threads = Vec::new();
        let mut count: u32 = 0;
        for (index, progress) in self.threads.iter_mut().filter(|(_, progress)| progress.has_lost) {
            encode::varuint(&mut threads, *index);
            encode::varuint(&mut threads, progress.number.into());
            progress.has_lost = false;
            count += 1;
        }
        let flags: u32 = 0;
        let parts = [&ticks.to_le_bytes()[..], &flags.to_le_bytes(), &count.to_le_bytes(), &threads];
        blocks::write(out, Kind::SequencePoint, &parts);
        self.stacks.clear();
        self.labels.clear();
        self.removed.clear();
        self.oldest_allowed = ticks;
        self.stats.sequence_points += 1;
    }

    /// The blocks of all that has come and is not written, those that events refer to first.
    fn take_pending(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        if !self.new_definitions.is_empty() {
            // The length of a header that has nothing.
            blocks::write(&mut out, Kind::Metadata, &[&[0; 2], &self.new_definitions]);
            self.new_definitions.clear();
        }
        if !self.new_threads.is_empty() {
            blocks::write(&mut out, Kind::Threads, &[&self.new_threads]);
            self.new_threads.clear();
        }
        for (kind, rows) in [(Kind::Stacks, &mut self.stacks), (Kind::Labels, &mut self.labels)] {
            if let Some((head, rows)) = rows.take_pending() {
                blocks::write(&mut out, kind, &[&head, &rows]);
            }
        }
        out.append(&mut self.blocks);
        self.block.take(&mut out);
        out
    }

    fn flush_if_full(&mut self) -> Result<(), WriteError> {
        let rows = self.new_definitions.len() + self.new_threads.len() + self.stacks.pending() + self.labels.pending();
        if rows + self.blocks.len() + self.block.events.len() < BUFFERED {
            return Ok(());
        }
        self.flush()
    }

    /// Hands whole blocks to the sink.
    fn put(&mut self, bytes: &[u8]) -> Result<(), WriteError> {
        let written = self.sink.write_all(bytes).and_then(|()| self.sink.flush());
        self.is_broken = written.is_err();
        self.stats.bytes += bytes.len() as u64;
        Ok(written?)
    }
}

fn numbered(number: Option<u32>) -> Result<u32, WriteError> {
    let limit = i32::MAX.unsigned_abs() as usize;
    let what = "the stacks or labels since the last sequence point";
    number.ok_or(WriteError::TooLong { what, size: limit + 1, limit })
}

impl<W: Debug> Debug for Writer<W> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer").field("sink", &self.sink).field("stats", &self.stats).finish_non_exhaustive()
    }
}

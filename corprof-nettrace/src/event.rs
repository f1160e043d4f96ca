//! One event, with all that it refers to.

use std::borrow::Cow;

use uuid::Uuid;

use crate::header::Header;
use crate::labels::{Label, Labels};
use crate::metadata::Metadata;
use crate::stacks::Stack;
use crate::tables::Tables;
use crate::threads::Thread;
use crate::trace::Trace;

/// An item of a [`Reader`](crate::Reader).
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Item<'a> {
    /// An event.
    Event(Event<'a>),
    /// All events before are older than all after.
    SequencePoint(SequencePoint),
}

/// A moment that no two events on different sides of it in the file are on different sides of in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct SequencePoint {
    /// The moment, in ticks of the [`Trace`].
    pub ticks: u64,
}

/// An event. It borrows from the reader, and is good until that reads on.
#[derive(Debug, Clone, Copy)]
pub struct Event<'a> {
    pub(crate) header: &'a Header,
    pub(crate) metadata: &'a Metadata,
    pub(crate) payload: &'a [u8],
    pub(crate) tables: &'a Tables,
    pub(crate) trace: &'a Trace,
}

impl<'a> Event<'a> {
    /// Its definition: provider, number, name, version, fields.
    #[must_use]
    pub fn metadata(&self) -> &'a Metadata {
        self.metadata
    }

    /// The values of its fields, as they are in the trace.
    #[must_use]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// The event with its name and its fields: those that it describes, or those of the runtime's manifest.
    #[must_use]
    pub fn decoded(&self) -> corprof_events::Event<'a> {
        let Metadata { provider, event_id, version, name, .. } = self.metadata;
        let provider = corprof_events::Provider::of(provider);
        let event =
            corprof_events::Event::new(provider, *event_id, *version, self.payload, self.trace.pointer_size == 8);
        event.with_description(name.as_str(), self.metadata.fields())
    }

    /// When it was written, in ticks of the [`Trace`].
    #[must_use]
    pub fn ticks(&self) -> u64 {
        self.header.ticks
    }

    /// When it was written, since the beginning of the trace.
    #[must_use]
    pub fn since_start(&self) -> std::time::Duration {
        self.trace.since_start(self.header.ticks)
    }

    /// The thread that it is about, which is nearly always the one that wrote it. Before version 6 this is the system's
    /// number of it, in version 6 a number in the trace; see [`os_thread_id`](Self::os_thread_id).
    #[must_use]
    pub fn thread(&self) -> u64 {
        self.header.thread
    }

    /// The thread that wrote it, numbered as [`thread`](Self::thread).
    #[must_use]
    pub fn capture_thread(&self) -> u64 {
        self.header.capture_thread
    }

    /// The system's number of the thread that it is about.
    #[must_use]
    pub fn os_thread_id(&self) -> Option<u64> {
        if self.trace.version < 6 { Some(self.thread()) } else { self.thread_info()?.os_thread_id }
    }

    /// The process of the thread that it is about: in version 6 there may be several.
    #[must_use]
    pub fn process_id(&self) -> Option<u64> {
        self.thread_info().and_then(|thread| thread.process_id).or(self.trace.process_id)
    }

    /// The trace's information about the event's thread: none before version 6.
    #[must_use]
    pub fn thread_info(&self) -> Option<&'a Thread> {
        self.tables.threads.get(self.header.thread)
    }

    /// The processor that its writer ran on.
    #[must_use]
    pub fn processor(&self) -> u32 {
        self.header.processor
    }

    /// The number that its writer gave it. Gaps are events that were lost.
    #[must_use]
    pub fn sequence_number(&self) -> u32 {
        self.header.sequence
    }

    /// Whether every event that follows in the trace is at least as young.
    #[must_use]
    pub fn is_sorted(&self) -> bool {
        self.header.is_sorted
    }

    /// The stack of the thread that it is about. Empty where none was taken.
    #[must_use]
    pub fn stack(&self) -> Stack<'a> {
        let bytes = self.tables.stacks.get(self.header.stack).unwrap_or_default();
        Stack::new(bytes, self.trace.pointer_size)
    }

    /// The number of its stack: events between the same two sequence points with the same number have the same stack.
    /// 0 where none was taken.
    #[must_use]
    pub fn stack_number(&self) -> u32 {
        self.header.stack
    }

    /// The activity that it is part of.
    #[must_use]
    pub fn activity(&self) -> Option<Uuid> {
        if self.trace.version < 6 {
            return some_uuid(self.header.activity);
        }
        self.labels().find_map(|label| if let Label::Activity(id) = label { Some(id) } else { None })
    }

    /// The activity that the one it is part of was started by.
    #[must_use]
    pub fn related_activity(&self) -> Option<Uuid> {
        if self.trace.version < 6 {
            return some_uuid(self.header.related_activity);
        }
        self.labels().find_map(|label| if let Label::RelatedActivity(id) = label { Some(id) } else { None })
    }

    /// Its labels: none before version 6.
    #[must_use]
    pub fn labels(&self) -> Labels<'a> {
        Labels::new(self.tables.labels.get(self.header.labels).unwrap_or_default())
    }
}

/// For a copy of it.
impl<'a> Event<'a> {
    /// The thread with this number, as far as the trace has it.
    pub(crate) fn thread_of(&self, index: u64) -> Thread {
        if self.trace.version >= 6 {
            return self.tables.threads.get(index).cloned().unwrap_or_else(|| Thread::new(index));
        }
        let mut thread = Thread::new(index);
        thread.process_id = self.trace.process_id;
        thread.os_thread_id = Some(index);
        thread
    }

    /// Its labels as version 6 has them.
    pub(crate) fn label_bytes(&self) -> Cow<'a, [u8]> {
        if self.trace.version >= 6 {
            return self.tables.labels.get(self.header.labels).unwrap_or_default().into();
        }
        let activities = [self.activity().map(Label::Activity), self.related_activity().map(Label::RelatedActivity)];
        let labels: Vec<_> = activities.into_iter().flatten().collect();
        let mut bytes = Vec::new();
        Label::write_list(&labels, &mut bytes);
        bytes.into()
    }
}

/// Zeros mean that there is none.
fn some_uuid(bytes: [u8; 16]) -> Option<Uuid> {
    (bytes != [0; 16]).then(|| Uuid::from_bytes_le(bytes))
}

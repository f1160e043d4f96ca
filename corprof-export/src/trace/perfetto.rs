//! Perfetto's own format: packets of protobuf, one after another.
//! <https://perfetto.dev/docs/reference/trace-packet-proto>
//!
//! Each thread is a sequence of packets with its own clock, which counts from one packet to the next, and its own table
//! of names.

use std::time::Duration;

use prost::Message;

use super::{Lane, Short};

mod proto;

use proto::{
    Clock, ClockSnapshot, DebugAnnotation, InternedData, InternedName, ProcessDescriptor, ThreadDescriptor,
    TracePacket, TracePacketDefaults, TrackDescriptor, TrackEvent, TrackEventDefaults,
};

/// The track of the process. Those of threads follow.
const PROCESS_TRACK: u64 = 1;

/// The clock of the file as a whole: that of the system since its start.
const BOOT_CLOCK: u32 = 6;

/// The clock of a sequence, of the numbers that are free for that.
const OWN_CLOCK: u32 = 64;

/// The sequence begins: no earlier packet counts.
const STATE_CLEARED: u32 = 1;
/// The packet needs earlier packets of this sequence.
const NEEDS_STATE: u32 = 2;

/// Numbers of the names of [`Short`]'s two fields.
const SHORT_CALLS: u64 = 1;
const SHORT_TIME: u64 = 2;

/// Numbers of names begin with 1. The first names the events of [`Encoder::short`].
const FIRST_NAME: u64 = 2;
const SHORT_NAME: u64 = 1;

#[derive(Debug)]
pub(super) struct Encoder {
    process: u32,
}

/// The first byte of a packet: the whole file is one message, and packets are its field number 1.
const PACKET: u8 = 0x0A;

fn push(buffer: &mut Vec<u8>, packet: TracePacket) {
    buffer.push(PACKET);
    let _ = packet.encode_length_delimited(buffer); // a vector has room for all
}

impl Encoder {
    /// Begins a file with the name of the process.
    pub(super) fn begin(buffer: &mut Vec<u8>, process: u32, name: &str) -> Self {
        let encoder = Self { process };
        let process = ProcessDescriptor { pid: Some(process.cast_signed()), process_name: Some(name.to_owned()) };
        let descriptor =
            TrackDescriptor { uuid: Some(PROCESS_TRACK), process: Some(process), ..TrackDescriptor::default() };
        push(buffer, TracePacket { track_descriptor: Some(descriptor), ..TracePacket::default() });
        encoder
    }

    pub(super) fn thread(&self, buffer: &mut Vec<u8>, lane: &mut Lane, name: Option<&str>) {
        let track = PROCESS_TRACK + 1 + u64::from(lane.number);
        if lane.named.is_empty() {
            let clock = |clock_id, is_incremental| Clock { clock_id, timestamp: lane.last, is_incremental };
            let clocks = vec![clock(BOOT_CLOCK, None), clock(OWN_CLOCK, Some(true))];
            let defaults = TracePacketDefaults {
                timestamp_clock_id: Some(OWN_CLOCK),
                track_event_defaults: Some(TrackEventDefaults { track_uuid: Some(track) }),
            };
            let name = |iid, name: &str| InternedName { iid, name: name.to_owned() };
            let names = InternedData {
                event_names: vec![name(SHORT_NAME, "short calls")],
                debug_annotation_names: vec![name(SHORT_CALLS, "short_calls"), name(SHORT_TIME, "short_calls_ns")],
            };
            push(
                buffer,
                TracePacket {
                    sequence_flags: Some(STATE_CLEARED),
                    clock_snapshot: Some(ClockSnapshot { clocks }),
                    trace_packet_defaults: Some(defaults),
                    interned_data: Some(names),
                    ..Self::packet(lane)
                },
            );
            // This has been said, whichever name comes first.
            lane.named.push(false);
        }
        let thread = ThreadDescriptor {
            pid: Some(self.process.cast_signed()),
            tid: Some(lane.os_id.cast_signed()),
            thread_name: name.map(str::to_owned),
        };
        let descriptor = TrackDescriptor {
            uuid: Some(track),
            parent_uuid: Some(PROCESS_TRACK),
            thread: Some(thread),
            ..TrackDescriptor::default()
        };
        push(buffer, TracePacket { track_descriptor: Some(descriptor), ..Self::packet(lane) });
    }

    pub(super) fn begin_call(&self, buffer: &mut Vec<u8>, lane: &mut Lane, at: Duration, number: usize, name: &str) {
        let iid = FIRST_NAME + number as u64;
        let interned_data = lane.is_new(number).then(|| InternedData {
            event_names: vec![InternedName { iid, name: name.to_owned() }],
            debug_annotation_names: Vec::new(),
        });
        let event = TrackEvent { r#type: Some(proto::SLICE_BEGIN), name_iid: Some(iid), ..TrackEvent::default() };
        push(buffer, TracePacket { interned_data, ..Self::event(lane, at, event) });
    }

    pub(super) fn end(&self, buffer: &mut Vec<u8>, lane: &mut Lane, at: Duration, short: Short) {
        let event = TrackEvent {
            r#type: Some(proto::SLICE_END),
            debug_annotations: annotations(short),
            ..TrackEvent::default()
        };
        push(buffer, Self::event(lane, at, event));
    }

    pub(super) fn short(&self, buffer: &mut Vec<u8>, lane: &mut Lane, at: Duration, short: Short) {
        let event = TrackEvent {
            r#type: Some(proto::INSTANT),
            name_iid: Some(SHORT_NAME),
            debug_annotations: annotations(short),
        };
        push(buffer, Self::event(lane, at, event));
    }

    fn event(lane: &mut Lane, at: Duration, event: TrackEvent) -> TracePacket {
        let before = lane.last;
        let since = lane.pass(at) - before;
        TracePacket {
            timestamp: Some(since),
            track_event: Some(event),
            sequence_flags: Some(NEEDS_STATE),
            ..Self::packet(lane)
        }
    }

    fn packet(lane: &Lane) -> TracePacket {
        TracePacket { trusted_packet_sequence_id: Some(lane.number + 1), ..TracePacket::default() }
    }
}

fn annotations(short: Short) -> Vec<DebugAnnotation> {
    let time = u64::try_from(short.time.as_nanos()).unwrap_or(u64::MAX);
    let of = |name_iid, value| DebugAnnotation { name_iid: Some(name_iid), uint_value: Some(value) };
    if short.calls == 0 { Vec::new() } else { vec![of(SHORT_CALLS, short.calls), of(SHORT_TIME, time)] }
}

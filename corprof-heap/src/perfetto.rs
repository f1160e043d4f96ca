//! Writes Perfetto traces with a heap graph, which the Heap Dump Explorer of <https://ui.perfetto.dev> shows.
//!
//! The viewer works out dominators and retained sizes itself. Its kinds of roots are those of Android's runtime: a
//! static field is `STICKY_CLASS`, a stack `JAVA_FRAME`, a handle `JNI_GLOBAL`, the finalizer queue `FINALIZING`.

use std::io::{self, Write};

use prost::Message;

use crate::{Dominators, ObjectId, RootKind};

mod proto;

use proto::{
    HeapGraph, HeapGraphObject, HeapGraphRoot, HeapGraphType, InternedString, ProcessDescriptor, TracePacket,
    TrackDescriptor,
};

/// Objects of one packet.
const PER_PACKET: usize = 30_000;

/// The first byte of each packet: the whole file is one message, and packets are its field number 1.
const PACKET: u8 = 0x0A;

/// The sequence that all packets of the graph belong to.
const SEQUENCE: u32 = 1;

/// Names of references. The number of each is its place, and 1.
const FIELD_NAMES: [&str; 2] = ["reference", "value in a weak table"];

/// Writes the whole graph, unreachable objects as well, as the heap of the process `pid`.
///
/// # Errors
/// Those of `writer`.
pub fn write(tree: &Dominators<'_>, pid: u32, mut writer: impl Write) -> io::Result<()> {
    let graph = tree.graph();
    let pid = Some(pid.cast_signed());
    let process = ProcessDescriptor { pid, process_name: Some(graph.title().to_owned()) };
    let track_descriptor = Some(TrackDescriptor { uuid: Some(1), process: Some(process) });
    let mut buffer = Vec::new();
    send(&mut writer, &mut buffer, &TracePacket { track_descriptor, ..TracePacket::default() })?;

    // The time is that of the system since its start in other traces. Of a heap only one moment is known.
    let timestamp = Some(graph.taken().unwrap_or_default().saturating_mul(1_000_000));
    let mut next_index = 0;
    let mut packet = |heap: HeapGraph, writer: &mut dyn Write| {
        let heap_graph = Some(HeapGraph { pid, index: Some(next_index), ..heap });
        next_index += 1;
        let packet =
            TracePacket { timestamp, trusted_packet_sequence_id: Some(SEQUENCE), heap_graph, ..TracePacket::default() };
        send(writer, &mut buffer, &packet)
    };

    let class = |(place, class): (usize, &crate::Class)| HeapGraphType {
        id: Some(place as u64 + 1),
        class_name: Some(class.name.clone()),
        object_size: Some(class.instance_size),
    };
    let types = graph.classes().iter().enumerate().map(class).collect();
    let name =
        |(place, name): (usize, &&str)| InternedString { iid: Some(place as u64 + 1), str: Some((*name).to_owned()) };
    let field_names = FIELD_NAMES.iter().enumerate().map(name).collect();
    packet(HeapGraph { types, field_names, continued: Some(true), ..HeapGraph::default() }, &mut writer)?;

    let mut objects = Vec::with_capacity(PER_PACKET.min(graph.len()));
    for id in graph.objects() {
        objects.push(object(tree, id));
        if objects.len() == PER_PACKET {
            let objects = std::mem::replace(&mut objects, Vec::with_capacity(PER_PACKET));
            packet(HeapGraph { objects, continued: Some(true), ..HeapGraph::default() }, &mut writer)?;
        }
    }
    packet(HeapGraph { objects, roots: roots(graph), continued: Some(false), ..HeapGraph::default() }, &mut writer)?;
    writer.flush()
}

fn send(writer: &mut dyn Write, buffer: &mut Vec<u8>, packet: &TracePacket) -> io::Result<()> {
    buffer.clear();
    buffer.push(PACKET);
    packet.encode_length_delimited(buffer)?;
    writer.write_all(buffer)
}

/// 0 means "no object", so ids begin with 1.
fn id_of(object: ObjectId) -> u64 {
    object.index() as u64 + 1
}

fn object(tree: &Dominators<'_>, object: ObjectId) -> HeapGraphObject {
    let graph = tree.graph();
    let mut reference_object_id: Vec<u64> = graph.references(object).map(id_of).collect();
    let mut reference_field_id = vec![1; reference_object_id.len()];
    let is_live = |table: Option<ObjectId>| table.is_none_or(|table| tree.is_reachable(table));
    for pair in graph.ephemerons_of(object).filter(|pair| is_live(pair.table)) {
        reference_object_id.push(id_of(pair.value));
        reference_field_id.push(2);
    }
    let is_first = object.index() == 0;
    HeapGraphObject {
        id: is_first.then_some(1),
        id_delta: (!is_first).then_some(1),
        type_id: Some(graph.class_of(object).index() as u64 + 1),
        self_size: Some(graph.size(object)),
        reference_field_id,
        reference_object_id,
    }
}

fn roots(graph: &crate::HeapGraph) -> Vec<HeapGraphRoot> {
    let of_kind = |kind: RootKind| {
        let roots = graph.roots().iter().filter(|root| root.kind == kind);
        HeapGraphRoot { object_ids: roots.map(|root| id_of(root.object)).collect(), root_type: Some(root_type(kind)) }
    };
    RootKind::ALL.map(of_kind).into_iter().filter(|roots| !roots.object_ids.is_empty()).collect()
}

fn root_type(kind: RootKind) -> i32 {
    match kind {
        RootKind::Handle | RootKind::PinnedHandle | RootKind::RefCountedHandle => 1,
        RootKind::Stack => 3,
        RootKind::Static => 5,
        RootKind::Finalizer => 10,
        RootKind::Other | RootKind::Frozen => 0,
    }
}

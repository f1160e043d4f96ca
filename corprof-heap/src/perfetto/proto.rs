//! The used part of Perfetto's messages, with the numbers of protos/perfetto/trace in its repository
//! (`heap_graph.proto`).

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct TracePacket {
    #[prost(uint64, optional, tag = "8")]
    pub(super) timestamp: Option<u64>,
    #[prost(uint32, optional, tag = "10")]
    pub(super) trusted_packet_sequence_id: Option<u32>,
    #[prost(message, optional, tag = "56")]
    pub(super) heap_graph: Option<HeapGraph>,
    #[prost(message, optional, tag = "60")]
    pub(super) track_descriptor: Option<TrackDescriptor>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct TrackDescriptor {
    #[prost(uint64, optional, tag = "1")]
    pub(super) uuid: Option<u64>,
    #[prost(message, optional, tag = "3")]
    pub(super) process: Option<ProcessDescriptor>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ProcessDescriptor {
    #[prost(int32, optional, tag = "1")]
    pub(super) pid: Option<i32>,
    #[prost(string, optional, tag = "6")]
    pub(super) process_name: Option<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct HeapGraph {
    #[prost(int32, optional, tag = "1")]
    pub(super) pid: Option<i32>,
    #[prost(message, repeated, tag = "2")]
    pub(super) objects: Vec<HeapGraphObject>,
    #[prost(message, repeated, tag = "4")]
    pub(super) field_names: Vec<InternedString>,
    /// Whether another packet goes on with this graph.
    #[prost(bool, optional, tag = "5")]
    pub(super) continued: Option<bool>,
    #[prost(uint64, optional, tag = "6")]
    pub(super) index: Option<u64>,
    #[prost(message, repeated, tag = "7")]
    pub(super) roots: Vec<HeapGraphRoot>,
    #[prost(message, repeated, tag = "9")]
    pub(super) types: Vec<HeapGraphType>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct HeapGraphObject {
    #[prost(uint64, optional, tag = "1")]
    pub(super) id: Option<u64>,
    #[prost(uint64, optional, tag = "2")]
    pub(super) type_id: Option<u64>,
    #[prost(uint64, optional, tag = "3")]
    pub(super) self_size: Option<u64>,
    #[prost(uint64, repeated, packed = "true", tag = "4")]
    pub(super) reference_field_id: Vec<u64>,
    #[prost(uint64, repeated, packed = "true", tag = "5")]
    pub(super) reference_object_id: Vec<u64>,
    /// How much the id is above that of the object before.
    #[prost(uint64, optional, tag = "7")]
    pub(super) id_delta: Option<u64>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct HeapGraphRoot {
    #[prost(uint64, repeated, packed = "true", tag = "1")]
    pub(super) object_ids: Vec<u64>,
    /// A number of `art::RootType`.
    #[prost(int32, optional, tag = "2")]
    pub(super) root_type: Option<i32>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct HeapGraphType {
    #[prost(uint64, optional, tag = "1")]
    pub(super) id: Option<u64>,
    #[prost(string, optional, tag = "3")]
    pub(super) class_name: Option<String>,
    #[prost(uint64, optional, tag = "4")]
    pub(super) object_size: Option<u64>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct InternedString {
    #[prost(uint64, optional, tag = "1")]
    pub(super) iid: Option<u64>,
    #[prost(string, optional, tag = "2")]
    pub(super) str: Option<String>,
}

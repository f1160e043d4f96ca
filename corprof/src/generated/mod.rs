//! What `cargo xtask generate` writes from corprof.idl, contracts.toml and callbacks.toml. The generator is in
//! corprof-sys/gen.

pub(crate) mod callbacks;
pub(crate) mod contract;
pub(crate) mod events;
pub(crate) mod thunks;

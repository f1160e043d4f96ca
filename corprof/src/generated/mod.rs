//! What `cargo xtask generate` writes from corprof.idl, contracts.toml and callbacks.toml. The generator is in
//! corprof-sys/gen.

mod absent;
pub(crate) mod callback_event;
pub(crate) mod callbacks;
pub(crate) mod contract;
#[cfg(feature = "testing")]
pub(crate) mod contract_table;
pub(crate) mod events;
#[cfg(feature = "testing")]
pub(crate) mod fake_info;
#[cfg(feature = "testing")]
pub(crate) mod fake_metadata;
pub(crate) mod thunks;

//! Written by `cargo xtask generate` from `manifest/`.

#[rustfmt::skip]
pub(crate) mod events;
#[rustfmt::skip]
pub(crate) mod keywords;
#[rustfmt::skip]
pub mod views;

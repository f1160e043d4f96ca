//! Each format, read back by a reader that shares no code with the writer.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod files;
mod firefox;
mod folded;
mod html;
mod odd;
mod perfetto_reader;
mod pprof;
mod push;
mod shapes;
mod speedscope;
mod svg;
mod trace;
mod viewers;

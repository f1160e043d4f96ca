//! Each format, read back by something that shares no code with what wrote it.

mod files;
mod firefox;
mod folded;
mod odd;
mod pprof;
mod shapes;
mod speedscope;
mod svg;
mod trace;

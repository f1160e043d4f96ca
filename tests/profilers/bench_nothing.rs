//! Asks for no event: `cargo xtask bench` measures its cost in an application's start and memory (bench/floor.c is the
//! same in C).

use corprof::prelude::*;

#[derive(Default, Profiler)]
#[profiler(clsid = "C0A7E500-52B1-4F0E-8E5B-7A9C3D1F6E02")]
struct Nothing;

#[callbacks]
impl Callbacks for Nothing {}

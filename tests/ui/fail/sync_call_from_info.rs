//! `Info` is for all code: it lacks the calls that need a callback around them.
use corprof::prelude::*;

fn ask(info: &Info, assembly: AssemblyId) {
    let _ = info.assembly_info(assembly);
}

fn main() {}

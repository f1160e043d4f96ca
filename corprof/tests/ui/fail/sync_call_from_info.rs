//! `Info` is for anybody: what needs a callback around it is not among its calls.
use corprof::prelude::*;

fn ask(info: &Info, assembly: AssemblyId) {
    let _ = info.assembly_info(assembly);
}

fn main() {}

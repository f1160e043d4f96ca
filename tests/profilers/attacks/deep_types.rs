//! Has classes loaded whose type arguments nest without end.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use corprof::prelude::*;

/// More than any stack has room for.
const MOST: u32 = 1_000_000;

#[derive(Profiler, Default)]
#[profiler(clsid = "1F915C74-A1B1-43A4-A141-DB9B98B2C912", no_export)]
pub(crate) struct NestsTypes {
    is_done: AtomicBool,
}

/// Loads one in the other, and returns how many were loaded before an error.
fn nest(cx: &mut InCallback<'_>, name: &str) -> Result<u32> {
    let core = cx.enum_modules()?[0];
    let metadata = cx.metadata(core)?;
    let outer = metadata.find_type_def(name, None)?.unwrap();
    let first = metadata.find_type_def("System.Int32", None)?.unwrap();
    drop(metadata);
    let mut class = cx.class_from_token(core, first, &[])?;
    for depth in 0..MOST {
        class = match cx.class_from_token(core, outer, &[class]) {
            Ok(class) => class,
            Err(_) => return Ok(depth),
        };
    }
    Ok(MOST)
}

#[callbacks]
impl Callbacks for NestsTypes {
    fn jit_compilation_started(&self, cx: &mut InCallback<'_>, function: FunctionId, _is_safe_to_block: bool) {
        if !cx.names().function(function).contains(".Main(") || self.is_done.swap(true, Relaxed) {
            return;
        }
        let [structs, classes] = ["System.ValueTuple`1", "System.Tuple`1"].map(|name| nest(cx, name).unwrap());
        eprintln!("attacks| structs={structs} classes={classes}");
    }
}

//! Prints the class of each exception, and the method that will catch it.

use corprof::prelude::*;

#[derive(Profiler)]
#[profiler(clsid = "4E1A5A0C-7C1B-4C55-9C55-5D0E2E0C7E03")]
struct Exceptions;

#[callbacks]
impl Callbacks for Exceptions {
    fn exception_thrown(&self, cx: &InNoGc<'_>, thrown: ObjectId<'_>) -> Result<()> {
        let class = cx.class_of(thrown)?;
        eprintln!("{} thrown", cx.names().class(class));
        Ok(())
    }

    fn exception_search_catcher_found(&self, cx: &mut InCallback<'_>, function: FunctionId) {
        eprintln!("  will be caught in {}", cx.names().function(function));
    }
}

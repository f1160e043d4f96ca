//! What profilers with stacks share: the runtime's own frames, which they do not show. Then a stack begins with the
//! application's `Main` on every runtime.

use corprof::prelude::*;

/// Whether this is a frame of the runtime's own: the method in which threads stop for a suspension when they return
/// from native code, or one by which the runtime calls managed code.
pub(crate) fn is_of_the_runtime(cx: &InNoGc<'_>, function: FunctionId, name: &str) -> bool {
    let in_poll = ["System.Threading.Thread.PollGC", "System.Threading.Thread.<PollGC>"];
    in_poll.iter().any(|poll| name.starts_with(poll)) || cx.is_runtime_entry(function)
}

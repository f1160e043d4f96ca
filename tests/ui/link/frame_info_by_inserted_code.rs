//! Inserted code cannot have the frame info of the runtime's own hooks.
use corprof::hooks::{HookValues, Precompiled, ValueHooks};
use corprof::prelude::*;
struct Hooks;
impl ValueHooks for Hooks {
    type Function = ();
    type Thread = ();
    const VALUES: HookValues = HookValues::ARGUMENTS.union(HookValues::FRAME);
    fn select(&self, _: &mut InCallback<'_>, _: FunctionId) -> Hook<()> { Hook::No }
    fn thread_started(&self) {}
}
fn start(cx: &mut InInitialize<'_>) -> corprof::Result<()> {
    cx.hook_functions_with_values_by_il(Hooks, Precompiled::Kept).map(drop)
}
fn main() { let _ = start as fn(&mut InInitialize<'_>) -> corprof::Result<()>; }

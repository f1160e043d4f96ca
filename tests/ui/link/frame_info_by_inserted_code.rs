//! Inserted code cannot have the frame info of the runtime's own hooks.
use corprof::hooks::{HookValues, Precompiled};
use corprof::prelude::*;
struct Hooks;
impl FunctionHooks for Hooks {
    type Function = ();
    type Thread = ();
    const VALUES: HookValues = HookValues::ARGUMENTS.union(HookValues::FRAME);
    fn select(&self, _: &mut InCallback<'_>, _: FunctionId) -> Hook<()> { Hook::No }
    fn thread_started(&self) {}
}
fn start(cx: &mut InInitialize<'_>) -> corprof::Result<()> {
    cx.hooks(Hooks).inserted(Precompiled::Keep).install().map(drop)
}
fn main() { let _ = start as fn(&mut InInitialize<'_>) -> corprof::Result<()>; }

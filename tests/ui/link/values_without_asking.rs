//! Hooks that need values name them.
use corprof::hooks::InSlowHook;
use corprof::prelude::*;
use corprof::values::Arguments;
struct Hooks;
impl FunctionHooks for Hooks {
    type Function = ();
    type Thread = ();
    const KINDS: HookKinds = HookKinds::ENTER;
    fn select(&self, _: &mut InCallback<'_>, _: FunctionId) -> Hook<()> { Hook::Exact(()) }
    fn thread_started(&self) {}
    fn enter_with_args(&self, _: &InSlowHook<'_>, _: &mut (), (): &(), _: &Arguments<'_>) {}
}
fn start(cx: &mut InInitialize<'_>) -> corprof::Result<()> { cx.hooks(Hooks).install().map(drop) }
fn main() { let _ = start as fn(&mut InInitialize<'_>) -> corprof::Result<()>; }

//! At Shutdown a thread's state is ended on another thread.
use corprof::prelude::*;

struct Calls;

impl FunctionHooks for Calls {
    type Function = ();
    type Thread = std::rc::Rc<u64>;

    fn select(&self, _cx: &mut InCallback<'_>, _function: FunctionId) -> Hook<()> {
        Hook::No
    }

    fn thread_started(&self) -> std::rc::Rc<u64> {
        Default::default()
    }
}

fn main() {}

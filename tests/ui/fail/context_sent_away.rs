//! A context belongs to the thread that the runtime called.
use corprof::prelude::*;

fn ask(cx: &InNoGc<'_>, module: ModuleId) {
    std::thread::scope(|scope| scope.spawn(|| cx.names().module(module)).join());
}

fn main() {}

//! A walk's frame info is valid only while the walk shows that frame.
use corprof::walk::Frame;
use corprof::prelude::*;
use std::ops::ControlFlow;

fn top<'cb>(cx: &InNoGc<'cb>, top: &mut Option<Frame<'cb>>) {
    let _ = cx.walk_own_stack(|frame| {
        *top = Some(frame);
        ControlFlow::Break(())
    });
}

fn main() {}

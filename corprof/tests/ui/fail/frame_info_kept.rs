//! What a walk shows of a frame is good while it shows it.
use corprof::walk::Frame;
use corprof::prelude::*;
use std::ops::ControlFlow;

fn top<'cb>(cx: &InCallback<'cb>, top: &mut Option<Frame<'cb>>) {
    let _ = cx.walk_own_stack(|frame| {
        *top = Some(frame);
        ControlFlow::Break(())
    });
}

fn main() {}

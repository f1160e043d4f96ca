//! Finds where strings of more than a kilobyte are made: by stack, the most bytes first.

use std::collections::HashMap;
use std::ops::ControlFlow::Continue;

use corprof::prelude::*;
use corprof::sync::Mutex;

const LONG: usize = 1024;

#[derive(Profiler, Default)]
#[profiler(clsid = "4E1A5A0C-7C1B-4C55-9C55-5D0E2E0C7B02")]
struct LongStrings {
    bytes_by_stack: Mutex<HashMap<Vec<Name>, usize>>,
}

#[callbacks]
impl Callbacks for LongStrings {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        cx.add_events(EventMask::ENABLE_STACK_SNAPSHOT)?; // what walks need
        Ok(Self::default())
    }

    fn object_allocated(&self, cx: &InNoGc<'_>, object: ObjectId<'_>, class: ClassId) {
        let size = cx.object_size(object).unwrap_or(0);
        if size <= LONG || cx.names().class(class) != "System.String" {
            return;
        }
        let mut stack = Vec::new();
        let walked = cx.walk_own_stack(|frame| {
            stack.extend(frame.function().map(|function| cx.names().csharp().function(function)));
            Continue(())
        });
        match walked {
            Ok(()) => *self.bytes_by_stack.lock(cx).entry(stack).or_default() += size,
            Err(error) => eprintln!("a string without a stack: {error}"),
        }
    }

    fn shutdown(&self, cx: &mut InCallback<'_>) {
        let mut stacks: Vec<_> = self.bytes_by_stack.lock(cx).drain().collect();
        stacks.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
        for (stack, bytes) in stacks.iter().take(10) {
            eprintln!("{bytes} bytes:");
            stack.iter().for_each(|frame| eprintln!("    {frame}"));
        }
    }
}

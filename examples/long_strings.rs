//! Finds where strings of more than a kilobyte are made: by stack, the most bytes first.

use std::collections::HashMap;

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
    fn object_allocated(&self, cx: &InNoGc<'_>, object: ObjectId<'_>, class: ClassId) -> Result<()> {
        let size = cx.object_size(object)?;
        if size > LONG && cx.names().class(class) == "System.String" {
            let functions = cx.own_stack(usize::MAX)?;
            let stack = functions.into_iter().map(|function| cx.names().csharp().function(function)).collect();
            *self.bytes_by_stack.lock(cx).entry(stack).or_default() += size;
        }
        Ok(())
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

//! Counts the messages of exceptions by the method that catches them.

use std::collections::BTreeMap;

use corprof::prelude::*;
use corprof::sync::Mutex;

#[derive(Profiler, Default)]
#[profiler(clsid = "4E1A5A0C-7C1B-4C55-9C55-5D0E2E0C7B01")]
struct Messages {
    counts: Mutex<BTreeMap<String, u64>>,
}

#[callbacks]
impl Callbacks for Messages {
    fn exception_catcher_enter(&self, cx: &InNoGc<'_>, method: FunctionId, thrown: Option<ObjectId<'_>>) -> Result<()> {
        let Some(thrown) = thrown else { return Ok(()) };
        let exception = cx.value(thrown)?;
        let class = cx.names().csharp().class(exception.class());
        let catcher = cx.names().csharp().function(method);
        let message = exception.field("_message").map(|message| message.to_string()).unwrap_or_default();
        let line = format!("{catcher} caught {class}: {message}");
        *self.counts.lock(cx).entry(line).or_default() += 1;
        Ok(())
    }

    fn shutdown(&self, cx: &mut InCallback<'_>) {
        for (line, count) in self.counts.lock(cx).iter() {
            eprintln!("{count:>6} times {line}");
        }
    }
}

//! Prints the stack of each exception, and under it the methods that await what the thread has resumed (.NET 11).

use corprof::info::EventPipeProviderConfig;
use corprof::prelude::*;
use corprof::sampler::ticks;
use corprof::sync::Mutex;
use corprof_async::{AskedMethods, Decoder, LogicalStacks, PROVIDER, STACK_KEYWORDS};

#[derive(Profiler)]
#[profiler(clsid = "4E1A5A0C-7C1B-4C55-9C55-5D0E2E0C7E11")]
struct AsyncStack(Mutex<State>);

/// The events that have come, and the exceptions that wait for theirs: the thread, the time, and the code on its stack.
type State = (Decoder, LogicalStacks, Vec<(u64, u64, Vec<corprof::id::CodeAddress>)>);

#[callbacks]
impl Callbacks for AsyncStack {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        let level = corprof::events::Level::Informational;
        let events = EventPipeProviderConfig { name: PROVIDER, keywords: STACK_KEYWORDS, level, filter: None };
        cx.event_pipe_start_session(&[events], false)?;
        Ok(Self(Mutex::default()))
    }

    fn exception_thrown(&self, cx: &InNoGc<'_>, _thrown: ObjectId<'_>) -> Result<()> {
        let Some(thread) = cx.current_thread()? else { return Ok(()) };
        let mut stack = Vec::new();
        cx.walk_own_stack(|frame| {
            stack.extend(frame.code_address());
            std::ops::ControlFlow::Continue(())
        })?;
        let os_id = cx.os_thread_id(thread)?;
        self.0.lock(cx).2.push((u64::from(os_id), ticks(), stack));
        Ok(())
    }

    /// A thread tells what it ran later: up to then its exceptions wait.
    fn event_pipe_event_delivered(&self, cx: &InNoGc<'_>, event: EventPipeEvent<'_>) {
        let (decoder, stacks, thrown) = &mut *self.0.lock(cx);
        let _ = decoder.decode(event.data).map(|buffer| stacks.take_buffer(&buffer, ticks(), |_step| {}));
        for (thread, ticks, stack) in thrown.extract_if(.., |(thread, at, _)| stacks.known_until(*thread) >= *at) {
            let methods = AskedMethods::new(|address| {
                let own = stack.iter().copied().find(|code| code.as_raw() as u64 == address);
                let function = cx.function_from_ip(own.or_else(|| cx.code_address(address as usize))?).ok()??;
                Some((function.as_raw() as u64, cx.names().function(function).to_string()))
            });
            let addresses: Vec<_> = stack.iter().map(|code| code.as_raw() as u64).collect();
            eprintln!("thrown");
            for frame in stacks.joined(thread, ticks, &addresses, &methods).frames {
                eprintln!("  {:?} {}", frame.origin, methods.name_at(frame.address).unwrap_or_default());
            }
        }
    }
}

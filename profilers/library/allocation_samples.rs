//! Samples what a running application allocates, in the place of `allocations`, which needs every object: the runtime
//! does not report those to a profiler that was attached. It has the settings of `allocations`.

use std::sync::Arc;

use corprof::args::EventPipeEvent;
use corprof::prelude::*;
use corprof::sync::Mutex;
use corprof_profilers::settings::Settings;
use corprof_profilers::table::ALLOCATION_SAMPLES;

use crate::allocations::{Samples, is_by_stack, output};
use crate::async_callers::{AsyncSource, AsyncWork, WantedCallers};
use crate::code_frames::Spelling;
use crate::question::{Asker, DRAFTS, answer_with_callers, keep_drafts};

/// The profiler.
#[derive(Profiler)]
#[profiler(clsid = "4E1A5A0C-7C1B-4C55-9C55-5D0E2E0C7A2E", no_export)]
pub struct AllocationSamples {
    samples: Arc<Mutex<Samples>>,
    hears: AsyncSource,
    top: usize,
    asker: Asker,
}

#[callbacks]
impl Callbacks for AllocationSamples {
    fn initialize(_cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        Err("it can only attach to a running application: `corprof allocations PID`".into())
    }

    fn initialize_for_attach(cx: &mut InAttach<'_>, data: &[u8]) -> Result<Self, BoxError> {
        let settings = Settings::of_attach(&ALLOCATION_SAMPLES, data)?;
        let asker = Asker::of_attach(cx, &settings)?;
        let top = settings.of("ALLOCATIONS_TOP").number()?;
        let hears = AsyncSource::of_attach(cx, WantedCallers::read(&settings)?)?;
        let samples = Samples::new(output(&settings, true)?, is_by_stack(&settings)?, Spelling::of(&settings));
        let samples = Arc::new(Mutex::new(samples));
        Samples::start(cx)?;
        answer_with_callers(cx, &asker, AsyncWork::new(Arc::clone(&samples), hears.clone(), false))?;
        let drafted = Arc::clone(&samples);
        keep_drafts(cx, &asker, DRAFTS, move |cx| Some(drafted.lock(cx).so_far(top)))?;
        Ok(Self { samples, hears, top, asker })
    }

    fn jit_compilation_started(&self, cx: &mut InCallback<'_>, _function: FunctionId, _is_safe_to_block: bool) {
        self.hears.compiling(cx);
    }

    fn event_pipe_event_delivered(&self, cx: &InNoGc<'_>, event: EventPipeEvent<'_>) {
        self.hears.take(cx, &event);
        if !self.asker.is_over() {
            Samples::see(&self.samples, cx, &event);
        }
    }

    fn shutdown(&self, cx: &mut InCallback<'_>) {
        self.samples.lock(cx).report(cx, self.top, &self.asker);
    }
}

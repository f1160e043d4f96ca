//! Samples what a running application allocates, in the place of `allocations`, which needs every object: the runtime
//! does not report those to a profiler that was attached. It has the settings of `allocations`.

use corprof::args::EventPipeEvent;
use corprof::prelude::*;
use corprof::sync::Mutex;
use corprof_profilers::settings::Settings;
use corprof_profilers::table::ALLOCATION_SAMPLES;

use crate::allocations::{Samples, is_by_stack, output};
use crate::code_frames::Spelling;
use crate::question::{Asker, answer_when_asked};

/// The profiler.
#[derive(Profiler)]
#[profiler(clsid = "4E1A5A0C-7C1B-4C55-9C55-5D0E2E0C7A2E", no_export)]
pub struct AllocationSamples {
    samples: Mutex<Samples>,
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
        let samples = Samples::new(output(&settings, true)?, is_by_stack(&settings)?, Spelling::of(&settings));
        Samples::start(cx)?;
        answer_when_asked(cx, &asker)?;
        Ok(Self { samples: Mutex::new(samples), top, asker })
    }

    fn event_pipe_event_delivered(&self, cx: &InNoGc<'_>, event: EventPipeEvent<'_>) {
        Samples::see(&self.samples, cx, &event);
    }

    fn shutdown(&self, cx: &mut InCallback<'_>) {
        self.samples.lock(cx).report(self.top, &self.asker);
    }
}

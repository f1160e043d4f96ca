//! Instruments methods of a running application, by ReJIT, and tells what became of each.
//!
//! A client says which method, and how to edit its body. The [`Instrumentation`] does the rest on a thread of its own:
//! it reads the body, edits and verifies it, defines what it needs in the metadata, and only then asks the runtime to
//! recompile the method, with one request for all methods that are ready. Each method has a [`Rewrite`], whose
//! [`Outcome`] any code may read:
//!
//! ```
//! use corprof::edit::CallCounter;
//! use corprof::instrumentation::Selector;
//! use corprof::prelude::*;
//!
//! static CALLS: CallCounter = CallCounter::new();
//!
//! #[derive(Profiler)]
//! #[profiler(clsid = "5F0D6D0E-4C4B-4E0C-9B53-6C2B6E6D1C78")]
//! struct Counts;
//!
//! #[callbacks]
//! impl Callbacks for Counts {
//!     fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
//!         let instrumentation = cx.start_instrumentation()?;
//!         let added = instrumentation.select(Selector::method("Shop.Cart", "Add"), |edit| edit.count_calls(&CALLS));
//!         cx.spawn_profiler_thread("outcomes", move |cx| {
//!             while cx.wait(std::time::Duration::from_secs(10)).is_continue() {
//!                 for rewrite in added.rewrites() {
//!                     eprintln!("{}: {:?}, {} calls", rewrite.method(), rewrite.outcome(), CALLS.get());
//!                 }
//!             }
//!         })?;
//!         Ok(Self)
//!     }
//! }
//! ```
//!
//! The profiler need not implement a callback for that: modules that are loaded later, the runtime's questions and its
//! answers reach the instrumentation by themselves.
//!
//! # Rules
//!
//! - Several clients may edit one method. Their edits run in the order in which they were asked for, all on one copy of
//!   the body that the method was loaded with. An edit that fails is left out and told; the others take effect.
//! - An edit runs anew whenever the clients of its method change, so it may run several times.
//! - The callers that a method was inlined into are recompiled as well ([what runtimes
//!   miss](ProfilerThread::request_rejit_with_inliners)). An instrumented method is not inlined any more.
//! - A method that nobody calls stays [`Waiting`](Outcome::Waiting), and so does one whose calls the compiler replaces
//!   by own code (`[Intrinsic]`), or a method under a debugger's Edit and Continue: the runtime does not tell.
//! - From the start of the instrumentation on, the profiler cannot be detached.
//!
//! A profiler that also requests ReJIT by itself is asked after the instrumentation, and a body that it sets replaces
//! that of the instrumentation.

mod events;
mod fitness;
mod outcome;
mod queue;
mod selector;
mod shared_state;
mod worker;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::context::{InAttach, InCallback, InInitialize};
use crate::edit::{EditError, MethodEdit};
use crate::error::Error;
use crate::event_mask::EventMask;
use crate::id::ModuleId;
use crate::metadata::MethodDef;
use crate::profiler_thread::ProfilerThread;

pub use outcome::{Compiled, Outcome, Preparation, Rewrite};
pub use selector::{Selection, Selector};

use outcome::State;
use queue::{Client, Command, Edit};
use shared_state::Shared;
use worker::Worker;

/// Instruments methods. A clone is another handle to the same; all code may use it, on any thread. Only
/// [`wait_until_prepared`](Self::wait_until_prepared) waits.
#[derive(Clone)]
pub struct Instrumentation {
    shared: Arc<Shared>,
}

/// Why the instrumentation was not started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The runtime refused the event flags: the profiler was loaded for notifications only, or
    /// `DOTNET_ProfAPI_RejitOnAttach` is 0.
    #[error(transparent)]
    Runtime(#[from] Error),
    /// There is no thread for it.
    #[error("no thread for the instrumentation: {0}")]
    Thread(#[from] std::io::Error),
}

impl InInitialize<'_> {
    /// Starts the instrumentation, with its own thread. Later calls return the same instrumentation.
    ///
    /// It turns `ENABLE_REJIT` and `MONITOR_JIT_COMPILATION` on. The first can only be set here, and prevents a detach;
    /// without the second, runtimes now and then miss a request.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start_instrumentation(&mut self) -> Result<Instrumentation, StartError> {
        start(self)
    }
}

impl InAttach<'_> {
    /// Starts the instrumentation after attach: as [`InInitialize::start_instrumentation`]. From here on the profiler
    /// cannot be detached: the [`Detacher`](crate::detach::Detacher) refuses it by name.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start_instrumentation(&mut self) -> Result<Instrumentation, StartError> {
        start(self)
    }
}

fn start(cx: &InCallback<'_>) -> Result<Instrumentation, StartError> {
    if let Some(started) = started(cx) {
        return Ok(started);
    }
    cx.add_events(EventMask::ENABLE_REJIT | EventMask::MONITOR_JIT_COMPILATION)?;
    let shared = Arc::new(Shared::new(Arc::clone(cx.liveness()), Arc::clone(cx.profiler_threads())));
    let of_thread = Arc::clone(&shared);
    cx.spawn_profiler_thread("instrumentation", move |cx| Worker::run(&of_thread, cx))?;
    cx.register_observer(Arc::clone(&shared));
    Ok(Instrumentation { shared })
}

fn started(cx: &InCallback<'_>) -> Option<Instrumentation> {
    let shared = Arc::clone(cx.find_observer::<Arc<Shared>>()?);
    Some(Instrumentation { shared })
}

impl Instrumentation {
    /// Edits one method, from its next call on.
    ///
    /// `edit` runs on the thread of the instrumentation, before the request, and again when another client of the
    /// method comes or goes. A panic in it disables the profiler, as one in a callback does.
    pub fn edit(
        &self,
        module: ModuleId,
        method: MethodDef,
        edit: impl Fn(&mut MethodEdit<'_>) -> Result<(), EditError> + Send + Sync + 'static,
    ) -> Rewrite {
        let edit: Edit = Arc::new(edit);
        let (rewrite, command) = self.prepare(module, method, &edit);
        self.shared.push([command]);
        rewrite
    }

    /// Edits several methods in the same way, with one request for all; the rewrites are in the order of `methods`.
    pub fn edit_all(
        &self,
        methods: impl IntoIterator<Item = (ModuleId, MethodDef)>,
        edit: impl Fn(&mut MethodEdit<'_>) -> Result<(), EditError> + Send + Sync + 'static,
    ) -> Vec<Rewrite> {
        let edit: Edit = Arc::new(edit);
        let prepare = |(module, method)| self.prepare(module, method, &edit);
        let (rewrites, commands): (Vec<_>, Vec<_>) = methods.into_iter().map(prepare).unzip();
        self.shared.push(commands);
        rewrites
    }

    /// Edits all methods with a name, in the modules that are loaded and in those that will be.
    pub fn select(
        &self,
        selector: Selector,
        edit: impl Fn(&mut MethodEdit<'_>) -> Result<(), EditError> + Send + Sync + 'static,
    ) -> Selection {
        let selection = Selection::new(Arc::clone(&self.shared));
        self.shared.push([Command::Select(selector, Arc::new(edit), selection.clone())]);
        selection
    }

    /// From now on `module_load_finished` returns only when all that was asked for so far is requested: so the first
    /// call of a selected method is instrumented. After `longest` it returns nevertheless, because the request may need
    /// a lock that the loading thread has. At first it does not wait.
    ///
    /// A tenth of a second is usual: it delays the application as often as it loads a module.
    pub fn wait_at_module_load(&self, longest: Duration) {
        self.shared.set_patience(longest);
    }

    /// Waits until all that was asked for before this call is requested from the runtime, or refused: edits, and
    /// selections in the modules that are loaded. It waits for `longest` at most.
    ///
    /// Some 100,000 methods take seconds. A method that was prepared runs its new body when it is called next.
    ///
    /// Only a profiler's own thread may wait: in a callback the runtime may be waiting for what is waited for. An edit
    /// has no `ProfilerThread`, so it cannot wait for itself either.
    pub fn wait_until_prepared(&self, _cx: &mut ProfilerThread<'_>, longest: Duration) -> Preparation {
        self.shared.wait_until_done(longest)
    }

    fn prepare(&self, module: ModuleId, method: MethodDef, edit: &Edit) -> (Rewrite, Command) {
        let state = Arc::new(State::new(module, method));
        let rewrite = Rewrite::new(Arc::clone(&self.shared), Arc::clone(&state));
        let client = Client { state, edit: Arc::clone(edit) };
        (rewrite, Command::Edit(self.shared.lifeline(module), client))
    }
}

impl fmt::Debug for Instrumentation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Instrumentation").finish_non_exhaustive()
    }
}

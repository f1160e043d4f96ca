//! Adds probes or hooks to the methods of a program, and is no longer there when they are compiled: it retires, panics,
//! or fails to attach.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use corprof::detach::Detacher;
use corprof::edit::{InProbe, Probe, ProbeKinds};
use corprof::hooks::Precompiled;
use corprof::prelude::*;
use corprof::values::Arguments;

static PROBED: AtomicU64 = AtomicU64::new(0);

struct Counts;

impl Probe for Counts {
    // Without handlers of exceptions, which the compiler would not inline.
    const KINDS: ProbeKinds = ProbeKinds::ENTER;

    fn enter(&self, _cx: &InProbe<'_>, _arguments: &Arguments<'_>) {
        PROBED.fetch_add(1, Relaxed);
    }
}

struct Hooks;

impl FunctionHooks for Hooks {
    type Function = ();
    type Thread = ();
    const KINDS: HookKinds = HookKinds::ENTER;

    fn select(&self, cx: &mut InCallback<'_>, function: FunctionId) -> Hook<()> {
        if cx.names().function(function).starts_with("Apart.") { Hook::Exact(()) } else { Hook::No }
    }

    fn thread_started(&self) {}

    fn enter(&self, _cx: &InHook<'_>, _thread: &mut (), (): &()) {
        PROBED.fetch_add(1, Relaxed);
    }
}

/// Adds probes to all methods of a module, if it is the program's.
fn probe(cx: &mut InCallback<'_>, module: ModuleId) -> bool {
    if !cx.module_info(module).is_ok_and(|info| info.path.ends_with("Apart.dll")) {
        return false;
    }
    let methods: Vec<_> = {
        let Ok(metadata) = cx.metadata(module) else { return false };
        let classes = metadata.type_defs().unwrap_or_default();
        classes.into_iter().flat_map(|class| metadata.methods(class).unwrap_or_default()).collect()
    };
    let mut edited = 0;
    for method in methods {
        let body = cx.edit_method(module, method, |edit| edit.probe(Counts));
        edited += u32::from(body.is_ok_and(|body| cx.set_checked_body(&body).is_ok()));
    }
    eprintln!("attacks| edited={edited}");
    true
}

/// `ATTACKS_APART` says what it adds, `probes` or `hooks`, and how it leaves: `retires`, `panics` or, without
/// leaving, `clears` the events.
#[derive(Profiler)]
#[profiler(clsid = "1F915C74-A1B1-43A4-A141-DB9B98B2C922", no_export)]
pub(crate) struct LeavesProbes {
    told: String,
    detacher: Detacher,
    info: Info,
}

impl LeavesProbes {
    fn is(&self, word: &str) -> bool {
        self.told.split(' ').any(|told| told == word)
    }

    fn leave(&self) {
        if self.is("clears") {
            let cleared = self.info.remove_events(EventMask::MONITOR_JIT_COMPILATION);
            eprintln!("attacks| it leaves: {cleared:?}");
        }
        if self.is("panics") {
            eprintln!("attacks| it leaves");
        }
        assert!(!self.is("panics"), "as told");
        if self.is("retires") && self.detacher.retire().is_ok() {
            let detacher = self.detacher.clone();
            std::thread::spawn(move || {
                let _ = detacher.wait();
                eprintln!("attacks| it leaves");
            });
        }
    }
}

#[callbacks]
impl Callbacks for LeavesProbes {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        let detacher = cx.detacher()?;
        let profiler = Self { told: std::env::var("ATTACKS_APART")?, detacher, info: Info::clone(cx) };
        if profiler.is("hooks") {
            cx.hooks(Hooks).inserted(Precompiled::Keep).install()?;
        }
        Ok(profiler)
    }

    fn initialize_for_attach(cx: &mut InAttach<'_>, _data: &[u8]) -> Result<Self, BoxError> {
        for module in cx.enum_modules()? {
            probe(cx, module);
        }
        eprintln!("attacks| it leaves");
        Err("as told".into())
    }

    fn module_load_finished(&self, cx: &mut InCallback<'_>, module: ModuleId, _status: Result<()>) {
        if self.is("probes") && probe(cx, module) {
            self.leave();
        }
    }

    fn jit_compilation_finished(
        &self,
        cx: &mut InCallback<'_>,
        function: FunctionId,
        _status: Result<()>,
        _is_safe_to_block: bool,
    ) {
        // The answers about hooks are kept from the first question on, so what is compiled later has hooks.
        if self.is("hooks") && cx.names().function(function).starts_with("Apart.Say") {
            self.leave();
        }
    }
}

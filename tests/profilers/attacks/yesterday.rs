//! Keeps identifiers, edited bodies and chains for other sessions in the same process: for the next attach, when what
//! they are of may be gone, and for a profiler that is loaded beside.

#[path = "../kept.rs"]
mod kept;

use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use corprof::detach::Detacher;
use corprof::edit::{CallCounter, CheckedBody};
use corprof::prelude::*;
use corprof::values::{LinkCache, Links};

use kept::{Answers, Kept};

/// Those of all sessions so far.
static KEPT: Mutex<Option<HashSet<Kept>>> = Mutex::new(None);

fn keep(ids: impl IntoIterator<Item = Kept>) {
    KEPT.lock().unwrap().get_or_insert_default().extend(ids);
}

/// Bodies of collectible modules.
static BODIES: Mutex<Vec<CheckedBody>> = Mutex::new(Vec::new());

/// Those of the first session.
static LINKS: Mutex<Option<(Links<()>, LinkCache<()>)>> = Mutex::new(None);

static CALLS: CallCounter = CallCounter::new();

/// Leaves at the first exception. Told `asks`, it asks first about all that was kept.
#[derive(Profiler, Default)]
#[profiler(clsid = "1F915C74-A1B1-43A4-A141-DB9B98B2C90E", no_export)]
pub(crate) struct KeepsIds {
    detacher: Option<Detacher>,
}

/// Asks about each identifier.
fn ask_about_ids(cx: &InNoGc<'_>) -> Answers {
    let kept: Vec<_> = KEPT.lock().unwrap().iter().flatten().copied().collect();
    let answers = Answers::default();
    kept.iter().for_each(|id| answers.ask(cx, *id));
    answers
}

fn tell(answers: Answers) {
    let [assemblies, modules, classes, functions, threads] = answers.dead.map(|dead| dead.into_inner());
    eprintln!(
        "attacks| answered={} assemblies={assemblies} modules={modules} classes={classes} functions={functions} \
         threads={threads} unexpected={}",
        answers.good.load(Relaxed),
        answers.unexpected.load(Relaxed),
    );
}

/// Uses all that was kept.
fn ask(cx: &mut InCallback<'_>) {
    tell(ask_about_ids(cx));
    let bodies = std::mem::take(&mut *BODIES.lock().unwrap());
    let taken = bodies.iter().filter(|body| cx.set_checked_body(body).is_ok()).count();
    eprintln!("attacks| bodies={} taken={taken}", bodies.len());
}

#[callbacks]
impl Callbacks for KeepsIds {
    fn initialize_for_attach(cx: &mut InAttach<'_>, data: &[u8]) -> Result<Self, BoxError> {
        let detacher = cx.detacher()?;
        if data == b"asks" {
            ask(cx);
        } else {
            let links = Links::new(cx)?;
            let cache = links.cache();
            *LINKS.lock().unwrap() = Some((links, cache));
        }
        Ok(Self { detacher: Some(detacher) })
    }

    fn assembly_load_finished(&self, _cx: &mut InCallback<'_>, assembly: AssemblyId, _status: Result<()>) {
        keep([Kept::Assembly(assembly)]);
    }

    fn module_load_finished(&self, _cx: &mut InCallback<'_>, module: ModuleId, _status: Result<()>) {
        keep([Kept::Module(module)]);
    }

    fn class_load_finished(&self, _cx: &mut InCallback<'_>, class: ClassId, _status: Result<()>) {
        keep([Kept::Class(class)]);
    }

    fn jit_compilation_finished(
        &self,
        cx: &mut InCallback<'_>,
        function: FunctionId,
        _status: Result<()>,
        _is_safe_to_block: bool,
    ) {
        keep([Kept::Function(function)]);
        let Ok(info) = cx.function_info(function) else { return };
        keep(info.class.into_iter().chain(info.type_args).map(Kept::Class));
        let is_passing = cx
            .module_info(info.module)
            .is_ok_and(|module| module.flags.contains(corprof::sys::COR_PRF_MODULE_COLLECTIBLE));
        if is_passing && self.detacher.is_some() {
            let edited = cx.edit_method(info.module, info.token, |edit| edit.count_calls(&CALLS));
            BODIES.lock().unwrap().extend(edited);
        }
    }

    fn thread_created(&self, _cx: &mut InCallback<'_>, thread: ThreadId) {
        keep([Kept::Thread(thread)]);
    }

    fn exception_thrown(&self, cx: &InNoGc<'_>, thrown: ObjectId<'_>) {
        if let Some((links, cache)) = &mut *LINKS.lock().unwrap() {
            eprintln!("attacks| links: {:?}", links.follow(cx, cache, thrown, 10, |()| {}));
        }
        let _ = self.detacher.as_ref().map(Detacher::detach); // it may have been asked before
    }
}

/// Is loaded beside the one that keeps identifiers, and never stops asking about them.
#[derive(Profiler)]
#[profiler(clsid = "1F915C74-A1B1-43A4-A141-DB9B98B2C911", no_export, notification_only)]
pub(crate) struct AsksBeside;

#[callbacks]
impl Callbacks for AsksBeside {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        cx.spawn_profiler_thread("asks", |cx| {
            while cx.wait(Duration::from_millis(1)).is_continue() {
                ask_about_ids(cx);
            }
        })?;
        Ok(Self)
    }

    fn module_load_finished(&self, _cx: &mut InCallback<'_>, module: ModuleId, _status: Result<()>) {
        keep([Kept::Module(module)]);
    }

    fn class_load_finished(&self, _cx: &mut InCallback<'_>, class: ClassId, _status: Result<()>) {
        keep([Kept::Class(class)]);
    }

    fn jit_compilation_finished(
        &self,
        _cx: &mut InCallback<'_>,
        function: FunctionId,
        _status: Result<()>,
        _is_safe_to_block: bool,
    ) {
        keep([Kept::Function(function)]);
    }

    fn shutdown(&self, cx: &mut InCallback<'_>) {
        tell(ask_about_ids(cx));
    }
}

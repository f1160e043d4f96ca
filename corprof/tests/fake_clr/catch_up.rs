//! The catch-up of an attached profiler: each thing is reported once, whichever way it is known first.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use corprof::event_mask::Event;
use corprof::prelude::*;
use corprof::testing::FakeClr;
use windows_core::{BOOL, HRESULT};

const OK: HRESULT = HRESULT(0);

/// Makes a callback that the runtime makes on its own.
macro_rules! raise {
    ($clr:expr, $event:ident, |$callback:ident| $call:expr) => {
        $clr.raise(Event::$event, |$callback| {
            // SAFETY: the callbacks take identifiers of this fake CLR.
            unsafe { $call }
        })
    };
}

/// Called with what is reported.
type InCallbacks = Box<dyn Fn(&'static str, usize) + Send + Sync>;

/// What was reported, in order.
#[derive(Profiler)]
#[profiler(clsid = "7B1E0A8C-51D5-4E9B-8F35-0F2A6C2E0091", no_export)]
struct Latecomer {
    told: Mutex<Vec<(&'static str, usize)>>,
    unanswered: Mutex<Vec<&'static str>>,
    is_complete: AtomicBool,
    /// Called in `thread_created` and `module_load_finished`, by the catch-up or not.
    in_callback: OnceLock<InCallbacks>,
}

/// What the next `Latecomer` is made with.
static NEXT: Mutex<Option<InCallbacks>> = Mutex::new(None);
static TURN: Mutex<()> = Mutex::new(());

/// One test at a time makes a `Latecomer`: another's would take what is [`NEXT`].
fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

impl Default for Latecomer {
    fn default() -> Self {
        let in_callback = OnceLock::new();
        if let Some(next) = NEXT.lock().unwrap().take() {
            let _ = in_callback.set(next);
        }
        Self { told: Mutex::default(), unanswered: Mutex::default(), is_complete: AtomicBool::new(false), in_callback }
    }
}

impl Latecomer {
    fn tell(&self, what: &'static str, id: usize) {
        self.told.lock().unwrap().push((what, id));
        if let Some(in_callback) = self.in_callback.get() {
            in_callback(what, id);
        }
    }
}

impl Latecomer {
    /// A call about something that is reported, which may have been unloaded since.
    fn check<T>(&self, what: &'static str, answer: Result<T>) {
        if answer.is_err() {
            self.unanswered.lock().unwrap().push(what);
        }
    }
}

#[callbacks]
impl Callbacks for Latecomer {
    fn initialize_for_attach(cx: &mut InAttach<'_>, data: &[u8]) -> Result<Self, BoxError> {
        if data != b"no" {
            cx.catch_up();
        }
        Ok(Self::default())
    }

    fn profiler_attach_complete(&self, _cx: &mut InCallback<'_>) {
        self.is_complete.store(true, SeqCst);
    }

    fn app_domain_creation_finished(&self, _cx: &mut InCallback<'_>, domain: AppDomainId, status: Result<()>) {
        assert!(status.is_ok() && !self.is_complete.load(SeqCst));
        self.tell("domain", domain.as_raw());
    }

    fn assembly_load_finished(&self, cx: &mut InCallback<'_>, assembly: AssemblyId, _status: Result<()>) {
        self.tell("assembly", assembly.as_raw());
        self.check("assembly", cx.assembly_info(assembly));
    }

    fn module_load_finished(&self, cx: &mut InCallback<'_>, module: ModuleId, _status: Result<()>) {
        self.check("module", cx.module_info(module));
        self.tell("module", module.as_raw());
    }

    fn module_attached_to_assembly(&self, _cx: &mut InCallback<'_>, module: ModuleId, _assembly: AssemblyId) {
        self.tell("attached", module.as_raw());
    }

    fn module_unload_started(&self, _cx: &mut InCallback<'_>, module: ModuleId) {
        self.tell("module ends", module.as_raw());
    }

    fn thread_created(&self, _cx: &mut InCallback<'_>, thread: ThreadId) {
        self.tell("thread", thread.as_raw());
    }

    fn thread_assigned_to_os_thread(&self, _cx: &InNoGc<'_>, thread: ThreadId, os_thread: u32) {
        assert!(os_thread != 0);
        self.tell("assigned", thread.as_raw());
    }

    fn thread_destroyed(&self, _cx: &mut InCallback<'_>, thread: ThreadId) {
        self.tell("thread ends", thread.as_raw());
    }

    fn jit_compilation_finished(
        &self,
        cx: &mut InCallback<'_>,
        function: FunctionId,
        _status: Result<()>,
        _is_safe_to_block: bool,
    ) {
        self.check("function", cx.function_info(function));
        self.tell("function", function.as_raw());
    }
}

fn told(clr: &FakeClr) -> Vec<(&'static str, usize)> {
    assert!(!clr.has_panicked());
    clr.profiler::<Latecomer>().unwrap().told.lock().unwrap().clone()
}

/// How often each thing was reported.
fn counts(told: &[(&'static str, usize)]) -> BTreeMap<(&'static str, usize), usize> {
    let mut counts = BTreeMap::new();
    told.iter().for_each(|&one| *counts.entry(one).or_default() += 1);
    counts
}

fn load(clr: &FakeClr) -> FunctionId {
    clr.start_up();
    let module = clr.load_assembly("App");
    clr.create_thread();
    let main = clr.function(clr.load_class(module, "App.Program"), "Main");
    clr.jit(main);
    clr.function(clr.load_class(module, "App.Program"), "NeverCompiled");
    main
}

#[test]
fn all_that_was_there_is_reported_once_and_before_the_attach_is_complete() {
    let _turn = turn();
    for (data, expected) in [(b"".as_slice(), true), (b"no", false)] {
        let clr = FakeClr::builder().attach(data).before_attach(|clr| _ = load(clr)).load::<Latecomer>().unwrap();
        let told = told(&clr);
        let count = |what: &str| told.iter().filter(|(other, _)| *other == what).count();
        assert!(counts(&told).values().all(|&times| times == 1), "{told:?}");
        let expected_counts = if expected { [1, 2, 2, 2, 1] } else { [0; 5] };
        assert_eq!(["domain", "assembly", "module", "attached", "function"].map(count), expected_counts, "{told:?}");
        // The application's, the one made there, and the one that attaches.
        assert_eq!([count("thread"), count("assigned")], if expected { [3, 3] } else { [0; 2] }, "{told:?}");
        let late = clr.profiler::<Latecomer>().unwrap();
        assert!(late.is_complete.load(SeqCst));
        assert_eq!(*late.unanswered.lock().unwrap(), [""; 0], "all of it was there");
        assert!(clr.refusals().is_empty(), "{:?}", clr.refusals());
    }
}

#[test]
fn an_event_about_something_that_the_catch_up_has_reported_is_not_delivered() {
    let _turn = turn();
    let (sender, main) = channel();
    let attach = FakeClr::builder().attach(&[]).before_attach(move |clr| sender.send(load(clr)).unwrap());
    let clr = attach.load::<Latecomer>().unwrap();
    let main = main.recv().unwrap().as_raw();
    let before = told(&clr);
    let id = |what: &str| before.iter().find(|(other, _)| *other == what).unwrap().1;
    // The runtime lists things a moment before these events.
    raise!(clr, ModuleLoadFinished, |callback| callback.ModuleLoadFinished(id("module"), OK));
    raise!(clr, AssemblyLoadFinished, |callback| callback.AssemblyLoadFinished(id("assembly"), OK));
    raise!(clr, ThreadCreated, |callback| callback.ThreadCreated(id("thread")));
    // A compilation that began before the attach.
    raise!(clr, JitCompilationFinished, |callback| callback.JITCompilationFinished(main, OK, BOOL(1)));
    assert_eq!(told(&clr), before);
    // The next tier; this compilation begins after the attach.
    for _ in 0..2 {
        raise!(clr, JitCompilationStarted, |callback| callback.JITCompilationStarted(main, BOOL(1)));
        raise!(clr, JitCompilationFinished, |callback| callback.JITCompilationFinished(main, OK, BOOL(1)));
    }
    assert_eq!(told(&clr)[before.len()..], [("function", main), ("function", main)]);
    // After its end the runtime reuses the identifier.
    let thread = id("thread");
    for _ in 0..2 {
        raise!(clr, ThreadDestroyed, |callback| callback.ThreadDestroyed(thread));
        raise!(clr, ThreadCreated, |callback| callback.ThreadCreated(thread));
    }
    let reused = [("thread ends", thread), ("thread", thread)];
    assert_eq!(told(&clr)[before.len() + 2..], [reused, reused].concat());
}

#[test]
fn an_end_that_comes_while_the_beginning_is_reported_is_reported_after_it() {
    let _turn = turn();
    // The catch-up stops in the callback of a thread until the application has ended that thread.
    let (entered, is_entered) = channel::<(&'static str, usize)>();
    let (ended, has_ended): (Sender<()>, Receiver<()>) = channel();
    let has_ended = Mutex::new(has_ended);
    let is_first = AtomicBool::new(true);
    *NEXT.lock().unwrap() = Some(Box::new(move |what, id| {
        if what == "thread" && is_first.swap(false, SeqCst) {
            entered.send((what, id)).unwrap();
            has_ended.lock().unwrap().recv_timeout(Duration::from_secs(60)).unwrap();
        }
    }));
    let (sender, ends) = channel();
    let attach = FakeClr::builder().attach(&[]).before_attach(|clr| _ = clr.create_thread());
    let attach = attach.while_attaching(move |clr| {
        let (_, thread) = is_entered.recv_timeout(Duration::from_secs(60)).unwrap();
        // It returns at once, although the profiler is still in its callback.
        raise!(clr, ThreadDestroyed, |callback| callback.ThreadDestroyed(thread));
        // Another thread at the same address begins after that.
        ended.send(()).unwrap();
        sender.send(thread).unwrap();
    });
    let clr = attach.load::<Latecomer>().unwrap();
    let thread = ends.recv().unwrap();
    let told: Vec<_> = told(&clr).into_iter().filter(|(_, id)| *id == thread).collect();
    assert_eq!(told, [("thread", thread), ("thread ends", thread)], "it is not assigned afterwards");
}

#[test]
fn things_that_begin_and_end_meanwhile_are_reported_once() {
    let _turn = turn();
    for _ in 0..6 {
        *NEXT.lock().unwrap() = Some(Box::new(|_, _| std::thread::yield_now()));
        let attach = FakeClr::builder().attach(&[]).before_attach(|clr| {
            load(clr);
            for number in 0..20 {
                let module = clr.load_assembly(&format!("Before{number}"));
                clr.jit(clr.function(clr.load_class(module, "Class"), "Method"));
            }
        });
        let attach = attach.while_attaching(|clr| {
            for number in 0..20 {
                let thread = clr.create_thread();
                let module = clr.load_assembly(&format!("Meanwhile{number}"));
                clr.jit(clr.function(clr.load_class(module, "Class"), "Method"));
                clr.destroy_thread(thread);
                clr.unload_assembly(module);
            }
        });
        let clr = attach.load::<Latecomer>().unwrap();
        let told = told(&clr);
        for ((what, id), times) in counts(&told) {
            assert_eq!(times, 1, "{what} {id}: {told:?}");
        }
        let count = |what: &str| told.iter().filter(|(other, _)| *other == what).count();
        // Twenty of each were there, and twenty came: those may have ended before the catch-up has reached them, but
        // not before their event.
        assert_eq!([count("module"), count("module ends"), count("thread ends")], [42, 20, 20], "{told:?}");
        assert!(count("function") >= 41, "{told:?}");
        // An end is never before its beginning.
        for (begins, ends) in [("module", "module ends"), ("thread", "thread ends")] {
            for (at, (_, id)) in told.iter().enumerate().filter(|(_, (what, _))| *what == ends) {
                assert!(told[..at].contains(&(begins, *id)), "{ends} {id}: {told:?}");
            }
        }
    }
}

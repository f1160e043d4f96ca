//! Detaching by a `Detacher`: the order of its steps, its refusals, and the moments at which it may be requested.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use corprof::detach::{DetachState, Detacher};
use corprof::event_mask::Event;
use corprof::prelude::*;
use corprof::sys;
use corprof::testing::FakeClr;

/// The events, in order.
type Log = Arc<Mutex<Vec<&'static str>>>;

fn log(log: &Log, what: &'static str) {
    log.lock().unwrap().push(what);
}

/// Waits for something that is sure to come.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Says when it is dropped, and whether the runtime answered then.
struct LastToGo(Log, Mutex<Option<Info>>);

impl Drop for LastToGo {
    fn drop(&mut self) {
        let answers = self.1.lock().unwrap().take().is_some_and(|info| info.event_mask().is_ok());
        log(&self.0, if answers { "dropped, the runtime answers" } else { "dropped, no answer" });
    }
}

/// Loaded by an attach or at start-up, with a thread.
#[derive(Profiler)]
#[profiler(clsid = "7B1E0A8C-51D5-4E9B-8F35-0F2A6C2E0061", no_export)]
struct Leaver {
    log: Log,
    given: Mutex<Option<(Detacher, Info)>>,
    /// The action at a class's load.
    at_load: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    last: LastToGo,
}

impl Default for Leaver {
    fn default() -> Self {
        let log = Log::default();
        Self {
            log: log.clone(),
            given: Mutex::default(),
            at_load: Mutex::default(),
            last: LastToGo(log, Mutex::default()),
        }
    }
}

impl Leaver {
    fn start(&self, cx: &mut InCallback<'_>, detacher: Detacher) -> Result<(), BoxError> {
        *self.given.lock().unwrap() = Some((detacher.clone(), Info::clone(cx)));
        *self.last.1.lock().unwrap() = Some(Info::clone(cx));
        let log = Arc::clone(&self.log);
        cx.spawn_profiler_thread("worker", move |cx| {
            while cx.wait(Duration::from_secs(3600)).is_continue() {}
            self::log(&log, "thread told to stop");
            std::thread::sleep(Duration::from_millis(20));
            assert!(cx.event_mask().is_ok());
            assert!(detacher.wait().is_err(), "the detach waits for this thread");
            self::log(&log, "thread ended");
        })?;
        Ok(())
    }
}

#[callbacks]
impl Callbacks for Leaver {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        let profiler = Self::default();
        let detacher = cx.detacher()?;
        profiler.start(cx, detacher)?;
        let late = cx.detacher().unwrap_err();
        assert!(late.to_string().contains("call `detacher` first"), "{late}");
        Ok(profiler)
    }

    fn initialize_for_attach(cx: &mut InAttach<'_>, _data: &[u8]) -> Result<Self, BoxError> {
        let profiler = Self::default();
        let detacher = cx.detacher()?;
        profiler.start(cx, detacher)?;
        Ok(profiler)
    }

    fn class_load_finished(&self, _cx: &mut InCallback<'_>, _class: ClassId, _status: Result<()>) {
        let act = self.at_load.lock().unwrap().take();
        if let Some(act) = act {
            act();
            log(&self.log, "callback ended");
        }
    }

    fn shutdown(&self, cx: &mut InCallback<'_>) {
        assert!(cx.enum_modules().is_ok(), "the last word may ask");
        let detacher = self.given.lock().unwrap().as_ref().map(|(detacher, _)| detacher.clone());
        assert!(detacher.is_none_or(|detacher| detacher.wait().is_err()), "the detach waits for this");
        log(&self.log, "shutdown");
    }
}

fn given(clr: &FakeClr) -> (Log, Detacher, Info) {
    let leaver = clr.profiler::<Leaver>().unwrap();
    let (detacher, info) = leaver.given.lock().unwrap().clone().unwrap();
    (leaver.log.clone(), detacher, info)
}

fn is_closed(info: &Info) -> bool {
    info.event_mask().is_err_and(|error| error.code() == sys::CORPROF_E_PROFILER_DETACHING)
}

const LIFE: [&str; 4] = ["thread told to stop", "thread ended", "shutdown", "dropped, the runtime answers"];

#[test]
fn steps_come_in_order_and_clones_of_info_answer_with_an_error() {
    for builder in [FakeClr::builder(), FakeClr::builder().attach(&[])] {
        let mut clr = builder.load::<Leaver>().unwrap();
        clr.start_up();
        let (log, detacher, info) = given(&clr);
        assert_eq!(detacher.state(), DetachState::Loaded);
        assert!(info.event_mask().is_ok());
        let unasked = detacher.wait().unwrap_err();
        assert!(unasked.to_string().contains("call `detach` first"), "{unasked}");
        detacher.detach().unwrap();
        let waiting = std::thread::spawn({
            let detacher = detacher.clone();
            move || detacher.wait()
        });
        // It waits for the detach that is under way.
        let (tell, told) = mpsc::channel();
        detacher.detach_then(move |result| tell.send(result).unwrap()).unwrap();
        let again = detacher.detach().unwrap_err();
        assert_eq!(again.code(), sys::CORPROF_E_PROFILER_DETACHING);
        assert!(again.to_string().contains("has begun already"), "{again}");
        until("the runtime is not asked", || clr.detach());
        waiting.join().unwrap().unwrap();
        told.recv_timeout(Duration::from_secs(60)).unwrap().unwrap();
        assert_eq!(detacher.state(), DetachState::Detached);
        assert_eq!(*log.lock().unwrap(), LIFE);
        assert!(is_closed(&info) && is_closed(&info.clone()));
        assert_eq!(info.current_thread().unwrap_err().code(), sys::CORPROF_E_PROFILER_DETACHING);
        assert!(clr.refusals().is_empty(), "{:?}", clr.refusals());
        assert!(detacher.detach().is_err());
    }
}

#[test]
fn a_callback_that_runs_is_waited_for_and_may_ask_for_it() {
    let mut clr = FakeClr::builder().attach(&[]).load::<Leaver>().unwrap();
    let app = clr.load_assembly("App");
    let (log, detacher, info) = given(&clr);
    let asked = detacher.clone();
    *clr.profiler::<Leaver>().unwrap().at_load.lock().unwrap() = Some(Box::new(move || {
        asked.detach().unwrap();
        assert!(asked.detach().is_err(), "twice");
        let error = asked.wait().unwrap_err();
        assert!(error.to_string().contains("wait on a `std::thread`"), "{error}");
        std::thread::sleep(Duration::from_millis(100));
        assert!(info.event_mask().is_ok(), "not before the callback has ended");
    }));
    clr.load_class(app, "A");
    assert!(!clr.has_panicked());
    until("the runtime is not asked", || clr.detach());
    let log = log.lock().unwrap();
    let place = |what| log.iter().position(|one| *one == what).unwrap();
    assert!(place("callback ended") < place("shutdown"), "{log:?}");
}

#[test]
fn a_call_of_another_thread_is_waited_for() {
    let mut clr = FakeClr::builder().attach(&[]).load::<Leaver>().unwrap();
    let (_, detacher, info) = given(&clr);
    let is_over = Arc::new(AtomicBool::new(false));
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let info = info.clone();
            let is_over = Arc::clone(&is_over);
            std::thread::spawn(move || {
                loop {
                    let was_over = is_over.load(SeqCst);
                    if info.event_mask().is_err() {
                        break;
                    }
                    assert!(!was_over, "a call after the runtime let go");
                }
            })
        })
        .collect();
    std::thread::sleep(Duration::from_millis(5));
    detacher.detach().unwrap();
    until("the runtime is not asked", || clr.detach());
    is_over.store(true, SeqCst);
    for thread in threads {
        thread.join().unwrap();
    }
}

#[test]
fn the_end_of_a_thread_may_ask_for_it() {
    struct AtEnd(Detacher, mpsc::Sender<Result<()>>);
    impl Drop for AtEnd {
        fn drop(&mut self) {
            let _ = self.1.send(self.0.detach());
        }
    }
    thread_local!(static AT_END: std::cell::OnceCell<AtEnd> = const { std::cell::OnceCell::new() });

    let mut clr = FakeClr::builder().attach(&[]).load::<Leaver>().unwrap();
    let (log, detacher, _) = given(&clr);
    let (send, receive) = mpsc::channel();
    std::thread::spawn(move || AT_END.with(|at_end| _ = at_end.set(AtEnd(detacher, send)))).join().unwrap();
    assert_eq!(receive.recv().unwrap(), Ok(()));
    until("the runtime is not asked", || clr.detach());
    assert_eq!(*log.lock().unwrap(), LIFE);
}

#[test]
fn the_application_may_end_meanwhile() {
    let mut pauses = [0, 1, 10, 30, 60].into_iter().cycle();
    let mut said = 0;
    // On a machine that stalls, Shutdown may have waited long enough before threads have come to their end.
    until("the last word is never waited for", || {
        let mut clr = FakeClr::builder().attach(&[]).load::<Leaver>().unwrap();
        let (log, detacher, _) = given(&clr);
        detacher.detach().unwrap();
        std::thread::sleep(Duration::from_millis(pauses.next().unwrap()));
        clr.shutdown();
        let log = log.lock().unwrap();
        assert!(LIFE.starts_with(&log) && log.last() != Some(&"shutdown"), "{log:?}");
        assert!(matches!(detacher.state(), DetachState::Ended | DetachState::Detaching), "{detacher:?}");
        said += usize::from(log.len() == LIFE.len());
        said == 10
    });
    let mut clr = FakeClr::load::<Leaver>().unwrap();
    let (_, detacher, _) = given(&clr);
    clr.shutdown();
    assert_eq!(detacher.state(), DetachState::Ended);
    assert!(detacher.detach().is_err());
}

#[test]
fn what_an_object_never_initialized_says() {
    let clr = FakeClr::builder().attach(&[]).load::<Leaver>().unwrap();
    let (_, detacher, info) = given(&clr);
    drop(clr); // the last Release, without Shutdown
    drop(info);
    assert!(detacher.detach().is_err());
}

/// Asks for something that costs it its detach.
#[derive(Default, Profiler)]
#[profiler(clsid = "7B1E0A8C-51D5-4E9B-8F35-0F2A6C2E0062", no_export)]
struct Stayer(Mutex<Option<Detacher>>);

static FLAG: Mutex<EventMask> = Mutex::new(EventMask::empty());
/// Held by a test while it uses `FLAG`.
static FLAG_USER: Mutex<()> = Mutex::new(());

#[callbacks]
impl Callbacks for Stayer {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        let profiler = Self::default();
        *profiler.0.lock().unwrap() = Some(cx.detacher()?);
        cx.add_events(*FLAG.lock().unwrap())?;
        Ok(profiler)
    }
    fn class_load_finished(&self, _cx: &mut InCallback<'_>, _class: ClassId, _status: Result<()>) {}
}

#[test]
fn a_refusal_names_its_reason_and_changes_nothing() {
    let _user = FLAG_USER.lock();
    let refused = |flag, release: Option<u32>| {
        *FLAG.lock().unwrap() = flag;
        let builder = FakeClr::builder();
        let builder = if let Some(major) = release { builder.release(major, 0) } else { builder };
        let mut clr = builder.load::<Stayer>().unwrap();
        clr.start_up();
        let detacher = clr.profiler::<Stayer>().unwrap().0.lock().unwrap().clone().unwrap();
        let answer = detacher.detach().map_err(|error| error.to_string());
        if answer.is_ok() {
            until("the runtime is not asked", || clr.detach());
        } else {
            assert_eq!(detacher.state(), DetachState::Loaded);
            let app = clr.load_assembly("App");
            clr.load_class(app, "A");
            assert_eq!(clr.count(Event::ClassLoadFinished), 1, "it goes on");
        }
        answer
    };
    let error = refused(EventMask::ENABLE_REJIT, None).unwrap_err();
    assert!(error.contains("SetEventMask2(COR_PRF_ENABLE_REJIT)"), "{error}");
    let error = refused(EventMask::ENABLE_OBJECT_ALLOCATED, None).unwrap_err();
    assert!(error.contains("COR_PRF_ENABLE_OBJECT_ALLOCATED"), "{error}");
    let error = refused(EventMask::DISABLE_INLINING, Some(9)).unwrap_err();
    assert!(error.contains("COR_PRF_DISABLE_INLINING"), "{error}");
    assert_eq!(refused(EventMask::DISABLE_INLINING, Some(10)), Ok(()));
}

/// It has its last word although the runtime would refuse to detach it, and rests.
#[test]
fn a_profiler_that_cannot_detach_retires() {
    let _user = FLAG_USER.lock();
    for (flag, name) in [
        (EventMask::ENABLE_REJIT, "COR_PRF_ENABLE_REJIT"),
        (EventMask::ENABLE_OBJECT_ALLOCATED, "COR_PRF_ENABLE_OBJECT_ALLOCATED"),
    ] {
        *FLAG.lock().unwrap() = flag;
        let mut clr = FakeClr::builder().load::<Stayer>().unwrap();
        clr.start_up();
        let detacher = clr.profiler::<Stayer>().unwrap().0.lock().unwrap().clone().unwrap();
        detacher.retire().unwrap();
        let again = detacher.retire().unwrap_err();
        let why = detacher.wait().unwrap_err();
        assert!(again.code() == sys::CORPROF_E_PROFILER_DETACHING || again == why, "{again}");
        assert!(why.to_string().contains(name), "{why}");
        assert_eq!(detacher.state(), DetachState::Refused(why));
        assert!(!clr.detach(), "the runtime is not asked");
        let app = clr.load_assembly("App");
        clr.load_class(app, "A"); // no profiler gets callbacks
        clr.shutdown();
        assert!(clr.refusals().is_empty(), "{:?}", clr.refusals());
    }
    let mut clr = FakeClr::builder().attach(&[]).load::<Leaver>().unwrap();
    let (log, detacher, _) = given(&clr);
    detacher.retire().unwrap();
    until("the runtime is not asked", || clr.detach());
    detacher.wait().unwrap();
    assert_eq!(*log.lock().unwrap(), LIFE);
}

#[test]
fn what_the_runtime_alone_knows_is_kept_as_the_reason() {
    let mut clr = FakeClr::builder()
        .attach(&[])
        .fail_next("RequestProfilerDetach", sys::CORPROF_E_IRREVERSIBLE_INSTRUMENTATION_PRESENT)
        .load::<Leaver>()
        .unwrap();
    let (log, detacher, info) = given(&clr);
    detacher.detach().unwrap();
    until("no answer", || matches!(detacher.state(), DetachState::Refused(_)));
    assert_eq!(*log.lock().unwrap(), LIFE);
    assert!(is_closed(&info));
    clr.load_assembly("App"); // no profiler gets callbacks
    clr.shutdown();
    assert_eq!(log.lock().unwrap().len(), LIFE.len());
}

#[test]
fn a_runtime_that_has_not_started_is_asked_again() {
    let mut clr = FakeClr::builder()
        .attach(&[])
        .fail_next("RequestProfilerDetach", sys::CORPROF_E_RUNTIME_UNINITIALIZED)
        .load::<Leaver>()
        .unwrap();
    let (_, detacher, _) = given(&clr);
    detacher.detach().unwrap();
    until("the runtime is not asked again", || clr.detach());
}

//! `every` hears of the events that its attribute names, with their arguments, before their own methods.

use std::sync::Mutex;

use corprof::event_mask::{Event, EventSet};
use corprof::prelude::*;
use corprof::profiler::Subscriber;
use corprof::testing::FakeClr;

/// Logs classes and threads, and what it hears of one of them twice.
#[derive(Default, Profiler)]
#[profiler(clsid = "7B1E0A8C-51D5-4E9B-8F35-0F2A6C2E0040", no_export)]
struct Log {
    lines: Mutex<Vec<String>>,
}

#[callbacks]
impl Callbacks for Log {
    #[events(MONITOR_CLASS_LOADS, ThreadNameChanged)]
    fn every(&self, cx: &InNoGc<'_>, event: &CallbackEvent<'_>) {
        self.log(event.named(cx).to_string());
    }

    fn class_load_finished(&self, _cx: &mut InCallback<'_>, _class: ClassId, _status: Result<()>) {
        self.log("its own method".to_owned());
    }

    fn module_load_finished(&self, _cx: &mut InCallback<'_>, _module: ModuleId, _status: Result<()>) {
        self.log("a module".to_owned());
    }
}

impl Log {
    fn log(&self, line: String) {
        self.lines.lock().unwrap().push(line);
    }
}

/// Counts nothing on this system, but says so by a condition.
#[derive(Profiler)]
#[profiler(clsid = "7B1E0A8C-51D5-4E9B-8F35-0F2A6C2E0041", no_export)]
struct Conditional;

#[callbacks]
impl Callbacks for Conditional {
    #[cfg(target_os = "none")]
    #[events(MONITOR_CLASS_LOADS)]
    fn every(&self, _cx: &InNoGc<'_>, _event: &CallbackEvent<'_>) {}
}

#[test]
fn every_event_that_is_named_comes_with_its_arguments() {
    let clr = FakeClr::load::<Log>().unwrap();
    let module = clr.start_up();
    let log = clr.profiler::<Log>().unwrap();
    log.lines.lock().unwrap().clear();

    let class = clr.load_class(module, "Shop.Order");
    let thread = clr.create_thread();
    clr.name_thread(thread, "worker");

    let lines = log.lines.lock().unwrap().clone();
    let wanted = [
        format!("ClassLoadStarted(class: {class:#x})"),
        "ClassLoadFinished(class: Shop.Order, status: ok)".to_owned(),
        "its own method".to_owned(),
        format!("ThreadNameChanged(thread: {thread:#x}, name: worker)"),
    ];
    assert_eq!(lines, wanted);
}

#[test]
fn the_mask_follows_from_the_named_events() {
    let clr = FakeClr::load::<Log>().unwrap();
    assert!(clr.event_mask().contains(EventMask::MONITOR_CLASS_LOADS | EventMask::MONITOR_THREADS));
    assert!(Log::EVERY.contains(Event::ClassUnloadFinished) && !Log::EVERY.contains(Event::ThreadCreated));
    assert!(!Log::EVERY.contains(Event::ModuleLoadFinished) && Log::EVENTS.contains(Event::ModuleLoadFinished));
    assert_eq!(Conditional::EVENTS, EventSet::EMPTY);
}

/// Catches up, and hears of modules by `every` only.
#[derive(Default, Profiler)]
#[profiler(clsid = "7B1E0A8C-51D5-4E9B-8F35-0F2A6C2E0042", no_export)]
struct LateLog {
    lines: Mutex<Vec<String>>,
}

#[callbacks]
impl Callbacks for LateLog {
    fn initialize_for_attach(cx: &mut InAttach<'_>, _data: &[u8]) -> Result<Self, BoxError> {
        cx.catch_up();
        Ok(Self::default())
    }

    #[events(ModuleLoadFinished)]
    fn every(&self, cx: &InNoGc<'_>, event: &CallbackEvent<'_>) {
        self.lines.lock().unwrap().push(event.named(cx).to_string());
    }
}

#[test]
fn the_catch_up_reports_to_every_as_well() {
    let before = |clr: &FakeClr| {
        clr.load_assembly("Before");
    };
    let clr = FakeClr::builder().before_attach(before).attach(b"").load::<LateLog>().unwrap();
    clr.load_assembly("After");
    let lines = clr.profiler::<LateLog>().unwrap().lines.lock().unwrap().clone();
    for module in ["Before", "After"] {
        let of_module = lines.iter().filter(|line| line.starts_with(&format!("ModuleLoadFinished(module: {module}")));
        assert_eq!(of_module.count(), 1, "{module}: {lines:?}");
    }
}

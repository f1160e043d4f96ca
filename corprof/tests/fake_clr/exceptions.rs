//! Exceptions are pinned where the runtime needs it, also without the profiler's callbacks, and no longer.

use std::hint::black_box;

use corprof::error::E_FAIL;
use corprof::event_mask::Event;
use corprof::prelude::*;
use corprof::sys;
use corprof::testing::{Builder, ClassSpec, FakeClr, FakeObject};
use windows_core::HRESULT;

/// Has one callback of exceptions, of which no pin depends.
#[derive(Default, Profiler)]
#[profiler(clsid = "7B1E0A8C-51D5-4E9B-8F35-0F2A6C2E0020", no_export)]
struct Catchers;

#[callbacks]
impl Callbacks for Catchers {
    fn exception_catcher_leave(&self, _cx: &mut InCallback<'_>) {}
}

/// Has no callback, and asks for the events.
#[derive(Default, Profiler)]
#[profiler(clsid = "7B1E0A8C-51D5-4E9B-8F35-0F2A6C2E0021", no_export)]
struct Mask;

#[callbacks]
impl Callbacks for Mask {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        cx.add_events(EventMask::MONITOR_EXCEPTIONS)?;
        Ok(Self)
    }
}

/// Panics at the first exception.
#[derive(Default, Profiler)]
#[profiler(clsid = "7B1E0A8C-51D5-4E9B-8F35-0F2A6C2E0022", no_export)]
struct PanicsAtExceptions;

#[callbacks]
impl Callbacks for PanicsAtExceptions {
    fn exception_thrown(&self, _cx: &InNoGc<'_>, _thrown: ObjectId<'_>) {
        panic!("exception_thrown");
    }
}

/// The steps of an exception, one by one.
struct Steps<'a>(&'a FakeClr);

impl Steps<'_> {
    fn exception(&self) -> FakeObject {
        self.0.allocate(self.0.core_class("System.Exception"))
    }

    fn raise(&self, event: Event, call: impl FnOnce(&sys::ICorProfilerCallback11) -> HRESULT) {
        assert!(self.0.raise(event, call).is_some(), "{event:?} is on");
    }

    fn throw(&self, exception: FakeObject) {
        let address = self.0.address(exception).unwrap();
        // SAFETY: the address of an object of the fake CLR's.
        self.raise(Event::ExceptionThrown, |callback| unsafe { callback.ExceptionThrown(address) });
    }

    fn unwind(&self) {
        let function = self.0.function(self.0.core_class("System.Object"), "Unwound").as_raw();
        // SAFETY: a function of the fake CLR's.
        self.raise(Event::ExceptionUnwindFunctionEnter, |callback| unsafe {
            callback.ExceptionUnwindFunctionEnter(function)
        });
    }

    fn catch(&self, exception: FakeObject) {
        let function = self.0.function(self.0.core_class("System.Object"), "Catches").as_raw();
        let address = self.0.address(exception).unwrap();
        // SAFETY: a function and the address of an object of the fake CLR's.
        self.raise(Event::ExceptionCatcherEnter, |callback| unsafe {
            callback.ExceptionCatcherEnter(function, address)
        });
    }

    fn pinned(&self, exceptions: &[FakeObject]) -> Vec<bool> {
        exceptions.iter().map(|&exception| self.0.is_pinned(exception)).collect()
    }
}

/// Runs `handler` deeper in the stack, as a runtime that calls it does.
#[inline(never)]
fn deeper(handler: impl FnOnce()) {
    black_box([0_u8; 4096]);
    handler();
    black_box([0_u8; 4096]);
}

fn is_pinned_while_searched_for<P: Profiler>(builder: Builder) -> bool {
    let clr = builder.load::<P>().unwrap();
    let steps = Steps(&clr);
    let exception = steps.exception();
    steps.throw(exception);
    let is_pinned = clr.is_pinned(exception);
    let before = clr.address(exception);
    clr.collect();
    assert_eq!(clr.address(exception) == before, is_pinned);
    steps.unwind();
    assert!(!clr.is_pinned(exception), "until the first function is unwound");
    steps.catch(exception);
    assert!(clr.refusals().is_empty(), "{:?}", clr.refusals());
    is_pinned
}

#[test]
fn exceptions_are_pinned_on_9_and_10_however_they_were_asked_for() {
    let on = |major| FakeClr::builder().info_version(15).release(major, 0);
    assert!(is_pinned_while_searched_for::<Catchers>(on(9)));
    assert!(is_pinned_while_searched_for::<Catchers>(on(10)));
    assert!(is_pinned_while_searched_for::<Mask>(on(10)));
    assert!(!is_pinned_while_searched_for::<Catchers>(on(11)));
    assert!(!is_pinned_while_searched_for::<Catchers>(FakeClr::builder().info_version(14)));
}

#[test]
fn a_runtime_that_makes_no_handle_goes_on_without() {
    let builder = FakeClr::builder().fail_always("CreateHandle", E_FAIL);
    assert!(!is_pinned_while_searched_for::<Catchers>(builder));
}

#[test]
fn what_a_filter_throws_leaves_the_outer_exception_pinned() {
    let clr = FakeClr::load::<Catchers>().unwrap();
    let steps = Steps(&clr);
    let exceptions = [(); 3].map(|()| steps.exception());
    let [outer, inner, lost] = exceptions;
    steps.throw(outer);
    deeper(|| {
        steps.throw(inner);
        assert_eq!(steps.pinned(&exceptions), [true, true, false]);
        steps.unwind();
        steps.catch(inner);
        assert_eq!(steps.pinned(&exceptions), [true, false, false]);
        // The runtime does not report its end.
        steps.throw(lost);
        assert_eq!(steps.pinned(&exceptions), [true, false, true]);
    });
    steps.unwind();
    steps.catch(outer);
    assert_eq!(steps.pinned(&exceptions), [false, false, false]);
    let next = steps.exception();
    steps.throw(next);
    deeper(|| steps.throw(lost));
    steps.throw(outer);
    assert_eq!(steps.pinned(&[next, outer, inner, lost]), [false, true, false, false]);
}

#[test]
fn threads_have_their_own_exceptions_and_free_them_at_their_end() {
    let clr = FakeClr::load::<Catchers>().unwrap();
    let steps = Steps(&clr);
    let thread = clr.create_thread();
    let exceptions = [(); 2].map(|()| steps.exception());
    let [here, there] = exceptions;
    steps.throw(here);
    clr.on_thread(thread, || steps.throw(there));
    assert_eq!(steps.pinned(&exceptions), [true, true]);
    steps.unwind();
    assert_eq!(steps.pinned(&exceptions), [false, true]);
    clr.destroy_thread(thread);
    assert_eq!(steps.pinned(&exceptions), [false, false]);
    // The system's thread goes on, and is a new one to the runtime.
    let main = clr.current_thread();
    steps.throw(here);
    clr.destroy_thread(main);
    assert_eq!(steps.pinned(&exceptions), [false, false]);
    assert_ne!(clr.current_thread(), main);
    steps.throw(there);
    assert_eq!(steps.pinned(&exceptions), [false, true]);
}

#[test]
fn a_profiler_that_has_panicked_goes_on_pinning() {
    let clr = FakeClr::load::<PanicsAtExceptions>().unwrap();
    for _ in 0..3 {
        let steps = Steps(&clr);
        let exception = steps.exception();
        steps.throw(exception);
        assert!(clr.has_panicked() && clr.is_pinned(exception));
        steps.unwind();
        assert!(!clr.is_pinned(exception));
    }
}

#[test]
fn nothing_is_read_of_an_object_whose_layout_is_not_known() {
    let clr = FakeClr::load::<Catchers>().unwrap();
    let steps = Steps(&clr);
    let wrapper = clr.core_class("System.Runtime.CompilerServices.RuntimeWrappedException");
    let app = clr.load_assembly("App");
    let namesake = clr.load_class(app, ClassSpec::new("System.Runtime.CompilerServices.RuntimeWrappedException"));
    for class in [wrapper, namesake] {
        let exception = clr.allocate(class);
        steps.throw(exception);
        assert!(clr.is_pinned(exception));
        steps.unwind();
    }
    assert!(clr.refusals().is_empty());
}

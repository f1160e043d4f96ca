//! The sampler in situations that a real runtime does not produce on demand.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use corprof::error::E_FAIL;
use corprof::prelude::*;
use corprof::sampler::{Report, Sampler, SamplerError, ThreadCounts};
use corprof::sys;
use corprof::testing::{FakeClr, suspension};
use windows_core::HRESULT;

/// There is one sampler in a process, so these tests take turns.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The sampler's last result.
#[derive(Clone, Default)]
struct Seen {
    report: Report,
    stacks: Vec<(ThreadIdAndName, Vec<String>)>,
}

type ThreadIdAndName = (Option<u32>, Option<String>);

#[derive(Default, Profiler)]
#[profiler(clsid = "7B1E0A8C-51D5-4E9B-8F35-0F2A6C2E0031", no_export)]
struct Samples(Arc<Mutex<Seen>>);

#[callbacks]
impl Callbacks for Samples {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        let profiler = Self::default();
        let seen = Arc::clone(&profiler.0);
        let sampler = Sampler::every(Duration::from_millis(1)).budget(1.0).max_depth(3);
        sampler.start(cx, move |round| {
            let names = round.cx().names();
            let name =
                |function: Option<FunctionId>| function.map_or("native".into(), |f| names.function(f).to_string());
            let stacks = round.samples().map(|sample| {
                let thread = sample.thread();
                let frames = sample.frames().iter().map(|frame| name(frame.function)).collect();
                ((thread.os_id, thread.name.as_deref().map(str::to_owned)), frames)
            });
            *seen.lock().unwrap() = Seen { stacks: stacks.collect(), report: round.report().clone() };
        })?;
        Ok(profiler)
    }
}

impl Samples {
    fn seen(clr: &FakeClr) -> Seen {
        clr.profiler::<Self>().unwrap().0.lock().unwrap().clone()
    }
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(60), "in vain: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Waits for a round that begins after this, and in which threads are stopped: the test's own, which runs again and
/// again.
fn next_round(clr: &FakeClr) -> Seen {
    let before = Samples::seen(clr).report.rounds;
    let suspensions = clr.suspensions();
    let has_been = || Samples::seen(clr).report.rounds >= before + 2 && clr.suspensions() >= suspensions + 2;
    wait_until("two more rounds", has_been);
    Samples::seen(clr)
}

/// A CLR under the sampler, with a thread in `Work`, called by `Main`, called by native code.
fn sampled() -> (FakeClr, ThreadId) {
    let clr = FakeClr::load::<Samples>().unwrap();
    clr.start_up();
    let class = clr.core_class("System.Object");
    let [main, work] = ["Main", "Work"].map(|name| clr.function(class, name));
    clr.jit(main);
    let thread = clr.create_thread();
    clr.set_stack(thread, [Some(work), Some(main), None]);
    clr.name_thread(thread, "worker");
    (clr, thread)
}

/// Ends it, and sees that all that was stopped runs again.
fn end(mut clr: FakeClr) {
    clr.shutdown();
    assert!(!clr.is_suspended(), "left standing");
    assert_eq!(suspension::violations(), 0);
    assert_eq!(clr.refusals(), [], "calls from the wrong place");
}

#[test]
fn stacks_are_seen_with_their_threads_and_the_others_are_classified() {
    let _turn = turn();
    let (clr, _) = sampled();
    let Seen { report, stacks } = next_round(&clr);
    let [((os_id, name), frames)] = stacks.as_slice() else { panic!("{stacks:?}") };
    assert!(os_id.is_some());
    assert_eq!(name.as_deref(), Some("worker"));
    assert_eq!(frames, &["System.Object.Work()", "System.Object.Main()", "native"]);
    // The main thread has no frames.
    let ThreadCounts { seen, walked, without_frames, unmoved, failed, .. } = report.threads;
    assert_eq!((seen, walked + without_frames + unmoved, failed), (2, 2, 0), "{report:?}");
    // Only Linux counts exactly which threads have run.
    assert_eq!(unmoved > 0, cfg!(target_os = "linux"), "the worker has not run since it was walked: {report:?}");
    assert!(report.walks.count(E_FAIL) > 0 && report.walks.count(HRESULT(0)) > 0, "{}", report.walks);
    assert!(!clr.has_panicked());
    end(clr);
}

#[test]
fn a_thread_that_ends_is_not_seen_again() {
    let _turn = turn();
    let (clr, thread) = sampled();
    next_round(&clr);
    clr.destroy_thread(thread);
    let Seen { report, stacks } = next_round(&clr);
    assert_eq!(stacks.len(), 0);
    assert_eq!(report.threads.seen, 1);
    end(clr);
}

#[test]
fn a_stack_without_room_is_cut_at_its_root() {
    let _turn = turn();
    let (clr, thread) = sampled();
    let deep = clr.function(clr.core_class("System.Object"), "Deep");
    clr.set_stack(thread, [Some(deep); 100]);
    let Seen { report, stacks } = next_round(&clr);
    assert_eq!(stacks[0].1.len(), 3, "as many as were allowed");
    assert!(report.truncated > 0);
    assert_eq!(report.walks.count(sys::CORPROF_E_STACKSNAPSHOT_ABORTED), 0, "which is not a failure");
    end(clr);
}

#[test]
fn a_suspension_in_the_way_is_waited_for_a_little_then_the_round_is_skipped() {
    let _turn = turn();
    let (clr, _) = sampled();
    let before = next_round(&clr).report;
    for _ in 0..3 {
        clr.fail_next("SuspendRuntime", sys::CORPROF_E_SUSPENSION_IN_PROGRESS);
    }
    let after = next_round(&clr).report;
    assert_eq!((after.retries, after.skipped.busy), (before.retries + 3, before.skipped.busy));
    clr.fail_always("SuspendRuntime", sys::CORPROF_E_SUSPENSION_IN_PROGRESS);
    std::thread::sleep(Duration::from_millis(50));
    clr.fail_no_more("SuspendRuntime");
    let late = next_round(&clr).report;
    assert!(late.skipped.busy > after.skipped.busy, "{late:?}");
    assert!(late.refusals.count(sys::CORPROF_E_SUSPENSION_IN_PROGRESS) > 0);
    end(clr);
}

#[test]
fn a_runtime_that_has_not_started_is_waited_for() {
    let _turn = turn();
    let (clr, _) = sampled();
    clr.fail_always("SuspendRuntime", sys::CORPROF_E_RUNTIME_UNINITIALIZED);
    std::thread::sleep(Duration::from_millis(20));
    clr.fail_no_more("SuspendRuntime");
    assert!(next_round(&clr).report.skipped.not_started > 0);
    end(clr);
}

#[test]
fn walks_that_fail_are_counted_by_their_codes_and_all_threads_run_again() {
    let _turn = turn();
    let (clr, thread) = sampled();
    for code in [
        sys::CORPROF_E_STACKSNAPSHOT_UNSAFE,
        sys::CORPROF_E_ASYNCHRONOUS_UNSAFE,
        sys::CORPROF_E_STACKSNAPSHOT_UNMANAGED_CTX,
    ] {
        clr.fail_always("DoStackSnapshot", code);
        clr.set_stack(thread, [None]);
        wait_until("a failed walk", || Samples::seen(&clr).report.walks.count(code) > 0);
        let report = next_round(&clr).report;
        assert_eq!((report.threads.walked, report.threads.failed), (0, 2));
        clr.fail_no_more("DoStackSnapshot");
    }
    let work = clr.function(clr.core_class("System.Object"), "Again");
    clr.set_stack(thread, [Some(work)]);
    assert_eq!(next_round(&clr).stacks.len(), 1, "and the next round is as good as ever");
    end(clr);
}

#[test]
fn a_refusal_that_does_not_pass_ends_the_sampler_and_makes_room_for_another() {
    let _turn = turn();
    let (clr, _) = sampled();
    next_round(&clr);
    clr.fail_always("SuspendRuntime", sys::CORPROF_E_PROFILER_DETACHING);
    // The lock comes back when the sampler's thread has ended.
    wait_until("room for another sampler", || {
        let second = FakeClr::load::<Starts>().unwrap();
        let outcome = second.profiler::<Starts>().unwrap().0.lock().unwrap().take();
        end(second);
        match outcome.unwrap() {
            Ok(()) => true,
            Err(SamplerError::AlreadyRunning) => false,
            Err(other) => panic!("{other}"),
        }
    });
    assert!(!clr.has_panicked());
    end(clr);
}

/// Starts a sampler, and returns the outcome.
#[derive(Default, Profiler)]
#[profiler(clsid = "7B1E0A8C-51D5-4E9B-8F35-0F2A6C2E0032", no_export)]
struct Starts(Mutex<Option<Result<(), SamplerError>>>);

#[callbacks]
impl Callbacks for Starts {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        let profiler = Self::default();
        *profiler.0.lock().unwrap() = Some(Sampler::every(Duration::from_millis(1)).start(cx, |_| ()));
        Ok(profiler)
    }
}

#[test]
fn there_is_one_sampler_in_a_process() {
    let _turn = turn();
    let (clr, _) = sampled();
    let mut second = FakeClr::load::<Starts>().unwrap();
    let outcome = second.profiler::<Starts>().unwrap().0.lock().unwrap().take();
    assert!(matches!(outcome, Some(Err(SamplerError::AlreadyRunning))), "{outcome:?}");
    second.shutdown();
    end(clr);
}

static CLR: OnceLock<FakeClr> = OnceLock::new();
static HAS_CALLED: AtomicBool = AtomicBool::new(false);

/// Its round runs managed code, which makes the sampler's thread a managed one.
#[derive(Default, Profiler)]
#[profiler(clsid = "7B1E0A8C-51D5-4E9B-8F35-0F2A6C2E0033", no_export)]
struct CallsManaged;

#[callbacks]
impl Callbacks for CallsManaged {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        Sampler::every(Duration::from_millis(1)).budget(1.0).start(cx, |_| {
            if let Some(clr) = CLR.get() {
                clr.current_thread();
                HAS_CALLED.store(true, SeqCst);
            }
        })?;
        Ok(Self)
    }
}

#[test]
fn a_managed_thread_stops_nobody() {
    let _turn = turn();
    let clr = CLR.get_or_init(|| FakeClr::load::<CallsManaged>().unwrap());
    wait_until("a round", || HAS_CALLED.load(SeqCst));
    let suspensions = clr.suspensions();
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(clr.suspensions(), suspensions, "it went on as a managed thread");
    assert!(!clr.is_suspended());
}

static IS_THIRD: AtomicBool = AtomicBool::new(false);

/// Panics in its third round.
#[derive(Default, Profiler)]
#[profiler(clsid = "7B1E0A8C-51D5-4E9B-8F35-0F2A6C2E0034", no_export)]
struct Panics;

#[callbacks]
impl Callbacks for Panics {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        let sampler = Sampler::every(Duration::from_millis(1)).budget(1.0);
        sampler.start(cx, |round| {
            IS_THIRD.store(round.report().rounds == 3, SeqCst);
            assert!(round.report().rounds < 3, "in round 3");
        })?;
        Ok(Self)
    }
}

#[test]
fn after_a_panic_everything_runs_and_the_sampler_is_gone() {
    let _turn = turn();
    let clr = FakeClr::load::<Panics>().unwrap();
    wait_until("the third round", || IS_THIRD.load(SeqCst));
    let suspensions = clr.suspensions();
    std::thread::sleep(Duration::from_millis(30));
    assert_eq!(clr.suspensions(), suspensions);
    end(clr);
}

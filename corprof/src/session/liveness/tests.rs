use std::sync::atomic::Ordering::SeqCst;

use super::*;

const THREAD: usize = 16;

fn claim(liveness: &Liveness) -> Option<WalkCandidate<'_>> {
    liveness.walk_candidate(ThreadId::from_raw(THREAD).unwrap())
}

#[test]
fn a_thread_at_its_end_waits_for_its_walk_and_is_not_walked_again() {
    let liveness = Liveness::new(Arc::new(MortalIds::new()));
    liveness.thread_created(THREAD);
    let claimed = claim(&liveness).unwrap();
    let held = claimed.pin().unwrap();
    let has_ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            liveness.thread_ending(THREAD);
            has_ended.store(true, SeqCst);
        });
        while claim(&liveness).is_some() {
            std::thread::yield_now(); // its end has not begun
        }
        std::thread::sleep(Duration::from_millis(20));
        assert!(!has_ended.load(SeqCst), "it is being walked");
        assert!(claimed.pin().is_none(), "not walked again");
        drop(held);
    });
    assert!(has_ended.into_inner());
    assert_eq!(liveness.delayed(), 1);

    liveness.thread_ended(THREAD);
    let dead = liveness.pin(ThreadId::from_raw(THREAD).unwrap(), "GetThreadInfo").err().unwrap();
    assert_eq!(dead.kind(), crate::error::ErrorKind::Gone);
    assert!(dead.to_string().starts_with("GetThreadInfo(thread): COR_E_OBJECTDISPOSED"), "{dead}");

    liveness.thread_created(THREAD);
    drop(claimed.pin().unwrap()); // another thread at the same address is as good
    liveness.thread_ending(THREAD);
}

#[test]
fn no_thread_ends_while_it_is_walked() {
    const ROUNDS: usize = 2000;
    let liveness = Liveness::new(Arc::new(MortalIds::new()));
    let memory = AtomicBool::new(true);
    liveness.thread_created(THREAD);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..ROUNDS {
                std::thread::yield_now();
                liveness.thread_ending(THREAD);
                liveness.thread_ended(THREAD);
                memory.store(false, SeqCst);
                memory.store(true, SeqCst);
                liveness.thread_created(THREAD);
            }
        });
        for _ in 0..ROUNDS {
            let Some(held) = claim(&liveness).and_then(|claim| claim.pin()) else { continue };
            for _ in 0..10 {
                assert!(memory.load(SeqCst), "gone in the middle of its walk");
            }
            drop(held);
        }
    });
}

#[test]
fn metadata_is_that_of_its_module_and_not_of_the_next_one_at_the_address() {
    const MODULE: usize = 64;
    let liveness = Arc::new(Liveness::new(Arc::new(MortalIds::new())));
    liveness.is_unloading_possible.store(true, SeqCst);
    let module = ModuleId::from_raw(MODULE).unwrap();
    let entry = liveness.modules.insert(MODULE, State::Dead);
    entry.begin_life(State::Mortal);
    let first = Lifeline::of(&liveness, &liveness.pin(module, "X").ok().unwrap());
    assert!(first.pin("X").is_ok_and(|held| held.is_some()));

    entry.set(State::Dead);
    assert!(first.pin("X").is_err());
    for state in [State::Mortal, State::Immortal] {
        entry.set(State::Dead);
        entry.begin_life(state);
        let error = first.pin("X").err().unwrap();
        assert_eq!(error.kind(), crate::error::ErrorKind::Gone, "another module is there: {state:?}");
        assert!(!entry.is_used(), "a refused pin counts no use");
        let next = Lifeline::of(&liveness, &liveness.pin(module, "X").ok().unwrap());
        assert!(next.pin("X").is_ok());
    }
}

#[test]
fn what_could_die_is_refused_in_other_sessions_and_metadata_once_its_session_has_ended() {
    const RUNTIME: u16 = u16::MAX - 1;
    const CLASS: usize = 64;
    let first = Arc::new(Liveness::of_runtime(RUNTIME));
    first.is_unloading_possible.store(true, SeqCst);
    first.modules.insert(8, State::Mortal);
    first.classes.insert(CLASS, State::Mortal);
    let lifeline = Lifeline::to(&first, ModuleId::from_raw(8).unwrap(), "X").unwrap();
    assert!(lifeline.pin("X").is_ok());
    first.session_ended();
    assert!(lifeline.pin("X").is_err());

    let second = Liveness::of_runtime(RUNTIME);
    let class = ClassId::from_raw(CLASS).unwrap();
    assert_eq!(second.pin(class, "X").map(drop).unwrap_err().kind(), crate::error::ErrorKind::Gone);
    assert!(second.pin(ClassId::from_raw(CLASS + 8).unwrap(), "X").is_ok());
    second.classes.insert(CLASS, State::Immortal);
    assert!(second.pin(class, "X").is_ok(), "the runtime has handed it out in this session");
}

#[test]
fn what_was_emitted_ends_with_its_assembly_and_not_for_the_next_module_at_the_address() {
    const MODULE: usize = 64;
    const ASSEMBLY: usize = 128;
    let liveness = Liveness::new(Arc::new(MortalIds::new()));
    let state = || liveness.emitted.get(MODULE).map(Entry::state);
    liveness.begin_emitted(MODULE, false);
    assert_eq!(state(), None, "nothing ends before a module that was loaded");
    liveness.begin_emitted(MODULE, true);
    liveness.records().emitted.insert(ASSEMBLY, MODULE);
    liveness.assembly_going(ASSEMBLY + 8);
    assert_eq!(state(), Some(State::Mortal));

    let entry = liveness.emitted.get(MODULE).unwrap();
    assert!(entry.begin_use(&[State::Dead]));
    std::thread::scope(|scope| {
        let end = scope.spawn(|| liveness.assembly_going(ASSEMBLY));
        while entry.begin_use(&[State::Dead]) {
            entry.end_use(); // its end has not begun
            std::thread::yield_now();
        }
        std::thread::sleep(Duration::from_millis(20));
        assert!(!end.is_finished(), "a call reads it");
        entry.end_use();
    });

    liveness.begin_emitted(MODULE, false);
    assert_eq!(state(), Some(State::Immortal));
    liveness.assembly_going(ASSEMBLY);
    assert_eq!(state(), Some(State::Immortal), "the assembly of the one before it");
}

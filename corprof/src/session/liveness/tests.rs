use std::sync::atomic::Ordering::SeqCst;

use super::*;

const THREAD: usize = 16;

fn claim(alive: &Alive) -> Option<Claim<'_>> {
    alive.claim(ThreadId::from_raw(THREAD).unwrap())
}

#[test]
fn a_thread_at_its_end_waits_for_its_walk_and_is_not_walked_again() {
    let alive = Alive::new();
    alive.thread_created(THREAD);
    let claimed = claim(&alive).unwrap();
    let held = claimed.hold().unwrap();
    let has_ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            alive.thread_ending(THREAD);
            has_ended.store(true, SeqCst);
        });
        while claim(&alive).is_some() {
            std::thread::yield_now(); // its end has not begun
        }
        std::thread::sleep(Duration::from_millis(20));
        assert!(!has_ended.load(SeqCst), "it is being walked");
        assert!(claimed.hold().is_none(), "not walked again");
        drop(held);
    });
    assert!(has_ended.into_inner());
    assert_eq!(alive.delayed(), 1);

    alive.thread_ended(THREAD);
    let dead = alive.hold(ThreadId::from_raw(THREAD).unwrap(), "GetThreadInfo").err().unwrap();
    assert_eq!(dead.kind(), crate::error::ErrorKind::Gone);
    assert!(dead.to_string().starts_with("GetThreadInfo(thread): COR_E_OBJECTDISPOSED"), "{dead}");

    alive.thread_created(THREAD);
    drop(claimed.hold().unwrap()); // another thread at the same address is as good
    alive.thread_ending(THREAD);
}

#[test]
fn no_thread_ends_while_it_is_walked() {
    const ROUNDS: usize = 2000;
    let alive = Alive::new();
    let memory = AtomicBool::new(true);
    alive.thread_created(THREAD);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..ROUNDS {
                std::thread::yield_now();
                alive.thread_ending(THREAD);
                alive.thread_ended(THREAD);
                memory.store(false, SeqCst);
                memory.store(true, SeqCst);
                alive.thread_created(THREAD);
            }
        });
        for _ in 0..ROUNDS {
            let Some(held) = claim(&alive).and_then(|claim| claim.hold()) else { continue };
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
    let alive = Arc::new(Alive::new());
    alive.is_unloading_possible.store(true, SeqCst);
    let module = ModuleId::from_raw(MODULE).unwrap();
    let entry = alive.modules.insert(MODULE, State::Dead);
    entry.begin_life(State::Mortal);
    let first = Lifeline::of(&alive, &alive.hold(module, "X").ok().unwrap());
    assert!(first.hold("X").is_ok_and(|held| held.is_some()));

    entry.set(State::Dead);
    assert!(first.hold("X").is_err());
    for state in [State::Mortal, State::Immortal] {
        entry.set(State::Dead);
        entry.begin_life(state);
        let error = first.hold("X").err().unwrap();
        assert_eq!(error.kind(), crate::error::ErrorKind::Gone, "another module is there: {state:?}");
        assert!(!entry.is_used(), "what is refused is not held");
        let next = Lifeline::of(&alive, &alive.hold(module, "X").ok().unwrap());
        assert!(next.hold("X").is_ok());
    }
}

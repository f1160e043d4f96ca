//! Tests of `queue.rs`.

use super::*;

/// The event on which a test's reader fails.
const FAILS: u64 = u64::MAX;

/// The calls that a test's reader received: events, ended threads, and the number of pauses.
#[derive(Default)]
struct Heard(Vec<(u32, u64)>, Vec<u32>, u32);

impl EventReader<u64> for Arc<Mutex<Heard>> {
    type Thread = u32;
    fn thread_started(&mut self, number: u32) -> u32 {
        number
    }
    fn event(&mut self, thread: &mut u32, event: u64) -> Result<(), BoxError> {
        lock(self).0.push((*thread, event));
        if event == FAILS { Err("it fails".into()) } else { Ok(()) }
    }
    fn thread_ended(&mut self, thread: u32) -> Result<(), BoxError> {
        lock(self).1.push(thread);
        Ok(())
    }
    fn pause(&mut self) -> Result<(), BoxError> {
        lock(self).2 += 1;
        Ok(())
    }
}

/// An `EventQueue` with a reader that reads when the test asks.
fn events(room: usize, threads: usize) -> (EventQueue<u64>, Arc<Mutex<Heard>>) {
    let events = EventQueue::new(room, threads);
    let heard = Arc::<Mutex<Heard>>::default();
    events.read_by(heard.clone());
    (events, heard)
}

fn read(events: &EventQueue<u64>) {
    events.0.read(&mut lock(&events.0.reading));
}

#[test]
fn a_full_buffer_drops_and_counts_and_takes_events_again_once_read() {
    let (events, heard) = events(4, 1);
    let mut writer = events.writer();
    let taken: Vec<_> = (0..6).map(|event| writer.push(event)).collect();
    assert_eq!(taken, [true, true, true, true, false, false]);
    assert_eq!(events.dropped(), 2);
    read(&events);
    assert!(writer.push(6));
    drop(writer);
    assert_eq!(events.finish().unwrap(), 2);
    let heard = lock(&heard);
    assert_eq!(heard.0, [(0, 0), (0, 1), (0, 2), (0, 3), (0, 6)]);
    assert_eq!(heard.1, [0]);
}

#[test]
fn threads_beyond_the_bound_lose_all_until_another_has_ended() {
    let (events, heard) = events(4, 1);
    let first = events.writer();
    let mut second = events.writer();
    assert!(!second.push(1));
    drop(first);
    read(&events);
    assert_eq!(lock(&heard).1, [0]);
    let lost = (0..2 * u64::from(ASK_AGAIN)).take_while(|&event| !second.push(event)).count();
    assert_eq!(lost, ASK_AGAIN as usize - 1, "it asks again");
    assert_eq!(events.finish().unwrap(), u64::from(ASK_AGAIN));
    assert_eq!(lock(&heard).0.len(), 1);
}

#[test]
fn every_event_is_read_once_or_counted() {
    const EACH: u64 = 100_000;
    let (events, heard) = events(64, 8);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let mut writer = events.writer();
            scope.spawn(move || (0..EACH).filter(|&event| writer.push(event)).count());
        }
        for _ in 0..1000 {
            read(&events);
        }
    });
    let dropped = events.finish().unwrap();
    let heard = lock(&heard);
    assert_eq!(heard.0.len() as u64 + dropped, 4 * EACH);
    for thread in 0..4 {
        let own: Vec<_> = heard.0.iter().filter(|event| event.0 == thread).map(|event| event.1).collect();
        assert!(own.is_sorted_by(|a, b| a < b), "each once, in order");
    }
    assert_eq!(heard.1.len(), 4, "each thread ended once");
}

#[test]
fn a_busy_reader_is_not_waited_for() {
    let (events, _heard) = events(4, 1);
    let _busy = lock(&events.0.reading);
    assert_eq!(events.finish().unwrap_err().kind(), io::ErrorKind::WouldBlock);
}
#[test]
fn after_an_error_the_reader_is_left_alone() {
    let (events, heard) = events(4, 1);
    let mut writer = events.writer();
    for event in [1, FAILS, 2] {
        assert!(writer.push(event));
    }
    read(&events);
    assert!((0..4).all(|event| writer.push(event)), "there is room: the application does not notice");
    assert_eq!(events.finish().unwrap_err().to_string(), "it fails");
    let heard = lock(&heard);
    assert_eq!((heard.0.as_slice(), heard.1.len(), heard.2), ([(0, 1), (0, FAILS)].as_slice(), 0, 0));
}

#[test]
fn who_waits_loses_nothing_however_slow_the_reader_is() {
    const EACH: u64 = 20_000;
    let (events, heard) = events(64, 8);
    let reads = Reads::begin(events.0.clone());
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..4)
            .map(|_| {
                let mut writer = events.writer();
                scope.spawn(move || (0..EACH).all(|event| writer.push_waiting(event)))
            })
            .collect();
        while !writers.iter().all(|writer| writer.is_finished()) {
            read(&events);
        }
        assert!(writers.into_iter().all(|writer| writer.join().unwrap()));
    });
    drop(reads);
    assert!(events.waited() > Duration::ZERO);
    assert_eq!(events.finish().unwrap(), 0);
    assert_eq!(lock(&heard).0.len() as u64, 4 * EACH);
}

#[test]
fn a_reader_that_gets_nowhere_is_waited_for_once() {
    let (events, _heard) = events(4, 1);
    let _reads = Reads::begin(events.0.clone());
    let mut writer = events.writer();
    let begin = Instant::now();
    assert_eq!((0..1000).filter(|&event| writer.push_waiting(event)).count(), 4);
    let waited = begin.elapsed();
    assert!(waited >= PATIENCE && events.waited() <= waited);
    // After the reader has read again, hooks wait for it again.
    read(&events);
    assert!(writer.push_waiting(0) && !events.0.is_stuck.load(Relaxed));
    assert_eq!(events.dropped(), 996);
}

#[test]
fn when_nobody_reads_any_more_who_has_no_room_reads() {
    let (events, heard) = events(4, 1);
    let mut writer = events.writer();
    assert!((0..100).all(|event| writer.push_waiting(event)));
    drop(writer);
    assert_eq!(events.finish().unwrap(), 0);
    assert!(lock(&heard).0.iter().map(|event| event.1).eq(0..100));
    // Without any reader, no hook waits.
    let none = EventQueue::<u64>::new(4, 1);
    let mut writer = none.writer();
    assert_eq!((0..100).filter(|&event| writer.push_waiting(event)).count(), 4);
    assert_eq!(none.dropped(), 96);
}

//! The writer on arbitrary events: what it takes comes back, and what it refuses leaves nothing.

#![no_main]

use corprof_nettrace::{Label, Metadata, NewEvent, Reader, Thread, Trace, UtcTime, Writer};
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;

#[derive(Debug, Arbitrary)]
enum Step {
    Define(u32, u16, String),
    Thread(u64, Option<String>),
    Remove(u64),
    Event { metadata_id: u32, threads: [u64; 2], ticks: u64, is_sorted: bool, stack: Vec<u64>, label: String, payload: Vec<u8> },
    Point(u64),
    Lose(u64, u16),
    Flush,
}

fuzz_target!(|steps: Vec<Step>| {
    let began = UtcTime { year: 2026, month: 1, day: 1, hour: 0, minute: 0, second: 0, millisecond: 0 };
    let mut writer = Writer::new(Vec::new(), &Trace::new(began, 0, 1)).expect("a header");
    let mut expected = Vec::new();
    for step in steps {
        match step {
            Step::Define(id, number, name) => drop(writer.define_event(&Metadata::new(id, "", number.into(), name))),
            Step::Thread(index, name) => {
                let mut thread = Thread::new(index);
                thread.name = name;
                let _ = writer.define_thread(&thread);
            }
            Step::Remove(index) => drop(writer.remove_thread(index)),
            Step::Event { metadata_id, threads: [thread, capture], ticks, is_sorted, stack, label, payload } => {
                let labels = [Label::Text(label, String::new())];
                let mut event = NewEvent::new(metadata_id, thread, ticks);
                (event.capture_thread, event.is_sorted) = (capture, is_sorted);
                (event.stack, event.labels, event.payload) = (&stack, &labels, &payload);
                if writer.write(&event).is_ok() {
                    expected.push((metadata_id, thread, capture, ticks, is_sorted, stack, labels, payload));
                }
            }
            Step::Point(ticks) => drop(writer.sequence_point(ticks)),
            Step::Lose(thread, events) => drop(writer.lose(thread, events.into())),
            Step::Flush => writer.flush().expect("memory takes everything"),
        }
    }
    let bytes = writer.finish().expect("memory takes everything");
    let mut reader = Reader::new(&bytes[..]);
    for (metadata_id, thread, capture, ticks, is_sorted, stack, labels, payload) in expected {
        let event = reader.next_event().expect("a trace that can be read").expect("an event");
        assert_eq!((event.metadata().id, event.thread(), event.capture_thread()), (metadata_id, thread, capture));
        assert_eq!((event.ticks(), event.is_sorted(), event.payload()), (ticks, is_sorted, &payload[..]));
        assert!(event.stack().addresses().eq(stack) && event.labels().eq(labels));
    }
    assert!(reader.next_event().expect("a trace that can be read").is_none());
});

//! Hostile bytes: no panic, no hang. `corprof-events/fuzz` searches for longer.

mod support;

use corprof_events::{Event, FieldList, Layout, Provider};
use fastrand::Rng;
use support::{decode, metadata, mutate, payload};

#[test]
fn whatever_the_bytes_say_is_decoded_or_refused() {
    let mut rng = Rng::with_seed(18);
    let mut found = 0;
    const CASES: u64 = 2000;
    for _ in 0..CASES {
        let mut metadata = metadata(&mut rng);
        let mut payload = payload(&mut rng);
        mutate(&mut rng, &mut metadata);
        mutate(&mut rng, &mut payload);
        found += decode(&metadata, &payload);
    }
    assert!(found > CASES * 20, "{found} values: most bytes should be some");
}

#[test]
fn no_depth_of_types_uses_up_the_stack() {
    let mut arrays = b"\x01\0\xff\xff\x01a".to_vec();
    arrays.extend([0x13; 0xffff - 2]);
    assert!(FieldList::read_v6(&arrays).is_none());
    let objects = [1_u32, 1].map(u32::to_le_bytes).concat().repeat(100_000);
    assert!(FieldList::read_v4(&objects).0.is_none());
    let field = FieldList::kept(Layout::V6, &arrays);
    let event = Event::new(Provider::of("Deep"), 1, 0, &[1; 100], true).with_description("Deep", Some(field));
    assert_eq!(event.fields().count(), 0);
}

#[test]
fn a_count_that_is_a_lie_is_refused() {
    assert!(FieldList::read_v4(&u32::MAX.to_le_bytes()).0.is_none());
    assert!(FieldList::read_v6(&u16::MAX.to_le_bytes()).is_none());
    // As many fields as there may be, and one more.
    let fields = |count: u32| [count.to_le_bytes().to_vec(), [9, 0, 0, 0, 0, 0].repeat(count as usize)].concat();
    assert!(FieldList::read_v4(&fields(4096)).0.is_some());
    assert!(FieldList::read_v4(&fields(4097)).0.is_none());
    // Nodes of a heap dump, four billion of them.
    let event = Event::new(Provider::RUNTIME, 18, 0, &[0xff; 40], true);
    assert_eq!((event.fields().count(), event.is_exact()), (3, false));
}

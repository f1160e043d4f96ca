//! Structs of a user's own: `#[derive(ProviderEvent)]`.
#![cfg(feature = "derive")]
#![allow(clippy::unwrap_used, reason = "a test that has no event fails")]

use std::time::{Duration, SystemTime};

use corprof_events::{
    DecodeError, Description, Event, EventDefinition, FieldDefinition, FieldType, Keywords, Level, Misfit, Provider,
    ProviderEvent, Text,
};

#[derive(ProviderEvent, Debug, PartialEq, Clone)]
#[event(crate = corprof_events, provider = "Shop", id = 7, version = 2, level = Warning, keywords = 0x11, opcode = 1, needs_stack)]
struct Order<'a> {
    is_paid: bool,
    letter: char,
    a: i8,
    b: u8,
    c: i16,
    d: u16,
    e: i32,
    f: u32,
    g: i64,
    h: u64,
    i: f32,
    j: f64,
    guid: [u8; 16],
    customer_name: Text<'a>,
    #[event(name = "Street")]
    street: String,
    r#type: u32,
    counts: Vec<u16>,
    names: Vec<String>,
}

#[derive(ProviderEvent, Debug, PartialEq)]
#[event(crate = corprof_events, provider = "Shop", id = 8, name = "Closing")]
struct Closed;

/// The description that the runtime writes for a definition, with fields in the second layout, which knows lists.
fn description(event: &EventDefinition) -> Vec<u8> {
    let text = |text: &str| text.encode_utf16().chain([0]).flat_map(u16::to_le_bytes).collect::<Vec<u8>>();
    let code = |ty| match ty {
        FieldType::Boolean => 3_u32,
        FieldType::Char => 4,
        FieldType::SByte => 5,
        FieldType::Byte => 6,
        FieldType::Int16 => 7,
        FieldType::UInt16 => 8,
        FieldType::Int32 => 9,
        FieldType::UInt32 => 10,
        FieldType::Int64 => 11,
        FieldType::UInt64 => 12,
        FieldType::Single => 13,
        FieldType::Double => 14,
        FieldType::DateTime => 16,
        FieldType::Guid => 17,
        FieldType::String => 18,
    };
    let mut fields = (event.fields.len() as u32).to_le_bytes().to_vec();
    for field in event.fields {
        let mut one = text(field.name);
        if field.is_list {
            one.extend(19_u32.to_le_bytes());
        }
        one.extend(code(field.ty).to_le_bytes());
        fields.extend((one.len() as u32 + 4).to_le_bytes());
        fields.extend(one);
    }
    let mut out = event.id.to_le_bytes().to_vec();
    out.extend(text(event.name));
    out.extend(event.keywords.bits().to_le_bytes());
    out.extend(event.version.to_le_bytes());
    out.extend((event.level as u32).to_le_bytes());
    out.extend(0_u32.to_le_bytes());
    out.extend((fields.len() as u32).to_le_bytes());
    out.push(2);
    out.extend(fields);
    out
}

fn order() -> Order<'static> {
    Order {
        is_paid: true,
        letter: 'ß',
        a: -1,
        b: 200,
        c: -300,
        d: 60_000,
        e: i32::MIN,
        f: u32::MAX,
        g: i64::MIN,
        h: u64::MAX,
        i: 0.5,
        j: -1e300,
        guid: *b"0123456789abcdef",
        customer_name: Text::from("Zoë 🦀"),
        street: String::new(),
        r#type: 3,
        counts: vec![1, 2, 65_535],
        names: vec!["x".to_owned(), "y".to_owned()],
    }
}

fn read<T>(definition: &EventDefinition, payload: &[u8], with: impl FnOnce(&Event<'_>) -> T) -> T {
    let metadata = description(definition);
    let description = Description::read(&metadata).unwrap();
    with(&Event::described(Provider::of(definition.provider), &description, payload, true))
}

#[test]
fn what_is_written_is_read() {
    let mut payload = Vec::new();
    order().write(&mut payload).unwrap();
    read(&Order::EVENT, &payload, |event| {
        assert!(event.is_exact());
        assert_eq!(event.name(), "Order");
        assert_eq!(event.decode::<Order>(), Ok(order()));
        assert_eq!(event.field("customerName").unwrap().as_text().unwrap(), "Zoë 🦀");
    });
    let mut nothing = Vec::new();
    Closed.write(&mut nothing).unwrap();
    assert!(nothing.is_empty());
    // Without fields an event is known by nothing but its number.
    assert_eq!(Closed::EVENT.name, "Closing");
    read(&Closed::EVENT, &nothing, |event| assert_eq!(event.decode::<Closed>(), Ok(Closed)));
}

#[test]
fn the_definition_has_what_the_attribute_says() {
    let event = Order::EVENT;
    assert_eq!((event.provider, event.name, event.id, event.version), ("Shop", "Order", 7, 2));
    assert_eq!(
        (event.level, event.keywords, event.opcode, event.needs_stack),
        (Level::Warning, Keywords::from_bits(0x11), 1, true)
    );
    let names: Vec<&str> = event.fields.iter().map(|field| field.name).collect();
    assert_eq!(names[13..], ["customerName", "Street", "type", "counts", "names"]);
}

#[derive(ProviderEvent, Debug, PartialEq)]
#[event(crate = corprof_events, provider = "Shop", id = 7)]
struct Some {
    names: Vec<String>,
    e: i64,
    b: u64,
}

#[test]
fn fields_are_found_by_name_in_any_order_and_integers_widen() {
    let mut payload = Vec::new();
    order().write(&mut payload).unwrap();
    let names = vec!["x".to_owned(), "y".to_owned()];
    let some = Some { names, e: i32::MIN.into(), b: 200 };
    read(&Order::EVENT, &payload, |event| assert_eq!(event.decode::<Some>(), Ok(some)));
}

#[derive(ProviderEvent, Debug, PartialEq)]
#[event(crate = corprof_events, provider = "Shop", id = 7)]
struct Narrow {
    d: u8,
}

#[derive(ProviderEvent, Debug, PartialEq)]
#[event(crate = corprof_events, provider = "Shop", id = 7)]
struct Misspelt {
    custommer: String,
}

#[test]
fn what_does_not_fit_is_an_error() {
    let mut payload = Vec::new();
    order().write(&mut payload).unwrap();
    read(&Order::EVENT, &payload, |event| {
        let error = event.decode::<Narrow>().unwrap_err();
        assert_eq!(error, DecodeError::OtherType { event: "Narrow", field: "d" });
        assert_eq!(error.to_string(), "the field d of Narrow has another type or a larger number");
        assert_eq!(event.decode::<Misspelt>(), Err(DecodeError::NoField { event: "Misspelt", field: "custommer" }));
        assert_eq!(event.decode::<Closed>(), Err(DecodeError::OtherEvent { expected: "Closing", id: 7 }));
    });
    let undescribed = Event::new(Provider::of("Shop"), 7, 0, &payload, true);
    assert_eq!(undescribed.decode::<Order>(), Err(DecodeError::Undescribed { event: "Order" }));
    let other = Event::new(Provider::of("Shops"), 7, 0, &payload, true);
    assert!(matches!(other.decode::<Order>(), Err(DecodeError::OtherEvent { .. })));
    // Wherever the payload ends, there is an error and no panic.
    for end in 0..payload.len() {
        read(&Order::EVENT, &payload[..end], |event| assert!(event.decode::<Order>().is_err()));
    }
}

#[test]
fn a_nul_ends_a_text_and_a_list_has_a_limit() {
    let with_nul = Order { customer_name: Text::from("a\0b"), letter: '🦀', ..order() };
    let mut payload = Vec::new();
    with_nul.write(&mut payload).unwrap();
    read(&Order::EVENT, &payload, |event| {
        let read = event.decode::<Order>().unwrap();
        assert_eq!((read.customer_name, read.letter), (Text::from("a"), '\u{fffd}'));
        assert_eq!(read.names, order().names);
    });
    let long = Order { counts: vec![1; 65_536], ..order() };
    let error = long.write(&mut payload).unwrap_err();
    assert_eq!((error.event, error.field, error.misfit), ("Order", "counts", Misfit::LongList));
}

#[derive(ProviderEvent, Debug, PartialEq)]
#[event(crate = corprof_events, provider = "Shop", id = 9)]
struct Dated {
    placed: SystemTime,
    paid: Vec<SystemTime>,
}

#[test]
fn times_are_file_times_of_100_ns() {
    let at = |nanos: u64| SystemTime::UNIX_EPOCH + Duration::from_nanos(nanos);
    let dated = Dated { placed: at(1_234_567_890_123_456_789), paid: vec![at(0), at(100)] };
    let mut payload = Vec::new();
    dated.write(&mut payload).unwrap();
    // What .NET has at 1 January 1970: `DateTime.UnixEpoch.ToFileTimeUtc()`.
    assert_eq!(payload[10..18], 116_444_736_000_000_000_u64.to_le_bytes());
    read(&Dated::EVENT, &payload, |event| {
        let cut_off = Dated { placed: at(1_234_567_890_123_456_700), ..dated };
        assert_eq!(event.decode::<Dated>(), Ok(cut_off));
        assert_eq!(event.field("placed").unwrap().as_u64(), Some(128_790_414_901_234_567));
    });
    let far = [SystemTime::UNIX_EPOCH.checked_sub(OLDEST + TICK), SystemTime::UNIX_EPOCH.checked_add(NEWEST)];
    for time in far.into_iter().flatten() {
        let error = Dated { placed: at(0), paid: vec![time] }.write(&mut Vec::new()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "no event can have the value of the field paid of Dated: a time is of the years 1601 to 9999"
        );
    }
    for time in [SystemTime::UNIX_EPOCH - OLDEST, SystemTime::UNIX_EPOCH + NEWEST - TICK] {
        let mut payload = Vec::new();
        Dated { placed: time, paid: Vec::new() }.write(&mut payload).unwrap();
        read(&Dated::EVENT, &payload, |event| assert_eq!(event.decode::<Dated>().unwrap().placed, time));
    }
}

/// From the beginning of 1601 to that of 1970, and from there to that of 10000.
const OLDEST: Duration = Duration::from_secs(11_644_473_600);
const NEWEST: Duration = Duration::from_secs(253_402_300_800);
const TICK: Duration = Duration::from_nanos(100);

#[test]
fn a_number_is_no_time() {
    let payload = 7_u64.to_le_bytes();
    let fields = &[FieldDefinition { name: "placed", ty: FieldType::UInt64, is_list: false }];
    read(&EventDefinition { fields, ..Dated::EVENT }, &payload, |event| {
        let expected = DecodeError::OtherType { event: "Dated", field: "placed" };
        assert_eq!(event.decode::<Dated>(), Err(expected));
    });
}

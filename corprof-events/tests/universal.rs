//! Events of whole machines, as `dotnet-trace collect-linux` writes them, and as they are written here.
#![allow(clippy::unwrap_used, reason = "a test that has no event fails")]

use corprof_events::universal::{
    ExistingProcess, Measured, ProcessCreate, ProcessMapping, ProcessMappingMetadata, ProcessSymbol, system_events,
};
use corprof_events::{DecodeError, Event, FieldList, Misfit, Provider, Text, Value};

fn system(id: u32, payload: &[u8]) -> Event<'_> {
    Event::new(Provider::of("Universal.System"), id, 0, payload, true)
}

#[test]
fn each_event_is_read_as_it_was_written() {
    let path = "/lib/größe.so";
    let mapping = ProcessMapping {
        id: 300,
        start_address: 0x7f00_0000_1000,
        end_address: u64::MAX,
        file_offset: 0,
        file_name: Text::from(path),
        metadata_id: 7,
    };
    let mut payload = Vec::new();
    mapping.write(&mut payload).unwrap();
    // As UniversalProviders.md of microsoft/perfview says: varuints, and texts after 16 bits of their length.
    let expected = [
        &[0xac, 0x02, 0x80, 0xa0, 0x80, 0x80, 0x80, 0xe0, 0x1f][..],
        &[[0xff; 9].as_slice(), &[1, 0]].concat(),
        &[15, 0],
        path.as_bytes(),
        &[7],
    ];
    assert_eq!(payload, expected.concat());
    let event = system(ProcessMapping::ID, &payload);
    assert_eq!(event.decode::<ProcessMapping<'_>>(), Ok(mapping));
    assert!(event.is_exact() && event.name() == "ProcessMapping");
    assert_eq!(event.field("FileName").and_then(Value::as_text), Some(Text::from(path)));
    assert_eq!(event.field("MetadataId").and_then(Value::as_u64), Some(7));
    assert_eq!(ProcessMapping::fields().to_string().matches("varuint").count(), 5);

    macro_rules! check {
        ($struct:ident { $($field:ident: $value:expr),* }) => {
            let value = $struct { $($field: $value),* };
            let mut payload = Vec::new();
            value.write(&mut payload).unwrap();
            let event = system($struct::ID, &payload);
            assert_eq!(event.decode::<$struct<'_>>(), Ok(value));
            assert!(event.is_exact() && event.name() == $struct::NAME);
            // With its own description under another provider, where nothing else is known.
            let (name, fields) = ($struct::NAME, Some($struct::fields()));
            let described = Event::new(Provider::of("Other"), 1, 0, &payload, true).with_description(name, fields);
            assert!(described.is_exact(), "{}", $struct::NAME);
            let shown = |event: &Event<'_>| {
                event.fields().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
            };
            assert_eq!(shown(&described), shown(&event));
            // The payload ends early.
            let event = system($struct::ID, &payload[..payload.len() - 1]);
            let error = event.decode::<$struct<'_>>();
            assert_eq!(error, Err(DecodeError::TooShort { event: $struct::NAME }));
        };
    }
    check!(ExistingProcess { namespace_id: 1, name: Text::from("shop"), namespace_name: Text::from("pod") });
    check!(ProcessCreate { namespace_id: 4711, name: Text::from(""), namespace_name: Text::from("x") });
    check!(ProcessSymbol {
        id: 1,
        mapping_id: 300,
        start_address: 16,
        end_address: 31,
        name: Text::from("Shop.Basket.Pay()")
    });
    let metadata = "{\"type\":\"ELF\",\"build_id\":\"00\"}";
    check!(ProcessMappingMetadata { id: 7, symbol_metadata: Text::from(metadata), version_metadata: Text::from("{}") });
    assert!(system_events().iter().zip(0..).all(|(event, id)| event.id() == id));
    assert_eq!(system(2, &[]).name(), "ProcessExit");
}

#[test]
fn descriptions_of_single_characters_are_not_believed() {
    // `collect-linux` describes a text as a unit of UTF-8, and writes more than it describes.
    let description = b"\x02\0\x04\0\x02Id\x15\x06\0\x04Name\x17";
    let (fields, rest) = FieldList::read_v6(description).unwrap();
    assert_eq!((fields.to_string().as_str(), rest.len()), ("Id: varuint, Name: utf8", 0));
    let symbol = ProcessSymbol { id: 1, mapping_id: 2, start_address: 3, end_address: 4, name: Text::from("main") };
    let mut payload = Vec::new();
    symbol.write(&mut payload).unwrap();
    payload.extend([0, 0, 0, 0]);
    let event = system(ProcessSymbol::ID, &payload).with_description("ProcessSymbol", Some(fields));
    assert_eq!(event.decode::<ProcessSymbol<'_>>(), Ok(symbol));
    assert_eq!(event.field("Name").and_then(Value::as_text), Some(Text::from("main")));
    assert!(!event.is_exact(), "something follows");
}

#[test]
fn samples_and_switches_are_told_apart_by_their_names() {
    let mut payload = Vec::new();
    Measured { value: 1_000_000 }.write(&mut payload);
    assert_eq!(payload, [0xc0, 0x84, 0x3d]);
    let event = Event::new(Provider::of("Universal.Events"), 17, 0, &payload, true)
        .with_description(Measured::CONTEXT_SWITCH, Some(Measured::fields()));
    assert_eq!(event.decode::<Measured>(), Ok(Measured { value: 1_000_000 }));
    assert!(event.is_exact() && event.name() == "cswitch");
    assert_eq!(event.field("Value").and_then(Value::as_u64), Some(1_000_000));
    let error = system(0, &payload).decode::<Measured>();
    assert_eq!(error, Err(DecodeError::OtherEvent { expected: "event of Universal.Events", id: 0 }));
}

#[test]
fn a_text_has_no_more_bytes_than_its_length_has_room_for() {
    let name = "x".repeat(65_536);
    let symbol =
        |name| ProcessSymbol { id: 1, mapping_id: 2, start_address: 3, end_address: 4, name: Text::from(name) };
    let error = symbol(name.as_str()).write(&mut Vec::new()).unwrap_err();
    assert_eq!((error.event, error.field, error.misfit), ("ProcessSymbol", "Name", Misfit::LongText));
    assert!(symbol(&name[1..]).write(&mut Vec::new()).is_ok());
}

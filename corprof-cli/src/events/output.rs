//! An event as a line.

use std::io::{self, Write};

use corprof_nettrace::events::{Event, Value};
use serde_json::{Map, json};

/// Writes a line.
pub(super) fn write(
    event: &corprof_nettrace::Event<'_>,
    decoded: &Event<'_>,
    is_json: bool,
    out: &mut impl Write,
) -> io::Result<()> {
    let milliseconds = event.since_start().as_secs_f64() * 1e3;
    let thread = event.os_thread_id().unwrap_or_default();
    if is_json {
        let line = json(decoded, milliseconds, thread);
        return writeln!(out, "{line}");
    }
    write_text(decoded, milliseconds, thread, out)
}

fn write_text(event: &Event<'_>, milliseconds: f64, thread: u64, out: &mut impl Write) -> io::Result<()> {
    write!(out, "{milliseconds:>12.3} ms  thread {thread:<8} {}", shown_name(event))?;
    for (name, value) in event.fields().filter(|(name, _)| *name != "ClrInstanceID") {
        write!(out, "  {name}={value}")?;
    }
    if !event.is_exact() {
        let bytes = Value::Bytes(event.payload());
        write!(out, "  bytes={bytes} (inexact)")?;
    }
    writeln!(out)
}

/// The name; with its provider where that is not the runtime, and the number where it has none.
fn shown_name(event: &Event<'_>) -> String {
    let name = event.name();
    let name = if name.is_empty() { format!("event {}", event.id()) } else { name.to_string() };
    let provider = event.provider();
    if provider == corprof_nettrace::events::Provider::RUNTIME { name } else { format!("{provider}/{name}") }
}

fn json(event: &Event<'_>, milliseconds: f64, thread: u64) -> serde_json::Value {
    let mut line = Map::new();
    line.insert("ms".into(), json!(milliseconds));
    line.insert("thread".into(), json!(thread));
    line.insert("provider".into(), json!(event.provider().name()));
    line.insert("id".into(), json!(event.id()));
    line.insert("version".into(), json!(event.version()));
    line.insert("event".into(), json!(event.name().to_string()));
    let fields: Map<String, serde_json::Value> =
        event.fields().map(|(name, field)| (name.to_string(), value(field))).collect();
    line.insert("fields".into(), fields.into());
    if !event.is_exact() {
        line.insert("exact".into(), json!(false));
        line.insert("bytes".into(), json!(Value::Bytes(event.payload()).to_string()));
    }
    line.into()
}

fn value(field: Value<'_>) -> serde_json::Value {
    match field {
        Value::Bool(value) => json!(value),
        Value::UInt(value) => json!(value),
        Value::Int(value) => json!(value),
        Value::Float(value) => json!(value),
        Value::Text(text) => json!(text.to_string()),
        Value::List(list) => list.iter().map(value).collect(),
        Value::Record(record) => record
            .fields()
            .map(|(name, field)| (name.to_string(), value(field)))
            .collect::<Map<String, serde_json::Value>>()
            .into(),
        // Addresses, GUIDs and bytes as text: JavaScript has no numbers of 64 bits.
        other => json!(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use corprof_nettrace::events::{FieldList, Provider};

    use super::*;

    #[test]
    fn an_event_is_a_line_of_json() {
        let payload = [0, 9, 0, 0x10, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0];
        let event = Event::new(Provider::RUNTIME, 81, 2, &payload, true);
        let line = json(&event, 1.5, 42);
        assert_eq!(line["event"], "ContentionStart");
        assert_eq!(line["fields"]["LockID"], "0x10");
        assert_eq!(line["fields"]["LockOwnerThreadID"], 7);
        assert_eq!((line.get("bytes"), line.get("exact")), (None, None));
        let unknown = json(&Event::new(Provider::of("X"), 1, 0, &[1, 2], true), 0.0, 0);
        assert_eq!((&unknown["bytes"], &unknown["event"]), (&json!("0102"), &json!("")));
        assert_eq!(shown_name(&Event::new(Provider::of("X"), 3, 0, &[], true)), "X/event 3");
    }

    #[test]
    fn what_the_fields_do_not_account_for_is_shown_as_bytes_with_a_mark() {
        let text = |event: &Event<'_>| {
            let mut line = Vec::new();
            write_text(event, 1.5, 42, &mut line).unwrap();
            String::from_utf8(line).unwrap()
        };
        // GCEnd of a runtime that has added a field.
        let payload = [7, 0, 0, 0, 2, 0, 0, 0, 9, 0, 0xaa];
        let newer = Event::new(Provider::RUNTIME, 2, 1, &payload, true);
        assert!(text(&newer).ends_with("GCEnd  Count=7  Depth=2  bytes=07000000020000000900aa (inexact)\n"));
        let line = json(&newer, 1.5, 42);
        assert_eq!(line["fields"]["Depth"], 2);
        assert_eq!((&line["exact"], &line["bytes"]), (&json!(false), &json!("07000000020000000900aa")));
        assert!(text(&Event::new(Provider::RUNTIME, 2, 1, &payload[..10], true)).ends_with("Depth=2\n"));

        // Described as having no fields, as an array of bytes is.
        let (none, _) = FieldList::read_v4(&[0; 4]);
        let undescribed = Event::new(Provider::of("Shop"), 2, 0, &[1, 0, 0, 0, 9], true).with_description("Raw", none);
        assert!(text(&undescribed).ends_with("Shop/Raw  bytes=0100000009 (inexact)\n"));
        let line = json(&undescribed, 1.5, 42);
        assert_eq!(
            (&line["fields"], &line["exact"], &line["bytes"]),
            (&json!({}), &json!(false), &json!("0100000009"))
        );
    }
}

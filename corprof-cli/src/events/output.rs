//! An event as a line.

use std::io::{self, Write};

use corprof_diagnostics::events::{Event, Value};
use corprof_diagnostics::nettrace;
use serde_json::{Map, json};

/// Writes a line.
pub(super) fn write(
    event: &nettrace::Event<'_>,
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
    write!(out, "{milliseconds:>12.3} ms  thread {thread:<8} {}", shown_name(decoded))?;
    for (name, value) in decoded.fields().filter(|(name, _)| *name != "ClrInstanceID") {
        write!(out, "  {name}={value}")?;
    }
    if !decoded.is_known() {
        let bytes = Value::Bytes(decoded.payload());
        write!(out, "  bytes={bytes}")?;
    }
    writeln!(out)
}

/// The name; with its provider where that is not the runtime, and the number where it has none.
fn shown_name(event: &Event<'_>) -> String {
    let name = event.name();
    let name = if name.is_empty() { format!("event {}", event.id()) } else { name.to_string() };
    let provider = event.provider();
    if provider == corprof_diagnostics::events::Provider::RUNTIME { name } else { format!("{provider}/{name}") }
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
    if !event.is_known() {
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
    use corprof_diagnostics::events::Provider;

    use super::*;

    #[test]
    fn an_event_is_a_line_of_json() {
        let payload = [0, 9, 0, 0x10, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0];
        let event = Event::new(Provider::RUNTIME, 81, 2, &payload, true);
        let line = json(&event, 1.5, 42);
        assert_eq!(line["event"], "ContentionStart");
        assert_eq!(line["fields"]["LockID"], "0x10");
        assert_eq!(line["fields"]["LockOwnerThreadID"], 7);
        let unknown = json(&Event::new(Provider::of("X"), 1, 0, &[1, 2], true), 0.0, 0);
        assert_eq!((&unknown["bytes"], &unknown["event"]), (&json!("0102"), &json!("")));
        assert_eq!(shown_name(&Event::new(Provider::of("X"), 3, 0, &[], true)), "X/event 3");
    }
}

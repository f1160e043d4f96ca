//! The text of a string is the runtime's own memory, and is borrowed for the length of the hook.
use corprof::values::{ReturnValue, StringRef, Value};
use corprof::prelude::*;

fn text(value: &ReturnValue<'_>) -> Option<&'static [u16]> {
    match value.get() {
        Some(Value::String(text)) => text.as_ref().map(StringRef::as_utf16),
        _ => None,
    }
}

fn main() {}

//! Trace events: JSON that Chrome's tracing page, speedscope and the Perfetto UI read.

use std::io::Write;
use std::time::Duration;

use super::{Lane, Short};

/// Ends the list of events.
pub(super) const TAIL: &[u8] = b"\n]\n";

#[derive(Debug)]
pub(super) struct Encoder {
    process: u32,
}

impl Encoder {
    /// Begins a file with the name of the process.
    pub(super) fn begin(buffer: &mut Vec<u8>, process: u32, name: &str) -> Self {
        let name = text(name);
        let _ = write!(
            buffer,
            "[\n{{\"ph\":\"M\",\"pid\":{process},\"tid\":0,\"ts\":0,\"name\":\"process_name\",\"args\":{{\"name\":{name}}}}}"
        );
        Self { process }
    }

    pub(super) fn thread(&self, buffer: &mut Vec<u8>, lane: &Lane, name: Option<&str>) {
        if let Some(name) = name.map(text) {
            self.event(buffer, 'M', lane, 0);
            let _ = write!(buffer, r#","name":"thread_name","args":{{"name":{name}}}}}"#);
        }
    }

    pub(super) fn begin_call(&self, buffer: &mut Vec<u8>, lane: &mut Lane, at: Duration, name: &str) {
        let at = lane.pass(at);
        self.event(buffer, 'B', lane, at);
        let _ = write!(buffer, r#","name":{}}}"#, text(name));
    }

    /// With the name once more: some readers take an end by its name.
    pub(super) fn end(&self, buffer: &mut Vec<u8>, lane: &mut Lane, at: Duration, name: &str, short: Short) {
        let at = lane.pass(at);
        self.event(buffer, 'E', lane, at);
        let _ = write!(buffer, r#","name":{}"#, text(name));
        arguments(buffer, short);
    }

    pub(super) fn short(&self, buffer: &mut Vec<u8>, lane: &mut Lane, at: Duration, short: Short) {
        let at = lane.pass(at);
        self.event(buffer, 'i', lane, at);
        let _ = write!(buffer, r#","s":"t","name":"short calls""#);
        arguments(buffer, short);
    }

    /// The format counts in microseconds; three digits after the point are nanoseconds.
    fn event(&self, buffer: &mut Vec<u8>, phase: char, lane: &Lane, at: u64) {
        let process = self.process;
        let thread = lane.os_id;
        let micros = at / 1000;
        let nanos = at % 1000;
        let _ = write!(buffer, ",\n{{\"ph\":\"{phase}\",\"pid\":{process},\"tid\":{thread},\"ts\":{micros}.{nanos:03}");
    }
}

fn arguments(buffer: &mut Vec<u8>, short: Short) {
    if short.calls > 0 {
        let calls = short.calls;
        let nanos = short.time.as_nanos();
        let _ = write!(buffer, r#","args":{{"short_calls":{calls},"short_calls_ns":{nanos}}}"#);
    }
    buffer.push(b'}');
}

/// A text always has a form in JSON.
fn text(text: &str) -> String {
    serde_json::to_string(text).unwrap_or_else(|_| "\"\"".to_owned())
}

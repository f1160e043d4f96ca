//! Reads the runtimes' own messages about profilers.
//!
//! A runtime writes such messages as events, into a file that environment variables name. No connection is
//! opened and nothing is suspended. A child process that inherits the variables writes its own file; one that
//! outlives `corprof` finds the folder gone and writes none.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::Path;

use anyhow::{Context, Result};
use corprof_diagnostics::{HResult, Provider};
use corprof_nettrace::Reader;

use crate::folder::Folder;

/// The runtime's own messages about profilers: their keyword and their event.
pub const KEYWORD: u64 = 0x200_0000_0000;
const PROFILER_MESSAGE: u32 = 299;

/// The messages of a process's runtime, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessMessages {
    /// The process id, in the process's own view.
    pub pid: u32,
    /// Its messages about profilers.
    pub messages: Vec<String>,
}

/// The state of one profiler in one process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The runtime has loaded it.
    Loaded,
    /// The runtime has not loaded it; its message has the reason.
    Failed(String),
    /// The runtime has no message about it.
    Silent,
}

/// A folder that runtimes write to. Dropping this value removes it.
#[derive(Debug)]
pub struct RuntimeMessages {
    folder: Folder,
}

impl RuntimeMessages {
    /// Makes the folder.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn new() -> Result<Self> {
        Ok(Self { folder: Folder::new().context("cannot make a folder for the runtimes' messages")? })
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The variables that make runtimes write into the folder. At their end they also write the names of all methods:
    /// the variable against that would take the names from all other sessions of the process, too.
    pub fn variables(&self) -> [(&'static str, OsString); 4] {
        let config = format!("{}:{KEYWORD:#x}:5", Provider::RUNTIME);
        [
            ("DOTNET_EnableEventPipe", "1".into()),
            ("DOTNET_EventPipeConfig", config.into()),
            ("DOTNET_EventPipeOutputPath", self.folder.path().join("{pid}.nettrace").into_os_string()),
            // A killed process has written its messages so far.
            ("DOTNET_EventPipeOutputStreaming", "1".into()),
        ]
    }

    /// The messages so far, by process id.
    ///
    /// # Errors
    /// If the folder cannot be read.
    pub fn by_process(&self) -> Result<Vec<ProcessMessages>> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir(self.folder.path()).context("cannot read the messages of the runtimes")? {
            let path = entry.context("cannot read the messages of the runtimes")?.path();
            let pid = path.file_stem().and_then(|stem| stem.to_str()?.parse().ok());
            if let (Some(pid), Ok(file)) = (pid, File::open(&path)) {
                found.push(ProcessMessages { pid, messages: messages(file) });
            }
        }
        found.sort_by_key(|messages| messages.pid);
        Ok(found)
    }
}

/// The messages about profilers in a trace, up to where it ends or is damaged.
pub fn messages(trace: impl io::Read) -> Vec<String> {
    let mut reader = Reader::new(trace);
    let mut messages = Vec::new();
    while let Ok(Some(event)) = reader.next_event() {
        if event.metadata().event_id == PROFILER_MESSAGE && event.metadata().provider == Provider::RUNTIME {
            messages.push(message(event.payload()));
        }
    }
    messages
}

/// The text of a message: the number of the runtime, then UTF-16 up to a zero.
fn message(payload: &[u8]) -> String {
    let units = payload.get(2..).unwrap_or_default().as_chunks::<2>().0;
    let units = units.iter().map(|unit| u16::from_le_bytes(*unit)).take_while(|unit| *unit != 0);
    let text: String = char::decode_utf16(units).map(|unit| unit.unwrap_or(char::REPLACEMENT_CHARACTER)).collect();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

impl ProcessMessages {
    /// The state of the profiler with this CLSID (in braces).
    pub fn verdict(&self, clsid: &str) -> Verdict {
        let clsid = clsid.to_lowercase();
        let about = || self.messages.iter().filter(|message| message.to_lowercase().contains(&clsid));
        if about().any(|message| is_success(message)) {
            return Verdict::Loaded;
        }
        // A message without a CLSID concerns all profilers.
        let others = self.messages.iter().filter(|message| !message.contains('{'));
        let failure = about().chain(others).find(|message| !is_success(message));
        failure.map_or(Verdict::Silent, |message| Verdict::Failed(message.clone()))
    }
}

/// The text has been the same since .NET Core 1, and there is no number in it.
fn is_success(message: &str) -> bool {
    message.contains("loaded successfully")
}

/// Messages whose number is more precise than the code in them.
const BY_NUMBER: [(&str, &str); 4] = [
    ("[0x2500]", "set CORECLR_PROFILER to the CLSID of the profiler, in braces"),
    ("[0x2502]", "set CORECLR_PROFILER to the CLSID of the profiler, in braces and with hyphens"),
    ("[0x2505]", "the profiler refused in its `initialize`: see its message on standard error"),
    (
        "[0x250a]",
        "a process has one main profiler: one beside it has the key `notification_only` in its `#[profiler(…)]`, and is named by --notification",
    ),
];

/// The cure for the code or the number in a runtime's message.
pub fn cure(message: &str) -> Option<&'static str> {
    let known = BY_NUMBER.iter().find(|(number, _)| message.contains(number));
    if let Some((_, cure)) = known {
        return Some(cure);
    }
    let hexadecimal = message.split("0x").skip(1).filter_map(|rest| {
        let digits: String = rest.chars().take_while(char::is_ascii_hexdigit).collect();
        (digits.len() == 8).then(|| u32::from_str_radix(&digits, 16).ok()).flatten()
    });
    hexadecimal.map(HResult).filter_map(HResult::hint).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLSID: &str = "{7B6E2C10-0F53-4D6B-9D2B-6C0A5B1E1301}";

    fn process_messages(messages: &[&str]) -> ProcessMessages {
        ProcessMessages { pid: 1, messages: messages.iter().map(|text| (*text).to_owned()).collect() }
    }

    #[test]
    fn a_verdict_is_about_one_profiler() {
        let loaded = "The profiler was loaded successfully. Profiler CLSID: '{7b6e2c10-0f53-4d6b-9d2b-6c0a5b1e1301}'.";
        let failed = "Loading profiler failed during instantiation. Profiler CLSID: \
                      '{7b6e2c10-0f53-4d6b-9d2b-6c0a5b1e1301}'. HRESULT: 0x8007007f. Message ID: [0x2504].";
        let other = "Loading profiler failed. Profiler CLSID: '{00000000-0000-0000-0000-000000000001}'.";
        assert_eq!(process_messages(&[other, loaded]).verdict(CLSID), Verdict::Loaded);
        assert_eq!(process_messages(&[failed]).verdict(CLSID), Verdict::Failed(failed.into()));
        assert_eq!(process_messages(&[other]).verdict(CLSID), Verdict::Silent);
        let general = "CORECLR_ENABLE_PROFILING was set properly, but CORECLR_PROFILER was not. [0x2500]";
        assert_eq!(process_messages(&[general]).verdict(CLSID), Verdict::Failed(general.into()));
        assert!(cure(failed).is_some_and(|cure| cure.contains("DllGetClassObject")));
        assert_eq!(cure(loaded), None);
    }

    #[test]
    fn a_message_is_utf_16() {
        let mut payload = vec![9, 0];
        payload.extend("a  b\n".encode_utf16().chain([0, 65]).flat_map(u16::to_le_bytes));
        assert_eq!(message(&payload), "a b");
        assert_eq!(message(&[1]), "");
    }
}

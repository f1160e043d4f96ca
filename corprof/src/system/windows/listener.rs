//! A named pipe.

use std::fs::File;
use std::io::{self, Read};
use std::os::windows::io::{AsRawHandle, FromRawHandle};
use std::thread;
use std::time::{Duration, Instant};

use windows_sys::Win32::Foundation::{ERROR_FILE_NOT_FOUND, ERROR_PIPE_CONNECTED, INVALID_HANDLE_VALUE};
use windows_sys::Win32::Storage::FileSystem::{FILE_FLAG_FIRST_PIPE_INSTANCE, PIPE_ACCESS_DUPLEX};
use windows_sys::Win32::System::Pipes::{
    ConnectNamedPipe, CreateNamedPipeW, PIPE_NOWAIT, PIPE_READMODE_BYTE, PIPE_REJECT_REMOTE_CLIENTS, PIPE_TYPE_BYTE,
    PIPE_UNLIMITED_INSTANCES, WaitNamedPipeW,
};

/// The time limit for a client's request.
const PATIENCE: Duration = Duration::from_secs(1);
/// The time between two reads, as this pipe does not wait for data.
const POLL: Duration = Duration::from_millis(5);
/// The size of the pipe's buffers: more than an answer.
const BUFFER: u32 = 1 << 14;

#[derive(Debug)]
pub(crate) struct Listener {
    name: Vec<u16>,
    pipe: File,
}

pub(crate) type Stream = File;

fn pipe(name: &[u16], flags: u32) -> io::Result<File> {
    let mode = PIPE_TYPE_BYTE | PIPE_READMODE_BYTE | PIPE_NOWAIT | PIPE_REJECT_REMOTE_CLIENTS;
    let access = PIPE_ACCESS_DUPLEX | flags;
    let most = PIPE_UNLIMITED_INSTANCES;
    // SAFETY: the name ends in a zero. Without attributes, the pipe gets the default rights, by which other users
    // cannot write.
    let handle = unsafe { CreateNamedPipeW(name.as_ptr(), access, mode, most, BUFFER, BUFFER, 0, std::ptr::null()) };
    if handle == INVALID_HANDLE_VALUE {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: just made, and this is its only owner.
    Ok(unsafe { File::from_raw_handle(handle) })
}

/// Whether there is a pipe of this name.
fn exists(name: &[u16]) -> bool {
    /// The shortest time to wait for an instance that serves nobody, in milliseconds.
    const SHORTEST: u32 = 1;
    // SAFETY: the name ends in a zero.
    let is_free = unsafe { WaitNamedPipeW(name.as_ptr(), SHORTEST) } != 0;
    is_free || io::Error::last_os_error().raw_os_error() != Some(ERROR_FILE_NOT_FOUND.cast_signed())
}

impl Listener {
    pub(crate) fn new(name: &str) -> io::Result<Self> {
        let name: Vec<u16> = format!(r"\\.\pipe\{name}").encode_utf16().chain([0]).collect();
        // Wine does not know the flag below.
        if exists(&name) {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        let pipe = pipe(&name, FILE_FLAG_FIRST_PIPE_INSTANCE)?;
        Ok(Self { name, pipe })
    }

    pub(crate) fn accept(&mut self, request: &[u8]) -> Option<Stream> {
        // SAFETY: the handle is open, and its operations are not overlapped.
        let is_new = unsafe { ConnectNamedPipe(self.pipe.as_raw_handle(), std::ptr::null_mut()) } != 0;
        let error = io::Error::last_os_error().raw_os_error();
        if !is_new && error != Some(ERROR_PIPE_CONNECTED.cast_signed()) {
            return None;
        }
        let mut read = vec![0; request.len()];
        let is_request = is_read(&mut self.pipe, &mut read) && read == request;
        // One instance of the pipe serves one client.
        let stream = std::mem::replace(&mut self.pipe, pipe(&self.name, 0).ok()?);
        is_request.then_some(stream)
    }
}

fn is_read(pipe: &mut File, mut buffer: &mut [u8]) -> bool {
    let start = Instant::now();
    while !buffer.is_empty() && start.elapsed() < PATIENCE {
        match pipe.read(buffer) {
            Ok(read @ 1..) => buffer = buffer.get_mut(read..).unwrap_or_default(),
            // No data yet, or the client has gone.
            _ => thread::sleep(POLL),
        }
    }
    buffer.is_empty()
}

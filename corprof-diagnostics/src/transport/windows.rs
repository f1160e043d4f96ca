//! Named pipes, by overlapped input and output: at the deadline, pending operations are cancelled.

#![expect(unsafe_code, reason = "the standard library has no named pipes with time-outs")]

use std::fs::{File, OpenOptions};
use std::io;
use std::os::windows::ffi::OsStrExt;
use std::os::windows::fs::OpenOptionsExt;
use std::os::windows::io::{AsRawHandle, FromRawHandle, OwnedHandle};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::thread;

use windows_sys::Win32::Foundation::{
    ERROR_BROKEN_PIPE, ERROR_FILE_NOT_FOUND, ERROR_IO_INCOMPLETE, ERROR_IO_PENDING, ERROR_NO_DATA, ERROR_PIPE_BUSY,
    ERROR_PIPE_CONNECTED, ERROR_PIPE_NOT_CONNECTED, HANDLE, INVALID_HANDLE_VALUE, TRUE, WAIT_TIMEOUT,
};
use windows_sys::Win32::Storage::FileSystem::{
    FILE_FLAG_FIRST_PIPE_INSTANCE, FILE_FLAG_OVERLAPPED, PIPE_ACCESS_DUPLEX, ReadFile, WriteFile,
};
use windows_sys::Win32::System::IO::{CancelIoEx, GetOverlappedResult, OVERLAPPED};
use windows_sys::Win32::System::Pipes::{
    ConnectNamedPipe, CreateNamedPipeW, PIPE_READMODE_BYTE, PIPE_REJECT_REMOTE_CLIENTS, PIPE_TYPE_BYTE,
    PIPE_UNLIMITED_INSTANCES, PIPE_WAIT, WaitNamedPipeW,
};
use windows_sys::Win32::System::ProcessStatus::K32EnumProcesses;
use windows_sys::Win32::System::Threading::{CreateEventW, INFINITE, WaitForSingleObject};

use super::RETRY;
use crate::deadline::Deadline;

/// How much the system keeps for a pipe of ours: a message.
const BUFFER: u32 = 1 << 16;

fn is_code(error: &io::Error, code: u32) -> bool {
    error.raw_os_error() == Some(code.cast_signed())
}

/// Starts an operation on `file` and waits for its end, which it cancels at the deadline. Answers with how many bytes
/// were transferred.
fn overlapped(
    file: &File,
    deadline: Deadline,
    start: impl FnOnce(HANDLE, *mut OVERLAPPED) -> i32,
) -> io::Result<usize> {
    deadline.left()?;
    // SAFETY: no name and no attributes; the event is closed by `OwnedHandle`.
    let event = unsafe { CreateEventW(std::ptr::null(), TRUE, 0, std::ptr::null()) };
    if event.is_null() {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: just made, and this is its only owner.
    let event = unsafe { OwnedHandle::from_raw_handle(event) };
    let mut operation = OVERLAPPED { hEvent: event.as_raw_handle(), ..OVERLAPPED::default() };
    let handle = file.as_raw_handle();
    if start(handle, &raw mut operation) == 0 {
        let error = io::Error::last_os_error();
        if !is_code(&error, ERROR_IO_PENDING) {
            return Err(error);
        }
    }
    let wait = deadline.left_at_most(std::time::Duration::from_millis(u64::from(INFINITE - 1)));
    // A deadline that passed meanwhile is not time to wait.
    let millis = wait.map_or(0, |wait| u32::try_from(wait.as_millis().max(1)).unwrap_or(INFINITE - 1));
    // SAFETY: the event is open.
    let timed_out = unsafe { WaitForSingleObject(event.as_raw_handle(), millis) } == WAIT_TIMEOUT;
    if timed_out {
        // SAFETY: the operation is on this handle; whether there still is anything to cancel is seen below.
        unsafe { CancelIoEx(handle, &raw const operation) };
    }
    let mut transferred = 0;
    // SAFETY: waits until the operation is over, cancelled or not: after it, nothing writes to `operation` or to the
    // caller's buffer.
    let done = unsafe { GetOverlappedResult(handle, &raw const operation, &raw mut transferred, TRUE) };
    if done != 0 {
        return Ok(transferred as usize);
    }
    let error = io::Error::last_os_error();
    debug_assert!(!is_code(&error, ERROR_IO_INCOMPLETE), "it has been waited for");
    Err(if timed_out { io::ErrorKind::TimedOut.into() } else { error })
}

fn wide(path: &Path) -> Vec<u16> {
    path.as_os_str().encode_wide().chain([0]).collect()
}

/// Whether there is a pipe of this name, without connecting to it.
pub(crate) fn pipe_exists(path: &Path) -> bool {
    const SHORTEST: u32 = 1;
    let name = wide(path);
    // SAFETY: the name ends in a zero.
    let is_free = unsafe { WaitNamedPipeW(name.as_ptr(), SHORTEST) } != 0;
    // One that serves another client is not free, and is there.
    is_free || !is_code(&io::Error::last_os_error(), ERROR_FILE_NOT_FOUND)
}

/// The numbers of all processes.
pub(crate) fn processes() -> io::Result<Vec<u32>> {
    let mut pids = vec![0_u32; 1024];
    loop {
        let size = u32::try_from(size_of_val(pids.as_slice())).map_err(io::Error::other)?;
        let mut filled = 0;
        // SAFETY: as many bytes as there are in the vector.
        if unsafe { K32EnumProcesses(pids.as_mut_ptr(), size, &raw mut filled) } == 0 {
            return Err(io::Error::last_os_error());
        }
        // A list that fills all of it may go on.
        if filled < size {
            pids.truncate(filled as usize / size_of::<u32>());
            return Ok(pids);
        }
        pids.resize(pids.len() * 2, 0);
    }
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Stream(File);

impl Stream {
    pub(crate) fn connect(path: &Path, deadline: Deadline) -> io::Result<Self> {
        loop {
            let opened = OpenOptions::new().read(true).write(true).custom_flags(FILE_FLAG_OVERLAPPED).open(path);
            match opened {
                // Another client has the pipe, and the next one is made when the runtime comes to it.
                Err(error) if is_code(&error, ERROR_PIPE_BUSY) => thread::sleep(deadline.left_at_most(RETRY)?),
                opened => return opened.map(Self),
            }
        }
    }

    pub(crate) fn read(&mut self, buffer: &mut [u8], deadline: Deadline) -> io::Result<usize> {
        let length = u32::try_from(buffer.len()).unwrap_or(u32::MAX);
        let read = overlapped(&self.0, deadline, |handle, operation| {
            // SAFETY: the buffer is borrowed until `overlapped` returns, and the operation is over then.
            unsafe { ReadFile(handle, buffer.as_mut_ptr(), length, std::ptr::null_mut(), operation) }
        });
        match read {
            // The other side has closed it.
            Err(error) if [ERROR_BROKEN_PIPE, ERROR_PIPE_NOT_CONNECTED].iter().any(|code| is_code(&error, *code)) => {
                Ok(0)
            }
            read => read,
        }
    }

    pub(crate) fn write(&mut self, bytes: &[u8], deadline: Deadline) -> io::Result<usize> {
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let written = overlapped(&self.0, deadline, |handle, operation| {
            // SAFETY: the bytes are borrowed until `overlapped` returns, and the operation is over then.
            unsafe { WriteFile(handle, bytes.as_ptr(), length, std::ptr::null_mut(), operation) }
        });
        match written {
            Err(error) if is_code(&error, ERROR_NO_DATA) => Err(io::ErrorKind::BrokenPipe.into()),
            written => written,
        }
    }
}

/// A pipe that runtimes connect to.
#[derive(Debug)]
pub(crate) struct Listener {
    path: PathBuf,
    /// The instance that waits for the next client. There always is one, so that none finds the pipe gone.
    next: Mutex<File>,
}

impl Listener {
    pub(crate) fn bind(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_owned(), next: Mutex::new(instance(path, FILE_FLAG_FIRST_PIPE_INSTANCE)?) })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn accept(&self, deadline: Deadline) -> io::Result<Stream> {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let connected = overlapped(&next, deadline, |handle, operation| {
            // SAFETY: the operation is over when `overlapped` returns.
            unsafe { ConnectNamedPipe(handle, operation) }
        });
        match connected {
            // It came before it was waited for.
            Err(error) if is_code(&error, ERROR_PIPE_CONNECTED) => {}
            // It came and went.
            Err(error) if is_code(&error, ERROR_NO_DATA) => {}
            connected => drop(connected?),
        }
        Ok(Stream(std::mem::replace(&mut next, instance(&self.path, 0)?)))
    }
}

/// An instance of the pipe, for one client of this machine.
fn instance(path: &Path, flags: u32) -> io::Result<File> {
    let name = wide(path);
    let mode = PIPE_TYPE_BYTE | PIPE_READMODE_BYTE | PIPE_WAIT | PIPE_REJECT_REMOTE_CLIENTS;
    let access = PIPE_ACCESS_DUPLEX | FILE_FLAG_OVERLAPPED | flags;
    // SAFETY: the name ends in a zero; without attributes only this user, the system and administrators may write.
    let handle = unsafe {
        CreateNamedPipeW(name.as_ptr(), access, mode, PIPE_UNLIMITED_INSTANCES, BUFFER, BUFFER, 0, std::ptr::null())
    };
    if handle == INVALID_HANDLE_VALUE {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: just made, and this is its only owner.
    Ok(unsafe { File::from_raw_handle(handle) })
}

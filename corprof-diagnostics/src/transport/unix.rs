//! Unix sockets. They do not block: `poll` waits until they are ready, up to the deadline.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::thread;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType};

use super::RETRY;
use crate::deadline::Deadline;

/// Waits until `fd` is ready for an event of `what`.
fn wait(fd: BorrowedFd<'_>, what: PollFlags, deadline: Deadline) -> io::Result<()> {
    loop {
        let left = deadline.left()?;
        let left = left.map(|left| Timespec::try_from(left).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput)));
        let mut fds = [PollFd::from_borrowed_fd(fd, what)];
        match poll(&mut fds, left.transpose()?.as_ref()) {
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Stream(OwnedFd);

impl Stream {
    pub(crate) fn connect(path: &Path, deadline: Deadline) -> io::Result<Self> {
        let fd = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None)?;
        rustix::io::fcntl_setfd(&fd, rustix::io::FdFlags::CLOEXEC)?;
        rustix::io::ioctl_fionbio(&fd, true)?;
        let (address, _folder) = address(path)?;
        loop {
            match rustix::net::connect(&fd, &address) {
                Ok(()) | Err(Errno::ISCONN) => return Ok(Self(fd)),
                Err(Errno::INPROGRESS | Errno::ALREADY) => wait(fd.as_fd(), PollFlags::OUT, deadline)?,
                // The queue of clients is full, and the system does not signal when it has room.
                Err(Errno::AGAIN) => thread::sleep(deadline.left_at_most(RETRY)?),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    pub(crate) fn read(&mut self, buffer: &mut [u8], deadline: Deadline) -> io::Result<usize> {
        loop {
            wait(self.0.as_fd(), PollFlags::IN, deadline)?;
            match rustix::io::read(&self.0, &mut *buffer) {
                Err(Errno::AGAIN | Errno::INTR) => {}
                read => return Ok(read?),
            }
        }
    }

    pub(crate) fn write(&mut self, bytes: &[u8], deadline: Deadline) -> io::Result<usize> {
        loop {
            wait(self.0.as_fd(), PollFlags::OUT, deadline)?;
            match send(&self.0, bytes) {
                Err(Errno::AGAIN | Errno::INTR) => {}
                written => return Ok(written?),
            }
        }
    }
}

/// Without the signal that a connection which the other side has closed would send.
#[cfg(not(target_vendor = "apple"))]
fn send(fd: &OwnedFd, bytes: &[u8]) -> rustix::io::Result<usize> {
    rustix::net::send(fd, bytes, rustix::net::SendFlags::NOSIGNAL)
}

/// Rust programs ignore that signal.
#[cfg(target_vendor = "apple")]
fn send(fd: &OwnedFd, bytes: &[u8]) -> rustix::io::Result<usize> {
    rustix::io::write(fd, bytes)
}

/// The address of a socket, and a file that must stay open while the address is used. An address has some 100 bytes at
/// most; on Linux a longer path is reached by way of its folder.
fn address(path: &Path) -> io::Result<(SocketAddrUnix, Option<File>)> {
    match (SocketAddrUnix::new(path), path.parent(), path.file_name()) {
        (Ok(address), ..) => Ok((address, None)),
        (Err(_), Some(folder), Some(name)) if cfg!(target_os = "linux") => {
            let folder = File::open(folder)?;
            let short = PathBuf::from(format!("/proc/self/fd/{}", folder.as_raw_fd())).join(name);
            Ok((SocketAddrUnix::new(short)?, Some(folder)))
        }
        (Err(error), ..) => Err(error.into()),
    }
}

/// A socket that runtimes connect to. It is removed with this value.
#[derive(Debug)]
pub(crate) struct Listener {
    listener: UnixListener,
    path: PathBuf,
}

impl Listener {
    pub(crate) fn bind(path: &Path) -> io::Result<Self> {
        let listener = UnixListener::bind(path)?;
        let listener = Self { listener, path: path.to_owned() };
        fs::set_permissions(path, Permissions::from_mode(0o600))?;
        listener.listener.set_nonblocking(true)?;
        Ok(listener)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn accept(&self, deadline: Deadline) -> io::Result<Stream> {
        loop {
            wait(self.listener.as_fd(), PollFlags::IN, deadline)?;
            match self.listener.accept() {
                Ok((stream, _)) => {
                    stream.set_nonblocking(true)?;
                    return Ok(Stream(stream.into()));
                }
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
                Err(error) => return Err(error),
            }
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // The file may be gone already; an error has no consequence.
        let _ = fs::remove_file(&self.path);
    }
}

//! A socket in the folder for temporary files.

use std::fs::{self, Permissions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::time::Duration;

/// The time limit for a client's request.
const PATIENCE: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct Listener {
    socket: UnixListener,
    path: PathBuf,
}

pub(crate) type Stream = UnixStream;

impl Listener {
    pub(crate) fn new(name: &str) -> io::Result<Self> {
        let path = std::env::temp_dir().join(name);
        let socket = match UnixListener::bind(&path) {
            // A process with the same id was killed and left its socket. A listener that sees no request goes on.
            Err(error) if error.kind() == ErrorKind::AddrInUse && UnixStream::connect(&path).is_err() => {
                fs::remove_file(&path)?;
                UnixListener::bind(&path)?
            }
            bound => bound?,
        };
        let listener = Self { socket, path };
        // Who may not write to the file cannot connect.
        fs::set_permissions(&listener.path, Permissions::from_mode(0o600))?;
        listener.socket.set_nonblocking(true)?;
        Ok(listener)
    }

    pub(crate) fn accept(&mut self, request: &[u8]) -> Option<Stream> {
        let (mut stream, _) = self.socket.accept().ok()?;
        let mut read = vec![0; request.len()];
        stream.set_nonblocking(false).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).ok()?;
        stream.set_write_timeout(Some(PATIENCE)).ok()?;
        stream.read_exact(&mut read).ok()?;
        (read == request).then_some(stream)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

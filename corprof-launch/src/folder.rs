//! A folder for temporary files, `/tmp/corprof-…`, that says whether the command lives that has made it.
//!
//! The command holds a lock on the file `owner` in the folder. The system ends the lock when the command ends, also by
//! `kill -9`: then an attached profiler, which looks at the lock, leaves (`profilers/library/lease.rs`), and the next
//! command removes the folder.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use tempfile::TempDir;

/// The beginning of the names of folders.
pub const PREFIX: &str = "corprof-";
/// The file with the lock.
pub const OWNER: &str = "owner";
/// The bytes of a short answer.
const ROOM: usize = 64 << 10;

/// A folder of this process. Dropping this value removes it.
#[derive(Debug)]
pub struct Folder {
    /// Closed before the folder is removed: Windows keeps open files.
    _owner: File,
    folder: TempDir,
}

impl Folder {
    /// Makes a folder, after removing those of this user's commands that were killed.
    ///
    /// # Errors
    /// If it cannot be made, or has no room; with the name of the place.
    pub fn new() -> io::Result<Self> {
        let parent = std::env::temp_dir();
        let made = Self::new_in(&parent);
        made.map_err(|error| {
            io::Error::new(error.kind(), format!("{}: {error} (TMPDIR names another place)", parent.display()))
        })
    }

    fn new_in(parent: &Path) -> io::Result<Self> {
        sweep(parent);
        Self::of(tempfile::Builder::new().prefix(PREFIX).tempdir_in(parent)?)
    }

    /// One that was made elsewhere.
    ///
    /// # Errors
    /// If nothing can be written there, or there is no room.
    pub fn of(folder: TempDir) -> io::Result<Self> {
        let owner = system::hold(folder.path())?;
        has_room(folder.path())?;
        Ok(Self { _owner: owner, folder })
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// Whether a short answer fits into a folder, and may be written there: a profiler that finds no room can tell nobody.
///
/// # Errors
/// If not.
pub fn has_room(folder: &Path) -> io::Result<()> {
    let mut trial = tempfile::tempfile_in(folder)?;
    trial.write_all(&[0; ROOM])
}

/// Removes the folders of commands that have ended without removing them, and the sockets of killed processes for
/// `corprof detach`. What cannot be removed stays.
fn sweep(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        #[cfg(unix)]
        if system::is_dead_socket(&entry) {
            let _ = fs::remove_file(entry.path());
            continue;
        }
        let is_ours = entry.file_name().to_string_lossy().starts_with(PREFIX)
            && entry.metadata().is_ok_and(|metadata| metadata.is_dir() && system::is_own(&metadata));
        if is_ours && system::is_abandoned(&entry.path().join(OWNER)) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(unix)]
mod system {
    use std::fs::{self, DirEntry, File, Metadata, Permissions};
    use std::io;
    use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
    use std::os::unix::net::UnixStream;
    use std::path::Path;

    use rustix::fs::{FlockOperation, flock};
    use rustix::process::geteuid;

    use super::OWNER;

    /// The beginning of a socket's name, before the process id (`corprof/src/detach/listen.rs`).
    const SOCKET: &str = "corprof-detach-";

    /// Makes the file under another name first: a file `owner` without a lock is that of a dead command.
    pub(super) fn hold(folder: &Path) -> io::Result<File> {
        let part = folder.join("owner.part");
        let file = File::create_new(&part)?;
        // A profiler looks at it, in a process that may be another user's.
        file.set_permissions(Permissions::from_mode(0o644))?;
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        fs::rename(part, folder.join(OWNER))?;
        Ok(file)
    }

    pub(super) fn is_own(metadata: &Metadata) -> bool {
        metadata.uid() == geteuid().as_raw()
    }

    /// Whether it is the socket of a process that has ended: no process has its number, and none that has another
    /// number here, in a container, answers.
    pub(super) fn is_dead_socket(entry: &DirEntry) -> bool {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.strip_prefix(SOCKET)?.parse::<u32>().ok());
        let Some(pid) = pid else { return false };
        let is_ours = entry.metadata().is_ok_and(|metadata| metadata.file_type().is_socket() && is_own(&metadata));
        if !is_ours || Path::new(&format!("/proc/{pid}")).exists() {
            return false;
        }
        let answer = UnixStream::connect(entry.path());
        answer.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
    }

    pub(super) fn is_abandoned(owner: &Path) -> bool {
        File::open(owner).is_ok_and(|file| flock(&file, FlockOperation::NonBlockingLockShared).is_ok())
    }
}

#[cfg(windows)]
mod system {
    use std::fs::{File, Metadata, OpenOptions};
    use std::io;
    use std::os::windows::fs::OpenOptionsExt;
    use std::path::Path;

    use super::OWNER;

    /// While this is open, others may read it but not open it for writing.
    const FILE_SHARE_READ: u32 = 1;

    pub(super) fn hold(folder: &Path) -> io::Result<File> {
        OpenOptions::new().write(true).create_new(true).share_mode(FILE_SHARE_READ).open(folder.join(OWNER))
    }

    /// Folders for temporary files are a user's own there.
    pub(super) fn is_own(_metadata: &Metadata) -> bool {
        true
    }

    pub(super) fn is_abandoned(owner: &Path) -> bool {
        OpenOptions::new().write(true).open(owner).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_dead_commands_are_removed_and_others_stay() {
        let parent = tempfile::tempdir().unwrap();
        let alive = Folder::new_in(parent.path()).unwrap();
        let dead = parent.path().join("corprof-dead");
        let of_others = parent.path().join("corprof-of-others");
        for folder in [&dead, &of_others] {
            fs::create_dir(folder).unwrap();
            fs::write(folder.join("file"), "").unwrap();
        }
        fs::write(dead.join(OWNER), "").unwrap();
        // No process has such a high number.
        let [socket, answering] =
            ["corprof-detach-4294967294", "corprof-detach-4294967295"].map(|name| parent.path().join(name));
        #[cfg(unix)]
        let _listener = {
            drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
            std::os::unix::net::UnixListener::bind(&answering).unwrap()
        };
        #[cfg(not(unix))]
        fs::write(&answering, "").unwrap();
        let next = Folder::new_in(parent.path()).unwrap();
        assert!(!dead.exists() && of_others.exists() && alive.path().exists() && next.path().exists());
        assert!(!socket.exists() && answering.exists());
        let path = next.path().to_owned();
        drop(next);
        assert!(!path.exists() && alive.path().exists());
    }
}

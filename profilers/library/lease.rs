//! The permission for an attached profiler to stay: the command that has attached it lives.
//!
//! The command holds a lock on the file `owner` in its folder (`corprof-launch/src/folder.rs`), which the system ends
//! with it.

use std::fs;
use std::path::{Path, PathBuf};

/// The beginning of the names of such folders.
const PREFIX: &str = "corprof-";
/// The file with the lock.
const OWNER: &str = "owner";

/// The lease of a command.
pub(crate) struct Lease {
    folder: PathBuf,
    owner: system::Owner,
}

impl Lease {
    /// The lease of the command whose file this is; none if somebody else has attached the profiler.
    pub(crate) fn of(file: &Path) -> Option<Self> {
        let folder = file.parent()?.to_owned();
        let is_of_command = folder.file_name()?.as_encoded_bytes().starts_with(PREFIX.as_bytes());
        let owner = system::Owner::of(&folder.join(OWNER)).filter(|_| is_of_command)?;
        Some(Self { folder, owner })
    }

    /// Whether the command has ended.
    pub(crate) fn is_over(&self) -> bool {
        self.owner.has_ended()
    }

    /// Removes the command's folder, which nobody reads any more. In a container or for another user it also has the
    /// library of this profiler, which the process has mapped.
    pub(crate) fn clear(&self) {
        // The next command may have removed the folder meanwhile, and have made one of the same name.
        if self.owner.is_still(&self.folder.join(OWNER)) {
            let _ = fs::remove_dir_all(&self.folder); // what another user has put there may stay
        }
    }
}

#[cfg(unix)]
mod system {
    use std::fs::{self, File};
    use std::os::unix::fs::MetadataExt;
    use std::path::Path;

    use rustix::fs::{FlockOperation, flock};

    pub(super) struct Owner(File);

    impl Owner {
        pub(super) fn of(file: &Path) -> Option<Self> {
            File::open(file).ok().map(Self)
        }

        pub(super) fn has_ended(&self) -> bool {
            flock(&self.0, FlockOperation::NonBlockingLockShared).is_ok()
        }

        /// Whether the file has this path. While this has the lock, no command removes the folder.
        pub(super) fn is_still(&self, file: &Path) -> bool {
            let (Ok(own), Ok(there)) = (self.0.metadata(), fs::symlink_metadata(file)) else { return false };
            (own.dev(), own.ino()) == (there.dev(), there.ino())
        }
    }
}

#[cfg(windows)]
mod system {
    use std::fs::OpenOptions;
    use std::io::ErrorKind;
    use std::path::{Path, PathBuf};

    pub(super) struct Owner(PathBuf);

    impl Owner {
        pub(super) fn of(file: &Path) -> Option<Self> {
            file.exists().then(|| Self(file.to_owned()))
        }

        /// While the command has it open, nobody may open it for writing.
        pub(super) fn has_ended(&self) -> bool {
            match OpenOptions::new().write(true).open(&self.0) {
                Ok(_) => true,
                Err(error) => error.kind() == ErrorKind::NotFound,
            }
        }

        /// Names of folders are not used twice there.
        pub(super) fn is_still(&self, file: &Path) -> bool {
            self.0 == file
        }
    }
}

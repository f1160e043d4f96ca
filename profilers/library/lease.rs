//! The permission for an attached profiler to stay: the command that has attached it lives.
//!
//! The command holds a lock on the file `owner` in its folder (`corprof-launch/src/folder.rs`), which the system ends
//! with it.

use std::fs;
use std::path::{Path, PathBuf};

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
        let owner = system::Owner::of(&folder.join(OWNER))?;
        Some(Self { folder, owner })
    }

    /// Whether the command has ended.
    pub(crate) fn is_over(&self) -> bool {
        self.owner.has_ended()
    }

    /// Removes the folder, which nobody reads any more: the profiler's files, which begin as `file` does, and the
    /// command's.
    pub(crate) fn clear(&self, file: &Path) {
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        for entry in fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            let entry_name = entry.file_name();
            let entry_name = entry_name.to_string_lossy();
            if entry_name.starts_with(&name) || entry_name == OWNER {
                let _ = fs::remove_file(entry.path());
            }
        }
        let _ = fs::remove_dir(&self.folder); // unless there are files of others
    }
}

#[cfg(unix)]
mod system {
    use std::fs::File;
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
    }
}

//! Folders of commands that were killed, whose profiler has not removed them: its process has ended too.
//!
//! They are another user's, who can put anything there, and move it at any time. So this removes nothing but names in
//! a folder that is open and is that user's: names that the user could have removed as well. It removes no folder that
//! has others in it.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use corprof_launch::folder::{OWNER, PREFIX};
use rustix::fs::{AtFlags, Dir, FileType, FlockOperation, Mode, OFlags, flock, fstat, openat, unlinkat};

/// A folder, neither followed by a link nor waited for.
const FOLDER: OFlags = OFlags::DIRECTORY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// The same of a file.
const FILE: OFlags = OFlags::NONBLOCK.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Removes those of this user in a place. What cannot be removed stays.
pub(super) fn sweep(parent: &OwnedFd, user: u32) {
    let Ok(names) = names_in(parent.as_fd()) else { return };
    for name in names.iter().filter(|name| name.as_bytes().starts_with(PREFIX.as_bytes())) {
        let Ok(folder) = openat(parent, name, FOLDER, Mode::empty()) else { continue };
        let is_of_user = fstat(&folder).is_ok_and(|status| status.st_uid == user);
        if is_of_user && remove_files(&folder).is_ok() {
            let _ = unlinkat(parent, name, AtFlags::REMOVEDIR);
        }
    }
}

/// Removes the files of a folder, if no command and no profiler has the lock of its owner.
fn remove_files(folder: &OwnedFd) -> io::Result<()> {
    let owner = openat(folder, OWNER, FILE, Mode::empty())?;
    if FileType::from_raw_mode(fstat(&owner)?.st_mode) != FileType::RegularFile {
        return Err(io::Error::other("it is not a lock"));
    }
    // Held until the folder is empty. A profiler that leaves holds the lock as well, and removes the folder itself.
    flock(&owner, FlockOperation::NonBlockingLockExclusive)?;
    for name in names_in(folder.as_fd())?.iter().filter(|name| name.as_bytes() != OWNER.as_bytes()) {
        unlinkat(folder, name, AtFlags::empty())?;
    }
    // The last one: without it nobody could know what the folder is.
    Ok(unlinkat(folder, OWNER, AtFlags::empty())?)
}

fn names_in(folder: BorrowedFd<'_>) -> io::Result<Vec<CString>> {
    let own = |name: &CStr| name == c"." || name == c"..";
    // The descriptor may be one that cannot be read.
    let readable = openat(folder, ".", FOLDER, Mode::empty())?;
    let mut names = Vec::new();
    for entry in Dir::new(readable)? {
        let entry = entry?;
        if !own(entry.file_name()) {
            names.push(entry.file_name().to_owned());
        }
    }
    Ok(names)
}

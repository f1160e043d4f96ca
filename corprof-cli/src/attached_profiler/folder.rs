//! The folder of an attached profiler: it writes there what the command reads.
//!
//! If the process has the files and the user of this command, it is a temporary folder. Else it is made where the
//! process has its temporary files, by way of `/proc/PID/root`, belongs to the user of the process, and has a copy of
//! the profiler's library, which the process may not find or read elsewhere. The command reaches it by an open
//! descriptor, so that it also removes it if the process has ended. It may be root's: it follows no link there and
//! waits for no pipe, for another user can put anything there. If the command is killed, the profiler removes the
//! folder (`profilers/library/lease.rs`), or else the next command that makes one in the same place (`abandoned`).

#[cfg(target_os = "linux")]
mod abandoned;

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use corprof_diagnostics::Process;
use corprof_launch::folder;

use crate::exit::Failure;
use crate::{complete, embedded};

/// The folder. Dropping this value removes it.
#[derive(Debug)]
pub(crate) struct Folder {
    /// Dropped before the descriptors, by way of which it removes the folder.
    made: folder::Folder,
    /// None if the process shares the files and the user of this command.
    guest: Option<Guest>,
}

/// How this command and the process name a folder of the process.
#[derive(Debug)]
struct Guest {
    here: PathBuf,
    inside: PathBuf,
    #[cfg(target_os = "linux")]
    _open: [std::os::fd::OwnedFd; 2],
}

impl Folder {
    /// A folder that the process can write to.
    ///
    /// # Errors
    /// If there is no place for one.
    pub(crate) fn new(process: &Process) -> Result<Self, Failure> {
        #[cfg(target_os = "linux")]
        if let Some(user) = guest::user_of_other(process.pid()) {
            return guest::folder(process.pid(), user);
        }
        let _ = process;
        let made = folder::Folder::new().context("cannot make a folder")?;
        Ok(Self { made, guest: None })
    }

    /// Whether the process has the files and the user of this command.
    pub(crate) fn is_shared(&self) -> bool {
        self.guest.is_none()
    }

    /// Its path for this command.
    pub(crate) fn here(&self) -> &Path {
        self.guest.as_ref().map_or(self.made.path(), |guest| &guest.here)
    }

    /// Its path for the process.
    pub(crate) fn inside(&self) -> &Path {
        self.guest.as_ref().map_or(self.made.path(), |guest| &guest.inside)
    }

    /// The path of a library for the process: that of a copy in the folder, if the process may not find or read the
    /// library itself.
    ///
    /// # Errors
    /// If it cannot be copied.
    pub(crate) fn library(&self, library: &Path) -> Result<PathBuf> {
        let Some(guest) = &self.guest else { return Ok(library.to_owned()) };
        let mut name = library.file_name().context("a library has a name")?.to_owned();
        if !embedded::is_library(library) {
            // Glibc takes a library of the same path for the same one, and this may be another build of it.
            name = [OsString::from(format!("{}-", std::process::id())), name].into_iter().collect();
        }
        copy(library, &guest.here.join(&name))
            .with_context(|| format!("cannot copy the profiler to {}", guest.here.display()))?;
        Ok(guest.inside.join(name))
    }

    /// For tests that need no process.
    #[cfg(test)]
    pub(crate) fn of_test() -> Self {
        Self { made: folder::Folder::new().unwrap(), guest: None }
    }
}

/// The path of a library for a process, and the folder that has it, if it is a copy.
///
/// # Errors
/// If the process needs a copy, and there is no place for one.
pub(crate) fn library_for(process: &Process, library: &Path) -> Result<(PathBuf, Option<Folder>), Failure> {
    if !needs_copies(process) {
        return Ok((library.to_owned(), None));
    }
    let folder = Folder::new(process)?;
    Ok((folder.library(library)?, Some(folder)))
}

/// Whether a process has other files or another user than this command.
pub(crate) fn needs_copies(process: &Process) -> bool {
    #[cfg(target_os = "linux")]
    return guest::user_of_other(process.pid()).is_some();
    #[cfg(not(target_os = "linux"))]
    {
        let _ = process;
        false
    }
}

/// Copies a library, so that everybody can load it.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let mut from = File::open(from)?;
    let mut to = make(to)?;
    io::copy(&mut from, &mut to)?;
    #[cfg(unix)]
    to.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
    Ok(())
}

/// Makes a file that is not there.
pub(crate) fn make(file: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).open(file)
}

/// Opens a file that is there, with these rights, and neither follows a link nor waits.
fn open(file: &Path, options: &mut OpenOptions) -> io::Result<File> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
        let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
        let file = options.custom_flags(flags.bits().cast_signed()).open(file)?;
        let metadata = file.metadata()?;
        // A second name may be that of somebody's secret.
        if metadata.is_file() && metadata.nlink() < 2 {
            return Ok(file);
        }
        Err(io::Error::new(io::ErrorKind::InvalidData, "it is not a file of the profiler's"))
    }
    #[cfg(not(unix))]
    options.open(file)
}

/// Opens a file of the folder, to overwrite it.
pub(crate) fn overwrite(file: &Path) -> io::Result<File> {
    let file = open(file, OpenOptions::new().write(true))?;
    file.set_len(0)?;
    Ok(file)
}

/// Opens a file of the folder, to read it.
pub(crate) fn reader(file: &Path) -> io::Result<File> {
    open(file, OpenOptions::new().read(true))
}

/// Reads a file of the folder.
pub(crate) fn read(file: &Path) -> io::Result<String> {
    let mut text = String::new();
    reader(file)?.read_to_string(&mut text)?;
    Ok(text)
}

/// Copies a file of the folder to a file of this command's user, which gets its name when it is complete.
///
/// # Errors
/// If one cannot be read, or the other not be written.
pub(crate) fn take(file: &Path, to: &Path) -> Result<()> {
    let mut from = reader(file).context("cannot read the file of the profiler")?;
    let part = complete::begin(to)?;
    io::copy(&mut from, &mut part.as_file()).with_context(|| format!("cannot write {}", to.display()))?;
    complete::end(part, to)
}

/// Folders of other users' processes, and of those that have files of their own.
#[cfg(target_os = "linux")]
mod guest {
    use std::ffi::OsStr;
    use std::os::fd::{AsRawFd, OwnedFd};
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::fchown;

    use anyhow::anyhow;
    use corprof_launch::processes;
    use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, StatVfsMountFlags};
    use tempfile::Builder;

    use super::*;
    use crate::{embedded, exit, inspect};

    /// Where a folder is made, after the place of the process's temporary files.
    const PLACES: [&str; 3] = ["/tmp", "/var/tmp", "/dev/shm"];

    /// The user and group of a process that has other files or another user than this command.
    pub(super) fn user_of_other(pid: u32) -> Option<(u32, u32)> {
        let user = processes::user_of(pid)?;
        let is_other = user.0 != rustix::process::geteuid().as_raw() || processes::has_own_files(pid);
        is_other.then_some(user)
    }

    /// A folder in the first place that takes one.
    pub(super) fn folder(pid: u32, user: (u32, u32)) -> Result<Folder, Failure> {
        let variables = inspect::started_with(pid).unwrap_or_default();
        let own = inspect::value_in(&variables, "TMPDIR").filter(|folder| folder.starts_with('/'));
        let mut places: Vec<&str> = own.into_iter().chain(PLACES).collect();
        places.dedup();
        let mut reasons = Vec::new();
        for place in places {
            match folder_in(pid, Path::new(place), user) {
                Ok(folder) => return Ok(folder),
                Err(error) => reasons.push(format!("{place}: {error}")),
            }
        }
        let cure = "mount a file system there that is neither read-only nor noexec, or run `corprof` as its user and in its container";
        let reasons = reasons.join("; ");
        Err(Failure::new(exit::NO, anyhow!("process {pid} has no folder for a profiler ({reasons}): {cure}")))
    }

    fn folder_in(pid: u32, place: &Path, (user, group): (u32, u32)) -> io::Result<Folder> {
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::openat(CWD, format!("/proc/{pid}/root"), flags | OFlags::PATH, Mode::empty())?;
        // Links lead where the process would be led.
        let place_flags = flags | OFlags::PATH;
        let parent = rustix::fs::openat2(&root, place, place_flags, Mode::empty(), ResolveFlags::IN_ROOT)?;
        if rustix::fs::fstatvfs(&parent)?.f_flag.contains(StatVfsMountFlags::NOEXEC) {
            return Err(io::Error::other("it is mounted noexec"));
        }
        // The name of one of them may be wanted again.
        abandoned::sweep(&parent, user);
        let here = path_of(&parent);
        let again =
            earlier(pid, place).and_then(|name| Builder::new().prefix(&name).rand_bytes(0).tempdir_in(&here).ok());
        let made = match again {
            Some(made) => made,
            None => Builder::new().prefix(folder::PREFIX).tempdir_in(&here)?,
        };
        let made = folder::Folder::of(made)?;
        let name = made.path().file_name().unwrap_or_default();
        let opened = rustix::fs::openat(&parent, name, flags | OFlags::NOFOLLOW, Mode::empty())?;
        fchown(&opened, Some(user), Some(group))?;
        let guest = Guest { here: path_of(&opened), inside: place.join(name), _open: [opened, parent] };
        Ok(Folder { made, guest: Some(guest) })
    }

    /// The name of the folder of an earlier visit, whose library is mapped: glibc knows it by its path, and maps no
    /// second one.
    fn earlier(pid: u32, place: &Path) -> Option<OsString> {
        let mapped = processes::mapped(pid)?;
        // Files are shown by their paths for this command or for the root of their mounts, which the process may have
        // changed.
        let root = std::fs::read_link(format!("/proc/{pid}/root")).ok()?;
        let place = root.join(place.strip_prefix("/").ok()?);
        let folders = mapped.iter().filter(|file| embedded::is_library(file)).filter_map(|library| library.parent());
        let names = folders.filter(|folder| folder.parent() == Some(&*place)).filter_map(Path::file_name);
        names.filter(|name| name.as_bytes().starts_with(folder::PREFIX.as_bytes())).map(OsStr::to_owned).next()
    }

    /// The path by which this process reaches what it has opened.
    fn path_of(open: &OwnedFd) -> PathBuf {
        format!("/proc/self/fd/{}", open.as_raw_fd()).into()
    }
}

#[cfg(all(test, unix))]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn no_link_and_no_pipe_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(name);
        fs::write(file("a"), "text").unwrap();
        assert_eq!(read(&file("a")).unwrap(), "text");
        std::os::unix::fs::symlink(file("a"), file("link")).unwrap();
        assert!(read(&file("link")).is_err() && overwrite(&file("link")).is_err() && make(&file("link")).is_err());
        rustix::fs::mkfifoat(rustix::fs::CWD, file("pipe"), rustix::fs::Mode::RUSR).unwrap();
        assert!(read(&file("pipe")).is_err());
        fs::hard_link(file("a"), file("second")).unwrap();
        assert!(read(&file("second")).is_err());
        assert!(take(&file("second"), &file("taken")).is_err());
        fs::remove_file(file("second")).unwrap();
        take(&file("a"), &file("taken")).unwrap();
        assert_eq!(fs::read_to_string(file("taken")).unwrap(), "text");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn abandoned_folders_are_removed_and_nothing_else() {
        use std::os::unix::fs::symlink;

        let place = tempfile::tempdir().unwrap();
        let user = rustix::process::geteuid().as_raw();
        let path = |name: &str| place.path().join(name);
        let folder_of_command = |name: &str| {
            fs::create_dir(path(name)).unwrap();
            for file in ["owner", "libcorprof_profilers-1.so", ".corprof-7.stop.8"] {
                fs::write(path(name).join(file), "").unwrap();
            }
        };
        for name in ["corprof-left", "corprof-with-folder", "corprof-no-lock", "corprof-locked", "other", "aim"] {
            folder_of_command(name);
        }
        symlink(path("aim/owner"), path("corprof-left/link")).unwrap();
        fs::create_dir(path("corprof-with-folder/inner")).unwrap();
        fs::remove_file(path("corprof-no-lock/owner")).unwrap();
        let lock = File::open(path("corprof-locked/owner")).unwrap();
        rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockShared).unwrap();
        symlink(path("aim"), path("corprof-link")).unwrap();
        fs::create_dir(path("corprof-linked-lock")).unwrap();
        symlink(path("aim/owner"), path("corprof-linked-lock/owner")).unwrap();
        fs::create_dir(path("corprof-pipe")).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, path("corprof-pipe/owner"), rustix::fs::Mode::RUSR).unwrap();
        let alive =
            folder::Folder::of(tempfile::Builder::new().prefix(folder::PREFIX).tempdir_in(place.path()).unwrap())
                .unwrap();
        let place_of = || File::open(place.path()).unwrap().into();

        abandoned::sweep(&place_of(), user + 1);
        assert!(path("corprof-left").exists(), "it is another user's");
        abandoned::sweep(&place_of(), user);
        assert!(!path("corprof-left").exists());
        assert!(path("corprof-with-folder/owner").exists(), "what is in it is unknown");
        assert!(path("corprof-no-lock/libcorprof_profilers-1.so").exists());
        assert!(path("corprof-locked/libcorprof_profilers-1.so").exists());
        assert!(path("corprof-link").exists() && path("corprof-linked-lock").exists() && path("corprof-pipe").exists());
        assert_eq!(fs::read_dir(path("aim")).unwrap().count(), 3);
        assert_eq!(fs::read_dir(path("other")).unwrap().count(), 3);
        assert!(alive.path().join(folder::OWNER).exists());

        drop(lock);
        abandoned::sweep(&place_of(), user);
        assert!(!path("corprof-locked").exists());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_folder_of_a_process_has_a_copy_and_is_removed() {
        let pid = std::process::id();
        let folder = guest::folder(pid, corprof_launch::processes::user_of(pid).unwrap()).unwrap();
        let library = tempfile::NamedTempFile::new().unwrap();
        let inside = folder.library(library.path()).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&inside).unwrap().permissions());
        assert_eq!(mode & 0o777, 0o755, "another user must read it");
        make(&folder.here().join("file")).unwrap();
        assert_eq!(read(&folder.inside().join("file")).unwrap(), "");
        let path = folder.inside().to_owned();
        assert!(path.is_dir());
        drop(folder);
        assert!(!path.exists());
    }
}

//! The library of the built-in profilers.

use std::env::consts::{DLL_PREFIX, DLL_SUFFIX};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use corprof_launch::image::Libc;
use corprof_launch::processes;
use corprof_profilers::table::{ALL, Profiler};
use etcetera::BaseStrategy;

/// What the build script embeds.
struct Embedded {
    bytes: &'static [u8],
    /// In hexadecimal digits.
    hash: &'static str,
}

/// The embedded library, if the build script made one.
static LIBRARY: Option<Embedded> = include!(concat!(env!("OUT_DIR"), "/library.rs"));

/// The library for the other C library of Linux, if the build was given one: for musl in a command for glibc.
static OTHER: Option<Embedded> = include!(concat!(env!("OUT_DIR"), "/other_library.rs"));

/// The C library that [`LIBRARY`] is for.
const OWN_LIBC: Libc = if cfg!(target_env = "musl") { Libc::Musl } else { Libc::Glibc };

/// Said where the build script was given none.
const WITHOUT: &str =
    "this `corprof` was built without the profilers that are usually in it: install it with the feature `profilers`";

/// An embedded library.
pub struct Library {
    /// A name for its file.
    pub file: String,
    /// What is in it.
    pub bytes: &'static [u8],
    /// The C library that it is for, on Linux.
    pub libc: Option<Libc>,
}

/// All embedded libraries, that for the C library of this command first.
///
/// # Errors
/// If this was built without.
pub fn all() -> Result<Vec<Library>> {
    let own = LIBRARY.as_ref().context(WITHOUT)?.bytes;
    if !cfg!(target_os = "linux") {
        return Ok(vec![Library {
            file: format!("{DLL_PREFIX}corprof_profilers{DLL_SUFFIX}"),
            bytes: own,
            libc: None,
        }]);
    }
    let other_libc = if OWN_LIBC == Libc::Glibc { Libc::Musl } else { Libc::Glibc };
    let library = |bytes: &'static [u8], libc: Libc| {
        let file = format!("{DLL_PREFIX}corprof_profilers-{libc}{DLL_SUFFIX}");
        Library { file, bytes, libc: Some(libc) }
    };
    Ok([Some(library(own, OWN_LIBC)), OTHER.as_ref().map(|other| library(other.bytes, other_libc))]
        .into_iter()
        .flatten()
        .collect())
}

/// Refuses a word that is neither a file nor the name of a built-in profiler.
///
/// # Errors
/// The error lists the names, and says which one is nearest.
pub fn refuse_unknown(library: &Path) -> Result<()> {
    // A path, or a file name with an extension, means a file: errors of files are then more to the point.
    let is_word = library.parent().is_some_and(|folder| folder.as_os_str().is_empty()) && library.extension().is_none();
    let (true, Some(word)) = (is_word, library.to_str()) else { return Ok(()) };
    if Profiler::named(library).is_some() || library.exists() {
        return Ok(());
    }
    let nearest = nearest(word).map_or_else(|| ".".to_owned(), |name| format!("; did you mean `{name}`?"));
    let names = ALL.map(|profiler| profiler.name).join(", ");
    bail!("there is no built-in profiler `{word}`, and no file of this name{nearest} The built-in ones are: {names}")
}

/// The name with the fewest edits, unless there are too many.
fn nearest(word: &str) -> Option<&'static str> {
    let word = word.to_lowercase();
    let distance = |name: &&str| strsim::damerau_levenshtein(&word, name);
    let best = ALL.iter().map(|profiler| profiler.name).min_by_key(distance)?;
    (distance(&best) <= word.len().max(3) / 3).then_some(best)
}

/// Whether this command was built with the library.
#[must_use]
pub fn is_there() -> bool {
    LIBRARY.is_some()
}

/// The library as a file, which runtimes can load: in the user's cache, under a name made of what is in it.
///
/// # Errors
/// If this was built without the library, or the cache cannot be written.
pub fn library() -> Result<PathBuf> {
    unpacked(LIBRARY.as_ref().context(WITHOUT)?)
}

/// The library for the C library that a process has mapped, if `library` is one of the built-in profilers; else
/// `library` itself.
///
/// # Errors
/// If the cache cannot be written.
pub fn for_process(library: PathBuf, pid: u32) -> Result<PathBuf> {
    let libc = processes::mapped(pid).and_then(|mapped| processes::libc_by_path(&mapped));
    match OTHER.as_ref().filter(|_| is_library(&library) && libc.is_some_and(|libc| libc != OWN_LIBC)) {
        Some(other) => unpacked(other),
        None => Ok(library),
    }
}

fn unpacked(library: &Embedded) -> Result<PathBuf> {
    let folder = cache()?.join("profilers");
    unpack(library, &folder).with_context(|| {
        format!("cannot unpack the profilers into {}: name another folder by CORPROF_CACHE", folder.display())
    })
}

/// Whether this is the file name of [`library`].
pub fn is_library(file: &Path) -> bool {
    let name = file.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
    name.starts_with(&format!("{DLL_PREFIX}corprof_profilers-"))
}

/// The folder of files that can be made again.
fn cache() -> Result<PathBuf> {
    if let Some(folder) = std::env::var_os("CORPROF_CACHE").filter(|folder| !folder.is_empty()) {
        return Ok(std::path::absolute(folder)?);
    }
    let folders = etcetera::choose_base_strategy()
        .context("there is no home folder to unpack the profilers into: name a folder by CORPROF_CACHE")?;
    Ok(folders.cache_dir().join("corprof"))
}

fn unpack(library: &Embedded, folder: &Path) -> Result<PathBuf> {
    let short = library.hash.get(..16).unwrap_or(library.hash);
    let file = folder.join(format!("{DLL_PREFIX}corprof_profilers-{short}{DLL_SUFFIX}"));
    fs::create_dir_all(folder)?;
    write(library.bytes, &file)?;
    Ok(file)
}

/// Whether a file has exactly this content.
fn holds(file: &Path, content: &[u8]) -> io::Result<bool> {
    let mut file = File::open(file)?;
    if file.metadata()?.len() != content.len() as u64 {
        return Ok(false);
    }
    let mut part = vec![0; 64 * 1024];
    for expected in content.chunks(part.len()) {
        let part = part.get_mut(..expected.len()).unwrap_or_default();
        file.read_exact(part)?;
        if part != expected {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Writes the library to this file, unless it is there.
///
/// # Errors
/// If the file cannot be written.
pub fn write(bytes: &[u8], file: &Path) -> Result<()> {
    let is_there = || holds(file, bytes).unwrap_or_default();
    if is_there() {
        return Ok(());
    }
    // Under another name first: another `corprof` may be reading, and a runtime must not load half a library.
    let mut part = tempfile::NamedTempFile::new_in(file.parent().context("no folder")?)?;
    part.write_all(bytes)?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        // The application may be started as another user.
        part.as_file().set_permissions(fs::Permissions::from_mode(0o755))?;
    }
    match part.persist(file) {
        Ok(_) => Ok(()),
        // Windows replaces no library that is loaded: somebody was faster.
        Err(_) if is_there() => Ok(()),
        Err(error) => Err(error.error.into()),
    }
}

#[cfg(test)]
mod tests {
    use corprof_launch::profiler;

    use super::*;

    #[test]
    fn a_library_is_unpacked_once_and_mended() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("not/there/yet");
        let library = Embedded { bytes: b"library", hash: "0123456789abcdef0" };
        let other = Embedded { bytes: b"another", hash: "f0123456789abcde0" };
        let file = unpack(&library, &folder).unwrap();
        let written = || fs::metadata(&file).unwrap().modified().unwrap();
        let before = written();
        assert_eq!(unpack(&library, &folder).unwrap(), file);
        assert_eq!(written(), before);
        for damaged in [&b"lib"[..], b"liberty", b"library and more"] {
            fs::write(&file, damaged).unwrap();
            assert_eq!(unpack(&library, &folder).unwrap(), file);
            assert_eq!(fs::read(&file).unwrap(), b"library");
        }
        assert_ne!(unpack(&other, &folder).unwrap(), file);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 2, "nothing is left over");
    }

    #[test]
    fn the_library_has_exactly_the_profilers_of_the_table() {
        let Some(library) = &LIBRARY else {
            assert!(!cfg!(feature = "profilers") || option_env!("CORPROF_BUNDLE").is_some());
            return;
        };
        let folder = tempfile::tempdir().unwrap();
        let found = profiler::profilers(&unpack(library, folder.path()).unwrap()).unwrap();
        let mut rows = ALL.map(|profiler| (profiler.type_name.to_owned(), profiler.clsid.to_owned()));
        rows.sort_unstable();
        assert_eq!(found.into_iter().map(|profiler| (profiler.name, profiler.clsid)).collect::<Vec<_>>(), rows);
    }

    #[test]
    fn a_misspelt_name_is_refused_with_the_nearest() {
        let refused = |word: &str| refuse_unknown(Path::new(word)).unwrap_err().to_string();
        for (word, nearest) in
            [("samplr", "sampler"), ("Sampler", "sampler"), ("exception", "exceptions"), ("timers", "timer")]
        {
            let text = refused(word);
            assert!(text.contains(&format!("no built-in profiler `{word}`")), "{text}");
            assert!(
                text.contains(&format!("did you mean `{nearest}`? The built-in ones are: sampler, timer,")),
                "{text}"
            );
        }
        let text = refused("heap");
        assert!(
            !text.contains("did you mean") && text.contains("of this name. The built-in ones are: sampler"),
            "{text}"
        );
        for file in ["sampler", "./samplr", "libsampler.so", "/samplr", "src"] {
            refuse_unknown(Path::new(file)).unwrap();
        }
    }
}

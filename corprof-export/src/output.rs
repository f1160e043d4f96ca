//! The file of a run: its name, and the treatment of an existing file.

use std::fs::{self, File, Metadata};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::{Error, Format, Profile};

/// The file that a run writes its profile to, once at its end or as a snapshot again and again.
///
/// `%p` in the name becomes the process id, and `%%` a percent sign. Snapshots replace each other, whole by whole. A
/// file that something else has written (an earlier run, or another process with the same name for its output) is kept:
/// it gets a number, `shop.1.html`, and [`write`](Self::write) says which.
///
/// ```
/// # use corprof_export::{Output, Profile, Unit};
/// # let dir = tempfile::tempdir()?;
/// # let folder = dir.path().display();
/// let mut output = Output::new(format!("{folder}/shop-%p.html"))?;
/// let profile = Profile::new("shop", Unit::Samples);
/// let written = output.write(&profile)?;
/// if let Some(earlier) = written.kept {
///     eprintln!("the file of another run is kept as {}", earlier.display());
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Output {
    path: PathBuf,
    format: Format,
    /// The stamp of the file after the last write of this output.
    own: Option<Stamp>,
}

/// The file that a run writes bit by bit, of whatever format.
///
/// Its name has the same placeholders as an [`Output`]'s, and a file of another run is kept in the same way.
#[derive(Debug)]
pub struct OutputFile {
    path: PathBuf,
}

impl OutputFile {
    /// A file by its name, with `%p` for the id of this process. Nothing is written yet.
    ///
    /// # Errors
    /// If there is no such folder.
    pub fn new(name: impl AsRef<Path>) -> Result<Self, Error> {
        let path = expanded(name.as_ref(), std::process::id());
        check_folder(&path)?;
        Ok(Self { path })
    }

    /// The file, with the process id in its name.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Creates the file, and says where the file of another run is now, if there was one.
    ///
    /// # Errors
    /// If the file cannot be created or the earlier one cannot be renamed.
    pub fn create(&self) -> Result<(File, Option<PathBuf>), Error> {
        let is_there = fs::metadata(&self.path).is_ok_and(|found| found.is_file());
        let kept = if is_there { Some(keep(&self.path)?) } else { None };
        let file = File::create_new(&self.path);
        let file = file.map_err(|source| Error::Create { path: self.path.clone(), source })?;
        Ok((file, kept))
    }
}

/// Reports obstacles to a later file, as far as they can be detected without writing.
fn check_folder(path: &Path) -> Result<(), Error> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let source = match fs::metadata(folder) {
        Ok(found) if found.is_dir() => return Ok(()),
        Ok(_) => std::io::ErrorKind::NotADirectory.into(),
        Err(source) => source,
    };
    Err(Error::Create { path: path.to_owned(), source })
}

/// Identifies a version of a file: its size and time.
type Stamp = (u64, Option<SystemTime>);

/// The result of [`Output::write`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Written {
    /// The format, as the extension says.
    pub format: Format,
    /// Where the file of another run is now, if there was one.
    pub kept: Option<PathBuf>,
}

impl Output {
    /// A file by its name, with `%p` for the id of this process. Nothing is written yet. Obstacles to a later write are
    /// reported now, as far as they can be detected without writing.
    ///
    /// # Errors
    /// If the extension is unknown, or there is no such folder.
    pub fn new(name: impl AsRef<Path>) -> Result<Self, Error> {
        let path = expanded(name.as_ref(), std::process::id());
        let format = Format::of_path(&path)?;
        check_folder(&path)?;
        Ok(Self { path, format, own: None })
    }

    /// The file, with the process id in its name.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The format that its extension asks for.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Writes the profile. A file that this output has written is replaced; a file from elsewhere is kept under
    /// another name.
    ///
    /// # Errors
    /// If the file cannot be written or the earlier one cannot be renamed; files are then as they were.
    pub fn write(&mut self, profile: &Profile) -> Result<Written, Error> {
        let kept = match fs::metadata(&self.path) {
            Ok(found) if found.is_file() && Some(stamp(&found)) != self.own => Some(keep(&self.path)?),
            _ => None,
        };
        profile.write(&self.path)?;
        self.own = fs::metadata(&self.path).ok().as_ref().map(stamp);
        Ok(Written { format: self.format, kept })
    }
}

/// Moves the existing file to the first free number. An empty file reserves the new name, so that no two
/// processes take the same.
fn keep(existing: &Path) -> Result<PathBuf, Error> {
    let failed = |source| Error::Write { path: existing.to_owned(), source };
    for number in 1u32.. {
        let path = numbered(existing, number);
        // Closed at once: Windows renames nothing over an open file.
        match File::create_new(&path).map(drop) {
            Ok(()) => {
                return match fs::rename(existing, &path) {
                    Ok(()) => Ok(path),
                    Err(source) => {
                        // The file is empty, and was made here.
                        let _ = fs::remove_file(&path);
                        Err(failed(source))
                    }
                };
            }
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(source) => return Err(failed(source)),
        }
    }
    Err(failed(std::io::ErrorKind::AlreadyExists.into()))
}

fn stamp(found: &Metadata) -> Stamp {
    (found.len(), found.modified().ok())
}

/// The name with its placeholders filled in. Only the last component has any: folders are the user's.
fn expanded(path: &Path, process: u32) -> PathBuf {
    let Some(name) = path.file_name().and_then(|name| name.to_str()).filter(|name| name.contains('%')) else {
        return path.to_owned();
    };
    // A percent sign before any other letter stands for itself.
    let mut filled = String::with_capacity(name.len() + 8);
    let mut rest = name;
    while let Some((before, after)) = rest.split_once('%') {
        filled.push_str(before);
        rest = match after.chars().next() {
            Some('p') => {
                filled.push_str(&process.to_string());
                after.get(1..).unwrap_or_default()
            }
            Some('%') => {
                filled.push('%');
                after.get(1..).unwrap_or_default()
            }
            _ => {
                filled.push('%');
                after
            }
        };
    }
    filled.push_str(rest);
    path.with_file_name(filled)
}

/// `shop.html` as `shop.1.html`, `shop.speedscope.json` as `shop.1.speedscope.json`.
fn numbered(path: &Path, number: u32) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let extension = match Format::ending_of(&name) {
        0 => other_ending_of(path),
        known => known,
    };
    let stem = name.get(..name.len() - extension).unwrap_or(&name);
    let ending = name.get(name.len() - extension..).unwrap_or_default();
    path.with_file_name(format!("{stem}.{number}{ending}"))
}

/// How many bytes at the end of a file's name are an extension that is of no profile's format. That of a compressed file
/// has two parts.
fn other_ending_of(path: &Path) -> usize {
    let length = |path: &Path| path.extension().map_or(0, |extension| 1 + extension.len());
    let is_packed = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gz"));
    let inner = if is_packed { length(&path.with_extension("")) } else { 0 };
    inner + length(path)
}

/// The name of the application that this process runs: that of the program, or of the assembly that `dotnet` runs.
///
/// Made for profilers, which are loaded into the application. The answer is for people; it never fails, and is
/// `application` if the system does not show it.
pub fn application_name() -> String {
    name_of(&arguments())
}

/// The command line of the process, also for a library, which gets no arguments.
fn arguments() -> Vec<String> {
    #[cfg(target_os = "linux")]
    if let Ok(line) = fs::read("/proc/self/cmdline") {
        return line.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect();
    }
    std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect()
}

fn name_of(arguments: &[String]) -> String {
    let file = |path: &str| path.rsplit(['/', '\\']).next().unwrap_or_default().to_owned();
    let without = |name: String, ending: &str| {
        let length = name.len().saturating_sub(ending.len());
        let ends = name.get(length..).is_some_and(|end| end.eq_ignore_ascii_case(ending));
        if ends { name.get(..length).unwrap_or_default().to_owned() } else { name }
    };
    let program = without(file(arguments.first().map_or("", |program| program)), ".exe");
    let is_host = program.eq_ignore_ascii_case("dotnet") || program.eq_ignore_ascii_case("corerun");
    let assembly = arguments.iter().skip(1).map(|word| file(word)).find(|word| {
        let lower = word.to_ascii_lowercase();
        lower.ends_with(".dll") || lower.ends_with(".exe")
    });
    let name = match assembly.filter(|_| is_host) {
        Some(assembly) => without(without(assembly, ".dll"), ".exe"),
        None => program,
    };
    if name.is_empty() { "application".to_owned() } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_filled_in_the_last_component() {
        let is = |name: &str, file: &str| assert_eq!(expanded(Path::new(name), 77), Path::new(file));
        is("/tmp/%p/shop-%p.html", "/tmp/%p/shop-77.html");
        is("100%%-%x-%p%", "100%-%x-77%");
        is("shop.svg", "shop.svg");
    }

    #[test]
    fn numbers_go_before_the_whole_extension() {
        let is = |name: &str, file: &str| assert_eq!(numbered(Path::new(name), 2), Path::new(file));
        is("/a.b/shop.html", "/a.b/shop.2.html");
        is("shop.speedscope.json.gz", "shop.2.speedscope.json.gz");
        is("SHOP.PB.GZ", "SHOP.2.PB.GZ");
        is("shop.nettrace", "shop.2.nettrace");
        is("my.shop.nettrace.gz", "my.shop.2.nettrace.gz");
    }

    #[test]
    fn the_application_is_what_dotnet_runs() {
        let name = |line: &str| name_of(&line.split(' ').map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(name("/usr/bin/dotnet exec --roll-forward Major /app/Shop.Web.dll --urls x"), "Shop.Web");
        assert_eq!(name("dotnet Hello.exe"), "Hello");
        assert_eq!(name("C:\\Apps\\Shop.exe plugin.dll"), "Shop");
        assert_eq!(name("/app/shop"), "shop");
        assert_eq!(name("dotnet"), "dotnet");
        assert_eq!(name(""), "application");
    }
}

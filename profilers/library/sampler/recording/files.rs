//! The files of a recording that begins a new one again and again, and removes the oldest.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use corprof::prelude::*;
use corprof_export::OutputFile;
use corprof_nettrace::UtcTime;
use corprof_profilers::settings::{SettingError, Settings};
use corprof_profilers::{RECORDINGS, is_packed_recording};

use super::whole_blocks::WholeBlocks;

/// When a file is closed, and how many are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::sampler) struct Rotation {
    /// None: a file may last for ever.
    pub(super) period: Option<Duration>,
    /// In bytes. None: it may have any.
    pub(super) largest: Option<u64>,
    /// With the one that is written.
    pub(super) keep: usize,
}

/// The least bytes that a file may be limited to: a fourth of it is kept free for the end.
const SMALLEST: u64 = 1_000_000;

impl Rotation {
    /// The setting; none if there is one file.
    pub(in crate::sampler) fn read(settings: &Settings, is_recording: bool) -> Result<Option<Self>, SettingError> {
        let period = settings.of("SAMPLER_LOOP");
        let largest = settings.of("SAMPLER_MAX_SIZE");
        let keep = settings.of("SAMPLER_KEEP");
        let rotation = Self {
            period: Some(Duration::from_secs_f64(period.number()?)).filter(|period| !period.is_zero()),
            largest: Some(largest.number()?).filter(|bytes| *bytes > 0),
            keep: keep.number()?,
        };
        let is_wanted = rotation.period.is_some() || rotation.largest.is_some();
        if is_wanted && !is_recording {
            let wrong = if rotation.period.is_some() { period } else { largest };
            return Err(wrong.error("only a recording is cut into files: give a file that ends in .nettrace"));
        }
        if rotation.largest.is_some_and(|bytes| bytes < SMALLEST) {
            return Err(largest.error(format_args!("give at least {SMALLEST}, or 0")));
        }
        if keep.is_given() && !is_wanted {
            return Err(keep.error("there is one file: set SAMPLER_LOOP or SAMPLER_MAX_SIZE, or unset this"));
        }
        Ok(Some(rotation).filter(|_| is_wanted))
    }

    /// Whether a file that is full ends the recording: it is the only one to keep.
    pub(super) fn ends_when_full(&self) -> bool {
        self.keep == 1
    }
}

/// The files.
pub(super) struct Files {
    base: OutputFile,
    rotation: Option<Rotation>,
    /// The oldest first.
    kept: VecDeque<PathBuf>,
    removed: u64,
}

impl Files {
    pub(super) fn new(base: OutputFile, rotation: Option<Rotation>) -> Self {
        Self { base, rotation, kept: VecDeque::new(), removed: 0 }
    }

    pub(super) fn rotation(&self) -> Option<Rotation> {
        self.rotation
    }

    /// The newest file, or the one that will be written.
    pub(super) fn path(&self) -> &Path {
        self.kept.back().map_or(self.base.path(), PathBuf::as_path)
    }

    /// The files that are there, the oldest first.
    pub(super) fn kept(&self) -> impl Iterator<Item = &Path> {
        self.kept.iter().map(PathBuf::as_path)
    }

    /// How many were removed.
    pub(super) fn removed(&self) -> u64 {
        self.removed
    }

    /// Creates the next file, whose contents begin at this time, and removes the oldest before that if there would be
    /// too many.
    pub(super) fn create(&mut self, time: SystemTime) -> Result<WholeBlocks, BoxError> {
        let Some(rotation) = self.rotation else {
            let (file, kept) = self.base.create()?;
            if let Some(kept) = kept {
                report!("sampler: the file of another run is kept as {}", kept.display());
            }
            self.kept.push_back(self.base.path().to_owned());
            return Ok(WholeBlocks::new(file, is_packed_recording(self.base.path())));
        };
        while self.kept.len() >= rotation.keep
            && let Some(oldest) = self.kept.pop_front()
        {
            match fs::remove_file(&oldest) {
                // Somebody has taken it.
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(format!("{} cannot be removed: {error}", oldest.display()).into());
                }
                _ => self.removed += 1,
            }
        }
        let time = UtcTime::from_system_time(time).ok_or("the clock of the system is not set")?;
        let mut number = 1;
        loop {
            let path = named(self.base.path(), time, number);
            match File::create_new(&path) {
                // The one before was full within the second, or it is another run's.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
                Err(error) => return Err(format!("{} cannot be created: {error}", path.display()).into()),
                Ok(file) => {
                    self.kept.push_back(path);
                    return Ok(WholeBlocks::new(file, is_packed_recording(self.base.path())));
                }
            }
        }
    }
}

/// `app.nettrace` becomes `app-20261127T141503Z.nettrace`, with a number if that is taken: names are in order of time.
fn named(base: &Path, time: UtcTime, number: u32) -> PathBuf {
    let UtcTime { year, month, day, hour, minute, second, .. } = time;
    let [packed, plain] = RECORDINGS;
    let (stem, ending) = match is_packed_recording(base) {
        true => (base.with_extension("").with_extension(""), packed),
        false => (base.with_extension(""), plain),
    };
    let mut name = stem.file_name().unwrap_or_default().to_owned();
    name.push(format!("-{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}Z"));
    if number > 1 {
        name.push(format!("_{number}"));
    }
    name.push(ending);
    base.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_of_too_many_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let base = OutputFile::new(folder.path().join("app.nettrace")).unwrap();
        let rotation = Rotation { period: Some(Duration::from_secs(1)), largest: None, keep: 2 };
        let mut files = Files::new(base, Some(rotation));
        let time = |seconds: u64| SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_788_000 + seconds);
        for seconds in [0, 0, 5] {
            files.create(time(seconds)).unwrap();
        }
        let mut names: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
        names.sort();
        assert_eq!(files.kept().collect::<Vec<_>>(), names, "in order of time");
        assert_eq!((names.len(), files.removed()), (2, 1));
        assert!(names[0].ends_with("app-20261127T140000Z_2.nettrace"), "{names:?}");
        assert_eq!(files.path(), names[1]);
    }

    #[test]
    fn names_keep_their_ending() {
        let time = UtcTime::from_system_time(SystemTime::UNIX_EPOCH).unwrap();
        let is = |base: &str, number, name: &str| assert_eq!(named(Path::new(base), time, number), Path::new(name));
        is("/a/my.app.nettrace", 1, "/a/my.app-19700101T000000Z.nettrace");
        is("/a/my.app.nettrace.gz", 2, "/a/my.app-19700101T000000Z_2.nettrace.gz");
    }
}

//! Recordings in files that follow each other: the options, and which files there are.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::anyhow;

use crate::attached_profiler;
use crate::exit::{self, Failure};
use crate::options;

/// The least size of a file: the sampler refuses a lower limit.
const SMALLEST: u64 = 1_000_000;

/// The options.
#[derive(Debug, clap::Args)]
pub(super) struct Rotation {
    /// For days: begin a new recording (.nettrace) after this time, such as 90s, 5m or 1h. Files are named
    /// app-PID-TIME.nettrace, by the UTC of their begin
    #[arg(long = "loop", value_name = "TIME", value_parser = options::seconds)]
    period: Option<f64>,

    /// Begin a new recording (.nettrace) before a file has more bytes than this, such as 100M or 2G. With --keep 1 the
    /// recording ends then
    #[arg(long, value_name = "SIZE", value_parser = options::bytes)]
    max_size: Option<u64>,

    /// How many files of this run are kept, with the one that is written: before there are more, the oldest is removed.
    /// Default: 24
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    keep: Option<u32>,
}

impl Rotation {
    /// Whether there may be several files.
    pub(super) fn is_wanted(&self) -> bool {
        self.period.is_some() || self.max_size.is_some()
    }

    /// Refuses options that contradict each other, or the file.
    pub(super) fn check(&self, is_recording: bool) -> Result<(), Failure> {
        let wrong = |text: String| Err(Failure::new(exit::USAGE, anyhow!(text)));
        if self.keep.is_some() && !self.is_wanted() {
            return wrong("--keep needs --loop TIME or --max-size SIZE: else there is one file".to_owned());
        }
        if self.is_wanted() && !is_recording {
            let option = if self.period.is_some() { "--loop" } else { "--max-size" };
            return wrong(format!("{option} needs a recording: give it a file, such as -o app.nettrace"));
        }
        if let Some(size) = self.max_size.filter(|size| *size < SMALLEST) {
            return wrong(format!("--max-size {size} is too small: give at least 1M"));
        }
        if self.period.is_some_and(|seconds| seconds < 1.0) {
            return wrong("--loop is too short: give at least 1s".to_owned());
        }
        Ok(())
    }

    /// The variables of the sampler.
    pub(super) fn settings(&self) -> Vec<(&'static str, OsString)> {
        let all = [
            ("SAMPLER_LOOP", self.period.map(|seconds| seconds.to_string())),
            ("SAMPLER_MAX_SIZE", self.max_size.map(|size| size.to_string())),
            ("SAMPLER_KEEP", self.keep.map(|count| count.to_string())),
        ];
        all.into_iter().filter_map(|(name, value)| Some((name, value?.into()))).collect()
    }
}

/// The variables that the shell may have for another run.
pub(super) const VARIABLES: [&str; 3] = ["SAMPLER_LOOP", "SAMPLER_MAX_SIZE", "SAMPLER_KEEP"];

/// The names of the files that a sampler has told of beside its stop file, the oldest first.
pub(super) fn files(answer: &Path) -> Vec<PathBuf> {
    let mut list = answer.as_os_str().to_owned();
    list.push(".files");
    let text = attached_profiler::folder::read(Path::new(&list)).unwrap_or_default();
    // It may come from another user's process: a name is taken, and no path.
    text.lines().filter_map(|line| Some(Path::new(line).file_name()?.into())).collect()
}

#[cfg(test)]
mod tests {
    use corprof_profilers::table::SAMPLER;

    use super::*;

    #[test]
    fn variables_are_those_of_the_sampler() {
        assert!(VARIABLES.iter().all(|name| SAMPLER.setting(name).is_some()));
        let rotation = Rotation { period: Some(3600.0), max_size: Some(SMALLEST), keep: Some(2) };
        let names: Vec<_> = rotation.settings().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, VARIABLES);
    }

    #[test]
    fn files_are_names() {
        let folder = tempfile::tempdir().unwrap();
        let answer = folder.path().join("stop.7");
        assert!(files(&answer).is_empty());
        std::fs::write(folder.path().join("stop.7.files"), "/x/a.nettrace\n/x/../../etc/b.nettrace\n/\n").unwrap();
        assert_eq!(files(&answer), [Path::new("a.nettrace"), Path::new("b.nettrace")]);
    }
}

//! Settings of a profiler: environment variables, checked when the profiler starts.
//!
//! Environment variables both load and configure a profiler. Report a wrong one at once, with the variable, its value and the
//! cure, and not when the application ends and its profile cannot be written:
//!
//! ```
//! use corprof::{prelude::*, settings::Setting, sampler::Mode};
//!
//! fn settings() -> Result<(Mode, f64), BoxError> {
//!     let mode = Setting::of("PEEK_MODE").word(&[("cpu", Mode::Cpu), ("wall", Mode::Wall)])?;
//!     let hertz = Setting::of("PEEK_HZ").number(100.0, 0.1..=10_000.0)?;
//!     Ok((mode, hertz))
//! }
//! # settings().unwrap();
//! ```
//!
//! With `PEEK_HZ=0` this returns the error `PEEK_HZ=0: give a number from 0.1 to 10000`.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fmt::Display;
use std::fs::{self, OpenOptions};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;

/// An environment variable with a setting.
#[derive(Clone, Debug)]
pub struct Setting {
    variable: String,
    value: Option<OsString>,
}

/// The settings of a profiler that can also be attached: a running process already has its environment, so the data of the
/// attach contain settings, one line `NAME=VALUE` each.
///
/// ```
/// # use corprof::{prelude::*, settings::Settings};
/// fn initialize_for_attach(data: &[u8]) -> Result<f64, BoxError> {
///     let settings = Settings::of_attach(data)?;
///     Ok(settings.of("PEEK_HZ").number(100.0, 0.1..=10_000.0)?)
/// }
/// assert_eq!(initialize_for_attach(b"PEEK_HZ=20\n").unwrap(), 20.0);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Settings {
    given: HashMap<String, String>,
}

impl Settings {
    /// The settings of the environment alone: for `initialize`.
    #[must_use]
    pub fn of_environment() -> Self {
        Self::default()
    }

    /// The settings in the data of an attach, and the environment for those that the data lack: for `initialize_for_attach`.
    ///
    /// # Errors
    /// If the data are not UTF-8 text, or a line does not have the form `NAME=VALUE`.
    pub fn of_attach(data: &[u8]) -> Result<Self, SettingError> {
        let refused = |value: &str, cure: &str| SettingError {
            variable: "the attach's data".to_owned(),
            value: value.to_owned(),
            cure: cure.to_owned(),
        };
        let text = std::str::from_utf8(data)
            .map_err(|_| refused(&String::from_utf8_lossy(data), "give lines NAME=VALUE in UTF-8"))?;
        let pair = |line: &str| {
            let (name, value) = line.split_once('=').filter(|(name, _)| !name.is_empty())?;
            Some((name.to_owned(), value.to_owned()))
        };
        let lines = text.lines().filter(|line| !line.is_empty());
        let given =
            lines.map(|line| pair(line).ok_or_else(|| refused(line, "give a line NAME=VALUE for each setting")));
        Ok(Self { given: given.collect::<Result<_, _>>()? })
    }

    /// The setting in this variable.
    #[must_use]
    pub fn of(&self, variable: &str) -> Setting {
        self.given.get(variable).map_or_else(|| Setting::of(variable), |value| Setting::with_value(variable, value))
    }
}

/// A setting that cannot be used: `SAMPLER_MODE=cup: give cpu or wall`.
#[derive(Debug, thiserror::Error)]
#[error("{variable}={value}: {cure}")]
#[non_exhaustive]
pub struct SettingError {
    /// The variable.
    pub variable: String,
    /// Its value.
    pub value: String,
    /// The problem, and what to set instead.
    pub cure: String,
}

impl Setting {
    /// The setting in this variable.
    #[must_use]
    pub fn of(variable: &str) -> Self {
        Self { variable: variable.to_owned(), value: std::env::var_os(variable) }
    }

    /// A setting whose value does not come from the environment: a default that must be checked as well.
    #[must_use]
    pub fn with_value(variable: &str, value: impl Into<OsString>) -> Self {
        Self { variable: variable.to_owned(), value: Some(value.into()) }
    }

    /// The same setting; this is its value if the variable is not set.
    #[must_use]
    pub fn or(self, default: impl Into<OsString>) -> Self {
        Self { value: self.value.or_else(|| Some(default.into())), ..self }
    }

    /// One of several words; the first of them if the variable is not set.
    ///
    /// # Errors
    /// If the value is none of the words, or there are no words.
    pub fn word<T: Clone>(&self, words: &[(&str, T)]) -> Result<T, SettingError> {
        let found = match self.text()? {
            Some(text) => words.iter().find(|(word, _)| *word == text),
            None => words.first(),
        };
        found.map(|(_, value)| value.clone()).ok_or_else(|| {
            let names: Vec<_> = words.iter().map(|(word, _)| *word).collect();
            match names.split_last() {
                Some((last, first)) if !first.is_empty() => {
                    self.error(format_args!("give {} or {last}", first.join(", ")))
                }
                _ => self.error(format_args!("give {}", names.concat())),
            }
        })
    }

    /// A number in this range; `default` if the variable is not set.
    ///
    /// # Errors
    /// If it is no number, or outside the range.
    pub fn number<T>(&self, default: T, range: RangeInclusive<T>) -> Result<T, SettingError>
    where
        T: FromStr + PartialOrd + Display,
    {
        let Some(text) = self.text()? else { return Ok(default) };
        let number = text.parse().ok().filter(|number| range.contains(number));
        number.ok_or_else(|| self.error(format_args!("give a number from {} to {}", range.start(), range.end())))
    }

    /// The result of `parse` for the value, or for `default` if the variable is not set.
    ///
    /// # Errors
    /// The error of `parse`, with the variable and its value.
    pub fn parsed<T, E: Display>(
        &self,
        default: &str,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Result<T, SettingError> {
        parse(self.text()?.unwrap_or(default)).map_err(|error| self.error(error))
    }

    /// A path, which need not exist; none if the variable is not set.
    #[must_use]
    pub fn path(&self) -> Option<PathBuf> {
        self.value.as_ref().filter(|value| !value.is_empty()).map(PathBuf::from)
    }

    /// A file to write; none if the variable is not set.
    ///
    /// This writes nothing: an existing file does not change, and a new file does not exist afterwards.
    ///
    /// # Errors
    /// If its folder does not exist, it is itself a folder, or it cannot be written.
    pub fn output(&self) -> Result<Option<PathBuf>, SettingError> {
        let Some(value) = &self.value else { return Ok(None) };
        let path = PathBuf::from(value);
        if path.as_os_str().is_empty() || path.is_dir() {
            return Err(self.error("give the name of a file, not of a folder"));
        }
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
            let folder = folder.display();
            return Err(self.error(format_args!("there is no folder {folder}: make it, or give another file")));
        }
        let is_new = !path.exists();
        let opened = OpenOptions::new().append(true).create(true).open(&path);
        opened.map_err(|error| self.error(format_args!("cannot be written ({error}): give another file")))?;
        if is_new {
            let _ = fs::remove_file(&path); // the profiler makes it when it writes
        }
        Ok(Some(path))
    }

    /// The value as text.
    fn text(&self) -> Result<Option<&str>, SettingError> {
        let Some(value) = &self.value else { return Ok(None) };
        value.to_str().map(Some).ok_or_else(|| self.error("give text in UTF-8"))
    }

    /// An error about this setting: `cure` says what to set instead.
    pub fn error(&self, cure: impl Display) -> SettingError {
        let value = self.value.as_deref().unwrap_or_default().display().to_string();
        SettingError { variable: self.variable.clone(), value, cure: cure.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal<T: std::fmt::Debug>(result: Result<T, SettingError>) -> String {
        result.unwrap_err().to_string()
    }

    #[test]
    fn an_attach_brings_settings() {
        let settings = Settings::of_attach(b"X_HZ=20\r\n\nX_OUT=a=b\n").unwrap();
        assert_eq!(settings.of("X_HZ").number(1, 1..=100).unwrap(), 20);
        assert_eq!(settings.of("X_OUT").parsed("", |text| Ok::<_, String>(text.to_owned())).unwrap(), "a=b");
        assert_eq!(settings.of("CORPROF_TEST_THAT_NOBODY_SETS").number(1, 1..=100).unwrap(), 1);
        assert!(refusal(Settings::of_attach(b"X_HZ")).contains("NAME=VALUE"));
        assert!(refusal(Settings::of_attach(&[0xff])).contains("UTF-8"));
        assert!(Settings::of_attach(b"").unwrap().given.is_empty());
        assert!(Settings::of_environment().given.is_empty());
    }

    #[test]
    fn what_is_not_set_is_the_default() {
        let unset = Setting::of("CORPROF_TEST_THAT_NOBODY_SETS");
        assert_eq!(unset.word(&[("cpu", 1), ("wall", 2)]).unwrap(), 1);
        assert_eq!(unset.number(100, 1..=1000).unwrap(), 100);
        assert_eq!(unset.parsed("7", str::parse::<u32>).unwrap(), 7);
        assert_eq!(unset.output().unwrap(), None);
        assert_eq!(unset.path(), None);
        assert_eq!(Setting::with_value("X_STOP", "/x").path(), Some("/x".into()));
    }

    #[test]
    fn what_is_wrong_is_refused_with_variable_value_and_cure() {
        let words = [("cpu", 1), ("wall", 2)];
        assert_eq!(Setting::with_value("X_MODE", "wall").word(&words).unwrap(), 2);
        assert_eq!(refusal(Setting::with_value("X_MODE", "cup").word(&words)), "X_MODE=cup: give cpu or wall");
        let three = Setting::with_value("X_WAY", "forth").word(&[("up", 1), ("down", 2), ("back", 3)]);
        assert_eq!(refusal(three), "X_WAY=forth: give up, down or back");
        let hertz = |value: &str| Setting::with_value("X_HZ", value).number::<f64>(100.0, 0.1..=10_000.0);
        assert!((hertz("1e3").unwrap() - 1000.0).abs() < 1e-9);
        for wrong in ["0", "-1", "many", "", "inf", "NaN"] {
            assert_eq!(refusal(hertz(wrong)), format!("X_HZ={wrong}: give a number from 0.1 to 10000"));
        }
        let parsed = Setting::with_value("X_TOP", "x").parsed("7", str::parse::<u32>);
        assert_eq!(refusal(parsed), "X_TOP=x: invalid digit found in string");
    }

    #[test]
    fn a_file_that_cannot_be_written_is_refused_and_none_is_made() {
        let folder = std::env::temp_dir().join(format!("corprof-settings-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let output = |path: &std::path::Path| Setting::with_value("X_OUT", path).output();
        let file = folder.join("profile.svg");
        assert_eq!(output(&file).unwrap().unwrap(), file);
        assert!(!file.exists(), "made only when there is something in it");
        fs::write(&file, "of another run").unwrap();
        output(&file).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "of another run");
        assert!(refusal(output(&folder)).contains("give the name of a file"));
        let missing = folder.join("nowhere");
        let told = refusal(output(&missing.join("profile.svg")));
        assert!(
            told.starts_with("X_OUT=") && told.contains(&format!("there is no folder {}", missing.display())),
            "{told}"
        );
        let told = refusal(output(&file.join("profile.svg")));
        assert!(told.contains("there is no folder"), "a file is no folder: {told}");
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_file_that_the_system_keeps_is_refused_with_its_reason() {
        let told = refusal(Setting::with_value("X_OUT", "/proc/nothing").output());
        assert!(told.starts_with("X_OUT=/proc/nothing: cannot be written ("), "{told}");
    }
}

//! The settings that a profiler has been given: environment variables, or the lines of an attach's data.
//!
//! They are checked when the profiler starts, so that a wrong one is an error then, with the variable, its value and
//! the cure, and not when the application ends and its profile cannot be written. [`Settings`] checks what the
//! [`table`](crate::table) says of a setting; the profiler reads it by the table's default, and checks the rest:
//!
//! ```
//! use corprof_profilers::settings::{SettingError, Settings};
//! use corprof_profilers::table;
//!
//! fn rate(data: &[u8]) -> Result<f64, SettingError> {
//!     let settings = Settings::of_attach(&table::TOP, data)?;
//!     settings.of("TOP_HZ").number()
//! }
//!
//! assert_eq!(rate(b"TOP_HZ=20\n").unwrap(), 20.0);
//! assert_eq!(rate(b"TOP_HZ=0\n").unwrap_err().to_string(), "TOP_HZ=0: give a number from 0.01 to 10000");
//! assert_eq!(rate(b"TOP_HERZ=5\n").unwrap_err().to_string(), "TOP_HERZ=5: top has no such setting; did you mean TOP_HZ?");
//! ```

use std::collections::HashMap;
use std::env;
use std::ffi::{OsStr, OsString};
use std::fmt::Display;
use std::fs::{self, OpenOptions};
use std::path::PathBuf;
use std::str::FromStr;

use crate::table::{Kind, Profiler, Setting};

/// The settings of a profiler.
#[derive(Clone, Debug)]
pub struct Settings {
    profiler: &'static Profiler,
    /// Those in the data of an attach.
    data: HashMap<String, String>,
}

/// A setting, and what it is given as.
#[derive(Clone, Debug)]
pub struct Value {
    setting: Setting,
    given: Option<OsString>,
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

impl Settings {
    /// The settings in the environment: for `initialize`.
    ///
    /// # Errors
    /// If a value is not what the table says, or a variable is nearly a setting of the profiler.
    pub fn of_environment(profiler: &'static Profiler) -> Result<Self, SettingError> {
        let settings = Self { profiler, data: HashMap::new() };
        settings.check()?;
        for (name, value) in env::vars_os() {
            let Some(name) = name.to_str() else { continue };
            // Any other variable may be one of the application's own.
            if let Some(setting) = profiler.misspelt(name) {
                return Err(unknown(profiler, name, &value, Some(setting)));
            }
        }
        Ok(settings)
    }

    /// The settings in the data of an attach, one line `NAME=VALUE` each, and in the environment those that the data
    /// lack: for `initialize_for_attach`.
    ///
    /// # Errors
    /// If the data are not UTF-8 text, a line does not have the form `NAME=VALUE`, the profiler has no such setting, or
    /// a value is not what the table says.
    pub fn of_attach(profiler: &'static Profiler, data: &[u8]) -> Result<Self, SettingError> {
        let settings = Self { profiler, data: read_data(profiler, data)? };
        settings.check()?;
        Ok(settings)
    }

    /// The profiler that has them.
    #[must_use]
    pub fn profiler(&self) -> &'static Profiler {
        self.profiler
    }

    /// The stop file, if the profiler knows one and it is given.
    #[must_use]
    pub fn stop(&self) -> Option<PathBuf> {
        self.of(self.profiler.stop()?.variable).path()
    }

    /// The setting in this variable. One that the table does not have is a text without a default.
    #[must_use]
    pub fn of(&self, variable: &'static str) -> Value {
        let known = self.profiler.setting(variable);
        let setting =
            known.copied().unwrap_or(Setting { variable, kind: Kind::Text, default: "", meaning: "", option: None });
        let given = self.data.get(variable).map(OsString::from);
        Value { setting, given: given.or_else(|| env::var_os(variable)) }
    }

    /// Whether the profiler answers with a document.
    #[must_use]
    pub fn is_json(&self) -> bool {
        self.profiler.format().is_some_and(|setting| self.of(setting.variable).text().is_ok_and(|text| text == "json"))
    }

    /// Whether methods are named as the runtime does.
    #[must_use]
    pub fn has_raw_names(&self) -> bool {
        self.profiler.names().is_some_and(|setting| self.of(setting.variable).text().is_ok_and(|text| text == "raw"))
    }

    fn check(&self) -> Result<(), SettingError> {
        self.profiler.settings.iter().try_for_each(|setting| self.of(setting.variable).check())
    }
}

/// The settings in the data of an attach.
fn read_data(profiler: &Profiler, data: &[u8]) -> Result<HashMap<String, String>, SettingError> {
    let refused = |value: &str, cure: &str| SettingError {
        variable: "the attach's data".to_owned(),
        value: value.to_owned(),
        cure: cure.to_owned(),
    };
    let text = std::str::from_utf8(data)
        .map_err(|_| refused(&String::from_utf8_lossy(data), "give lines NAME=VALUE in UTF-8"))?;
    let mut settings = HashMap::new();
    for line in text.lines().filter(|line| !line.is_empty()) {
        let pair = line.split_once('=').filter(|(name, _)| !name.is_empty());
        let (name, value) = pair.ok_or_else(|| refused(line, "give a line NAME=VALUE for each setting"))?;
        if profiler.setting(name).is_none() {
            return Err(unknown(profiler, name, OsStr::new(value), profiler.misspelt(name)));
        }
        settings.insert(name.to_owned(), value.to_owned());
    }
    Ok(settings)
}

/// The error about a variable that is not a setting of the profiler.
fn unknown(profiler: &Profiler, name: &str, value: &OsStr, near: Option<&Setting>) -> SettingError {
    let cure = match near {
        Some(near) => format!("{} has no such setting; did you mean {}?", profiler.name, near.variable),
        None => format!("{} has no such setting; it has {}", profiler.name, profiler.variables()),
    };
    SettingError { variable: name.to_owned(), value: value.display().to_string(), cure }
}

/// Checks a variable that somebody has set for a profiler: its value, if it is a setting, and its name, if it begins as
/// one.
///
/// # Errors
/// If the value is not what the table says, or the profiler has no such setting.
pub fn check(profiler: &'static Profiler, name: &str, value: &OsStr) -> Result<(), SettingError> {
    match profiler.setting(name) {
        Some(setting) => Value { setting: *setting, given: Some(value.to_owned()) }.check(),
        None if profiler.has_prefix_of(name) => Err(unknown(profiler, name, value, profiler.misspelt(name))),
        None => Ok(()),
    }
}

/// Checks the data of an attach for a profiler, as the profiler will.
///
/// # Errors
/// Those of [`Settings::of_attach`], without the settings of the environment.
pub fn check_data(profiler: &'static Profiler, data: &[u8]) -> Result<(), SettingError> {
    read_data(profiler, data)?.iter().try_for_each(|(name, value)| check(profiler, name, OsStr::new(value)))
}

impl Value {
    /// A value that does not come from the environment, for a setting that is checked likewise.
    #[must_use]
    pub fn with(self, value: impl Into<OsString>) -> Self {
        Self { given: Some(value.into()), ..self }
    }

    /// Whether the variable is set, and not empty.
    #[must_use]
    pub fn is_given(&self) -> bool {
        self.given.as_ref().is_some_and(|value| !value.is_empty())
    }

    /// One of several words, which are those of the table; the table's default if the variable is not set.
    ///
    /// # Errors
    /// If the value is none of the words.
    pub fn word<T: Clone>(&self, words: &[(&str, T)]) -> Result<T, SettingError> {
        let text = self.text()?;
        let found = words.iter().find(|(word, _)| *word == text);
        found.map(|(_, value)| value.clone()).ok_or_else(|| {
            let names: Vec<_> = words.iter().map(|(word, _)| *word).collect();
            self.error(format_args!("give {}", either(&names)))
        })
    }

    /// Several of the table's words, separated by commas; none of them if the variable is not set, or empty.
    ///
    /// # Errors
    /// If one of them is not in the table.
    pub fn words(&self) -> Result<Vec<String>, SettingError> {
        self.check()?;
        let words = self.text()?.split(',').map(str::trim).filter(|word| !word.is_empty());
        Ok(words.map(str::to_owned).collect())
    }

    /// A number in the range of the table; the table's default if the variable is not set.
    ///
    /// # Errors
    /// If it is not a number, or outside the range.
    pub fn number<T: FromStr>(&self) -> Result<T, SettingError> {
        self.check()?;
        self.text()?.parse().map_err(|_| self.error("give a number"))
    }

    /// The result of `parse` for the value, or for the table's default if the variable is not set.
    ///
    /// # Errors
    /// The error of `parse`, with the variable and its value.
    pub fn parsed<T, E: Display>(&self, parse: impl FnOnce(&str) -> Result<T, E>) -> Result<T, SettingError> {
        parse(self.text()?).map_err(|error| self.error(error))
    }

    /// A path, which need not exist; none if the variable is not set, or empty.
    #[must_use]
    pub fn path(&self) -> Option<PathBuf> {
        self.given.as_ref().filter(|value| !value.is_empty()).map(PathBuf::from)
    }

    /// A file to write: the table's default, or none, if the variable is not set.
    ///
    /// This writes nothing: an existing file does not change, and a new file does not exist afterwards.
    ///
    /// # Errors
    /// If its folder does not exist, it is itself a folder, or it cannot be written.
    pub fn output(&self) -> Result<Option<PathBuf>, SettingError> {
        let default = Some(self.setting.default).filter(|default| !default.is_empty());
        let Some(path) = self.given.as_ref().map(PathBuf::from).or(default.map(PathBuf::from)) else { return Ok(None) };
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

    /// Checks the value by what the table says of it.
    fn check(&self) -> Result<(), SettingError> {
        match self.setting.kind {
            Kind::Word(words) => {
                let text = self.text()?;
                if words.contains(&text) { Ok(()) } else { Err(self.error(format_args!("give {}", either(words)))) }
            }
            Kind::Words(words) => {
                let text = self.text()?;
                let wrong = text.split(',').map(str::trim).find(|word| !word.is_empty() && !words.contains(word));
                match wrong {
                    Some(wrong) => Err(self.error(format_args!("there is no {wrong}; there are {}", words.join(", ")))),
                    None => Ok(()),
                }
            }
            Kind::Number { least, most } => {
                let number = self.text()?.parse().ok().filter(|number: &f64| (least..=most).contains(number));
                self.in_range(number.is_some(), least, most)
            }
            Kind::Count { least, most } => {
                let number = self.text()?.parse().ok().filter(|number: &u64| (least..=most).contains(number));
                self.in_range(number.is_some(), least, most)
            }
            Kind::Text | Kind::Glob | Kind::Secret => self.text().map(drop),
            Kind::File(_) | Kind::Folder | Kind::Path => Ok(()),
        }
    }

    fn in_range(&self, is_in_range: bool, least: impl Display, most: impl Display) -> Result<(), SettingError> {
        if is_in_range { Ok(()) } else { Err(self.error(format_args!("give a number from {least} to {most}"))) }
    }

    /// The value as text, or the default.
    fn text(&self) -> Result<&str, SettingError> {
        let Some(value) = &self.given else { return Ok(self.setting.default) };
        value.to_str().ok_or_else(|| self.error("give text in UTF-8"))
    }

    /// An error about this setting: `cure` says what to set instead.
    pub fn error(&self, cure: impl Display) -> SettingError {
        let value = match (&self.given, self.setting.kind) {
            // An error shows the value, and nobody is to read this one.
            (Some(_), Kind::Secret) => "(hidden)".to_owned(),
            (Some(value), _) => value.display().to_string(),
            (None, _) => self.setting.default.to_owned(),
        };
        SettingError { variable: self.setting.variable.to_owned(), value, cure: cure.to_string() }
    }
}

/// `up, down or back`.
fn either(words: &[&str]) -> String {
    match words.split_last() {
        Some((last, first)) if !first.is_empty() => format!("{} or {last}", first.join(", ")),
        _ => words.concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::{self, Loading};

    static PEEK: Profiler = Profiler {
        name: "peek",
        type_name: "Peek",
        clsid: "{4E1A5A0C-7C1B-4C55-9C55-5D0E2E0C7AFF}",
        summary: "peeks",
        loading: Loading::Either,
        prefix: "CORPROF_PEEK",
        settings: &[
            row("CORPROF_PEEK_MODE", Kind::Word(&["cpu", "wall"]), "cpu"),
            row("CORPROF_PEEK_HZ", Kind::Number { least: 0.1, most: 10_000.0 }, "100"),
            row("CORPROF_PEEK_TOP", Kind::Count { least: 1, most: 20 }, "7"),
            row("CORPROF_PEEK_EVENTS", Kind::Words(&["jit", "gc"]), ""),
            row("CORPROF_PEEK_OUT", Kind::File(&[]), ""),
            row("CORPROF_PEEK_KEY", Kind::Secret, ""),
        ],
    };

    const fn row(variable: &'static str, kind: Kind, default: &'static str) -> Setting {
        Setting { variable, kind, default, meaning: "", option: None }
    }

    fn given(data: &str) -> Result<Settings, SettingError> {
        Settings::of_attach(&PEEK, data.as_bytes())
    }

    fn refusal<T: std::fmt::Debug>(result: Result<T, SettingError>) -> String {
        result.unwrap_err().to_string()
    }

    #[test]
    fn an_attach_brings_settings() {
        let settings = given("CORPROF_PEEK_HZ=20\r\n\nCORPROF_PEEK_OUT=a=b\n").unwrap();
        assert_eq!(settings.of("CORPROF_PEEK_HZ").number::<f64>().unwrap(), 20.0);
        assert_eq!(settings.of("CORPROF_PEEK_OUT").parsed(|text| Ok::<_, String>(text.to_owned())).unwrap(), "a=b");
        assert_eq!(settings.of("CORPROF_PEEK_TOP").number::<u32>().unwrap(), 7);
        assert!(refusal(given("CORPROF_PEEK_HZ")).contains("NAME=VALUE"));
        assert!(refusal(Settings::of_attach(&PEEK, &[0xff])).contains("UTF-8"));
        assert!(given("").unwrap().data.is_empty());
    }

    #[test]
    fn what_is_not_set_is_the_default() {
        let unset = Settings::of_environment(&PEEK).unwrap();
        assert_eq!(unset.of("CORPROF_PEEK_MODE").word(&[("cpu", 1), ("wall", 2)]).unwrap(), 1);
        assert_eq!(unset.of("CORPROF_PEEK_TOP").number::<usize>().unwrap(), 7);
        assert_eq!(unset.of("CORPROF_PEEK_TOP").parsed(str::parse::<u32>).unwrap(), 7);
        assert_eq!(unset.of("CORPROF_PEEK_OUT").output().unwrap(), None);
        assert_eq!(unset.of("CORPROF_PEEK_OUT").path(), None);
        assert!(!unset.of("CORPROF_PEEK_OUT").is_given());
        assert_eq!(unset.of("CORPROF_PEEK_OUT").with("/x").path(), Some("/x".into()));
    }

    #[test]
    fn what_is_wrong_is_refused_with_variable_value_and_cure() {
        assert_eq!(refusal(given("CORPROF_PEEK_MODE=cup")), "CORPROF_PEEK_MODE=cup: give cpu or wall");
        assert_eq!(
            refusal(given("CORPROF_PEEK_EVENTS=gc,ggc")),
            "CORPROF_PEEK_EVENTS=gc,ggc: there is no ggc; there are jit, gc"
        );
        let hertz = |value: &str| given(&format!("CORPROF_PEEK_HZ={value}"))?.of("CORPROF_PEEK_HZ").number::<f64>();
        assert!((hertz("1e3").unwrap() - 1000.0).abs() < 1e-9);
        for wrong in ["0", "-1", "many", "", "inf", "NaN"] {
            assert_eq!(refusal(hertz(wrong)), format!("CORPROF_PEEK_HZ={wrong}: give a number from 0.1 to 10000"));
        }
        assert_eq!(refusal(given("CORPROF_PEEK_TOP=1.5")), "CORPROF_PEEK_TOP=1.5: give a number from 1 to 20");
        let value = given("CORPROF_PEEK_MODE=wall").unwrap().of("CORPROF_PEEK_MODE");
        assert_eq!(refusal(value.parsed(str::parse::<u32>)), "CORPROF_PEEK_MODE=wall: invalid digit found in string");
        let key = given("CORPROF_PEEK_KEY=s3cret").unwrap().of("CORPROF_PEEK_KEY");
        assert_eq!(key.error("no").to_string(), "CORPROF_PEEK_KEY=(hidden): no");
    }

    #[test]
    fn a_name_that_is_not_a_setting_is_refused() {
        assert!(
            refusal(given("CORPROF_PEEK_HERZ=5")).ends_with("peek has no such setting; did you mean CORPROF_PEEK_HZ?")
        );
        let text = refusal(given("CORPROF_PEEK_SECONDS=5"));
        assert!(text.contains("peek has no such setting; it has CORPROF_PEEK_MODE, CORPROF_PEEK_HZ,"), "{text}");
        let check = |name| check(&PEEK, name, OsStr::new("5"));
        check("PATH").unwrap();
        check("CORPROF_PEEK_TOP").unwrap();
        assert!(refusal(check("CORPROF_PEEK_SECONDS")).contains("no such setting"));
        assert!(refusal(check("CORPROF_PEEK_MODE")).contains("give cpu or wall"));
        check_data(&PEEK, b"CORPROF_PEEK_TOP=5").unwrap();
        assert!(refusal(check_data(&PEEK, b"CORPROF_PEEK_TOP=0")).contains("from 1 to 20"));
        assert!(refusal(check_data(&PEEK, b"rate=5")).contains("no such setting"));
    }

    #[test]
    fn the_defaults_of_the_table_are_what_it_says_of_them() {
        for profiler in table::ALL {
            Settings { profiler, data: HashMap::new() }.check().unwrap();
        }
    }

    #[test]
    fn a_file_that_cannot_be_written_is_refused_and_none_is_made() {
        let folder = std::env::temp_dir().join(format!("corprof-settings-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let out = given("").unwrap().of("CORPROF_PEEK_OUT");
        let output = |path: &std::path::Path| out.clone().with(path).output();
        let file = folder.join("profile.svg");
        assert_eq!(output(&file).unwrap().unwrap(), file);
        assert!(!file.exists(), "made only when there is something in it");
        fs::write(&file, "of another run").unwrap();
        output(&file).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "of another run");
        assert!(refusal(output(&folder)).contains("give the name of a file"));
        let missing = folder.join("nowhere");
        let text = refusal(output(&missing.join("profile.svg")));
        assert!(
            text.starts_with("CORPROF_PEEK_OUT=")
                && text.contains(&format!("there is no folder {}", missing.display())),
            "{text}"
        );
        let text = refusal(output(&file.join("profile.svg")));
        assert!(text.contains("there is no folder"), "a file is not a folder: {text}");
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_file_that_the_system_keeps_is_refused_with_its_reason() {
        let text = refusal(given("").unwrap().of("CORPROF_PEEK_OUT").with("/proc/nothing").output());
        assert!(text.starts_with("CORPROF_PEEK_OUT=/proc/nothing: cannot be written ("), "{text}");
    }
}

//! The table of the built-in profilers.

mod rows;

use std::fmt::Write;
use std::path::Path;

pub use rows::*;

/// A profiler that the command has built in.
#[derive(Debug, PartialEq)]
pub struct Profiler {
    /// The name on the command line.
    pub name: &'static str,
    /// The name of its struct in the library.
    pub type_name: &'static str,
    /// Its CLSID, in braces.
    pub clsid: &'static str,
    /// Its purpose in one line.
    pub summary: &'static str,
    /// When it can be loaded.
    pub loading: Loading,
    /// The word that the variables of its settings begin with.
    pub prefix: &'static str,
    /// Its settings.
    pub settings: &'static [Setting],
}

/// When a profiler can be loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loading {
    /// With the application.
    AtStart,
    /// Into a running process. A subcommand of `corprof` does that.
    ByAttach,
    /// Both.
    Either,
}

/// A setting of a profiler: an environment variable, or a line of an attach's data.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Setting {
    /// The variable.
    pub variable: &'static str,
    /// The values that it takes.
    pub kind: Kind,
    /// The value without it. Empty: none.
    pub default: &'static str,
    /// Its meaning, in Markdown.
    pub meaning: &'static str,
    /// The option of a subcommand of `corprof` that sets it: `record --rate HZ`. One without a value is a flag, and
    /// sets the word that is not the default: `locks --json`.
    pub option: Option<&'static str>,
}

/// The values that a setting takes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kind {
    /// One of these words.
    Word(&'static [&'static str]),
    /// Several of these words, separated by commas. None of them stands for all.
    Words(&'static [&'static str]),
    /// A number in a range.
    Number {
        /// The least.
        least: f64,
        /// The greatest.
        most: f64,
    },
    /// A whole number in a range.
    Count {
        /// The least.
        least: u64,
        /// The greatest.
        most: u64,
    },
    /// Any text; the profiler checks its form.
    Text,
    /// A text that no message shows.
    Secret,
    /// A glob of full names of methods.
    Glob,
    /// A file that the profiler writes, with one of these extensions; `%p` in its name is the process id.
    File(&'static [&'static str]),
    /// A folder that the profiler writes into.
    Folder,
    /// A path.
    Path,
}

impl Profiler {
    /// The built-in profiler of this name. A path such as `./sampler` means a file.
    #[must_use]
    pub fn named(library: &Path) -> Option<&'static Self> {
        ALL.iter().copied().find(|profiler| library.as_os_str() == profiler.name)
    }

    /// The profiler that attaches in its place: itself, unless the runtime refuses to an attached profiler what this
    /// one needs.
    #[must_use]
    pub fn to_attach(&'static self) -> &'static Self {
        if self.name == ALLOCATIONS.name { &ALLOCATION_SAMPLES } else { self }
    }

    /// Its setting in this variable.
    #[must_use]
    pub fn setting(&self, variable: &str) -> Option<&Setting> {
        self.settings.iter().find(|setting| setting.variable == variable)
    }

    /// The setting of its output file, if it writes one.
    #[must_use]
    pub fn output(&self) -> Option<&Setting> {
        self.settings.iter().find(|setting| matches!(setting.kind, Kind::File(_)))
    }

    /// The setting of its stop file, if it answers when such a file is made.
    #[must_use]
    pub fn stop(&self) -> Option<&Setting> {
        self.settings.iter().find(|setting| setting.variable.strip_prefix(self.prefix) == Some("_STOP"))
    }

    /// The setting of the form of its answer, if it gives documents.
    #[must_use]
    pub fn format(&self) -> Option<&Setting> {
        self.settings.iter().find(|setting| setting.variable.strip_prefix(self.prefix) == Some("_FORMAT"))
    }

    /// The setting of the spelling of methods, if it has one.
    #[must_use]
    pub fn names(&self) -> Option<&Setting> {
        self.settings.iter().find(|setting| setting.variable.strip_prefix(self.prefix) == Some("_NAMES"))
    }

    /// The setting of the callers of resumed async methods, if its stacks have some.
    #[must_use]
    pub fn stacks(&self) -> Option<&Setting> {
        self.settings.iter().find(|setting| setting.variable.strip_prefix(self.prefix) == Some("_STACKS"))
    }

    /// The variables of its settings.
    #[must_use]
    pub fn variables(&self) -> String {
        let variables: Vec<_> = self.settings.iter().map(|setting| setting.variable).collect();
        if variables.is_empty() { "none".to_owned() } else { variables.join(", ") }
    }

    /// Whether a variable begins as those of its settings.
    #[must_use]
    pub fn has_prefix_of(&self, variable: &str) -> bool {
        variable.strip_prefix(self.prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('_'))
    }

    /// The setting that is meant by a variable that is nearly, but not quite, one.
    #[must_use]
    pub fn misspelt(&self, variable: &str) -> Option<&Setting> {
        /// More differences may make a variable of the application's.
        const MOST: usize = 2;
        if !self.has_prefix_of(variable) || self.setting(variable).is_some() {
            return None;
        }
        let distance = |setting: &&Setting| strsim::damerau_levenshtein(variable, setting.variable);
        self.settings.iter().min_by_key(distance).filter(|setting| distance(setting) <= MOST)
    }
}

impl Setting {
    /// The meaning as plain text, for a terminal.
    #[must_use]
    pub fn plain_meaning(&self) -> String {
        let mut plain = String::new();
        // Of a link `[text](address)`, only the text.
        let mut rest = self.meaning;
        while let Some((before, link)) = rest.split_once('[') {
            plain += before;
            let Some((text, after)) = link.split_once("](") else { break };
            plain += text;
            rest = after.split_once(')').map_or("", |(_, after)| after);
        }
        plain += rest;
        plain.replace('`', "")
    }

    /// The default, as a person reads it.
    #[must_use]
    pub fn shown_default(&self) -> &'static str {
        if self.default.is_empty() { "none" } else { self.default }
    }
}

impl Kind {
    /// The values in words, with marks around what is typed: `` ` `` in Markdown.
    #[must_use]
    pub fn shown(self, mark: &str) -> String {
        let list =
            |words: &[&str]| words.iter().map(|word| format!("{mark}{word}{mark}")).collect::<Vec<_>>().join(", ");
        match self {
            Self::Word(words) => list(words),
            Self::Words(words) => format!("some of {}, separated by commas", list(words)),
            Self::Number { least, most } => format!("{least} to {most}"),
            Self::Count { least, most } => format!("a whole number, {least} to {most}"),
            Self::Text | Self::Secret => "text".to_owned(),
            Self::Glob => "a glob of full names".to_owned(),
            Self::File([]) => "a file".to_owned(),
            Self::File(extensions) => format!("a file: {}", list(extensions)),
            Self::Folder => "a folder".to_owned(),
            Self::Path => "a path".to_owned(),
        }
    }
}

impl Loading {
    /// In words.
    #[must_use]
    pub fn shown(self) -> &'static str {
        match self {
            Self::AtStart => "starts with the application",
            Self::ByAttach => "attaches only",
            Self::Either => "starts with the application, or attaches",
        }
    }
}

/// The setting in this variable, of any profiler.
#[must_use]
pub fn setting(variable: &str) -> Option<&'static Setting> {
    ALL.iter().find_map(|profiler| profiler.setting(variable))
}

/// The plain meaning of a setting: the help of the option that sets it.
#[must_use]
pub fn help(variable: &str) -> String {
    setting(variable).map(Setting::plain_meaning).unwrap_or_default()
}

/// All profilers with their purposes, for `corprof run --list`.
#[must_use]
pub fn list() -> String {
    let mut text = String::new();
    for Profiler { name, summary, loading, .. } in ALL {
        let by = if *loading == Loading::ByAttach { " (attaches only)" } else { "" };
        let _ = writeln!(text, "{name:<18} {summary}{by}");
    }
    text
}

/// A profiler with its settings, for `corprof run NAME --list`.
#[must_use]
pub fn describe(profiler: &Profiler) -> String {
    let Profiler { name, summary, loading, clsid, settings, .. } = profiler;
    let mut text = format!("{name} {summary}\nIt {}. CLSID: {clsid}\n", loading.shown());
    for setting in *settings {
        let _ = writeln!(text, "\n{} (default: {})", setting.variable, setting.shown_default());
        let _ = writeln!(text, "    {}", setting.kind.shown(""));
        let _ = writeln!(text, "    {}", setting.plain_meaning());
        if let Some(option) = setting.option {
            let _ = writeln!(text, "    Set by corprof {option}");
        }
    }
    text
}

/// All profilers with their settings in Markdown, for the reference of the book.
#[must_use]
pub fn markdown() -> String {
    let mut text = String::new();
    for Profiler { name, summary, loading, settings, .. } in ALL {
        let _ = writeln!(text, "\n### `{name}`\n\nIt {summary}. It {}.", loading.shown());
        if settings.is_empty() {
            continue;
        }
        text += "\n| variable | values | default | meaning |\n|---|---|---|---|\n";
        for Setting { variable, kind, default, meaning, option } in *settings {
            let option = option.map(|option| format!(" (`{}`)", option.replace('|', "\\|"))).unwrap_or_default();
            let default = if default.is_empty() { "none".to_owned() } else { format!("`{default}`") };
            let _ = writeln!(text, "| `{variable}`{option} | {} | {default} | {meaning} |", kind.shown("`"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_not_a_path() {
        assert_eq!(Profiler::named(Path::new("sampler")).unwrap().type_name, "SamplerProfiler");
        assert_eq!(Profiler::named(Path::new("./sampler")), None);
        assert_eq!(Profiler::named(Path::new("libsampler.so")), None);
    }

    #[test]
    fn names_and_variables_are_of_one_profiler_each() {
        let mut all: Vec<&str> = ALL.iter().flat_map(|profiler| [profiler.name, profiler.clsid]).collect();
        // It attaches in the place of another one, whose settings it has.
        let own = || ALL.iter().filter(|profiler| profiler.name != ALLOCATION_SAMPLES.name);
        all.extend(own().map(|profiler| profiler.prefix));
        all.extend(own().flat_map(|profiler| profiler.settings).map(|setting| setting.variable));
        // The variable of trace_values is named like itself.
        all.retain(|name| *name != "TRACE_VALUES");
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
        for profiler in ALL {
            let variables = || profiler.settings.iter().map(|setting| setting.variable);
            assert!(variables().all(|variable| profiler.has_prefix_of(variable)), "{}", profiler.name);
            assert!(variables().all(|variable| profiler.misspelt(variable).is_none()), "{}", profiler.name);
        }
    }

    #[test]
    fn a_misspelt_variable_is_told_from_another() {
        let meant = |variable| SAMPLER.misspelt(variable).map(|setting| setting.variable);
        assert_eq!(meant("SAMPLER_HERZ"), Some("SAMPLER_HZ"));
        assert_eq!(meant("SAMPLER_PUSH_LABEL"), Some("SAMPLER_PUSH_LABELS"));
        assert_eq!(meant("SAMPLERS"), None);
        assert_eq!(LOGGER.misspelt("LOGGER_LEVEL"), None);
    }

    #[test]
    fn each_profiler_and_setting_is_listed() {
        let list = list();
        let book = markdown();
        for profiler in ALL {
            assert!(list.contains(profiler.name) && book.contains(&format!("### `{}`\n", profiler.name)));
            let described = describe(profiler);
            for setting in profiler.settings {
                assert!(described.contains(setting.variable) && book.contains(setting.variable));
                assert!(!setting.meaning.is_empty() && !described.contains(['`', '[']), "{described}");
            }
        }
        assert!(help("SAMPLER_HZ").contains("rounds"), "{}", help("SAMPLER_HZ"));
    }
}

//! The command lines of the questions. The options are made from the profilers' table of settings: each row that names
//! an option of the question is one.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, ArgMatches, Command, FromArgMatches, Subcommand, value_parser};
use corprof_profilers::settings;
use corprof_profilers::table::{Kind, LEAKS, Profiler, Setting};

use super::Question;
use super::text::{self, Words};
use crate::options::{self, RAW_CLASSES_HELP, RAW_NAMES_HELP};

/// The options that are not rows of the table.
const PID: &str = "pid";
const DURATION: &str = "duration";
const OUTPUT: &str = "output";
const ENV: &str = "env";
const QUIET: &str = "quiet";
const COMMAND: &str = "command";

/// Flags.
const ASYNC_PROBE: &str = "async-probe";
const JSON: &str = "json";
const PHYSICAL: &str = "physical";
const TREE: &str = "tree";
const RAW_NAMES: &str = "raw-names";

/// The options of a setting, and the names of their values: `top` and `N`. Flags have none, and a setting may have
/// several.
fn options_of(
    profiler: &Profiler,
    setting: &Setting,
) -> impl Iterator<Item = (&'static str, Option<&'static str>)> + use<> {
    let options = setting.option.and_then(|options| options.strip_prefix(profiler.name)?.strip_prefix(" --"));
    let options = options.into_iter().flat_map(|options| options.split(", --"));
    options.map(|option| option.split_once(' ').map_or((option, None), |(option, value)| (option, Some(value))))
}

/// The settings that options of the question set, with their options and the names of their values.
fn rows(profiler: &'static Profiler) -> impl Iterator<Item = (&'static Setting, &'static str, Option<&'static str>)> {
    let settings = profiler.settings.iter();
    settings.flat_map(|setting| options_of(profiler, setting).map(move |(option, value)| (setting, option, value)))
}

/// The command line of a question.
fn command(words: &'static Words) -> Command {
    let profiler = words.profiler;
    let pid = Arg::new(PID)
        .value_name("PID")
        .help("The process, as `corprof ps` numbers it")
        .value_parser(options::pid)
        .required_unless_present(COMMAND)
        .conflicts_with(COMMAND);
    let env = Arg::new(ENV)
        .long(ENV)
        .value_name("NAME=VALUE")
        .help("An environment variable for the application; with a PID, a setting of the profiler. Repeatable")
        .action(ArgAction::Append);
    let quiet =
        Arg::new(QUIET).short('q').long(QUIET).help("Print errors and the answer only").action(ArgAction::SetTrue);
    let application = Arg::new(COMMAND)
        .value_name("COMMAND")
        .help("The command that starts the application")
        .last(true)
        .num_args(1..)
        .value_parser(value_parser!(OsString));
    let duration = Arg::new(DURATION)
        .long(DURATION)
        .value_name("SECONDS")
        .help("Gather for this many seconds. Default: until Ctrl-C or the end of the application")
        .value_parser(options::seconds);
    let has_own_duration = rows(profiler).any(|(_, option, _)| option == DURATION);
    Command::new(profiler.name)
        .about(words.about)
        .long_about(text::long(words))
        .after_help(text::examples(words))
        .arg(pid)
        .args((!has_own_duration).then_some(duration))
        .args(rows(profiler).map(|(setting, option, value)| argument(profiler, setting, option, value)))
        .args([env, quiet, application])
}

/// The option of a setting.
fn argument(
    profiler: &'static Profiler,
    setting: &'static Setting,
    option: &'static str,
    value: Option<&'static str>,
) -> Arg {
    let Some(value) = value else { return flag(profiler, setting, option) };
    let help = options::help(profiler, setting.variable);
    let help = if setting.default.is_empty() { help } else { format!("{help} [default: {}]", setting.default) };
    let argument = Arg::new(option).long(option).value_name(value).help(help);
    match setting.kind {
        Kind::File(endings) => argument.short('o').value_parser(move |text: &str| file(text, endings)),
        Kind::Word(words) => argument.value_parser(PossibleValuesParser::new(words)),
        _ => argument.value_parser(move |text: &str| {
            let checked = settings::check(profiler, setting.variable, OsStr::new(text));
            checked.map(|()| text.to_owned()).map_err(|error| error.cure)
        }),
    }
}

/// The word that a flag sets: the one in its name that is not the default.
fn word(setting: &Setting, flag: &str) -> OsString {
    let words = if let Kind::Word(words) = setting.kind { words } else { &[] };
    words.iter().find(|word| **word != setting.default && flag.contains(**word)).copied().unwrap_or_default().into()
}

/// A flag, which sets a word.
fn flag(profiler: &'static Profiler, setting: &'static Setting, option: &'static str) -> Arg {
    let help = match option {
        RAW_NAMES if profiler.name == LEAKS.name => RAW_CLASSES_HELP.to_owned(),
        RAW_NAMES => RAW_NAMES_HELP.to_owned(),
        PHYSICAL => options::PHYSICAL_HELP.to_owned(),
        ASYNC_PROBE => options::ASYNC_PROBE_HELP.to_owned(),
        JSON => "Print the answer as one JSON document, whose fields the book states (Answers as JSON)".to_owned(),
        _ => options::help(profiler, setting.variable),
    };
    let flag = Arg::new(option).long(option).help(help).action(ArgAction::SetTrue);
    match option {
        TREE => flag.conflicts_with(JSON),
        // From the start of an application there is a probe without it.
        ASYNC_PROBE => flag.conflicts_with_all([PHYSICAL, COMMAND]),
        _ => flag,
    }
}

/// Checks in advance that the file can be written at the end. Its path becomes absolute.
fn file(text: &str, endings: &[&str]) -> Result<PathBuf, String> {
    let path = std::path::absolute(text).map_err(|error| error.to_string())?;
    let lower = text.to_ascii_lowercase();
    if !endings.iter().any(|ending| lower.ends_with(ending)) {
        return Err(format!("the ending of the name chooses the format; give one of {}", endings.join(", ")));
    }
    if path.is_dir() {
        return Err("it is a folder: give the name of a file".to_owned());
    }
    match path.parent() {
        Some(folder) if folder.is_dir() => Ok(path),
        _ => Err("there is no such folder: make it, or give another file".to_owned()),
    }
}

impl Question {
    /// Reads the command line of a question.
    fn of(profiler: &'static Profiler, matches: &ArgMatches) -> Self {
        let texts = |name: &str| matches.get_many::<String>(name).unwrap_or_default().cloned().collect::<Vec<_>>();
        let mut settings = Vec::new();
        for (setting, option, value) in rows(profiler).filter(|(setting, ..)| !matches!(setting.kind, Kind::File(_))) {
            if value.is_none() {
                if matches.get_flag(option) {
                    settings.push((setting.variable, word(setting, option)));
                }
            } else if let Some(value) = matches.get_one::<String>(option) {
                settings.push((setting.variable, OsString::from(value)));
            }
        }
        let has_own_duration = rows(profiler).any(|(_, option, _)| option == DURATION);
        let duration = (!has_own_duration).then(|| matches.get_one::<f64>(DURATION)).flatten();
        let output = profiler.output().and_then(|_| matches.get_one::<PathBuf>(OUTPUT));
        Self {
            profiler,
            pid: matches.get_one(PID).copied(),
            duration: duration.map(|seconds| Duration::from_secs_f64(*seconds)),
            output: output.cloned(),
            settings,
            env: texts(ENV),
            is_quiet: matches.get_flag(QUIET),
            command: matches.get_many(COMMAND).unwrap_or_default().cloned().collect(),
        }
    }
}

impl FromArgMatches for Question {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let found = matches.subcommand().and_then(|(name, matches)| Some((text::named(name)?, matches)));
        let (words, matches) = found.ok_or_else(|| clap::Error::new(clap::error::ErrorKind::InvalidSubcommand))?;
        Ok(Self::of(words.profiler, matches))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Subcommand for Question {
    fn augment_subcommands(cli: Command) -> Command {
        text::ALL.iter().fold(cli, |cli, words| cli.subcommand(command(words)))
    }

    fn augment_subcommands_for_update(cli: Command) -> Command {
        Self::augment_subcommands(cli)
    }

    fn has_subcommand(name: &str) -> bool {
        text::named(name).is_some()
    }
}

#[cfg(test)]
mod tests {
    use clap::error::ErrorKind;

    use super::*;

    fn read(line: &str) -> Result<Question, clap::Error> {
        let cli = Question::augment_subcommands(Command::new("corprof").subcommand_required(true));
        Question::from_arg_matches(&cli.try_get_matches_from(line.split(' '))?)
    }

    fn refused(line: &str) -> clap::Error {
        read(line).unwrap_err()
    }

    #[test]
    fn options_are_settings_of_the_table() {
        let question = read("corprof locks 4711 --top 3 --rate 50 --duration 2.5 -o locks.svg -q").unwrap();
        assert_eq!(question.settings, [("LOCKS_TOP", "3".into()), ("LOCKS_HZ", "50".into())]);
        assert_eq!((question.pid, question.duration), (Some(4711), Some(Duration::from_millis(2500))));
        assert!(question.output.unwrap().is_absolute() && question.is_quiet);
        let question = read("corprof leaks --first 1 --duration 9 --env A=1 -- dotnet App.dll --top 7").unwrap();
        assert_eq!(question.settings, [("LEAKS_FIRST", "1".into()), ("LEAKS_SECONDS", "9".into())]);
        assert_eq!(question.command, ["dotnet", "App.dll", "--top", "7"]);
        assert_eq!((question.duration, question.env), (None, vec!["A=1".to_owned()]));
        let question = read("corprof exceptions 4711 --json").unwrap();
        assert_eq!(question.settings, [("EXCEPTIONS_FORMAT", "json".into())]);
        assert_eq!(read("corprof exceptions 4711 --tree").unwrap().settings, [("EXCEPTIONS_SHOW", "tree".into())]);
        assert_eq!(read("corprof locks 4711 --physical").unwrap().settings, [("LOCKS_STACKS", "physical".into())]);
        assert_eq!(read("corprof locks 4711 --async-probe").unwrap().settings, [("LOCKS_STACKS", "probe".into())]);
        assert_eq!(read("corprof locks 4711 --raw-names").unwrap().settings, [("LOCKS_NAMES", "raw".into())]);
    }

    #[test]
    fn a_wrong_option_is_refused_at_once() {
        assert_eq!(refused("corprof locks 4711 --tpo 3").kind(), ErrorKind::UnknownArgument);
        let text = refused("corprof locks 4711 --rate 0").to_string();
        assert!(text.contains("give a number from 0.1 to 1000"), "{text}");
        let text = refused("corprof locks 4711 -o locks.txt").to_string();
        assert!(text.contains(".html, .svg"), "{text}");
        assert_eq!(refused("corprof allocations 4711 --by size").kind(), ErrorKind::InvalidValue);
        assert_eq!(refused("corprof exceptions 4711 --tree --json").kind(), ErrorKind::ArgumentConflict);
        assert_eq!(refused("corprof locks 4711 --physical --async-probe").kind(), ErrorKind::ArgumentConflict);
        assert_eq!(refused("corprof locks --async-probe -- dotnet").kind(), ErrorKind::ArgumentConflict);
        assert_eq!(refused("corprof locks").kind(), ErrorKind::MissingRequiredArgument);
        assert_eq!(refused("corprof locks 4711 -- dotnet").kind(), ErrorKind::ArgumentConflict);
        assert_eq!(refused("corprof pauses 4711 -o pauses.svg").kind(), ErrorKind::UnknownArgument);
    }

    #[test]
    fn each_setting_but_the_stop_file_has_an_option() {
        for words in &text::ALL {
            let profiler = words.profiler;
            let has_option = |setting: &&Setting| options_of(profiler, setting).next().is_some();
            let options = profiler.settings.iter().filter(has_option).count();
            // Commands set these by themselves.
            let others = if profiler.name == "locks" { 2 } else { 1 };
            assert_eq!(options + others, profiler.settings.len(), "{}", profiler.name);
            assert!(profiler.stop().is_some(), "{}", profiler.name);
        }
    }
}

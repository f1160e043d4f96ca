//! The options of `record` that send profiles to an engine, and what became of them.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use anyhow::{anyhow, ensure};
use corprof_export::push::{Destination, Label};
use corprof_launch::launch::Changes;
use corprof_profilers::table::SAMPLER;

use crate::attached_profiler::folder;
use crate::exit::{self, Failure};
use crate::options;

/// The variables, without the one for the header Authorization: a secret does not belong on a command line.
const VARIABLES: [&str; 5] =
    ["SAMPLER_PUSH", "SAMPLER_PUSH_SERVICE", "SAMPLER_PUSH_LABELS", "SAMPLER_PUSH_TENANT", "SAMPLER_PUSH_INTERVAL"];
/// The header Authorization.
const AUTHORIZATION: &str = "SAMPLER_PUSH_AUTHORIZATION";

/// The options.
#[derive(Debug, Default, clap::Args)]
pub(super) struct PushOptions {
    #[arg(long, value_name = "URL", help = options::help(&SAMPLER, "SAMPLER_PUSH"))]
    pub(super) push: Option<Destination>,

    #[arg(long, value_name = "NAME", requires = "push", help = options::help(&SAMPLER, "SAMPLER_PUSH_SERVICE"))]
    service: Option<String>,

    /// A label that is sent. Repeatable
    #[arg(long = "label", value_name = "NAME=VALUE", requires = "push", value_parser = label)]
    labels: Vec<Label>,

    #[arg(long, value_name = "TENANT", requires = "push", help = options::help(&SAMPLER, "SAMPLER_PUSH_TENANT"))]
    tenant: Option<String>,

    #[arg(
        long,
        value_name = "SECONDS",
        requires = "push",
        help = options::help(&SAMPLER, "SAMPLER_PUSH_INTERVAL"),
        default_value = options::default(&SAMPLER, "SAMPLER_PUSH_INTERVAL"),
        value_parser = options::number(&SAMPLER, "SAMPLER_PUSH_INTERVAL"),
    )]
    push_interval: f64,
}

fn label(text: &str) -> Result<Label, String> {
    if text.contains(',') {
        return Err("a label cannot contain a comma".to_owned());
    }
    text.parse::<Label>().map_err(|error| error.to_string())
}

impl PushOptions {
    /// The settings of the sampler.
    ///
    /// # Errors
    /// If a text has several lines: settings are lines.
    pub(super) fn settings(&self) -> Result<Vec<(&'static str, OsString)>, Failure> {
        let Some(push) = &self.push else { return Ok(Vec::new()) };
        let labels: Vec<_> = self.labels.iter().map(ToString::to_string).collect();
        let settings = [
            ("SAMPLER_PUSH", Some(push.to_string())),
            ("SAMPLER_PUSH_SERVICE", self.service.clone()),
            ("SAMPLER_PUSH_LABELS", Some(labels.join(",")).filter(|labels| !labels.is_empty())),
            ("SAMPLER_PUSH_TENANT", self.tenant.clone()),
            ("SAMPLER_PUSH_INTERVAL", Some(self.push_interval.to_string())),
        ];
        let settings: Vec<_> = settings.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
        for (_, value) in &settings {
            let is_line = || {
                ensure!(!value.contains(char::is_control), "`{}` has a control character", value.escape_debug());
                Ok(())
            };
            is_line().map_err(|error| Failure::new(exit::USAGE, error))?;
        }
        Ok(settings.into_iter().map(|(name, value)| (name, value.into())).collect())
    }

    /// The header Authorization for a process that does not inherit the variables of this one.
    pub(super) fn authorization(&self) -> Option<(&'static str, OsString)> {
        let value = self.push.as_ref().and_then(|_| std::env::var_os(AUTHORIZATION));
        value.map(|value| (AUTHORIZATION, value))
    }

    /// Clears the variables that the shell has for another run.
    pub(super) fn clear(&self, changes: &mut Changes) {
        changes.extend(VARIABLES.map(|name| (name.to_owned(), None)));
    }

    /// Says what became of the profiles, from the answers of the samplers.
    ///
    /// # Errors
    /// If all are lost, or no sampler has answered.
    pub(super) fn tell(&self, answers: impl IntoIterator<Item = String>, is_quiet: bool) -> Result<(), Failure> {
        let Some(push) = &self.push else { return Ok(()) };
        let mut sum = Sent::default();
        let mut is_told = false;
        for answer in answers {
            sum.add(&answer);
            is_told = true;
        }
        if !is_told {
            let why = "the sampler was ended before it could say how many profiles have arrived";
            return Err(Failure::new(exit::NOT_LOADED, anyhow!(why)));
        }
        let Sent { delivered, lost, error } = sum;
        if delivered == 0 && lost > 0 {
            let count = if lost == 1 { "the profile is".to_owned() } else { format!("all {lost} profiles are") };
            return Err(Failure::new(exit::NOT_LOADED, anyhow!("cannot send to {push}: {error}; {count} lost")));
        }
        if !is_quiet || lost > 0 {
            let profiles = if delivered == 1 { "1 profile" } else { &format!("{delivered} profiles") };
            let lost = if lost == 0 { String::new() } else { format!(", and {lost} lost: {error}") };
            eprintln!("corprof: {profiles} sent to {push}{lost}");
        }
        Ok(())
    }
}

/// What became of the profiles of all processes.
#[derive(Debug, Default, PartialEq, Eq)]
struct Sent {
    delivered: u64,
    lost: u64,
    error: String,
}

impl Sent {
    /// Adds the answer of a sampler.
    fn add(&mut self, answer: &str) {
        for (name, value) in answer.lines().filter_map(|line| line.split_once(' ')) {
            match name {
                "delivered" => self.delivered += value.parse().unwrap_or(0),
                "lost" => self.lost += value.parse().unwrap_or(0),
                "error" if !value.is_empty() => self.error = value.to_owned(),
                _ => {}
            }
        }
    }
}

/// The answer that a sampler has left beside its stop file, if it has.
pub(super) fn answer(file: &Path) -> Option<String> {
    folder::read(file).ok()
}

/// The pairs for an attach.
pub(super) fn pairs<'a>(settings: &'a [(&'static str, OsString)]) -> Vec<(&'a str, &'a OsStr)> {
    settings.iter().map(|(name, value)| (*name, value.as_os_str())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Command {
        #[command(flatten)]
        args: PushOptions,
    }

    fn parse(line: &str) -> Result<PushOptions, String> {
        let parsed = <Command as clap::Parser>::try_parse_from(["x"].into_iter().chain(line.split(' ')));
        parsed.map(|command| command.args).map_err(|error| error.to_string())
    }

    #[test]
    fn options_become_variables() {
        let line = "--push parca+http://a:7070/ --service shop --label region=eu --label stage=test --tenant me --push-interval 30";
        let settings = parse(line).unwrap().settings().unwrap();
        let expected = [
            ("SAMPLER_PUSH", "parca+http://a:7070"),
            ("SAMPLER_PUSH_SERVICE", "shop"),
            ("SAMPLER_PUSH_LABELS", "region=eu,stage=test"),
            ("SAMPLER_PUSH_TENANT", "me"),
            ("SAMPLER_PUSH_INTERVAL", "30"),
        ];
        assert_eq!(settings, expected.map(|(name, value)| (name, OsString::from(value))));
        assert_eq!(PushOptions::default().settings().unwrap(), []);
        assert!(VARIABLES.iter().all(|name| settings.iter().any(|(known, _)| known == name)));
    }

    #[test]
    fn options_are_checked() {
        for (line, said) in [
            ("--push http://a:4040", "pyroscope+http://HOST:4040"),
            ("--push pyroscope+https://a", "an agent beside the application"),
            ("--push otlp+http://a --label x", "write NAME=VALUE"),
            ("--push otlp+http://a --label x=1,y=2", "comma"),
            ("--push otlp+http://a --push-interval 0.1", "from 1 to 3600"),
            ("--service shop", "--push"),
        ] {
            let error = parse(line).unwrap_err();
            assert!(error.contains(said), "{line}: {error}");
        }
        let mut args = parse("--push otlp+http://a").unwrap();
        args.service = Some("a\nSAMPLER_OUT=/x".to_owned());
        assert!(args.settings().unwrap_err().error.to_string().contains("control character"));
    }

    #[test]
    fn answers_add_up() {
        let mut sent = Sent::default();
        for answer in ["", "delivered 3\nlost 0\nerror \n", "delivered 2\nlost 1\nerror no answer within 10.0 s\n"] {
            sent.add(answer);
        }
        assert_eq!(sent, Sent { delivered: 5, lost: 1, error: "no answer within 10.0 s".to_owned() });
        let args = parse("--push otlp+http://a").unwrap();
        args.tell(["delivered 1\nlost 1\nerror x\n".to_owned()], true).unwrap();
        assert!(args.tell([], true).unwrap_err().error.to_string().contains("was ended before"));
        let error = args.tell(["delivered 0\nlost 2\nerror refused\n".to_owned()], true).unwrap_err();
        assert_eq!(error.error.to_string(), "cannot send to otlp+http://a: refused; all 2 profiles are lost");
    }
}

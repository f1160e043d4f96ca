//! What is sent beside the profiles: names, labels, headers; and the bounds.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use ureq::http::HeaderValue;

use super::Destination;

/// The longest name or value that engines accept without a change of their configuration.
const LONGEST: usize = 1024;

/// A label of all profiles of a process: `region=eu-west`.
///
/// ```
/// let label: corprof_export::push::Label = "region=eu-west".parse()?;
/// assert_eq!(label.to_string(), "region=eu-west");
/// # Ok::<(), corprof_export::push::OptionError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label {
    pub(super) name: String,
    pub(super) value: String,
}

impl Label {
    /// A label. Engines know names of ASCII letters, digits and `_`; an OpenTelemetry Collector, too, gets them as they
    /// are.
    ///
    /// # Errors
    /// If the name is no such name or begins with a digit or with `__`, or one of the texts is empty or has more than
    /// 1,024 bytes.
    pub fn new(name: impl Into<String>, value: impl Into<String>) -> Result<Self, OptionError> {
        let name = name.into();
        let value = value.into();
        let is_word = name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_');
        let is_name = is_word && !name.is_empty() && !name.starts_with(|letter: char| letter.is_ascii_digit());
        if !is_name || name.starts_with("__") || name.len() > LONGEST {
            return Err(OptionError::LabelName { name });
        }
        if value.is_empty() || value.len() > LONGEST {
            return Err(OptionError::LabelValue { name });
        }
        Ok(Self { name, value })
    }
}

impl FromStr for Label {
    type Err = OptionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, value) = text.split_once('=').ok_or_else(|| OptionError::NoLabel { text: text.to_owned() })?;
        Self::new(name.trim(), value.trim())
    }
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.name, self.value)
    }
}

/// An option that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OptionError {
    /// A text that is not a label.
    #[error("`{text}` is not a label: write NAME=VALUE, such as region=eu-west")]
    NoLabel {
        /// The text.
        text: String,
    },

    /// A name that engines do not accept.
    #[error("`{name}` is not a name of a label: use letters, digits and _, and begin with a letter")]
    LabelName {
        /// The name.
        name: String,
    },

    /// A value that engines do not accept.
    #[error("the label `{name}` needs a value of 1 to {LONGEST} bytes")]
    LabelValue {
        /// The label's name.
        name: String,
    },

    /// A value that cannot be a header. The message does not show it: it may be a secret.
    #[error("the header {name} has a character that no header can have: give printable ASCII on one line")]
    Header {
        /// The header.
        name: &'static str,
    },
}

/// What a [`Pusher`](super::Pusher) sends, and where to.
#[derive(Clone)]
pub struct Options {
    pub(super) destination: Destination,
    pub(super) service: String,
    pub(super) labels: Vec<Label>,
    pub(super) headers: Vec<(&'static str, HeaderValue)>,
    pub(super) process: Process,
    pub(super) limits: Limits,
}

/// The attributes of the process.
#[derive(Debug, Clone)]
pub(super) struct Process {
    pub(super) id: u32,
    pub(super) host: Option<String>,
    /// Name and version of the runtime.
    pub(super) runtime: Option<(String, String)>,
}

impl Options {
    /// The profiles of this process, under the name of its service. The process id and the host's name are sent as
    /// well.
    pub fn new(destination: Destination, service: impl Into<String>) -> Self {
        let service = service.into();
        let process = Process { id: std::process::id(), host: host_name(), runtime: None };
        Self { destination, service, labels: Vec::new(), headers: Vec::new(), process, limits: Limits::default() }
    }

    /// Adds a label. A later label of the same name replaces an earlier one, or one that would be sent anyway, such as
    /// `host`.
    #[must_use]
    pub fn label(mut self, label: Label) -> Self {
        self.labels.retain(|known| known.name != label.name);
        self.labels.push(label);
        self
    }

    /// The runtime in the process: `.NET`, `10.0.14`.
    #[must_use]
    pub fn runtime(mut self, name: impl Into<String>, version: impl Into<String>) -> Self {
        self.process.runtime = Some((name.into(), version.into()));
        self
    }

    /// The header `Authorization`: `Bearer …` or `Basic …`.
    ///
    /// # Errors
    /// If it has a character that no header can have.
    pub fn authorization(self, value: &str) -> Result<Self, OptionError> {
        self.header("Authorization", value)
    }

    /// The header `X-Scope-OrgID`, by which Pyroscope and other engines of Grafana tell tenants.
    ///
    /// # Errors
    /// If it has a character that no header can have.
    pub fn tenant(self, value: &str) -> Result<Self, OptionError> {
        self.header("X-Scope-OrgID", value)
    }

    /// Other bounds than the usual ones.
    #[must_use]
    pub fn limits(self, limits: Limits) -> Self {
        Self { limits, ..self }
    }

    fn header(mut self, name: &'static str, value: &str) -> Result<Self, OptionError> {
        let mut value = HeaderValue::from_str(value).map_err(|_| OptionError::Header { name })?;
        // `Debug` does not show it.
        value.set_sensitive(true);
        self.headers.push((name, value));
        Ok(self)
    }

    /// The labels of a series, for engines with labels: names once each, those of the user first.
    pub(super) fn series(&self, metric: &str) -> Vec<(String, String)> {
        let mut labels: Vec<(String, String)> =
            vec![("__name__".to_owned(), metric.to_owned()), ("service_name".to_owned(), self.service.clone())];
        let given = self.labels.iter().map(|label| (label.name.clone(), label.value.clone()));
        let own = [
            self.process.host.clone().map(|host| ("host".to_owned(), host)),
            Some(("pid".to_owned(), self.process.id.to_string())),
            self.process.runtime.as_ref().map(|(name, version)| ("runtime".to_owned(), format!("{name} {version}"))),
        ];
        for label in given.chain(own.into_iter().flatten()) {
            if labels.iter().all(|known| known.0 != label.0) {
                labels.push(label);
            }
        }
        labels
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let headers: Vec<_> = self.headers.iter().map(|(name, _)| *name).collect();
        f.debug_struct("Options")
            .field("destination", &self.destination)
            .field("service", &self.service)
            .field("labels", &self.labels)
            .field("headers", &headers)
            .field("process", &self.process)
            .field("limits", &self.limits)
            .finish()
    }
}

/// The bounds of a [`Pusher`](super::Pusher).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// How long one request may take, from the look-up of the name to the end of the answer. 10 seconds.
    pub request: Duration,
    /// The pause after the first failure; each further one doubles it. 1 second.
    pub first_pause: Duration,
    /// The longest pause, also if a server asks for a longer one by `Retry-After`. 30 seconds.
    pub longest_pause: Duration,
    /// For how long a profile is sent again and again. Then it is lost. 5 minutes.
    pub retry_for: Duration,
    /// How many profiles may wait. If there are more, the oldest is lost. 64.
    pub waiting: usize,
    /// How many bytes may wait. 8 MiB.
    pub bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            request: Duration::from_secs(10),
            first_pause: Duration::from_secs(1),
            longest_pause: Duration::from_secs(30),
            retry_for: Duration::from_secs(300),
            waiting: 64,
            bytes: 8 << 20,
        }
    }
}

/// The name of this machine, or of the container.
fn host_name() -> Option<String> {
    let from_system = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let from_environment = || ["HOSTNAME", "COMPUTERNAME"].iter().find_map(|name| std::env::var(name).ok());
    let name = from_system.or_else(from_environment)?.trim().to_owned();
    (1..=LONGEST).contains(&name.len()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_checked() {
        let label = |text: &str| text.parse::<Label>().map(|label| label.to_string());
        assert_eq!(label(" region = eu=west "), Ok("region=eu=west".to_owned()));
        for (text, said) in [
            ("region", "write NAME=VALUE"),
            ("=x", "is not a name"),
            ("1a=x", "begin with a letter"),
            ("a.b=x", "is not a name"),
            ("__name__=x", "is not a name"),
            ("a=", "needs a value"),
        ] {
            let error = label(text).unwrap_err().to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
        assert!(Label::new("a", "x".repeat(1025)).is_err());
    }

    #[test]
    fn secrets_are_not_shown() {
        let options = Options::new("parca+http://a:7070".parse().unwrap(), "shop");
        let error = options.clone().authorization("Bearer s3cret\r\nX: y").unwrap_err();
        assert!(!error.to_string().contains("s3cret") && error.to_string().contains("Authorization"), "{error}");
        let options = options.authorization("Bearer s3cret").unwrap().tenant("team").unwrap();
        let shown = format!("{options:?}");
        assert!(!shown.contains("s3cret") && shown.contains("Authorization"), "{shown}");
    }

    #[test]
    fn labels_of_the_user_come_first() {
        let options = Options::new("parca+http://a:7070".parse().unwrap(), "shop").runtime(".NET", "10.0.14");
        let options = ["pid=9", "region=a", "region=b"]
            .iter()
            .fold(options, |options, label| options.label(label.parse().unwrap()));
        let series = options.series("process_cpu");
        let value = |name: &str| {
            let mut found = series.iter().filter(|(known, _)| known == name).map(|(_, value)| value.as_str());
            (found.next(), found.next())
        };
        assert_eq!(value("__name__"), (Some("process_cpu"), None));
        assert_eq!(value("service_name"), (Some("shop"), None));
        assert_eq!(value("pid"), (Some("9"), None));
        assert_eq!(value("region"), (Some("b"), None));
        assert_eq!(value("runtime"), (Some(".NET 10.0.14"), None));
    }
}

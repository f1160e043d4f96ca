//! The part of `sampler` that sends the samples of each interval to an engine.

use std::time::{Duration, Instant, SystemTime};

use corprof_export::push::{Counts, Label, Options, Pusher};
use corprof_export::{Profile, application_name};
use corprof_profilers::settings::{SettingError, Settings};

/// How long the end of the application, or a detach, may wait for what is not sent yet.
const FLUSH: Duration = Duration::from_secs(3);

/// The settings SAMPLER_PUSH and SAMPLER_PUSH_….
pub(super) struct PushOptions {
    options: Options,
    interval: Duration,
}

impl PushOptions {
    /// None without SAMPLER_PUSH.
    pub(super) fn read(settings: &Settings) -> Result<Option<Self>, SettingError> {
        let url = settings.of("SAMPLER_PUSH");
        if url.path().is_none() {
            return Ok(None);
        }
        let destination = url.parsed(str::parse)?;
        let text = |variable: &'static str| {
            let text = settings.of(variable).parsed(|text| Ok::<_, SettingError>(text.trim().to_owned()))?;
            Ok(Some(text).filter(|text| !text.is_empty()))
        };
        // The variable of the application's own telemetry.
        let service = text("SAMPLER_PUSH_SERVICE")?.or(text("OTEL_SERVICE_NAME")?).unwrap_or_else(application_name);
        let mut options = Options::new(destination, service);
        let labels = settings.of("SAMPLER_PUSH_LABELS").parsed(|text| {
            let labels = text.split(',').map(str::trim).filter(|label| !label.is_empty());
            labels.map(str::parse::<Label>).collect::<Result<Vec<_>, _>>()
        })?;
        for label in labels {
            options = options.label(label);
        }
        if let Some(tenant) = text("SAMPLER_PUSH_TENANT")? {
            options = options.tenant(&tenant).map_err(|error| settings.of("SAMPLER_PUSH_TENANT").error(error))?;
        }
        if let Some(secret) = text("SAMPLER_PUSH_AUTHORIZATION")? {
            let setting = settings.of("SAMPLER_PUSH_AUTHORIZATION");
            options = options.authorization(&secret).map_err(|error| setting.error(error))?;
        }
        let seconds = settings.of("SAMPLER_PUSH_INTERVAL").number()?;
        Ok(Some(Self { options, interval: Duration::from_secs_f64(seconds) }))
    }

    /// The version of the runtime in the process.
    pub(super) fn runtime(self, runtime: &str) -> Self {
        let (name, version) = runtime.rsplit_once(' ').unwrap_or((runtime, ""));
        Self { options: self.options.runtime(name, version), ..self }
    }
}

/// Sends, from the moment at which sampling begins.
pub(super) struct Push {
    pusher: Pusher,
    interval: Duration,
    begun: Instant,
    since: SystemTime,
    is_told: bool,
}

impl Push {
    pub(super) fn start(options: PushOptions, delay: Duration) -> Result<Self, corprof_export::push::StartError> {
        Ok(Self {
            pusher: Pusher::start(options.options)?,
            interval: options.interval,
            begun: Instant::now() + delay,
            since: SystemTime::now() + delay,
            is_told: false,
        })
    }

    /// Whether the interval is over.
    pub(super) fn is_due(&self) -> bool {
        self.begun.elapsed() >= self.interval
    }

    /// Sends the samples of the interval, and begins the next one. This does not wait for the network.
    pub(super) fn push(&mut self, part: Profile) {
        let mut part = part.started_at(self.since);
        part.set_duration(self.begun.elapsed());
        (self.begun, self.since) = (Instant::now(), SystemTime::now());
        self.pusher.push(part);
        if let (Some(error), false) = (self.pusher.counts().error, self.is_told) {
            self.is_told = true;
            eprintln!("sampler: cannot send to {}: {error}", self.pusher.destination());
        }
    }

    /// Sends what is left, within a time limit.
    pub(super) fn finish(self, is_reporting: bool) -> Counts {
        let destination = self.pusher.destination().clone();
        let counts = self.pusher.finish(FLUSH);
        if is_reporting {
            eprintln!("sampler: {destination}: {counts}");
        }
        counts
    }
}

/// The counts as lines for the command, which reads them from the file beside SAMPLER_STOP.
pub(super) fn lines(counts: &Counts) -> String {
    let Counts { delivered, lost, error, .. } = counts;
    let error = error.as_deref().filter(|_| *lost > 0).unwrap_or_default();
    format!("delivered {delivered}\nlost {lost}\nerror {error}\n")
}

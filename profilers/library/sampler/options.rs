//! The settings of the sampler.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use corprof::sampler::{Mode, Strategy};
use corprof_export::{Output, OutputFile};
use corprof_profilers::is_recording;
use corprof_profilers::settings::{SettingError, Settings};

use super::push::PushOptions;
use super::recording::{EventKinds, Rotation};
use super::slow_calls;
use super::traced_calls::TracedCalls;
use crate::async_callers::WantedCallers;

pub(super) struct Options {
    /// None if the samples are sent or recorded.
    pub(super) output: Option<Output>,
    pub(super) recording: Option<OutputFile>,
    /// None if the recording is one file.
    pub(super) rotation: Option<Rotation>,
    /// The runtime's events that are recorded.
    pub(super) events: Option<EventKinds>,
    /// Whether a second sampler records threads that wait: with [`Mode::Wall`] the one does.
    pub(super) has_waits: bool,
    pub(super) push: Option<PushOptions>,
    pub(super) mode: Mode,
    pub(super) is_only_mine: bool,
    pub(super) has_raw_names: bool,
    pub(super) callers: WantedCallers,
    pub(super) hertz: f64,
    pub(super) budget_percent: f64,
    pub(super) delay: Duration,
    /// None: until the application ends.
    pub(super) duration: Option<Duration>,
    pub(super) stop: Option<PathBuf>,
    /// None: the sampler chooses.
    pub(super) strategy: Option<Strategy>,
    pub(super) is_reporting: bool,
    /// None if no methods are traced.
    pub(super) traced: Option<Arc<TracedCalls>>,
    /// How many slow calls are kept.
    pub(super) slowest: usize,
}

impl Options {
    /// Reads all settings at start-up, so a wrong value is an error then and not at exit.
    pub(super) fn read(settings: &Settings) -> Result<Self, SettingError> {
        let push = PushOptions::read(settings)?;
        let out = settings.of("SAMPLER_OUT");
        let is_file = push.is_none() || out.path().is_some();
        if is_file {
            out.output()?;
        }
        let is_recording = out.path().is_some_and(|path| is_recording(&path));
        if is_recording && push.is_some() {
            return Err(out.error("samples are sent or recorded, not both: unset SAMPLER_PUSH, or give another format"));
        }
        let is_only_mine = settings.of("SAMPLER_CODE").word(&[("all", false), ("mine", true)])?;
        if is_recording && is_only_mine {
            return Err(settings.of("SAMPLER_CODE").error("a recording has all frames: give all, or another format"));
        }
        let asked_events = settings.of("SAMPLER_EVENTS");
        let events = asked_events.words()?;
        if !events.is_empty() && !is_recording {
            return Err(asked_events.error("only a recording has events: give a file that ends in .nettrace"));
        }
        let delay = seconds(settings, "SAMPLER_DELAY")?;
        let traced = slow_calls::traced(settings, is_file, delay)?;
        let strategies = [
            ("auto", None),
            ("suspended", Some(Strategy::SuspendedRuntime)),
            ("signals", Some(Strategy::Signals)),
            ("seeded", Some(Strategy::Seeded)),
        ];
        let mode = settings.of("SAMPLER_MODE").word(&[("cpu", Mode::Cpu), ("wall", Mode::Wall)])?;
        let options = Self {
            output: if is_file && !is_recording { Some(out.parsed(|name| Output::new(name))?) } else { None },
            rotation: Rotation::read(settings, is_recording)?,
            recording: if is_recording { Some(out.parsed(|name| OutputFile::new(name))?) } else { None },
            has_waits: mode == Mode::Cpu && events.iter().any(|event| event == "wait"),
            events: EventKinds::of(&events),
            push,
            mode,
            is_only_mine,
            has_raw_names: settings.has_raw_names(),
            callers: WantedCallers::read(settings)?,
            hertz: settings.of("SAMPLER_HZ").number()?,
            budget_percent: settings.of("SAMPLER_BUDGET").number()?,
            delay,
            duration: Some(seconds(settings, "SAMPLER_DURATION")?).filter(|duration| !duration.is_zero()),
            stop: settings.of("SAMPLER_STOP").path(),
            strategy: settings.of("SAMPLER_STRATEGY").word(&strategies)?,
            is_reporting: settings.of("SAMPLER_REPORT").word(&[("all", true), ("none", false)])?,
            traced,
            slowest: settings.of("SAMPLER_SLOWEST").number()?,
        };
        if options.mode == Mode::Wall && options.strategy == Some(Strategy::Signals) {
            return Err(settings
                .of("SAMPLER_STRATEGY")
                .error("signals sample running threads only: set SAMPLER_MODE=cpu"));
        }
        Ok(options)
    }
}

fn seconds(settings: &Settings, variable: &'static str) -> Result<Duration, SettingError> {
    Ok(Duration::from_secs_f64(settings.of(variable).number()?))
}

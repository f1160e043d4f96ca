//! What a profile says of its run, as text for every format.

use std::time::Duration;

use crate::about::Mode;
use crate::heat::HeatMap;
use crate::table::Table;
use crate::{Change, FrameId, Profile, Unit};

/// Below so many samples, shares are more chance than fact.
const FEW_SAMPLES: u64 = 200;
/// A sampler that took less than this share of the rounds it was asked for is said in red.
const LOW_RATE: f64 = 0.5;

impl Profile {
    /// The meaning of the weights. Every format contains it.
    #[must_use]
    pub fn in_mode(mut self, mode: Mode) -> Self {
        self.about.mode = Some(mode);
        self
    }

    /// How long was profiled, by the clock. Without it, the last sample is the end.
    pub fn set_duration(&mut self, duration: Duration) {
        self.about.duration = Some(duration);
    }

    /// How many times the sampler has looked at the threads. A round has no sample if no thread was at work.
    pub fn set_rounds(&mut self, rounds: u64) {
        self.about.rounds = Some(rounds);
    }

    /// Says that one thread stands for all: no picture says how many there are.
    #[must_use]
    pub fn merging_threads(mut self) -> Self {
        self.about.merges_threads = true;
        self
    }

    /// How often a second was in fact sampled, beside the interval that was asked for
    /// ([`with_interval`](Self::with_interval)). Below half of that, pictures warn.
    pub fn set_rate_reached(&mut self, hertz: f64) {
        self.about.rate_reached = Some(hertz);
    }

    /// Counts missing samples by reason: "rounds over the budget", 5125. A later number replaces that of the same
    /// reason; 0 removes it.
    pub fn set_skipped(&mut self, reason: &str, count: u64) {
        self.about.skipped.retain(|(known, _)| known != reason);
        if count > 0 {
            self.about.skipped.push((reason.to_owned(), count));
        }
    }

    /// Something a reader should know. The same words are kept once.
    pub fn note(&mut self, text: impl Into<String>) {
        add(&mut self.about.notes, text.into());
    }

    /// Something a reader should know, which may change: a later text replaces that of the same subject, and an empty
    /// one takes it back.
    pub fn set_note(&mut self, subject: &str, text: impl Into<String>) {
        let text = text.into();
        self.about.changing.retain(|(known, _)| known != subject);
        if !text.is_empty() {
            self.about.changing.push((subject.to_owned(), text));
        }
    }

    /// Something without which a reader would be misled; pictures show it in red. The same words are kept once. That
    /// there are few samples, or less than half of those asked for, is added without asking.
    pub fn warn(&mut self, text: impl Into<String>) {
        add(&mut self.about.warnings, text.into());
    }

    /// Shows a table on the HTML page, above the flame graph.
    pub fn set_table(&mut self, table: Table) {
        self.about.table = Some(table);
    }

    /// Shows a heat map, or a timeline, on the HTML page, above the flame graph. A click on a cell, or a range of them,
    /// has the flame graph be of that moment. The weights of threads and stacks are the sums of the map's.
    pub fn set_heat_map(&mut self, map: HeatMap) {
        self.about.heat = Some(map);
    }

    /// Says how a method differs from an older profile, with words for it. The HTML page then colours methods by their
    /// changes, and not by their kinds.
    ///
    /// ```
    /// # use corprof_export::{Change, Frame, Profile, Unit};
    /// let mut profile = Profile::new("shop", Unit::Samples);
    /// let total = profile.frame(Frame::managed("Shop.Order.Total()"));
    /// profile.set_change(total, Change::More, "5 % before, 9 % now");
    /// ```
    pub fn set_change(&mut self, frame: FrameId, change: Change, words: impl Into<String>) {
        self.about.changes.insert(frame, (change, words.into()));
    }

    /// What every format that has room for it says of the run, for a terminal: a line of facts, then warnings and
    /// notes.
    pub fn caption(&self) -> Vec<String> {
        Caption::new(self).lines().collect()
    }

    /// How long it took, as was said, or until the last sample.
    pub(crate) fn duration(&self) -> Duration {
        let last = || self.threads.iter().flat_map(|thread| self.timed(thread)).map(|(at, _)| at).max();
        self.about.duration.unwrap_or_else(|| Duration::from_nanos(last().unwrap_or(0)))
    }
}

fn add(texts: &mut Vec<String>, text: String) {
    if !texts.contains(&text) {
        texts.push(text);
    }
}

/// The text above a picture, and in the comments of the other formats.
#[derive(Debug, PartialEq)]
pub(crate) struct Caption {
    /// In few words: mode, duration, samples, rounds, rate.
    pub(crate) facts: Vec<String>,
    pub(crate) warnings: Vec<String>,
    /// The skipped rounds, then notes.
    pub(crate) notes: Vec<String>,
}

impl Caption {
    pub(crate) fn new(profile: &Profile) -> Self {
        let about = &profile.about;
        let samples = profile.samples();
        let asked = profile.interval.map(|interval| 1.0 / interval.as_secs_f64()).filter(|rate| rate.is_finite());
        let mut facts: Vec<String> = about.mode.map(|mode| mode.words().to_owned()).into_iter().collect();
        if let Some(duration) = about.duration.or_else(|| profile.is_timed().then(|| profile.duration())) {
            facts.push(seconds(duration));
        }
        let counted = plural(samples, if about.mode == Some(Mode::Calls) { "path" } else { "sample" });
        facts.push(match about.rounds {
            Some(rounds) => format!("{counted} in {}", plural(rounds, "round")),
            None => counted,
        });
        facts.extend(match (asked, about.rate_reached) {
            (Some(asked), Some(reached)) => Some(format!("{} Hz asked, {} Hz reached", rate(asked), rate(reached))),
            (Some(asked), None) => Some(format!("{} Hz", rate(asked))),
            (None, Some(reached)) => Some(format!("{} Hz reached", rate(reached))),
            (None, None) => None,
        });
        // A heat map does not tell threads apart.
        let tells_threads = !about.merges_threads && about.heat.as_ref().is_none_or(HeatMap::is_timeline);
        if about.mode != Some(Mode::Calls) && tells_threads {
            facts.push(plural(profile.threads.len() as u64, "thread"));
        }
        if profile.process != 0 {
            facts.push(format!("process {}", profile.process));
        }

        let mut warnings = about.warnings.clone();
        let is_sampled = profile.unit == Unit::Samples
            || profile.interval.is_some()
            || matches!(about.mode, Some(Mode::Cpu | Mode::Wall));
        if is_sampled && about.mode != Some(Mode::Calls) && (1..FEW_SAMPLES).contains(&samples) {
            // Twice the standard deviation of a share of one half.
            let off = 100.0 / (samples as f64).sqrt();
            let few = plural(samples, "sample");
            warnings.push(format!("Only {few}: shares may be off by {off:.0} points by chance alone. Profile longer."));
        }
        if let (Some(asked), Some(reached)) = (asked, about.rate_reached)
            && reached < asked * LOW_RATE
        {
            let reached = rate(reached);
            let asked = rate(asked);
            warnings.push(format!("Sampled {reached} times a second instead of {asked}: see the skipped rounds."));
        }

        let mut notes = Vec::new();
        if !about.skipped.is_empty() {
            let parts = about.skipped.iter().map(|(reason, count)| format!("{} {reason}", thousands(*count)));
            notes.push(format!("Skipped: {}", parts.collect::<Vec<_>>().join(", ")));
        }
        let losses = profile.losses();
        if losses.frames_cut > 0 {
            let times = thousands(losses.frames_cut);
            notes.push(format!("Stacks cut {times} times, as the limit of distinct stacks was reached"));
        }
        if losses.samples_dropped > 0 {
            notes.push(format!(
                "{} dropped: their thread is not of this profile",
                plural(losses.samples_dropped, "sample")
            ));
        }
        notes.extend(about.notes.iter().cloned());
        notes.extend(about.changing.iter().map(|(_, text)| text.clone()));
        Self { facts, warnings, notes }
    }

    /// All of it, a line each: the facts first, then warnings.
    pub(crate) fn lines(&self) -> impl Iterator<Item = String> + '_ {
        let warnings = self.warnings.iter().map(|warning| format!("Warning: {warning}"));
        [self.facts.join(" · ")].into_iter().chain(warnings).chain(self.notes.iter().cloned())
    }
}

fn plural(count: u64, noun: &str) -> String {
    format!("{} {noun}{}", thousands(count), if count == 1 { "" } else { "s" })
}

/// 1204567 as 1,204,567.
pub(crate) fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn rate(hertz: f64) -> String {
    if hertz < 10.0 { format!("{hertz:.1}") } else { format!("{hertz:.0}") }
}

fn seconds(duration: Duration) -> String {
    match duration.as_secs_f64() {
        seconds if seconds < 1.0 => format!("{:.0} ms", seconds * 1e3),
        seconds if seconds < 120.0 => format!("{seconds:.1} s"),
        seconds if seconds < 7_200.0 => format!("{:.1} min", seconds / 60.0),
        seconds => format!("{:.1} h", seconds / 3_600.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Frame;

    #[test]
    fn a_long_time_is_told_in_hours() {
        let told = [0.25, 90.0, 600.0, 86_400.0].map(|time| seconds(Duration::from_secs_f64(time)));
        assert_eq!(told, ["250 ms", "90.0 s", "10.0 min", "24.0 h"]);
    }

    fn sampled(count: u64) -> Profile {
        let mut profile =
            Profile::new("shop", Unit::Samples).with_interval(Duration::from_millis(10)).in_mode(Mode::Cpu);
        let thread = profile.thread(1, "main");
        let frame = profile.frame(Frame::managed("Main()"));
        let stack = profile.stack_root_first([frame]);
        for at in 0..count {
            profile.sample(thread, Duration::from_millis(at * 10), stack, 1);
        }
        profile.set_duration(Duration::from_millis(5_230));
        profile
    }

    #[test]
    fn the_caption_says_mode_duration_samples_and_rates() {
        let mut profile = sampled(1_204).of_process(4711);
        profile.set_rounds(456);
        profile.set_rate_reached(87.3);
        let expected = "processor time · 5.2 s · 1,204 samples in 456 rounds · 100 Hz asked, 87 Hz reached · 1 thread · process 4711";
        assert_eq!(profile.caption(), [expected]);
    }

    #[test]
    fn a_note_that_no_longer_holds_is_taken_back() {
        let mut profile = sampled(1);
        let says = |profile: &Profile, text: &str| profile.caption().iter().any(|line| line.contains(text));
        profile.set_note("missed work", "12 % is in no sample");
        profile.set_note("missed work", "15 % is in no sample");
        assert!(says(&profile, "15 %") && !says(&profile, "12 %"));
        profile.set_note("missed work", String::new());
        assert!(!says(&profile, "in no sample"));
    }

    #[test]
    fn few_samples_and_a_low_rate_are_warned_of() {
        let mut profile = sampled(100);
        profile.set_rate_reached(7.25);
        let warnings = Caption::new(&profile).warnings;
        assert_eq!(
            warnings,
            [
                "Only 100 samples: shares may be off by 10 points by chance alone. Profile longer.",
                "Sampled 7.2 times a second instead of 100: see the skipped rounds.",
            ]
        );
        assert_eq!(Caption::new(&sampled(200)).warnings, [""; 0]);
    }

    #[test]
    fn what_was_skipped_is_said_once_with_its_last_number() {
        let mut profile = sampled(300);
        for count in [5, 5_125] {
            profile.set_skipped("rounds over the budget", count);
            profile.set_skipped("late", 2);
            profile.note("Start-up left out");
        }
        profile.set_skipped("late", 0);
        let notes = Caption::new(&profile).notes;
        assert_eq!(notes, ["Skipped: 5,125 rounds over the budget", "Start-up left out"]);
    }
}

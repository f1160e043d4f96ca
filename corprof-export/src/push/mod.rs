//! Sends profiles to the engines that a fleet has: Grafana Pyroscope, Parca, an OpenTelemetry Collector.
//!
//! For agents, which run in every process: they send a profile of each interval, which the engines store and add up.
//!
//! ```no_run
//! use std::time::{Duration, SystemTime};
//! use corprof_export::push::{Options, Pusher};
//! use corprof_export::{Profile, Unit};
//!
//! let options = Options::new("pyroscope+http://localhost:4040".parse()?, "shop").label("region=eu-west".parse()?);
//! let pusher = Pusher::start(options)?;
//! let mut profile = Profile::summed("Shop.Web", Unit::Nanoseconds);
//! // ... every ten seconds, on a thread of the profiler:
//! let mut part = profile.take_part().started_at(SystemTime::now() - Duration::from_secs(10));
//! part.set_duration(Duration::from_secs(10));
//! pusher.push(part);
//! // ... at the end:
//! println!("{}", pusher.finish(Duration::from_secs(3)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! - **Nothing waits for the network.** [`Pusher::push`] encodes the profile and returns; a thread of the pusher sends
//!   it. Each request has a time limit. Only [`Pusher::finish`] waits, as long as it is told.
//! - **Memory is bounded.** Profiles that cannot be sent wait, within [`Limits`]. If there are more, the oldest is
//!   lost.
//! - **Losses are counted**, by [`Counts`] and in the following profiles: as a comment in pprof, as the attribute
//!   `corprof.profiles.lost` in OTLP.
//! - **Retries**: after a failure of the connection, and after the codes 408, 429 and 500 and above, with pauses that
//!   double (`Retry-After` sets another one), for at most five minutes. Other codes lose the profile at once. If the
//!   connection breaks before the answer, an engine may store a profile twice.
//!
//! | engine | API | format | threads |
//! |---|---|---|---|
//! | Pyroscope, Grafana Alloy | `/push.v1.PusherService/Push`, by Connect | pprof | summed: each would be a series of its own |
//! | Parca | `/parca.profilestore.v1alpha1.ProfileStoreService/WriteRaw`, by gRPC-Web | pprof | labels of samples |
//! | OpenTelemetry Collector | `/v1development/profiles`, OTLP over HTTP | OTLP profiles (alpha) | attributes of samples |
//!
//! OTLP needs the feature `push-otlp`. There is no TLS: send to an agent beside the application, which sends on.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::Profile;
use message::Message;

mod destination;
mod http;
mod message;
mod options;
#[cfg(feature = "push-otlp")]
mod otlp;
mod random;

pub use destination::{Destination, DestinationError, Engine};
pub use options::{Label, Limits, OptionError, Options};

/// The pause between attempts at the end.
const LAST_PAUSE: Duration = Duration::from_millis(200);
/// The attempts for one profile at the end. If these fail, the server is not there, and the rest is lost.
const LAST_ATTEMPTS: u32 = 3;

/// Sends profiles, on a thread of its own. Dropping it ends that thread, without a wait; what was not sent is lost.
#[derive(Debug)]
pub struct Pusher {
    options: Arc<Options>,
    shared: Arc<Shared>,
}

/// Why a [`Pusher`] cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The engine's format is not built in.
    #[error("OTLP is not built in: build corprof-export with its feature `push-otlp`, or send to Pyroscope or Parca")]
    NoOtlp,

    /// The system gives no thread.
    #[error("cannot start a thread: {0}")]
    Thread(#[from] std::io::Error),
}

/// What became of the profiles.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// How many profiles the engine has accepted.
    pub delivered: u64,
    /// How many are lost.
    pub lost: u64,
    /// How many samples these had.
    pub lost_samples: u64,
    /// How many wait, or are being sent.
    pub waiting: u64,
    /// The last error. A success does not clear it.
    pub error: Option<String>,
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let profiles = |count: u64| if count == 1 { "1 profile".to_owned() } else { format!("{count} profiles") };
        write!(f, "{} delivered, {} lost", profiles(self.delivered), self.lost)?;
        if self.waiting > 0 {
            write!(f, ", {} waiting", self.waiting)?;
        }
        match &self.error {
            Some(error) if self.lost > 0 || self.waiting > 0 => write!(f, " ({error})"),
            _ => Ok(()),
        }
    }
}

impl Pusher {
    /// Starts the thread. Nothing is sent yet, so a server that is not there is no error.
    ///
    /// # Errors
    /// If the engine's format is not built in, or the system gives no thread.
    pub fn start(options: Options) -> Result<Self, StartError> {
        if options.destination.engine() == Engine::Otlp && cfg!(not(feature = "push-otlp")) {
            return Err(StartError::NoOtlp);
        }
        let options = Arc::new(options);
        let shared = Arc::new(Shared::default());
        let sender = Sender { options: Arc::clone(&options), shared: Arc::clone(&shared) };
        thread::Builder::new().name("corprof push".to_owned()).spawn(move || sender.run())?;
        Ok(Self { options, shared })
    }

    /// Where to.
    pub fn destination(&self) -> &Destination {
        &self.options.destination
    }

    /// Sends a profile later, on the other thread. This one encodes it: a millisecond for some thousand stacks. A
    /// profile without samples is not sent.
    pub fn push(&self, mut profile: Profile) {
        let samples = profile.samples();
        if samples == 0 {
            return;
        }
        let Counts { lost, error, .. } = self.counts();
        if lost > 0 {
            let why = error.unwrap_or_default();
            profile.note(format!("{lost} earlier profiles of this process have not reached the engine: {why}"));
        }
        let encoded = message::encode(&profile, &self.options, lost);
        drop(profile);
        let mut state = self.shared.lock();
        match encoded {
            Ok(message) => state.add(Waiting { message, samples, since: Instant::now() }, &self.options.limits),
            Err(error) => state.lose(samples, format!("cannot encode the profile: {error}")),
        }
        drop(state);
        self.shared.changed.notify_all();
    }

    /// The counts so far.
    pub fn counts(&self) -> Counts {
        self.shared.lock().counts()
    }

    /// Sends what waits, and ends. It returns when all is sent, or the server is not there, but at the latest after
    /// `within`; what is not sent then is lost.
    pub fn finish(self, within: Duration) -> Counts {
        // An hour is as good as any longer time.
        let deadline = Instant::now() + within.min(Duration::from_secs(3600));
        let mut state = self.shared.lock();
        state.close = Some(deadline);
        self.shared.changed.notify_all();
        while !state.has_ended {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state = self.shared.wait(state, left);
        }
        let mut counts = state.counts();
        if counts.waiting > 0 {
            counts.lost += counts.waiting;
            counts.lost_samples += state.waiting_samples();
            counts.waiting = 0;
            counts.error.get_or_insert_with(|| format!("not sent within {:.1} s", within.as_secs_f64()));
        }
        counts
    }
}

impl Drop for Pusher {
    fn drop(&mut self) {
        self.shared.lock().close.get_or_insert_with(Instant::now);
        self.shared.changed.notify_all();
    }
}

/// A profile that waits.
#[derive(Debug)]
struct Waiting {
    message: Message,
    samples: u64,
    since: Instant,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Waiting>,
    /// The bytes of these.
    bytes: usize,
    /// The samples of the profile that is being sent.
    sending: Option<u64>,
    /// Without `waiting`.
    counts: Counts,
    /// Set at the end: until then the rest may be sent.
    close: Option<Instant>,
    has_ended: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>, time: Duration) -> MutexGuard<'a, State> {
        self.changed.wait_timeout(state, time).unwrap_or_else(PoisonError::into_inner).0
    }
}

impl State {
    fn add(&mut self, waiting: Waiting, limits: &Limits) {
        if self.has_ended {
            return self.lose(waiting.samples, "the thread that sends has ended".to_owned());
        }
        self.bytes += waiting.message.bytes.len();
        self.waiting.push_back(waiting);
        while self.waiting.len() > limits.waiting || self.bytes > limits.bytes {
            let Some(oldest) = self.take() else { break };
            let why = self.counts.error.take().unwrap_or_else(|| "too many profiles wait".to_owned());
            self.lose(oldest.samples, why);
        }
    }

    /// The oldest.
    fn take(&mut self) -> Option<Waiting> {
        let oldest = self.waiting.pop_front()?;
        self.bytes -= oldest.message.bytes.len();
        Some(oldest)
    }

    fn lose(&mut self, samples: u64, error: String) {
        self.counts.lost += 1;
        self.counts.lost_samples += samples;
        self.counts.error = Some(error);
    }

    fn counts(&self) -> Counts {
        Counts { waiting: self.waiting.len() as u64 + u64::from(self.sending.is_some()), ..self.counts.clone() }
    }

    fn waiting_samples(&self) -> u64 {
        self.waiting.iter().map(|waiting| waiting.samples).sum::<u64>() + self.sending.unwrap_or(0)
    }
}

/// The thread's part.
struct Sender {
    options: Arc<Options>,
    shared: Arc<Shared>,
}

impl Sender {
    fn run(self) {
        let client = http::Client::new();
        while let Some(waiting) = self.next() {
            let outcome = self.deliver(&client, &waiting);
            let mut state = self.shared.lock();
            state.sending = None;
            match outcome {
                Ok(()) => state.counts.delivered += 1,
                Err(Lost { why, is_all }) => {
                    state.lose(waiting.samples, why);
                    if is_all {
                        return; // the rest is lost with this
                    }
                }
            }
        }
    }

    /// Waits for a profile. None at the end.
    fn next(&self) -> Option<Waiting> {
        let mut state = self.shared.lock();
        loop {
            if let Some(waiting) = state.take() {
                state.sending = Some(waiting.samples);
                return Some(waiting);
            }
            if state.close.is_some() {
                return None;
            }
            // Woken by a profile or the end; this limit is for nothing but an unforeseen case.
            state = self.shared.wait(state, Duration::from_secs(60));
        }
    }

    /// Sends a profile, again and again within the limits.
    fn deliver(&self, client: &http::Client, waiting: &Waiting) -> Result<(), Lost> {
        let limits = &self.options.limits;
        let mut pause = limits.first_pause;
        let mut last_attempts = 0;
        loop {
            let close = self.shared.lock().close;
            let left = close.map(|close| close.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Err(Lost { why: "not sent before the end".to_owned(), is_all: true });
            }
            let timeout = left.map_or(limits.request, |left| left.min(limits.request));
            let Err(failure) = client.send(&self.options, &waiting.message, timeout) else { return Ok(()) };
            if !failure.is_passing || waiting.since.elapsed() >= limits.retry_for {
                return Err(Lost { why: failure.text, is_all: false });
            }
            if close.is_some() {
                last_attempts += 1;
                if last_attempts >= LAST_ATTEMPTS {
                    return Err(Lost { why: failure.text, is_all: true });
                }
            }
            self.shared.lock().counts.error = Some(failure.text);
            self.pause(failure.after.map_or_else(|| spread(pause), |after| after.min(limits.longest_pause)));
            pause = pause.saturating_mul(2).min(limits.longest_pause);
        }
    }

    /// Waits so long, or until the end begins; then a moment only.
    fn pause(&self, time: Duration) {
        let start = Instant::now();
        let mut state = self.shared.lock();
        loop {
            let time = if state.close.is_some() { time.min(LAST_PAUSE) } else { time };
            let left = time.saturating_sub(start.elapsed());
            if left.is_zero() {
                return;
            }
            state = self.shared.wait(state, left);
        }
    }
}

impl Drop for Sender {
    /// Also after a panic: nobody waits for a thread that is gone.
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.has_ended = true;
        let mut unsent: Vec<_> = state.sending.take().into_iter().collect();
        unsent.extend(state.waiting.drain(..).map(|waiting| waiting.samples));
        for samples in unsent {
            let why = state.counts.error.take().unwrap_or_else(|| "not sent before the end".to_owned());
            state.lose(samples, why);
        }
        state.bytes = 0;
        drop(state);
        self.shared.changed.notify_all();
    }
}

/// A profile that will not be delivered, and whether no other will be either.
struct Lost {
    why: String,
    is_all: bool,
}

/// Between three and five quarters of a pause: a fleet does not come back all at once.
fn spread(pause: Duration) -> Duration {
    let quarter = pause / 4;
    (pause - quarter).saturating_add(quarter.mul_f64((random::random() % 1000) as f64 / 500.0))
}

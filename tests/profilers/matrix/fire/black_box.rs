//! The current call of each thread: in memory, for the watch that looks for calls that do not return, and in a file
//! that outlives a crash (`MATRIX_BLACK_BOX`).

use std::fs::File;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{LazyLock, Mutex, OnceLock, PoisonError};
use std::time::Instant;

/// The limit of recorded threads; the next one takes the place of the first.
const THREADS: usize = 4096;

/// The bytes of a thread's line in the file.
const LINE: usize = 96;

/// The current call of a thread.
type Call = Option<(&'static str, &'static str, Instant)>;

static NOW: [Mutex<Call>; THREADS] = [const { Mutex::new(None) }; THREADS];
static NEXT: AtomicUsize = AtomicUsize::new(0);
static FILE: OnceLock<File> = OnceLock::new();
static CALLS: AtomicU64 = AtomicU64::new(0);
static BEGINNING: LazyLock<Instant> = LazyLock::new(Instant::now);

std::thread_local! {
    static SLOT: usize = NEXT.fetch_add(1, Relaxed) % THREADS;
}

/// Opens the file, if one is named.
pub(super) fn open() {
    LazyLock::force(&BEGINNING);
    if let Some(file) = std::env::var_os("MATRIX_BLACK_BOX").and_then(|path| File::create(path).ok()) {
        let _ = FILE.set(file);
    }
}

/// A call that the thread is in until this is dropped.
pub(super) struct Busy(usize);

/// Notes that the calling thread begins with a call.
pub(super) fn begin(place: &'static str, method: &'static str) -> Busy {
    CALLS.fetch_add(1, Relaxed);
    let slot = SLOT.try_with(|slot| *slot).unwrap_or(0);
    *NOW[slot].lock().unwrap_or_else(PoisonError::into_inner) = Some((place, method, Instant::now()));
    write(slot, place, method);
    Busy(slot)
}

impl Drop for Busy {
    fn drop(&mut self) {
        *NOW[self.0].lock().unwrap_or_else(PoisonError::into_inner) = None;
        write(self.0, "", "");
    }
}

/// A line of fixed length: only the thread itself writes it.
fn write(slot: usize, place: &str, method: &str) {
    use std::io::Write;
    let Some(file) = FILE.get() else { return };
    let mut line = [b' '; LINE];
    line[LINE - 1] = b'\n';
    if !place.is_empty() {
        let after = BEGINNING.elapsed().as_millis();
        let _ = write!(&mut line[..LINE - 1], "{method} in {place} at {after} ms");
    }
    let at = (slot * LINE) as u64;
    #[cfg(unix)]
    let _ = std::os::unix::fs::FileExt::write_all_at(file, &line, at);
    #[cfg(windows)]
    let _ = std::os::windows::fs::FileExt::seek_write(file, &line, at);
}

/// The calls that have been in the making for `seconds` at least: place and method.
pub(super) fn stuck(seconds: u64) -> Vec<(&'static str, &'static str)> {
    let calls = NOW.iter().filter_map(|call| *call.lock().unwrap_or_else(PoisonError::into_inner));
    calls
        .filter(|(_, _, since)| since.elapsed().as_secs() >= seconds)
        .map(|(place, method, _)| (place, method))
        .collect()
}

/// How many calls have been begun.
pub(super) fn calls() -> u64 {
    CALLS.load(Relaxed)
}

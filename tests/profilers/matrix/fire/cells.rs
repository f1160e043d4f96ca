//! Counts of calls: a cell for each call in each place, and the choice of a place's next call.

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{LazyLock, Mutex, PoisonError, RwLock};

use corprof::prelude::*;

use super::super::facts::NOTHING_YET;
use super::super::rows;
use super::black_box;
use super::prices::price;

/// A table of `rows.rs`, named as the context that it belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Level {
    Info,
    InNoGc,
    Object,
    InCallback,
    ProfilerThread,
}

impl Level {
    const ALL: [Self; 5] = [Self::Info, Self::InNoGc, Self::Object, Self::InCallback, Self::ProfilerThread];

    pub(super) fn name(self) -> &'static str {
        ["Info", "InNoGc", "ObjectId", "InCallback", "ProfilerThread"][self as usize]
    }

    fn len(self) -> usize {
        match self {
            Self::Info => rows::ANYWHERE.len(),
            Self::InNoGc => rows::IN_NO_GC.len(),
            Self::Object => rows::OF_OBJECTS.len(),
            Self::InCallback => rows::IN_CALLBACK.len(),
            Self::ProfilerThread => rows::ON_PROFILER_THREAD.len(),
        }
    }

    fn method(self, row: usize) -> &'static str {
        match self {
            Self::Info => rows::ANYWHERE[row].0,
            Self::InNoGc => rows::IN_NO_GC[row].0,
            Self::Object => rows::OF_OBJECTS[row].0,
            Self::InCallback => rows::IN_CALLBACK[row].0,
            Self::ProfilerThread => rows::ON_PROFILER_THREAD[row].0,
        }
    }

    /// The cells of its rows, in a place that has cells for all levels.
    fn cells(self) -> Range<usize> {
        let start = Self::ALL[..self as usize].iter().map(|level| level.len()).sum();
        start..start + self.len()
    }
}

/// Calls that are left out, to narrow a fault down.
static WITHOUT: LazyLock<Vec<String>> = LazyLock::new(|| {
    let calls = std::env::var("MATRIX_WITHOUT_CALLS").unwrap_or_default();
    calls.split(',').map(str::to_owned).collect()
});

fn is_left_out(method: &str) -> bool {
    WITHOUT.iter().any(|left_out| left_out == method)
}

/// Where rows are asked, and how often each has been.
pub(super) struct Place {
    pub(super) name: &'static str,
    /// The type of the context that it has.
    pub(super) context: &'static str,
    cells: Vec<AtomicU64>,
    /// Whether the rows of a level are asked here at all.
    is_offered: [AtomicBool; Level::ALL.len()],
    is_full: [AtomicBool; Level::ALL.len()],
    visits: AtomicU64,
}

static PLACES: RwLock<Option<HashMap<&'static str, &'static Place>>> = RwLock::new(None);

/// Every place so far.
fn places() -> Vec<&'static Place> {
    let places = PLACES.read().unwrap_or_else(PoisonError::into_inner);
    let mut places: Vec<_> = places.iter().flatten().map(|(_, place)| *place).collect();
    places.sort_by_key(|place| place.name);
    places
}

impl Place {
    /// The place of this name, in which the context is of this type.
    fn find(name: &'static str, context: &'static str) -> &'static Self {
        if let Some(places) = PLACES.read().unwrap_or_else(PoisonError::into_inner).as_ref()
            && let Some(place) = places.get(name)
        {
            return place;
        }
        let mut places = PLACES.write().unwrap_or_else(PoisonError::into_inner);
        places.get_or_insert_default().entry(name).or_insert_with(|| {
            let count = Level::ALL.iter().map(|level| level.len()).sum();
            Box::leak(Box::new(Self {
                name,
                context,
                cells: std::iter::repeat_with(AtomicU64::default).take(count).collect(),
                is_offered: Default::default(),
                is_full: Default::default(),
                visits: AtomicU64::new(0),
            }))
        })
    }

    /// The row of `level` that was asked least, and how often that is; a dear one counts by its price.
    fn least(&self, level: Level, skipped: usize) -> (usize, u64) {
        let cells = self.cells[level.cells()].iter().map(|cell| cell.load(Relaxed));
        let rows = cells.enumerate().map(|(row, count)| (row, count * price(level.method(row))));
        let rows = rows.filter(|(row, _)| !is_left_out(level.method(*row)));
        // The seed shifts the order, so that not every run makes the same calls one after another.
        rows.min_by_key(|(row, count)| (*count, (row + skipped) % level.len())).unwrap_or((0, u64::MAX))
    }
}

/// Answers besides success: by place, level and method, and by code.
type Answers = BTreeMap<(&'static str, &'static str, &'static str), BTreeMap<String, u64>>;

static ANSWERS: Mutex<Answers> = Mutex::new(Answers::new());

std::thread_local! {
    /// Whether the thread is asking already: a callback inside of a call inside of a callback has the rights of both.
    static IS_ASKING: Cell<bool> = const { Cell::new(false) };
}

/// One stay in a place.
pub(super) struct Visit {
    place: &'static Place,
    /// How many rows of each level are asked.
    rows: usize,
    target: u64,
    seed: usize,
}

impl Visit {
    /// None if the thread is in one already.
    pub(super) fn begin(name: &'static str, context: &'static str, target: u64, seed: usize) -> Option<Self> {
        if IS_ASKING.replace(true) {
            return None;
        }
        let place = Place::find(name, context);
        // Rare callbacks make all calls; frequent ones leave the application its share of time.
        let rows = match place.visits.fetch_add(1, Relaxed) {
            0..16 => usize::MAX,
            16..2000 => 6,
            _ => 1,
        };
        Some(Self { place, rows, target, seed })
    }

    /// Whether the rows of a level have been asked often enough, so that the visit need not prepare for them.
    pub(super) fn is_full(&self, level: Level) -> bool {
        self.place.is_full[level as usize].load(Relaxed)
    }

    /// Makes the calls of the least used rows, and passes each to `check` afterwards.
    pub(super) fn ask(&self, level: Level, mut ask: impl FnMut(usize) -> Result<()>, mut check: impl FnMut(&str)) {
        self.place.is_offered[level as usize].store(true, Relaxed);
        for _ in 0..self.rows.min(level.len()) {
            let (row, count) = self.place.least(level, self.seed);
            if count >= self.target {
                self.place.is_full[level as usize].store(true, Relaxed);
                return;
            }
            let method = level.method(row);
            let call = black_box::begin(self.place.name, method);
            let answer = ask(row);
            check(method);
            drop(call);
            self.place.cells[level.cells().start + row].fetch_add(1, Relaxed);
            if let Err(error) = answer {
                let mut answers = ANSWERS.lock().unwrap_or_else(PoisonError::into_inner);
                let codes = answers.entry((self.place.name, level.name(), method)).or_default();
                *codes.entry(code(&error)).or_default() += 1;
            }
        }
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        IS_ASKING.set(false);
    }
}

fn code(error: &Error) -> String {
    if *error == NOTHING_YET {
        return error.call().to_owned();
    }
    error.name().map_or_else(|| format!("{:#x}", error.code().0), str::to_owned)
}

/// Every cell: its place, the level and the method of its row, and how often that was asked.
fn all() -> impl Iterator<Item = (&'static Place, Level, &'static str, u64)> {
    let levels = places().into_iter().flat_map(|place| Level::ALL.map(|level| (place, level)));
    let offered = levels.filter(|(place, level)| place.is_offered[*level as usize].load(Relaxed));
    offered.flat_map(|(place, level)| {
        let cells = place.cells[level.cells()].iter().enumerate();
        cells.map(move |(row, cell)| (place, level, level.method(row), cell.load(Relaxed)))
    })
}

/// Whether each row was called `target` times from each of these contexts, in any places.
pub(super) fn are_full(target: u64, contexts: &[&str]) -> bool {
    let mut sums = BTreeMap::<_, u64>::new();
    for (place, level, method, count) in all() {
        *sums.entry((place.context, level.name(), method)).or_default() += count;
    }
    contexts.iter().all(|context| sums.keys().any(|(found, ..)| found == context))
        && sums.iter().all(|((.., method), count)| is_left_out(method) || count * price(method) >= target)
}

/// One line a cell, `fire-cell|PLACE|CONTEXT|LEVEL|METHOD|COUNT|LEAST`, and one an answer that is not success,
/// `fire-answer|PLACE|LEVEL|METHOD|CODE|COUNT`. LEAST is how often the call must be made by contexts of this type.
pub(super) fn report(target: u64) -> String {
    let mut text = String::new();
    for (place, level, method, count) in all() {
        let ([name, context, level], least) =
            ([place.name, place.context, level.name()], target.div_ceil(price(method)));
        text.push_str(&format!("fire-cell|{name}|{context}|{level}|{method}|{count}|{least}\n"));
    }
    for ((place, level, method), codes) in ANSWERS.lock().unwrap_or_else(PoisonError::into_inner).iter() {
        for (code, count) in codes {
            text.push_str(&format!("fire-answer|{place}|{level}|{method}|{code}|{count}\n"));
        }
    }
    text
}

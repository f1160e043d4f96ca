//! Places for the answers of a call, between marked bytes that the call must leave alone.

use std::cell::{Cell, RefCell, UnsafeCell};
use std::collections::BTreeSet;
use std::mem::size_of;

use windows_core::HRESULT;

/// Each list is asked for with both, as an answer may have the bytes of one.
const MARKS: [u8; 2] = [0xA5, 0x5C];

/// How many items are marked behind a buffer.
const BEHIND: usize = 64;

/// Room for any list of the test program.
const MUCH: usize = 1 << 15;

/// Places that no call needs more of at once, each of two words.
const PLACES: usize = 16;

/// For each place a word, and one behind it.
#[repr(align(16))]
struct Words([[u8; 16]; PLACES]);

/// Places for numbers and pointers.
pub(crate) struct Places {
    words: UnsafeCell<Words>,
    /// The sizes of those that are in use.
    sizes: RefCell<Vec<usize>>,
    mark: Cell<u8>,
}

impl Places {
    fn new(mark: u8) -> Self {
        Self { words: UnsafeCell::new(Words([[mark; 16]; PLACES])), sizes: RefCell::default(), mark: Cell::new(mark) }
    }

    /// The next place.
    pub(crate) fn next<T>(&self) -> *mut T {
        assert!(size_of::<T>() <= 8, "no place is as large");
        let mut sizes = self.sizes.borrow_mut();
        let at = sizes.len();
        assert!(at < PLACES, "more places");
        sizes.push(size_of::<T>());
        self.words.get().cast::<[u8; 16]>().wrapping_add(at).cast()
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: no call is under way that writes to them.
        unsafe { &*self.words.get() }.0.as_flattened()
    }

    /// Whether all bytes but those of the places are as they were.
    fn are_alone(&self) -> bool {
        let words = self.bytes().as_chunks::<16>().0;
        let sizes = self.sizes.borrow();
        words.iter().enumerate().all(|(at, words)| {
            let used = sizes.get(at).copied().unwrap_or(0);
            words.iter().skip(used).all(|&byte| byte == self.mark.get())
        })
    }
}

/// What was asked, and what was wrong.
#[derive(Default)]
pub(crate) struct Report {
    calls: BTreeSet<&'static str>,
    answers: usize,
    wrong: usize,
    /// All places after their call, and a copy of what was in them: a call must not write to them later.
    kept: Vec<(&'static str, &'static [u8], Vec<u8>)>,
}

impl Report {
    pub(crate) fn tell(&mut self) {
        for (call, now, then) in std::mem::take(&mut self.kept) {
            if now != then {
                self.wrong(call, "writes to a place after the call");
            }
        }
        for call in &self.calls {
            eprintln!("outputs| asked {call}");
        }
        eprintln!("outputs| answers={} wrong={}", self.answers, self.wrong);
    }

    fn keep(&mut self, call: &'static str, bytes: &'static [u8]) {
        self.kept.push((call, bytes, bytes.to_vec()));
    }

    fn wrong(&mut self, call: &str, what: &str) {
        self.wrong += 1;
        eprintln!("outputs| WRONG {call} {what}");
    }

    /// A call that writes to single places.
    pub(crate) fn single(&mut self, call: &'static str, ask: impl Fn(&Places) -> HRESULT) {
        for mark in MARKS {
            let places = Places::new(mark);
            let code = ask(&places);
            if !places.are_alone() {
                self.wrong(call, "writes beside its places");
            }
            if code.is_ok() {
                self.answers += 1;
                self.calls.insert(call);
            }
            self.keep(call, Box::leak(Box::new(places)).bytes());
        }
    }

    /// A call that writes an array of this length into a buffer that is as long.
    pub(crate) fn array<T: Copy + 'static>(
        &mut self,
        call: &'static str,
        length: usize,
        ask: impl Fn(&Places, *mut T) -> HRESULT,
    ) {
        for mark in MARKS {
            let places = Places::new(mark);
            let mut items = Items::<T>::new(mark, length);
            let code = ask(&places, items.start());
            if !places.are_alone() || items.first_marked_to_the_end() > length {
                self.wrong(call, "writes beside its places");
            }
            if code.is_ok() {
                self.answers += 1;
                self.calls.insert(call);
            }
        }
    }

    /// A call that writes a list or text: it takes room, a place for the count, and a buffer.
    pub(crate) fn list<T: Copy + 'static>(
        &mut self,
        call: &'static str,
        ask: impl Fn(&Places, u32, *mut u32, *mut T) -> HRESULT,
    ) {
        let places = Places::new(0);
        let mut count = 0;
        let code = ask(&places, MUCH as u32, &mut count, Items::<T>::new(0, MUCH).start());
        let count = count as usize;
        if code.is_err() || count > MUCH {
            return;
        }
        self.answers += 1;
        self.calls.insert(call);
        for room in BTreeSet::from([1, count / 2, count.saturating_sub(1), count, count + 1, count + 300]) {
            self.list_with_room(call, room, &ask);
        }
        for mark in MARKS {
            let places = Places::new(mark);
            _ = ask(&places, 0, places.next(), std::ptr::null_mut());
            if !places.are_alone() {
                self.wrong(call, "writes beside its places, without a buffer");
            }
        }
    }

    fn list_with_room<T: Copy + 'static>(
        &mut self,
        call: &'static str,
        room: usize,
        ask: &impl Fn(&Places, u32, *mut u32, *mut T) -> HRESULT,
    ) {
        let mut answer = (HRESULT(0), 0);
        let runs = MARKS.map(|mark| {
            let places = Places::new(mark);
            let mut items = Items::<T>::new(mark, room);
            let mut count = 0;
            let code = ask(&places, room as u32, &mut count, items.start());
            answer = (code, count as usize);
            (places.are_alone(), items)
        });
        for (are_alone, items) in &runs {
            if !are_alone || items.first_marked_to_the_end() > room {
                self.wrong(call, &format!("writes beside its places, with room for {room}"));
            }
        }
        let [(_, first), (_, second)] = &runs;
        // An item that has the mark in both runs was not written.
        let is_written = |at: &usize| !(first.is_marked(*at) && second.is_marked(*at));
        let written = (0..room).take_while(is_written).count();
        let (code, count) = answer;
        if code == HRESULT(0) && count <= room && written < count {
            self.wrong(call, &format!("counts {count} and writes {written}, with room for {room}"));
        }
        for (_, items) in runs {
            self.keep(call, Box::leak(Box::new(items)).bytes());
        }
    }
}

/// A marked buffer with more behind it.
struct Items<T> {
    items: Vec<T>,
    mark: u8,
}

impl<T: Copy> Items<T> {
    fn new(mark: u8, length: usize) -> Self {
        let mut items: Vec<T> = Vec::with_capacity(length + BEHIND);
        // SAFETY: all of the room is filled with bytes, and `T` is made of numbers and pointers.
        unsafe {
            items.as_mut_ptr().write_bytes(mark, length + BEHIND);
            items.set_len(length + BEHIND);
        }
        Self { items, mark }
    }

    fn start(&mut self) -> *mut T {
        self.items.as_mut_ptr()
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: all bytes were filled in `new`, and the calls write numbers.
        unsafe { std::slice::from_raw_parts(self.items.as_ptr().cast(), size_of_val(self.items.as_slice())) }
    }

    fn is_marked(&self, at: usize) -> bool {
        let size = size_of::<T>();
        self.bytes().iter().skip(at * size).take(size).all(|&byte| byte == self.mark)
    }

    /// The item from which on all have the mark.
    fn first_marked_to_the_end(&self) -> usize {
        let written = self.bytes().iter().rposition(|&byte| byte != self.mark).map_or(0, |last| last + 1);
        written.div_ceil(size_of::<T>())
    }
}

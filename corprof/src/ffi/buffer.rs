//! The only place with the size-then-fill idiom: ask for the size, make room, ask again.
//!
//! The list may grow between the two calls (another thread loads something), so the fill is tried again with the new
//! size a limited number of times.

use std::mem::MaybeUninit;
use std::ptr;

use windows_core::HRESULT;

use crate::error::{E_INVALIDARG, E_OUTOFMEMORY, Error, INSUFFICIENT_BUFFER, Result};

/// How many times a growing result is read again before the call counts as failed.
const TRIES: usize = 8;

/// The first buffer for text, on the stack.
const USUAL_UNITS: usize = 256;

/// The first buffer for a short list, on the stack.
const USUAL_ITEMS: usize = 8;

/// The first buffer for a call that does not return the size that it needs.
const GUESS: usize = 64;

/// The limit on list items, or on units of text: four times the most rows of a metadata table. A greater count is not
/// trusted, as a failed allocation would end the process.
const MOST: usize = 1 << 26;

/// Reads a list of `T` from a call that takes (capacity, out count, buffer).
pub(crate) fn read_list<T: Copy + Default>(
    call: &'static str,
    fill: impl FnMut(u32, *mut u32, *mut T) -> HRESULT,
) -> Result<Vec<T>> {
    read_list_from(call, 0, fill)
}

/// Like [`read_list`], beginning with this capacity: for calls that refuse to return the size alone, or whose result is
/// nearly always that short.
pub(crate) fn read_list_from<T: Copy + Default>(
    call: &'static str,
    room: usize,
    fill: impl FnMut(u32, *mut u32, *mut T) -> HRESULT,
) -> Result<Vec<T>> {
    read_blank_list_from(call, room, T::default(), fill)
}

/// Reads a list that is nearly always empty or short, with any other results, from a call that writes as far as there
/// is room and returns the true number of items; keeps the items for which `id` returns a value.
pub(crate) fn read_short_list<R, T: Copy + Default, I, E>(
    mut ask: impl FnMut(&mut [T]) -> Result<(R, usize), E>,
    id: impl Fn(T) -> Option<I>,
) -> Result<(R, Vec<I>), E> {
    let mut usual = [T::default(); USUAL_ITEMS];
    let (answer, count) = ask(&mut usual)?;
    let mut many = Vec::new();
    let list = match usual.get(..count) {
        Some(usual) => usual,
        None => {
            many.resize(count.min(MOST), T::default());
            ask(&mut many)?;
            &many
        }
    };
    Ok((answer, list.iter().copied().filter_map(id).collect()))
}

/// Like [`read_list`], for a `T` without a default: the buffer is first filled with `blank`.
pub(crate) fn read_blank_list<T: Copy>(
    call: &'static str,
    blank: T,
    fill: impl FnMut(u32, *mut u32, *mut T) -> HRESULT,
) -> Result<Vec<T>> {
    read_blank_list_from(call, 0, blank, fill)
}

fn read_blank_list_from<T: Copy>(
    call: &'static str,
    room: usize,
    blank: T,
    mut fill: impl FnMut(u32, *mut u32, *mut T) -> HRESULT,
) -> Result<Vec<T>> {
    let mut buffer: Vec<T> = vec![blank; room];
    for _ in 0..TRIES {
        let mut count = 0;
        let room = u32::try_from(buffer.len()).unwrap_or(u32::MAX);
        // A null buffer makes these calls return the size alone.
        let start = if buffer.is_empty() { ptr::null_mut() } else { buffer.as_mut_ptr() };
        let code = fill(room, &mut count, start);
        let mut needed = count as usize;
        if code != INSUFFICIENT_BUFFER {
            Error::check(code, call)?;
            if needed <= buffer.len() {
                buffer.truncate(needed);
                return Ok(buffer);
            }
        } else if needed <= buffer.len() {
            // Some calls report too little room without the size that they need.
            needed = GUESS.max(2 * buffer.len());
        }
        let more = needed.saturating_sub(buffer.len());
        if needed > MOST || buffer.try_reserve_exact(more).is_err() {
            return Err(Error::new(E_OUTOFMEMORY, call)
                .about("the answer", "the runtime reports more items than corprof accepts"));
        }
        buffer.resize(needed, blank);
    }
    Err(Error::new(INSUFFICIENT_BUFFER, call))
}

/// Text written by a call: on the stack, unless it is longer than nearly all text is.
pub(crate) struct Units {
    /// The first `count` units are written.
    usual: [MaybeUninit<u16>; USUAL_UNITS],
    /// The number of units, without the NUL at the end.
    count: usize,
    /// Holds the text instead if it is longer.
    long: Vec<u16>,
}

impl Units {
    pub(crate) const fn new() -> Self {
        Self { usual: [const { MaybeUninit::uninit() }; USUAL_UNITS], count: 0, long: Vec::new() }
    }

    /// The number of units, including those behind a NUL inside; for a limit.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.units().len()
    }

    #[inline]
    fn units(&self) -> &[u16] {
        match self.usual.get(..self.count) {
            // SAFETY: this many have been written: `count` is 0, or was counted in `read_units` by a successful call,
            // whose caller vouches for that.
            Some(usual) if self.long.is_empty() => unsafe { &*(ptr::from_ref(usual) as *const [u16]) },
            _ => &self.long,
        }
    }

    /// Appends the text before the first NUL to `text`; ill-formed UTF-16 becomes U+FFFD.
    pub(crate) fn push_to(&self, text: &mut String) {
        let units = self.units().split(|&unit| unit == 0).next().unwrap_or_default();
        text.extend(char::decode_utf16(units.iter().copied()).map(|unit| unit.unwrap_or(char::REPLACEMENT_CHARACTER)));
    }

    #[cfg(test)]
    pub(crate) fn from_text(text: &str) -> Self {
        Self { long: text.encode_utf16().collect(), ..Self::new() }
    }
}

/// Reads UTF-16 text from a call that takes (buffer, capacity, out count including the NUL).
pub(crate) fn read_utf16(call: &'static str, fill: impl FnMut(*mut u16, u32, *mut u32) -> HRESULT) -> Result<String> {
    let mut units = Units { usual: [MaybeUninit::new(0); USUAL_UNITS], ..Units::new() };
    // SAFETY: all the room is initialized.
    unsafe { read_units(call, &mut units, fill)? };
    let mut text = String::new();
    units.push_to(&mut text);
    Ok(text)
}

/// Like [`read_utf16`], into `units`, which are empty: text of usual length needs no allocation.
///
/// # Safety
/// A successful call has written as many units as it counts, as far as there is room.
#[inline]
pub(crate) unsafe fn read_units(
    call: &'static str,
    units: &mut Units,
    mut fill: impl FnMut(*mut u16, u32, *mut u32) -> HRESULT,
) -> Result<()> {
    // Nearly every name fits, and needs one call.
    let mut count = 0;
    let code = fill(units.usual.as_mut_ptr().cast(), USUAL_UNITS as u32, &mut count);
    if code != INSUFFICIENT_BUFFER {
        Error::check(code, call)?;
        units.count = count as usize;
        if units.count <= USUAL_UNITS {
            units.count -= usize::from(units.units().ends_with(&[0]));
            return Ok(());
        }
    }
    units.long = read_list(call, |room, count, start| fill(start, room, count))?;
    units.long.pop_if(|last| *last == 0);
    Ok(())
}

/// `text` as an argument: UTF-16 with a NUL at its end, and so without one inside.
pub(crate) fn to_utf16(call: &'static str, text: &str) -> Result<Vec<u16>> {
    if text.contains('\0') {
        return Err(Error::new(E_INVALIDARG, call)
            .about("text", "the text contains a NUL, where the runtime would truncate it: remove it"));
    }
    Ok(text.encode_utf16().chain([0]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{E_FAIL, S_OK};

    #[test]
    fn short_lists_are_asked_for_once_and_long_ones_twice() {
        for (count, most_asked) in [(0, 1), (USUAL_ITEMS, 1), (USUAL_ITEMS + 1, 2), (100, 2)] {
            let mut asked = 0;
            let ask = |room: &mut [usize]| {
                asked += 1;
                room.iter_mut().take(count).enumerate().for_each(|(at, item)| *item = at);
                Ok::<_, Error>(("answer", count))
            };
            let (answer, odd) = read_short_list(ask, |item| (item % 2 == 1).then_some(item)).unwrap();
            assert_eq!((answer, odd), ("answer", (0..count).filter(|item| item % 2 == 1).collect()), "{count}");
            assert_eq!(asked, most_asked, "{count}");
        }
        assert!(read_short_list(|_: &mut [u8]| Err::<((), _), _>(Error::new(E_FAIL, "X")), Some).is_err());
    }

    fn answer(text: &[u16], start: *mut u16, room: u32, count: *mut u32) -> HRESULT {
        // SAFETY: `count` is the reader's local; `start` has room for `room` units.
        unsafe {
            *count = text.len() as u32;
            let n = text.len().min(room as usize);
            if !start.is_null() {
                std::ptr::copy_nonoverlapping(text.as_ptr(), start, n);
            }
        }
        S_OK
    }

    #[test]
    fn reads_text_without_its_nul() {
        let text: Vec<u16> = "Größe\0".encode_utf16().collect();
        assert_eq!(read_utf16("X", |p, n, c| answer(&text, p, n, c)).unwrap(), "Größe");
        assert_eq!(read_utf16("X", |p, n, c| answer(&[], p, n, c)).unwrap(), "");
        let text: Vec<u16> = "Size\0and what lay there before".encode_utf16().collect();
        assert_eq!(read_utf16("X", |p, n, c| answer(&text, p, n, c)).unwrap(), "Size");
    }

    #[test]
    fn text_of_any_length_is_whole_and_ends_at_its_nul() {
        let text: Vec<u16> = (1..0x80).collect();
        for length in 0..text.len() {
            let plain = String::from_utf16(&text[..length]).unwrap();
            let read = |units: &[u16]| read_utf16("X", |p, n, c| answer(units, p, n, c)).unwrap();
            assert_eq!(read(&text[..length]), plain);
            for at in 0..length {
                for odd in [0, 0x80, 0xff, 0x100, 0x141, 0x4100, 0xd800, 0xffff] {
                    let mut units = text[..length].to_vec();
                    units[at] = odd;
                    let expected = String::from_utf16_lossy(units.split(|&unit| unit == 0).next().unwrap());
                    assert_eq!(read(&[&units[..], &[0]].concat()), expected, "{odd:#x} at {at} of {length}");
                }
            }
        }
    }

    #[test]
    fn text_with_a_nul_inside_is_refused() {
        assert_eq!(to_utf16("X", "ab"), Ok(vec![97, 98, 0]));
        assert!(to_utf16("X", "a\0b").is_err());
    }

    #[test]
    fn asks_again_when_the_answer_grows() {
        let long = "a".repeat(USUAL_UNITS);
        let mut text: Vec<u16> = long.encode_utf16().chain([0]).collect();
        let mut calls = 0;
        let read = read_utf16("X", |p, n, c| {
            calls += 1;
            if calls < 5 {
                text.insert(0, u16::from(b'b'));
            }
            answer(&text, p, n, c)
        });
        assert_eq!(read.unwrap(), format!("bbbb{long}"));
        assert_eq!(calls, 5);
    }

    #[test]
    fn finds_the_room_for_an_answer_that_does_not_tell_its_size() {
        let text: Vec<u16> = vec![u16::from(b'a'); 200];
        let read =
            read_utf16(
                "X",
                |p, n, c| if (n as usize) < text.len() { INSUFFICIENT_BUFFER } else { answer(&text, p, n, c) },
            );
        assert_eq!(read.unwrap().len(), 200);
        assert!(read_utf16("X", |_, _, _| INSUFFICIENT_BUFFER).is_err());
    }

    #[test]
    fn gives_up_on_an_answer_that_never_fits() {
        let mut size = 0;
        let read = read_list::<u32>("X", |_, count, _| {
            size += 1;
            // SAFETY: `count` is the reader's local.
            unsafe { *count = size };
            S_OK
        });
        assert_eq!(read, Err(Error::new(INSUFFICIENT_BUFFER, "X")));
        assert_eq!(read_list::<u32>("X", |_, _, _| E_FAIL), Err(Error::new(E_FAIL, "X")));
    }

    #[test]
    fn a_length_that_nothing_has_is_not_believed() {
        let mut calls = 0;
        let mut claim = |count: *mut u32, code| {
            calls += 1;
            // SAFETY: `count` is the reader's local.
            unsafe { *count = u32::MAX };
            code
        };
        for code in [S_OK, INSUFFICIENT_BUFFER] {
            let list = read_list::<usize>("X", |_, count, _| claim(count, code));
            assert_eq!(list.unwrap_err().code(), E_OUTOFMEMORY);
            assert_eq!(read_utf16("X", |_, _, count| claim(count, code)).unwrap_err().code(), E_OUTOFMEMORY);
        }
        assert_eq!(calls, 6);
    }
}

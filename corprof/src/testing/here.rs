//! The calling thread's state in each fake CLR: the managed thread that it carries, and its callbacks.

use std::cell::RefCell;

use super::contract::Standing;

/// The calling thread's state in one fake CLR.
#[derive(Clone, Copy, Debug)]
struct Place {
    clr: u64,
    /// The managed thread it carries; 0 if none.
    thread: usize,
    standing: Standing,
}

thread_local! {
    static PLACES: RefCell<Vec<Place>> = const { RefCell::new(Vec::new()) };
}

fn place(clr: u64) -> Place {
    let nowhere = Place { clr, thread: 0, standing: Standing::default() };
    // A thread that is ending has no places any more.
    let found = PLACES.try_with(|places| places.borrow().iter().find(|place| place.clr == clr).copied());
    found.ok().flatten().unwrap_or(nowhere)
}

fn put(place: Place) {
    let is_nowhere = place.thread == 0 && place.standing == Standing::default();
    let _ = PLACES.try_with(|places| {
        let mut places = places.borrow_mut();
        places.retain(|old| old.clr != place.clr);
        if !is_nowhere {
            places.push(place);
        }
    });
}

/// The managed thread that the calling thread carries; 0 if none.
pub(crate) fn thread(clr: u64) -> usize {
    place(clr).thread
}

/// From now on the calling thread carries this managed thread, or none.
pub(crate) fn carry(clr: u64, thread: usize) {
    put(Place { clr, thread, standing: Standing { managed: thread != 0, ..Standing::default() } });
}

pub(crate) fn standing(clr: u64) -> Standing {
    place(clr).standing
}

/// Marks the calling thread as being inside a callback, until it is dropped.
pub(crate) struct Inside {
    before: Place,
}

/// The calling thread enters a callback.
pub(crate) fn enter(clr: u64, standing: impl FnOnce(bool) -> Standing) -> Inside {
    let before = place(clr);
    put(Place { standing: standing(before.thread != 0), ..before });
    Inside { before }
}

impl Drop for Inside {
    fn drop(&mut self) {
        put(self.before);
    }
}

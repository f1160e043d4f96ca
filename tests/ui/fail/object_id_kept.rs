//! The next collection may move the object.
use corprof::{prelude::*, sync::Mutex};

struct Keeper(Mutex<Option<ObjectId<'static>>>);

#[callbacks]
impl Callbacks for Keeper {
    fn object_allocated(&self, cx: &InNoGc<'_>, object: ObjectId<'_>, _class: ClassId) {
        *self.0.lock(cx) = Some(object);
    }
}

fn main() {}

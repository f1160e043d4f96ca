use corprof::prelude::*;

struct Beeper;

#[callbacks]
impl Callbacks for Beeper {
    fn class_loaded_finished(&self, _cx: &mut InCallback<'_>, _class: ClassId, _status: Result<()>) {}
}

fn main() {}

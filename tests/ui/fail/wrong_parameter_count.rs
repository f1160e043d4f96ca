use corprof::prelude::*;

struct Beeper;

#[callbacks]
impl Callbacks for Beeper {
    fn class_load_finished(&self, _cx: &mut InCallback<'_>, _class: ClassId) {}
}

fn main() {}

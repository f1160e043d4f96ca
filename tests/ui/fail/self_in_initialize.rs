use corprof::prelude::*;

#[derive(Default, Profiler)]
#[profiler(clsid = "BDD57A0C-D4F7-486D-A8CA-86070DC12FA0")]
struct Beeper;

#[callbacks]
impl Callbacks for Beeper {
    fn initialize(&self, _cx: &mut InInitialize<'_>) -> Result<(), BoxError> {
        Ok(())
    }
}

fn main() {}

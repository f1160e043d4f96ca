use corprof::profiler::Subscriber;
use corprof::prelude::*;

#[derive(Profiler)]
#[profiler(clsid = "{bdd57a0c-d4f7-486d-a8ca-86070dc12fa0}", min_info = 15)]
struct Quiet {}

#[callbacks]
impl Callbacks for Quiet {}

fn main() {
    assert_eq!(Quiet::EVENTS, corprof::event_mask::EventSet::EMPTY);
    assert_eq!(Quiet::MIN_INFO, 15);
}

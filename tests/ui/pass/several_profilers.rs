use corprof::prelude::*;

#[derive(Profiler)]
#[profiler(clsid = "5C7CFB0E-4E4E-4D5B-9C43-3A3C7F7E2D51", no_export)]
struct Compiled;

#[callbacks]
impl Callbacks for Compiled {}

#[derive(Profiler)]
#[profiler(clsid = "0E0C0F49-8E1D-4C0B-8F3E-6C1B6F2C8A77", no_export)]
struct Thrown;

#[callbacks]
impl Callbacks for Thrown {}

corprof::export!(Compiled, Thrown);

fn main() {
    assert_ne!(Compiled::CLSID, Thrown::CLSID);
}

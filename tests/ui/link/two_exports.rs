//! A library has one export, of all its profilers.
//!
//! Both are of one file, as which of two places rustc names depends on the path of the checkout.
mod first {
    include!("parts/profiler.rs");
}
mod second {
    include!("parts/profiler.rs");
}
fn main() {}

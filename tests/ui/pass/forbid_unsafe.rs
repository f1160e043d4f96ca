//! A profiler needs no unsafe code of its own, and its lints may be as strict as there are.
#![forbid(unsafe_code)]
#![deny(warnings, missing_docs, unreachable_pub, unused, nonstandard_style, rust_2018_idioms)]

use corprof::prelude::*;

/// Beeps.
#[derive(Profiler)]
#[profiler(clsid = "BDD57A0C-D4F7-486D-A8CA-86070DC12FA0")]
pub struct Beeper;

#[callbacks]
impl Callbacks for Beeper {}

fn main() {}

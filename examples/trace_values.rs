//! Prints each call of some methods: arguments, result, exceptions.
//!
//! Run it with `cargo xtask demo trace_values`. It traces the methods outside of the namespaces `System` and `Microsoft`, with
//! `TRACE_VALUES='Shop.*'` those of them whose names match. A probe is a call that it inserts into the code of such a method: all
//! others run as without a profiler.

use std::fmt::Display;
use std::sync::OnceLock;

use corprof::edit::{InProbe, Probe};
use corprof::prelude::*;
use corprof::settings::Setting;
use corprof::values::{Arguments, ReturnValue};
use globset::{Glob, GlobMatcher};

#[derive(Default, Profiler)]
#[profiler(clsid = "4E1A5A0C-7C1B-4C55-9C55-5D0E2E0C7A0B")]
struct TraceValues {
    wanted: OnceLock<GlobMatcher>,
}

/// The probe in one method.
struct Prints {
    method: String,
}

impl Prints {
    fn print(&self, what: impl Display) {
        eprintln!("{}{what}", self.method);
    }
}

impl Probe for Prints {
    fn enter(&self, _cx: &InProbe<'_>, args: &Arguments<'_>) {
        self.print(args);
    }

    fn leave(&self, _cx: &InProbe<'_>, result: &ReturnValue<'_>) {
        self.print(format_args!(" returns {result}"));
    }

    fn unwound(&self, _cx: &InProbe<'_>) {
        self.print(" is left by an exception");
    }
}

#[callbacks]
impl Callbacks for TraceValues {
    fn initialize(&self, _cx: &mut InInitialize<'_>) -> Result<(), BoxError> {
        let wanted = Setting::of("TRACE_VALUES").parsed("*", Glob::new)?.compile_matcher();
        let _ = self.wanted.set(wanted); // this is called once
        Ok(())
    }

    fn jit_compilation_started(&self, cx: &mut InTriggers<'_>, function: FunctionId, _is_safe_to_block: bool) {
        let name = cx.names().function(function);
        let method = name.as_str().split('(').next().unwrap_or_default();
        let is_of_framework = method.starts_with("System.") || method.starts_with("Microsoft.");
        if !is_of_framework && self.wanted.get().is_some_and(|wanted| wanted.is_match(method)) {
            let probe = Prints { method: method.to_owned() };
            // It comes again for each tier and instantiation: the body that they share is edited once.
            if let Err(error) = cx.edit_once(function, |edit| edit.probe(probe)) {
                eprintln!("{method} is not traced: {error}");
            }
        }
    }
}

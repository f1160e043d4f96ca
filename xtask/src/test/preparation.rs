//! The runtimes, compilers and emulators of the quick tests, fetched before these run.

use std::process::ExitCode;

use anyhow::Result;

use super::lacks;
use super::places::{PLACES, Place};
use crate::cache::Cache;
use crate::managed::Compiler;
use crate::process::note;
use crate::target::System;
use crate::windows::{self, Wine};
use crate::{arm64, known, musl, tools};

/// Fetches them, as far as this machine can have it; a failure if something that it can have is missing. The phase that
/// needs it tries again, and says it.
pub(super) fn prepare() -> ExitCode {
    let mut outcome = ExitCode::SUCCESS;
    let quick = PLACES.iter().filter(|place| place.quick.is_some() && lacks(place).is_none());
    let fetched = quick.map(|place| (place.to_string(), runtime_of(place)));
    for (what, result) in [("compilers".to_owned(), compilers())].into_iter().chain(fetched) {
        match result {
            Ok(()) => note(format_args!("ready: {what}")),
            Err(error) => {
                note(format_args!("NOT READY: {what}: {error:#}"));
                outcome = ExitCode::FAILURE;
            }
        }
    }
    outcome
}

/// Those of managed programs.
fn compilers() -> Result<()> {
    Compiler::for_every_runtime()?;
    tools::ilasm()?;
    let cache = Cache::open()?;
    for target in ["10.0", "11.0"] {
        Compiler::for_modern(target, &cache)?;
    }
    Ok(())
}

/// The runtime, and what programs are built and run with there.
fn runtime_of(place: &Place) -> Result<()> {
    let cache = Cache::open()?;
    match place.system {
        System::X64 => {
            known::here(place.runtime, &cache)?;
        }
        System::Musl => {
            musl::install_tools()?;
            musl::unpack(place.runtime, &cache)?;
        }
        System::Windows => {
            windows::install_tools()?;
            known::for_windows(place.runtime, &Wine::install(&cache)?, &cache)?;
        }
        System::Arm64 => {
            arm64::install_tools()?;
            known::for_arm64(&cache)?;
        }
        System::MuslArm64 => {}
    }
    Ok(())
}

//! Where the live tests run: a row for each runtime and system. `cargo xtask test` runs by these rows, and the tables
//! of the documents and of its help are made from them, so that none can promise more than is run.

use std::path::Path;

use anyhow::Result;

use super::Part;
use super::live::Tier;
use crate::documents;
use crate::target::System;

/// A runtime on a system.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    /// Its name for `--runtime`.
    pub(super) runtime: &'static str,
    /// The system that it is for.
    pub(super) system: System,
    /// What `cargo xtask test`, and so each check of a change, runs there, if anything.
    pub(super) quick: Option<Tier>,
    /// The phase of `--all`, which runs everything there.
    pub(super) phase: Part,
}

/// All of them, for each system the newest first. The quick tests run in full on the first that this machine has.
pub(super) static PLACES: [Place; 8] = [
    Place { runtime: "11", system: System::X64, quick: Some(Tier::Quick), phase: Part::Live11 },
    Place { runtime: "10", system: System::X64, quick: Some(Tier::Differs), phase: Part::Live10 },
    Place { runtime: "8", system: System::X64, quick: Some(Tier::Smoke), phase: Part::Live8 },
    Place { runtime: "11", system: System::Musl, quick: Some(Tier::Few), phase: Part::Musl11 },
    Place { runtime: "10", system: System::Musl, quick: None, phase: Part::Musl10 },
    Place { runtime: "10", system: System::Windows, quick: Some(Tier::Smoke), phase: Part::Windows10 },
    Place { runtime: "8", system: System::Windows, quick: None, phase: Part::Windows8 },
    Place { runtime: "10", system: System::Arm64, quick: Some(Tier::Smoke), phase: Part::Arm64 },
];

impl Place {
    /// The place of a phase of `--all`, if it is one of live tests.
    pub(super) fn of(phase: Part) -> Option<&'static Self> {
        PLACES.iter().find(|place| place.phase == phase)
    }

    /// Its system, as the documents name it.
    fn system(&self) -> &'static str {
        match self.system {
            System::X64 => "Linux x64, glibc",
            System::Musl => "Linux x64, musl",
            System::MuslArm64 => "Linux arm64, musl",
            System::Arm64 => "Linux arm64, glibc, under QEMU",
            System::Windows => "Windows x64, under Wine",
        }
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, ".NET {}, {}", self.runtime, self.system())
    }
}

impl Tier {
    /// What it runs, as the documents say it.
    fn shown(self) -> &'static str {
        match self {
            Self::Smoke => "the smoke test",
            Self::Few => "fifty tests",
            Self::Differs => "tests of what differs",
            Self::Quick => "all quick tests",
            Self::Named | Self::All => "all tests",
        }
    }
}

/// The documents with the table, and the marks around it.
const DOCUMENTS: [&str; 2] = ["README.md", "book/src/deployment.md"];
const BEGIN: &str = "<!-- begin: where the live tests run, by `cargo xtask generate` -->\n";

/// The table for documents, in Markdown.
fn table() -> String {
    let mut table = "| runtime | system | live tests at each change (`.ci/run`) | each night and before a release (`cargo xtask test --all`) |\n\
                     |---|---|---|---|\n"
        .to_owned();
    for place in &PLACES {
        let quick = place.quick.map_or("–", Tier::shown);
        let runtime = place.runtime;
        let system = place.system();
        let phase = place.phase.name();
        table += &format!("| .NET {runtime} | {system} | {quick} | {}: `{phase}` |\n", Tier::All.shown());
    }
    table
}

/// Writes the table into the documents; with `check`, fails instead if one differs.
///
/// # Errors
/// If a document has no place for it, or cannot be read or written.
pub(crate) fn write_tables(root: &Path, check: bool) -> Result<()> {
    for document in DOCUMENTS {
        documents::write_part(root, document, BEGIN, &table(), "xtask/src/test/places.rs", check)?;
    }
    Ok(())
}

/// The table for the help of `cargo xtask test`.
pub(super) fn for_help() -> String {
    let row = |place: &Place| {
        let quick = place.quick.map_or("–", Tier::shown);
        format!("  {:<43} {quick:<22} {}\n", place.to_string(), place.phase.name())
    };
    let head = format!("  {:<43} {:<22} {}\n", "Live tests run on", "as quick tests", "in full, as phase");
    head + &PLACES.iter().map(row).collect::<String>()
}

/// What the quick tests leave out, a line for each place.
pub(super) fn left_out() -> String {
    let left = PLACES.iter().filter(|place| place.quick != Some(Tier::Quick)).map(|place| match place.quick {
        Some(tier) => format!("{place}: all but {}", tier.shown()),
        None => format!("{place}: all tests"),
    });
    left.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use clap::ValueEnum;

    use super::*;
    use crate::cargo::workspace_root;

    #[test]
    fn the_documents_say_where_the_tests_run() {
        write_tables(workspace_root(), true).unwrap();
    }

    #[test]
    fn each_place_has_a_phase_of_its_own_and_its_runtime_is_known() {
        for place in &PLACES {
            assert!(std::ptr::eq(Place::of(place.phase).unwrap(), place), "{place}");
            assert!(crate::known::KNOWN.iter().any(|known| known.name == place.runtime), "{place}");
        }
    }

    #[test]
    fn the_nightly_workflow_runs_each_phase() {
        let workflow = fs::read_to_string(workspace_root().join(".github/workflows/nightly.yml")).unwrap();
        let names: Vec<_> = Part::value_variants().iter().map(|part| part.name()).collect();
        assert!(workflow.contains(&format!("phase: [{}]\n", names.join(", "))), "nightly.yml lacks one of {names:?}");
    }
}

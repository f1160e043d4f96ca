//! `cargo xtask generate`: writes the generated sources from the IDL and the runtime's manifest, or checks that they
//! are current.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use corprof_launch::exit;

use crate::cargo::{self, workspace_root};
use crate::documents;
use crate::event_tables;
use crate::process::{self, announce, env_path};
use crate::test::places;

/// Write the generated sources from the IDL files and the runtime's manifest of events.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The folder of corprof.idl, corerror.h, metadata.idl and corhdr.idl [default: $CORPROF_IDL, else ../shared/idl]
    #[arg(long, value_name = "DIR")]
    idl: Option<PathBuf>,

    /// Write nothing; fail if a file differs from its new content
    #[arg(long)]
    check: bool,
}

/// Runs the command.
///
/// # Errors
/// If the inputs are missing or not understood, or, with `--check`, a file differs.
pub fn run(args: &Args) -> Result<ExitCode> {
    announce("The runtime's events, by corprof-events/manifest");
    event_tables::run(workspace_root(), args.check)?;
    announce("Where the tests run, by xtask/src/test/places.rs");
    places::write_tables(workspace_root(), args.check)?;
    announce("The settings of the built-in profilers, by profilers/src/table/rows.rs");
    documents::write_settings(workspace_root(), args.check)?;
    let idl = args.idl.clone().or_else(default_idl).context(
        "there are no IDL files: name their folder by --idl DIR or CORPROF_IDL.\n\
         They are in the public repository dotnet/diagnostics, commit 3c9f99e8251b0c68cb229afad5bf30a6edeb3c13:\n\
         src/shared/inc/corprof.idl, src/shared/pal/prebuilt/inc/corerror.h;\n\
         metadata.idl and corhdr.idl are made from src/shared/inc/cor.h and src/shared/inc/corhdr.h",
    )?;
    let verb = if args.check { "Checking" } else { "Writing" };
    announce(format_args!("{verb} the generated sources by the IDL files of {}", idl.display()));
    // A program of its own: only this command needs parsers of IDL and Rust.
    let mut command = cargo::program("corprof-gen")?;
    command.arg(std::path::absolute(&idl)?).arg(workspace_root()).args(args.check.then_some("--check"));
    Ok(exit::code(process::status(&mut command)?).into())
}

fn default_idl() -> Option<PathBuf> {
    let shared = workspace_root().parent().map(|parent| parent.join("shared").join("idl"));
    [env_path("CORPROF_IDL"), shared].into_iter().flatten().find(|dir| dir.is_dir())
}

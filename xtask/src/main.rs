//! The command line of `cargo xtask`.

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};
use xtask::{bench, book, clippy, demo, generate, guard, lint, package, release, stress, structure, test};

/// All commands of this repository.
///
/// Downloads go into a cache that all checkouts share: $CORPROF_CACHE, else $XDG_CACHE_HOME/corprof, else
/// ~/.cache/corprof. Deleting it is always safe.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Demo(demo::Args),
    Test(test::Args),
    Generate(generate::Args),
    Clippy(clippy::Args),
    Lint(lint::Args),
    Package(package::Args),
    Release(release::Args),
    Bench(bench::Args),
    Book(book::Args),
    Stress(stress::Args),
    Structure(structure::Args),
    #[command(hide = true)]
    Guard(guard::Args),
}

fn main() -> ExitCode {
    match run(Cli::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: Cli) -> Result<ExitCode> {
    match cli.command {
        Command::Demo(args) => demo::run(&args),
        Command::Test(args) => test::run(&args),
        Command::Generate(args) => generate::run(&args),
        Command::Clippy(args) => clippy::run(&args),
        Command::Lint(args) => lint::run(&args),
        Command::Package(args) => package::run(&args),
        Command::Release(args) => release::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Book(args) => book::run(&args),
        Command::Stress(args) => stress::run(&args),
        Command::Structure(args) => structure::run(&args),
        Command::Guard(args) => guard::run(&args),
    }
}

//! `corprof top FILE`: the busiest methods of a recording, by the code of `corprof view`.

use std::path::Path;

use anyhow::{Result, bail};
use corprof_profilers::table::TOP;

use super::Args;
use super::counts::Column;
use crate::exit::{self, Failure, Outcome};
use crate::options;
use crate::view::{self, Sort};

/// Prints the table.
pub(super) fn run(args: &Args, path: &Path) -> Outcome {
    of_a_process(args).map_err(|error| Failure::new(exit::USAGE, error))?;
    let sort = match args.sort {
        Column::Own | Column::OwnSum => Sort::Own,
        Column::Total | Column::TotalSum => Sort::Total,
    };
    let mut table = view::Args::table(path, args.lines, sort, args.rows, args.json, args.names);
    table.looked.physical = args.physical;
    view::run(&table)
}

/// A recording has been sampled already.
fn of_a_process(args: &Args) -> Result<()> {
    let is_usual = |number: f64, variable: &str| options::default(&TOP, variable).parse() == Ok(number);
    if args.duration.is_some() {
        bail!("--duration is for a process; what is looked at in a recording is chosen by `corprof view --from --to`");
    }
    if !is_usual(args.rate, "TOP_HZ") || !is_usual(args.budget, "TOP_BUDGET") {
        bail!("--rate and --budget are for a process; a recording has been sampled already");
    }
    Ok(())
}

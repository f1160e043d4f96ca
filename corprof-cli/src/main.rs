//! The command `corprof`.

use std::process::ExitCode;

fn main() -> ExitCode {
    corprof_cli::main()
}

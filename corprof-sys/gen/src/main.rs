//! `corprof-gen IDL ROOT [--check]`: generates the files of the workspace at ROOT from the inputs in IDL. `cargo xtask
//! generate` runs this.

use std::process::ExitCode;

use corprof_gen::Options;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let (Some(idl), Some(root)) = (arguments.next(), arguments.next()) else {
        eprintln!("error: give the folder of the IDL files and the root of the workspace");
        return ExitCode::FAILURE;
    };
    let check = arguments.any(|argument| argument == "--check");
    match corprof_gen::run(&Options { idl: idl.into(), root: root.into(), check }) {
        Ok(report) => {
            println!("{report}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

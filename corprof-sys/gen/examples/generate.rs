//! Stand-in for `cargo xtask generate` while working on the generator: `generate IDL_DIR ROOT [--check]`.

fn main() -> std::process::ExitCode {
    let mut args = std::env::args().skip(1);
    let (Some(idl), Some(root)) = (args.next(), args.next()) else {
        eprintln!("usage: generate IDL_DIR ROOT [--check]");
        return std::process::ExitCode::from(2);
    };
    let check = args.next().is_some();
    match corprof_gen::run(&corprof_gen::Options { idl: idl.into(), root: root.into(), check }) {
        Ok(report) => {
            println!("{report}");
            std::process::ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            std::process::ExitCode::FAILURE
        }
    }
}

//! Lists the .NET processes that this user may ask: `cargo run -p corprof-diagnostics --example ps -- [PID…]`. Only
//! those that are named, or all, are asked about themselves.

use std::time::{Duration, Instant};

use corprof_diagnostics::{Process, Result};

fn main() -> Result<()> {
    let start = Instant::now();
    let scan = Process::scan()?;
    println!("{} processes, found in {:?}", scan.processes.len(), start.elapsed());
    let named: Vec<u32> = std::env::args().skip(1).filter_map(|arg| arg.parse().ok()).collect();
    let wanted = |process: &&Process| named.is_empty() || named.contains(&process.pid());
    for process in scan.processes.iter().filter(wanted) {
        let start = Instant::now();
        let client = process.client().with_timeout(Duration::from_secs(1));
        match client.process_info() {
            Ok(info) => {
                println!("{:>7} .NET {} {}: {}", process.pid(), info.clr_version, info.architecture, info.command_line);
            }
            Err(error) => println!("{:>7} {error}", process.pid()),
        }
        let variables = client.environment().map(|environment| environment.iter().count());
        println!("        {}, {variables:?} variables, asked in {:?}", process.port().display(), start.elapsed());
    }
    println!("{} sockets are stale", scan.stale.len());
    Ok(())
}

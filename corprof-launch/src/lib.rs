//! Starts applications under .NET profilers, as the command `corprof run` does.
//!
//! [`profiler`] and [`image`] read libraries from their files, [`checks`] finds the reasons for which a runtime would
//! silently not load one, and [`environment`] has the variables that make runtimes load profilers. [`launch`] puts
//! these together: it starts an application ([`application`], which passes signals on), reads the runtimes' messages
//! about profilers ([`runtime_messages`]), and reports which processes have loaded them; [`crash`] says how the next
//! crash tells where it was. [`bundled`] runs the profilers that `corprof` has built in; their table is the crate
//! `corprof-profilers`. [`running`] waits for the end of any child process with a time limit, [`vigil`] for what
//! happens to a process of somebody else. A [`folder`] for temporary files says whether its command lives.
//!
//! ```no_run
//! use std::path::Path;
//!
//! use corprof_launch::environment::Chosen;
//! use corprof_launch::exit::Failure;
//! use corprof_launch::launch::{Changes, Launch};
//! use corprof_launch::profiler;
//!
//! fn main() -> Result<(), Failure> {
//!     let library = std::path::absolute(Path::new("target/release/libmine.so"))?;
//!     let profiler = profiler::pick(&library, None)?;
//!     let main = Chosen { clsid: profiler.clsid, name: profiler.name, library };
//!     let command = ["dotnet".into(), "App.dll".into()];
//!     let launch = Launch {
//!         profilers: vec![main],
//!         changes: Changes::new(),
//!         command: &command,
//!         stop: None,
//!         is_quiet: false,
//!     };
//!     let ended = launch.run()?;
//!     println!("{}, in {} processes", ended.status, ended.loaded.len());
//!     Ok(())
//! }
//! ```

/// `eprintln!` here is the one that never panics.
#[macro_use(eprintln)]
extern crate corprof_profilers;

pub mod application;
pub mod bundled;
pub mod checks;
pub mod crash;
pub mod environment;
pub mod exit;
pub mod folder;
pub mod image;
pub mod launch;
pub mod processes;
pub mod profiler;
pub mod running;
pub mod runtime_messages;
pub mod signals;
mod starts;
pub mod stop_file;
pub mod vigil;

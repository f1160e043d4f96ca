//! What is sent to engines: messages read by other declarations, and servers of all manners.

mod engines;
mod failures;
mod otlp;
pub(crate) mod server;

use corprof_export::push::{Limits, Options, Pusher};
use std::time::Duration;

use server::Server;

/// For the wait at the end. A test that reaches it has failed.
const LONG: Duration = Duration::from_secs(300);

fn options(server: &Server, engine: &str) -> Options {
    Options::new(server.url(engine).parse().unwrap(), "shop")
}

/// Short pauses, and long times to wait for answers: the machine may be slow.
fn quick() -> Limits {
    let mut limits = Limits::default();
    limits.request = LONG;
    limits.first_pause = Duration::from_millis(5);
    limits.longest_pause = Duration::from_millis(40);
    limits.retry_for = LONG;
    limits
}

fn pusher(server: &Server, engine: &str) -> Pusher {
    Pusher::start(options(server, engine).limits(quick())).unwrap()
}

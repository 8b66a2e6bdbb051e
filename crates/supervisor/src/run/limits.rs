//! Resource limits under which Husk cannot work: reported in a line at the start, as exceeding one
//! would kill the process without a message.

use husk_proto::entry::{DATA_BYTES_MIN, STACK_BYTES_MIN};
use rustix::process::{Resource, getrlimit};

use crate::output::failure::Failure;

/// Whether the stack may become long enough for any of the commands. Takes little of it.
pub fn ensure_stack() -> Result<(), Failure> {
    ensure(Resource::Stack, STACK_BYTES_MIN, "stack", "-s")
}

/// Whether there may be enough data for an image, and who enters one.
pub fn ensure_data() -> Result<(), Failure> {
    ensure(Resource::Data, DATA_BYTES_MIN, "data", "-d")
}

fn ensure(resource: Resource, least: u64, of: &str, option: &str) -> Result<(), Failure> {
    let (Some(most), least) = (getrlimit(resource).current, least >> 10) else { return Ok(()) };
    if most >> 10 >= least {
        return Ok(());
    }
    let why = format!("a process may have {} KiB of {of} only", most >> 10);
    Err(Failure::new("cannot start", why, format!("raise the limit: ulimit {option} {least}")))
}

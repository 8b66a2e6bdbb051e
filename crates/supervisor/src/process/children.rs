//! Waits for processes that this one has started, with a limit.

use std::io;
use std::process::{Child, ExitStatus};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Between two looks.
const LOOK: Duration = Duration::from_millis(2);

/// How a child has ended, waited for so long; `None`: it goes on.
pub fn end_of(child: &mut Child, wait_max: Duration) -> io::Result<Option<ExitStatus>> {
    let end = Instant::now() + wait_max;
    loop {
        let ended = child.try_wait()?;
        if ended.is_some() || Instant::now() >= end {
            return Ok(ended);
        }
        sleep(LOOK);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_child_that_has_ended_has_a_status_and_one_that_goes_on_has_none() {
        let mut lasting = Command::new("sleep").arg("1000").spawn().unwrap();
        assert!(end_of(&mut lasting, Duration::from_millis(5)).unwrap().is_none());
        lasting.kill().unwrap();
        let ended = end_of(&mut lasting, Duration::from_secs(60)).unwrap();
        assert!(ended.is_some_and(|status| !status.success()));
    }
}

//! A job queue: jobs are shell commands, each run at least once, whatever is killed.
//!
//! ```text
//!   job_queue STORE add 'COMMAND'...     returns once they are durable
//!   job_queue STORE work                 runs all jobs; their statuses are kept with them
//!   job_queue STORE list                 what was run, with its status
//! ```
//!
//! A job leaves the queue and its status enters the log in one batch: no crash can leave a job
//! without a status, or a status for a job that is run again.
#![forbid(unsafe_code)]

use std::error::Error;
use std::process::Command;

use tenacious::Store;

const SIZE_BYTES: u64 = 16 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, path, action, commands @ ..] = &arguments[..] else {
        return Err("usage: job_queue STORE add COMMAND... | work | list".into());
    };
    let store = match std::fs::exists(path)? {
        true => Store::open(path)?,
        false => Store::create(path, SIZE_BYTES)?,
    };
    let (jobs, results) = (store.queue("jobs")?, store.log("results")?);
    match action.as_str() {
        "add" => {
            commands.iter().try_for_each(|command| jobs.push(command.as_bytes()).map(drop))?;
            store.wait(store.last())?;
        }
        "work" => {
            while let Some(job) = jobs.take() {
                let command = String::from_utf8_lossy(&job.bytes).into_owned();
                let status = Command::new("sh").args(["-c", &command]).status()?;
                let result = format!("{command}: {status}");
                let lsn =
                    store.batch().done(&jobs, &job).append(&results, result.as_bytes()).commit()?;
                store.wait(lsn)?;
            }
        }
        "list" => {
            for number in results.begin()..results.end() {
                let result = results.get(number).unwrap_or_default();
                println!("{}", String::from_utf8_lossy(&result));
            }
        }
        other => return Err(format!("no action {other}; use add, work or list").into()),
    }
    Ok(())
}

//! Rows of `husk bench servers` where both sides are programs of one system: redis-server and
//! redis-benchmark, natively, or in one image, over TCP on 127.0.0.1.
//!
//! A turn starts a server, asks it, and ends it. Its figure is the time a request takes by
//! redis-benchmark's own rate, so start and end do not count. Both may use all processors.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::Context;

use super::exec::find;
use super::scratch::Scratch;

/// How redis-benchmark asks.
#[derive(Clone, Copy)]
pub struct Asking {
    /// Connections at a time.
    pub connections: u32,
    /// Requests under way on each.
    pub pipeline: u32,
    /// Of each kind, set and get.
    pub requests: u64,
}

impl Asking {
    /// So many connections, with so many requests under way on each.
    pub const fn of(connections: u32, pipeline: u32, requests: u64) -> Asking {
        Asking { connections, pipeline, requests }
    }
}

/// `$1` port, `$2` directory, then how to ask.
const SCRIPT: &str = "port=$1; cd \"$2\" || exit 1; shift 2
redis-server --bind 127.0.0.1 --port \"$port\" --save '' --appendonly no --loglevel warning &
server=$!
for look in $(seq 1 200); do
    redis-cli -p \"$port\" ping >/dev/null 2>&1 && break
    sleep 0.05
done
redis-benchmark -p \"$port\" -t set,get -q \"$@\"
status=$?
kill -KILL \"$server\"; wait \"$server\" 2>/dev/null
exit $status";

/// Requests a second of one turn: the mean of both kinds. `image`: in an image of its own.
pub fn turn(
    asking: &Asking,
    port: u16,
    files: &Path,
    image: Option<(&Scratch, Option<&str>)>,
) -> anyhow::Result<f64> {
    for program in ["redis-server", "redis-benchmark", "redis-cli"] {
        find(program)?;
    }
    let mut command = match image {
        Some((scratch, guard)) => {
            let mut image = Command::new(&scratch.program);
            image.env("HUSK_CONFIG", "none").current_dir(&scratch.idle);
            image.args(["run", "--discard", "--memory", "1G"]);
            image.args(guard.map(|guard| format!("--guard={guard}")));
            image.args(["--", "sh"]);
            image
        }
        None => Command::new("sh"),
    };
    command.args(["-c", SCRIPT, "sh", &port.to_string()]).arg(files);
    let Asking { connections, pipeline, requests } = asking;
    let (connections, pipeline) = (u64::from(*connections), u64::from(*pipeline));
    let options = [("-c", connections), ("-P", pipeline), ("-n", *requests)];
    for (name, value) in options {
        command.arg(name).arg(value.to_string());
    }
    let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output();
    let output = output.with_context(|| format!("cannot start {command:?}"))?;
    let said = String::from_utf8_lossy(&output.stdout);
    let rates: Vec<f64> = rates(&said);
    anyhow::ensure!(output.status.success() && rates.len() == 2, "redis-benchmark said {said:?}");
    Ok(rates.iter().sum::<f64>() / rates.len() as f64)
}

/// The rates in what redis-benchmark prints: `GET: 123456.78 requests per second, ...`.
fn rates(said: &str) -> Vec<f64> {
    let words: Vec<&str> = said.split_whitespace().collect();
    let ends = words.windows(3).filter(|words| words[1..] == ["requests", "per"]);
    ends.filter_map(|words| words[0].parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_last_rate_of_each_kind_is_read() {
        let said = "SET: rps=0.0 (overall: 0.0)\rSET: 61728.39 requests per second, p50=0.4 msec\n\
                    GET: 70000.00 requests per second, p50=0.3 msec\n";
        assert_eq!(super::rates(said), [61728.39, 70000.0]);
    }
}

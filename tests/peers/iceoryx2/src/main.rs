//! The peer of `husk bench msg`: 64 bytes there and back over iceoryx2, both sides polling, between
//! two threads on a core each. For each line on standard input it measures once, and prints the ns
//! of one way. What it calls itself comes first.
//!
//! It is no part of Husk's workspace: nothing of iceoryx2 gets into the product.
//!
//! ```text
//!   one ── there ──► other      publish and subscribe, one service for each direction
//!       ◄── back ───
//! ```

use std::error::Error;
use std::io::BufRead;
use std::sync::Barrier;
use std::time::Instant;

use iceoryx2::port::publisher::Publisher;
use iceoryx2::port::subscriber::Subscriber;
use iceoryx2::prelude::*;

/// Exchanges of one measure, as of the rows of `husk bench msg`.
const MANY: u32 = 20_000;
const CORES: [usize; 2] = [0, 1];
type Message = [u8; 64];
type Failed = Box<dyn Error + Send + Sync>;

/// What one side has of both services.
struct Ends {
    to: Publisher<ipc::Service, Message, ()>,
    from: Subscriber<ipc::Service, Message, ()>,
}

impl Ends {
    fn send(&self, bytes: Message) -> Result<(), Failed> {
        self.to.loan_uninit()?.write_payload(bytes).send()?;
        Ok(())
    }

    fn take(&self) -> Result<Message, Failed> {
        loop {
            if let Some(sample) = self.from.receive()? {
                return Ok(*sample);
            }
            std::hint::spin_loop();
        }
    }
}

/// Keeps this thread on a core.
fn stay(core: usize) -> Result<(), Failed> {
    let mut set = nix::sched::CpuSet::new();
    set.set(core)?;
    Ok(nix::sched::sched_setaffinity(nix::unistd::Pid::from_raw(0), &set)?)
}

impl Ends {
    /// Made by the thread that works with them: `ipc` ports belong to one.
    fn open(there: &str, back: &str) -> Result<Ends, Failed> {
        let node = NodeBuilder::new().create::<ipc::Service>()?;
        let service = |way: &str| -> Result<_, Failed> {
            let name = format!("husk-bench/{}/{way}", std::process::id());
            let builder = node.service_builder(&name.as_str().try_into()?);
            let builder = builder.publish_subscribe::<Message>();
            let builder = builder.max_publishers(1).max_subscribers(1).history_size(0);
            Ok(builder.subscriber_max_buffer_size(1).open_or_create()?)
        };
        let to = service(there)?.publisher_builder().create()?;
        Ok(Ends { to, from: service(back)?.subscriber_builder().create()? })
    }
}

/// One measure: ns for one way.
fn measure() -> Result<f64, Failed> {
    let begin = Barrier::new(2);
    std::thread::scope(|scope| {
        let echo = scope.spawn(|| -> Result<(), Failed> {
            stay(CORES[1])?;
            let other = Ends::open("back", "there");
            begin.wait();
            let other = other?;
            for _ in 0..MANY {
                other.send(other.take()?)?;
            }
            Ok(())
        });
        stay(CORES[0])?;
        let one = Ends::open("there", "back");
        begin.wait();
        let one = one?;
        let start = Instant::now();
        for n in 0..MANY {
            one.send([n as u8; 64])?;
            if one.take()? != [n as u8; 64] {
                return Err("another message came back".into());
            }
        }
        let ns = start.elapsed().as_nanos() as f64 / f64::from(2 * MANY);
        echo.join().map_err(|_| "the other side panicked")??;
        Ok(ns)
    })
}

fn main() -> Result<(), Failed> {
    set_log_level(LogLevel::Error);
    println!("iceoryx2 0.10, publish and subscribe");
    for line in std::io::stdin().lock().lines() {
        line?;
        println!("{:.1}", measure()?);
    }
    Ok(())
}

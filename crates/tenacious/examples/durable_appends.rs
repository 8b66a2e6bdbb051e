//! How long a durable append takes, and how many there are a second, beside a file that is appended
//! to and synced. Both in turn, medians of rounds.
//!
//! ```text
//!   durable_appends DIRECTORY [ROUNDS]
//! ```
#![forbid(unsafe_code)]

use std::error::Error;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tenacious::{Log, Store};

const RECORD: [u8; 256] = [b'x'; 256];
const ROUND: Duration = Duration::from_millis(300);
const WRITERS: [usize; 3] = [1, 4, 16];
const SIZE_BYTES: u64 = 64 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let directory = Path::new(arguments.get(1).ok_or("usage: durable_appends DIRECTORY [ROUNDS]")?);
    let rounds = arguments.get(2).map_or(Ok(9), |rounds| rounds.parse())?;
    let (a_store, a_file) = (directory.join("appends.store"), directory.join("appends.file"));
    let store = Store::create(&a_store, SIZE_BYTES)?;
    let log = store.log("records")?;
    let file = OpenOptions::new().append(true).create_new(true).open(&a_file)?;
    println!("{:>8} {:>14} {:>14} {:>7}", "writers", "file /s", "store /s", "ratio");
    for writers in WRITERS {
        let mut rows: Vec<(f64, f64)> = (0..rounds)
            .map(|_| {
                (a_second(writers, || synced(&file)), a_second(writers, || stored(&log, &store)))
            })
            .collect();
        rows.sort_by(|a, b| (a.1 / a.0).total_cmp(&(b.1 / b.0)));
        let (by_file, by_store) = rows[rows.len() / 2];
        println!("{writers:>8} {by_file:>14.0} {by_store:>14.0} {:>7.2}", by_store / by_file);
    }
    drop((log, store, file));
    std::fs::remove_file(a_store)?;
    std::fs::remove_file(a_file)?;
    Ok(())
}

/// Appends that `writers` threads make durable in a second.
fn a_second(writers: usize, append: impl Fn() + Sync) -> f64 {
    let (count, since) = (AtomicU64::new(0), Instant::now());
    std::thread::scope(|scope| {
        for _ in 0..writers {
            scope.spawn(|| {
                while since.elapsed() < ROUND {
                    append();
                    count.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    count.into_inner() as f64 / since.elapsed().as_secs_f64()
}

fn synced(mut file: &File) {
    file.write_all(&RECORD).and_then(|()| file.sync_data()).expect("a disk that works");
}

fn stored(log: &Log, store: &Store) {
    let lsn = log.append(&RECORD).expect("room");
    let keep = log.end().saturating_sub(1000);
    if keep.is_multiple_of(500) {
        log.trim(keep).expect("room");
    }
    store.wait(lsn).expect("a disk that works");
}

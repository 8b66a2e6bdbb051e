//! How long a start takes for each GiB of log that it replays: a volume's area is made, its log is
//! filled with changes of one file, and opened again, in turn with a mere read of as many bytes.
//! Medians of rounds.
//!
//! ```text
//!   replay DIRECTORY [SIZE_MIB] [ROUNDS]
//! ```
#![forbid(unsafe_code)]

use std::error::Error;
use std::path::Path;
use std::time::Instant;

use husk_storage::Uuid;
use husk_storage::area::header::Header;
use husk_storage::area::{Area, Locked};
use husk_storage::disk::{Aligned, Disk};
use husk_storage::log::{Found, Log, Refusal};
use husk_storage::tree::change::DATA_BYTES_MAX;
use husk_storage::tree::{Attributes, Change, Id, Kind, Tree, Writer};

const SIZE_MIB: u64 = 256;
const ROUNDS: usize = 7;
/// The file that is written over and over.
const FILE_BYTES: u64 = 16 << 20;
const FILE: Id = Id(2);
/// Bytes of one sync.
const PIECES: [(&str, usize); 2] = [("4 KiB", 4096), ("1 MiB", 1 << 20)];
const WINDOW_BYTES: usize = 2 << 20;
const GIB: f64 = (1 << 30) as f64;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let usage = "usage: replay DIRECTORY [SIZE_MIB] [ROUNDS]";
    let path = &Path::new(arguments.get(1).ok_or(usage)?).join("replay.area");
    let size_bytes = arguments.get(2).map_or(Ok(SIZE_MIB), |mib| mib.parse())? << 20;
    let rounds = arguments.get(3).map_or(Ok(ROUNDS), |rounds| rounds.parse())?;
    println!(
        "{:>8} {:>10} {:>18} {:>18}",
        "a sync", "log, MiB", "read alone, s/GiB", "replay, s/GiB"
    );
    for (name, piece) in PIECES {
        let (name_of_area, owner_uid) = ("replay".to_owned(), 0);
        let uuid = Uuid::random()?;
        let header =
            Header { uuid, name: name_of_area, size_bytes, owner_uid, epoch: 0, holder_pid: 0 };
        Area::make(path, &header, "cannot make the area")?;
        let log_bytes = fill(&open(path, uuid)?, piece)?;
        let (mut read, mut replayed) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            let begun = Instant::now();
            let log = open(path, uuid)?;
            replayed.push(begun.elapsed().as_secs_f64());
            let begun = Instant::now();
            read_alone(log.disk(), log_bytes)?;
            read.push(begun.elapsed().as_secs_f64());
        }
        let gib = log_bytes as f64 / GIB;
        let [read, replayed] = [read, replayed].map(|took_s| median(took_s) / gib);
        println!("{name:>8} {:>10} {read:>18.2} {replayed:>18.2}", log_bytes >> 20);
        std::fs::remove_file(path)?;
    }
    Ok(())
}

fn median(mut took: Vec<f64>) -> f64 {
    took.sort_by(f64::total_cmp);
    took[took.len() / 2]
}

/// Reads as much of the area as a replay does, in pieces of the same size.
fn read_alone(area: &Area, bytes: u64) -> Result<(), Box<dyn Error>> {
    let mut window = Aligned::zeroed(WINDOW_BYTES);
    let whole = (0..bytes).step_by(WINDOW_BYTES).take((bytes / WINDOW_BYTES as u64) as usize);
    for at in whole {
        area.read(at, &mut window)?;
    }
    Ok(())
}

/// Opens the area's log as an image does, with the tree that it holds.
fn open(path: &Path, uuid: Uuid) -> Result<Log<Area>, Box<dyn Error>> {
    let area = Locked::take(path, "cannot use the area")?.acquire(uuid)?;
    let (mut tree, mut is_sound) = (Tree::default(), true);
    let opened = area.open_log(|found| {
        is_sound &= match found {
            Found::Snapshot(_, part) => tree.snapshot(part).is_ok(),
            Found::Record(_, record) => tree.record(record).is_ok(),
        };
    });
    let (log, _) = opened.map_err(|damage| damage.to_string())?;
    if is_sound { Ok(log) } else { Err("a record is malformed".into()) }
}

/// Fills the log, each piece durable by itself; its bytes.
fn fill(log: &Log<Area>, piece: usize) -> Result<u64, Box<dyn Error>> {
    let bytes: Vec<u8> = (0..piece).map(|n| (n * 7 + n / 256) as u8).collect();
    let attributes =
        Attributes { kind: Kind::File, mode: 0o644, uid: 0, gid: 0, device: 0, times_ns: [0; 4] };
    for at in (0..FILE_BYTES).step_by(piece).cycle() {
        let mut writer = Writer::default();
        writer.push(&Change::Node(FILE, attributes));
        for (n, part) in bytes.chunks(DATA_BYTES_MAX).enumerate() {
            writer.push(&Change::Data(FILE, at + (n * DATA_BYTES_MAX) as u64, part));
            writer.seal();
        }
        for batch in writer.finish() {
            match log.append(&batch) {
                Err(Refusal::Full) => return Ok(log.used_bytes().0),
                other => other.map_err(|why| why.to_string())?,
            };
        }
        log.wait(log.appended()).map_err(|why| why.to_string())?;
    }
    unreachable!("the pieces never end")
}

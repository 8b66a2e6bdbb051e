//! Crashes from seeds: random programs on a disk that fails, against what must be there afterwards.
//!
//! Oracle: what a replay shows is a prefix of what was appended, byte for byte, with all that was
//! acknowledged; or, where the disk itself has lost or changed something, the replay says that the
//! log is damaged. Only the last frame may be missing without a word, and only then.
//!
//! 2,000 crashes, or with `HUSK_FULL=1` a million. One seed alone: `HUSK_SEED=N`.

use std::sync::Arc;

use super::*;
use crate::disk::sim::{Random, Sim};

const BEGIN: u64 = 2 * BLOCK;
const END: u64 = 66 * BLOCK;
const UUID: Uuid = Uuid([9; 16]);
/// Users of one log, one after the other.
const LIVES: u64 = 5;

/// What may happen to the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Faults {
    /// The power goes, processes are killed, writes and flushes fail: nothing may be lost.
    Honest,
    /// Bits turn, writes end elsewhere, blocks cannot be read: a loss must be told.
    Lying,
    /// Flushes do nothing: a prefix is all that can be asked for.
    Dropping,
}

/// One log and what is known of it.
struct World {
    disk: Arc<Sim>,
    random: Random,
    faults: Faults,
    /// Whether bytes that counted may have been changed.
    is_harmed: bool,
    /// Whether a bit turns at the next crash: one lie at a time.
    turns: bool,
    records: Vec<Vec<u8>>,
    acknowledged: u64,
    /// First record of the last frame that was acknowledged.
    last_frame: u64,
    epoch: u64,
}

/// Digest of the records up to one.
fn digest(records: &[Vec<u8>]) -> Vec<u8> {
    let sums: Vec<u8> = records
        .iter()
        .flat_map(|record| crate::area::header::checksum(record).to_le_bytes())
        .collect();
    crate::area::header::checksum(&sums).to_le_bytes().to_vec()
}

impl World {
    fn new(seed: u64, faults: Faults) -> Self {
        let disk = Arc::new(Sim::new(END, seed));
        Log::format(&disk, BEGIN, END, UUID).unwrap();
        let random = Random::new(!seed);
        let (records, acknowledged, last_frame) = (Vec::new(), 0, 1);
        if faults == Faults::Dropping {
            disk.drop_flushes();
        }
        let (is_harmed, turns, epoch) = (false, false, 0);
        Self { disk, random, faults, is_harmed, turns, records, acknowledged, last_frame, epoch }
    }

    fn one_in(&mut self, count: u64) -> bool {
        self.random.below(count) == 0
    }

    /// Opens the log and holds it against what is known; `None`: it is damaged, as it may be.
    fn open(&mut self) -> Result<Option<Log<Arc<Sim>>>, String> {
        self.epoch += 1;
        let (mut snapshot, mut shown) = ((0, Vec::new()), Vec::new());
        let opened =
            Log::open(self.disk.clone(), (BEGIN, END), (UUID, self.epoch), |found| match found {
                Found::Snapshot(lsn, part) => {
                    snapshot.0 = lsn.0;
                    snapshot.1.extend_from_slice(part);
                }
                Found::Record(lsn, record) => shown.push((lsn.0, record.to_vec())),
            });
        let log = match opened {
            Ok((log, _)) => log,
            Err(damage) if self.is_harmed => {
                let _ = damage;
                return Ok(None);
            }
            Err(damage) => return Err(format!("damage without a cause: {damage}")),
        };
        let covered = snapshot.0 as usize;
        let known = self.records.get(..covered).ok_or("a snapshot of what was never there")?;
        if covered > 0 && snapshot.1[..8] != digest(known) {
            return Err(format!("the snapshot of {covered} records is another one"));
        }
        for (at, (lsn, record)) in shown.iter().enumerate() {
            let number = covered + at;
            if *lsn != number as u64 + 1 || self.records.get(number) != Some(record) {
                return Err(format!("record {lsn} is not what was appended"));
            }
        }
        let last = (covered + shown.len()) as u64;
        let least = match (self.faults, self.is_harmed) {
            (Faults::Dropping, _) => 0,
            (_, true) => self.last_frame - 1,
            (_, false) => self.acknowledged,
        };
        if last < least {
            return Err(format!("{last} records, {} were acknowledged", self.acknowledged));
        }
        self.records.truncate(last as usize);
        self.acknowledged = last;
        self.last_frame = self.last_frame.min(last + 1);
        if log.durable() != Lsn(last) {
            return Err("it is shown and not durable".to_owned());
        }
        Ok(Some(log))
    }

    fn plan_fault(&mut self) {
        let after = self.random.below(24);
        match self.faults {
            Faults::Honest => match self.random.below(6) {
                0..3 => self.disk.cut_after(after),
                3 => self.disk.fail_write(after),
                4 => self.disk.fail_flush(after / 2),
                _ => {}
            },
            Faults::Lying => {
                self.is_harmed = true;
                self.turns = self.one_in(2);
                // A write that ends elsewhere and is torn there, too, leaves no trace to find.
                match self.turns {
                    true => self.disk.cut_after(after),
                    false => self.disk.misdirect(after),
                }
            }
            Faults::Dropping => self.is_harmed = true,
        }
    }

    /// Appends, waits and makes checkpoints until something fails or it is enough.
    fn work(&mut self, log: Log<Arc<Sim>>) {
        for _ in 0..self.random.below(16) {
            let first = log.durable().0 + 1;
            for _ in 0..=self.random.below(3) {
                let length = match self.random.below(8) {
                    0 => self.random.below(9000),
                    _ => self.random.below(300),
                };
                let byte = self.random.draw() as u8;
                let mut record = vec![byte; length as usize];
                record.extend(self.random.draw().to_le_bytes());
                match log.append(&record) {
                    Ok(lsn) => {
                        self.records.push(record);
                        assert_eq!(lsn.0, self.records.len() as u64);
                    }
                    Err(Refusal::Full) => break,
                    Err(_) => return,
                }
            }
            let last = Lsn(self.records.len() as u64);
            if self.one_in(4) {
                continue;
            }
            let waited = log.wait(last);
            self.acknowledged = self.acknowledged.max(log.durable().0);
            if waited.is_err() {
                return;
            }
            if first <= last.0 {
                self.last_frame = first;
            }
            let (used, all) = log.used_bytes();
            if used * 3 > all * 2 || self.one_in(8) {
                let back = self.random.below(last.0.min(3) + 1);
                // None is older than the one before.
                let covered = Lsn(last.0 - back).max(log.state().root.snapshot.lsn);
                let mut bytes = digest(&self.records[..covered.0 as usize]);
                bytes.resize(8 + self.random.below(30_000) as usize, 5);
                if log.checkpoint(covered, |to| to.write(&bytes)).is_err() {
                    return;
                }
            }
        }
        if self.one_in(4) && log.close().is_ok() {
            self.acknowledged = self.records.len() as u64;
        }
    }

    /// A process is killed, or the power goes; some disks change bytes meanwhile.
    fn crash(&mut self) {
        // Whoever has failed is killed; the power may stay.
        if self.faults != Faults::Honest || !self.one_in(4) {
            self.disk.crash();
        } else {
            self.disk.come_back();
        }
        if self.turns {
            let at = BEGIN + self.random.below(END - BEGIN);
            match self.random.below(4) {
                0 => self.disk.spoil(at),
                _ => self.disk.rot(at, self.random.below(8) as u32),
            }
        }
    }
}

/// How many crashes a seed was good for, or what is wrong.
fn live(seed: u64) -> Result<u64, String> {
    let faults = match seed % 8 {
        0..5 => Faults::Honest,
        5 | 6 => Faults::Lying,
        _ => Faults::Dropping,
    };
    let mut world = World::new(seed, faults);
    let told = |why: String| format!("HUSK_SEED={seed} ({faults:?}): {why}");
    for life in 0..LIVES {
        let Some(log) = world.open().map_err(told)? else { return Ok(life) };
        world.plan_fault();
        world.work(log);
        world.crash();
    }
    let Some(_) = world.open().map_err(told)? else { return Ok(LIVES) };
    let findings = check(&world.disk, (BEGIN, END), UUID);
    if world.faults == Faults::Honest && !findings.is_empty() && !world.is_harmed {
        // A copy of the root that a crash has torn is a note, not damage.
        let roots = findings.iter().all(|finding| finding.what.contains("copy of the log's root"));
        if !roots {
            return Err(told(format!("not clean: {findings:?}")));
        }
    }
    Ok(LIVES)
}

fn crashes_wanted() -> u64 {
    if std::env::var_os("HUSK_FULL").is_some() { 1_000_000 } else { 2_000 }
}

#[test]
fn after_any_crash_what_was_acknowledged_is_there_or_its_loss_is_told() {
    if let Some(seed) = std::env::var("HUSK_SEED").ok().and_then(|seed| seed.parse().ok()) {
        live(seed).unwrap();
        return;
    }
    let (mut crashes, mut seed) = (0, 0);
    while crashes < crashes_wanted() {
        crashes += live(seed).unwrap();
        seed += 1;
    }
    println!("{crashes} crashes from {seed} seeds");
}

/// Each bug that is planted, and how many seeds at most until it is found.
const MUTANTS: &[(Mutant, u64)] = &[
    (Mutant::NoFlush, 500),
    (Mutant::NoChecksum, 2_000),
    (Mutant::NoPrefixRule, 5_000),
    (Mutant::FlushRetried, 5_000),
    (Mutant::AcknowledgedFirst, 2_000),
    (Mutant::OpenedUnsettled, 50_000),
    (Mutant::RootFirst, 5_000),
];

#[test]
fn every_planted_bug_is_found() {
    for &(mutant, seeds) in MUTANTS {
        PLANTED.set(Some(mutant));
        let found = (0..seeds).find(|&seed| {
            std::panic::catch_unwind(|| live(seed)).is_ok_and(|lived| lived.is_err())
        });
        PLANTED.set(None);
        println!("{mutant:?}: seed {found:?}");
        assert!(found.is_some(), "{mutant:?} is not found in {seeds} seeds");
    }
}

fn log() -> (Arc<Sim>, Log<Arc<Sim>>) {
    let disk = Arc::new(Sim::new(END, 1));
    Log::format(&disk, BEGIN, END, UUID).unwrap();
    let log = Log::open(disk.clone(), (BEGIN, END), (UUID, 1), |_| ()).unwrap().0;
    (disk, log)
}

#[test]
fn a_lone_writer_flushes_once_for_each_record_itself() {
    let (disk, log) = log();
    let before = disk.counts();
    for _ in 0..8 {
        let lsn = log.append(b"record").unwrap();
        log.wait(lsn).unwrap();
    }
    assert_eq!(disk.counts().flushes - before.flushes, 8);
    let bytes = 8 * BLOCK;
    assert_eq!(log.counts(), Counts { records: 8, frames: 8, bytes, checkpoints: 0 });
}

#[test]
fn writers_at_the_same_time_lose_nothing_and_what_gathers_takes_one_flush() {
    let (disk, log) = log();
    let before = disk.counts();
    let lsns: Vec<Lsn> = (0..10).map(|_| log.append(b"record").unwrap()).collect();
    std::thread::scope(|scope| {
        let log = &log;
        lsns.iter().for_each(|&lsn| drop(scope.spawn(move || log.wait(lsn).unwrap())));
    });
    assert_eq!(disk.counts().flushes - before.flushes, 1);
    std::thread::scope(|scope| {
        let write = || (0..3).for_each(|_| log.wait(log.append(b"more").unwrap()).unwrap());
        (0..4).for_each(|_| drop(scope.spawn(write)));
    });
    disk.crash();
    let mut count = 0;
    Log::open(disk, (BEGIN, END), (UUID, 2), |_| count += 1).unwrap();
    assert_eq!(count, 22);
}

#[test]
fn a_full_ring_refuses_and_a_checkpoint_makes_room() {
    let (_, log) = log();
    let mut last = Lsn(0);
    let refused = loop {
        match log.append(&[1; 3000]) {
            Ok(lsn) => last = lsn,
            Err(why) => break why,
        }
        log.wait(last).unwrap();
    };
    assert_eq!((refused, refused.errno()), (Refusal::Full, Errno::NOSPC));
    log.checkpoint(last, |to| to.write(b"all of it")).unwrap();
    assert_eq!(log.used_bytes().0, 0);
    log.append(&[1; 3000]).unwrap();
    let long = log.append(&vec![0; RECORD_BYTES_MAX + 1]);
    assert_eq!(long, Err(Refusal::TooLong));
}

#[test]
fn after_an_error_the_log_stops_and_whoever_waits_is_told() {
    for fails in [Sim::fail_write, Sim::fail_flush] {
        let (disk, log) = log();
        fails(&disk, 0);
        let lsn = log.append(b"record").unwrap();
        assert_eq!(log.wait(lsn), Err(Refusal::Stopped));
        let before = disk.counts();
        assert_eq!(log.append(b"more"), Err(Refusal::Stopped));
        assert_eq!(log.wait(lsn).unwrap_err().errno(), Errno::IO);
        assert_eq!(log.checkpoint(Lsn(0), |_| Ok(())), Err(Refusal::Stopped));
        assert!(log.is_stopped() && disk.counts() == before);
    }
}

/// Appends and makes checkpoints up to an error or the end: records that were acknowledged, and
/// whether there was an error.
fn work_until_an_error(log: Log<Arc<Sim>>) -> (u64, bool) {
    let mut acknowledged = 0;
    for n in 0..12 {
        match log.append(&[n as u8; 5000]).and_then(|lsn| log.wait(lsn)) {
            Ok(()) => acknowledged = n + 1,
            Err(_) => return (acknowledged, true),
        }
        let covered = Lsn(acknowledged);
        if n % 4 == 3 && log.checkpoint(covered, |to| to.write(&[1; 30_000])).is_err() {
            return (acknowledged, true);
        }
    }
    (acknowledged, log.close().is_err())
}

#[test]
fn whichever_write_or_flush_fails_what_was_acknowledged_is_there() {
    for (fails, leaves) in [
        (Sim::fail_write as fn(&Sim, u64), Sim::crash as fn(&Sim)),
        (Sim::fail_write, Sim::come_back),
        (Sim::fail_flush, Sim::crash),
        (Sim::fail_flush, Sim::come_back),
    ] {
        let mut failed = 0;
        loop {
            let (disk, log) = log();
            fails(&disk, failed);
            let (acknowledged, has_failed) = work_until_an_error(log);
            leaves(&disk);
            let mut last = 0;
            let opened = Log::open(disk, (BEGIN, END), (UUID, 2), |found| match found {
                Found::Snapshot(lsn, _) | Found::Record(lsn, _) => last = lsn.0,
            });
            opened.unwrap();
            assert!(last >= acknowledged, "fault {failed}: {last} of {acknowledged}");
            if !has_failed {
                break;
            }
            failed += 1;
        }
        assert!(failed > 12, "{failed}");
    }
}

#[test]
fn a_log_of_another_version_is_refused_by_its_number_though_a_copy_of_the_root_is_ours() {
    for (version, remedy) in [(2_u32, "use a newer husk"), (0, "with an older husk")] {
        let (disk, log) = log();
        log.close().unwrap();
        let mut root = Aligned::zeroed(BLOCK_BYTES);
        disk.read(BEGIN, &mut root).unwrap();
        root[8..12].copy_from_slice(&version.to_le_bytes());
        let sum = crate::area::header::checksum(&root[..BLOCK_BYTES - 8]);
        root[BLOCK_BYTES - 8..].copy_from_slice(&sum.to_le_bytes());
        disk.write_durable(BEGIN, &root).unwrap();
        let refused = Log::open(disk.clone(), (BEGIN, END), (UUID, 2), |_| ()).unwrap_err();
        let told = format!("the log has version {version}; ");
        assert!(refused.what.contains(&told) && refused.what.contains(remedy), "{refused}");
        let mut after = Aligned::zeroed(BLOCK_BYTES);
        disk.read(BEGIN, &mut after).unwrap();
        assert!(after[..] == root[..]);
    }
}

#[test]
fn a_last_frame_that_rots_is_missed_once_the_log_was_closed() {
    for is_closed in [false, true] {
        let (disk, log) = log();
        log.wait(log.append(b"record").unwrap()).unwrap();
        if is_closed {
            log.close().unwrap();
        }
        disk.rot(BEGIN + 2 * BLOCK + 108, 1);
        let opened = Log::open(disk, (BEGIN, END), (UUID, 2), |_| ());
        assert_eq!(opened.is_err(), is_closed);
    }
}

#[test]
fn a_frame_of_a_later_user_fences_an_earlier_one() {
    let (disk, log) = log();
    log.wait(log.append(b"record").unwrap()).unwrap();
    drop(log);
    let log = Log::open(disk.clone(), (BEGIN, END), (UUID, 5), |_| ()).unwrap().0;
    log.wait(log.append(b"record").unwrap()).unwrap();
    let fenced = Log::open(disk, (BEGIN, END), (UUID, 4), |_| ()).unwrap_err();
    assert!(fenced.what.contains("a later user (epoch 5)"), "{fenced}");
}

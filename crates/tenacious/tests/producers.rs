//! Several producers of one store: threads, and event loops that wait by a doorbell.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tenacious::{Lsn, Store};

const SIZE_BYTES: u64 = 4 << 20;
const PRODUCERS: u8 = 4;
const ROUNDS: u64 = 6;
const LONG: Timespec = Timespec { tv_sec: 60, tv_nsec: 0 };
const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// A directory on a disk: a file system in memory may know no O_DIRECT.
fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// An entry of the log: who, and how many of theirs came before.
fn entry(bytes: &[u8]) -> (u8, u64) {
    (bytes[0], u64::from_le_bytes(bytes[1..9].try_into().unwrap()))
}

/// How many entries each producer has, which must be in the order in which they were made.
fn counts(store: &Store) -> BTreeMap<u8, u64> {
    let (log, mut counts) = (store.log("l").unwrap(), BTreeMap::new());
    for number in log.begin()..log.end() {
        let (producer, n) = entry(&log.get(number).unwrap());
        let next: &mut u64 = counts.entry(producer).or_default();
        assert_eq!(n, *next, "of producer {producer}");
        *next += 1;
    }
    counts
}

/// Appends until it is killed; each waits for its own, one in three with all before it.
fn work(path: &Path) -> ! {
    let store = Store::open(path).unwrap();
    let begun = counts(&store);
    std::thread::scope(|scope| {
        for producer in 0..PRODUCERS {
            let (log, store) = (store.log("l").unwrap(), store.clone());
            let mut n = begun.get(&producer).copied().unwrap_or(0);
            scope.spawn(move || {
                loop {
                    let bytes = [&[producer][..], &n.to_le_bytes()].concat();
                    let lsn = log.append(&bytes).unwrap();
                    n += 1;
                    if n % 3 == u64::from(producer % 3) {
                        store.wait(lsn).unwrap();
                        println!("durable {producer} {n}");
                    }
                }
            });
        }
    });
    unreachable!("nobody stops")
}

#[test]
fn each_thread_finds_its_changes_in_order_after_a_kill_with_all_that_it_waited_for() {
    const ROLE: &str = "TENACIOUS_PRODUCES_ON";
    const NAME: &str =
        "each_thread_finds_its_changes_in_order_after_a_kill_with_all_that_it_waited_for";
    if let Some(path) = std::env::var_os(ROLE) {
        work(Path::new(&path));
    }
    let directory = directory();
    let path = directory.path().join("store");
    drop(Store::create(&path, SIZE_BYTES).unwrap());
    for round in 1..=ROUNDS {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", NAME, "--nocapture"])
            .env(ROLE, &path)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut told: BTreeMap<u8, u64> = BTreeMap::new();
        let mut hear = |line: String| {
            let Some((_, words)) = line.rsplit_once("durable ") else { return };
            let (producer, n) = words.split_once(' ').unwrap();
            told.insert(producer.parse().unwrap(), n.parse().unwrap());
        };
        let some = 40 * round as usize;
        lines.by_ref().map_while(Result::ok).take(some).for_each(&mut hear);
        child.kill().unwrap();
        child.wait().unwrap();
        lines.map_while(Result::ok).for_each(&mut hear);
        let store = Store::open(&path).unwrap();
        let found = counts(&store);
        assert!(!told.is_empty());
        for (producer, n) in told {
            assert!(found[&producer] >= n, "{producer}: {} of {n}", found[&producer]);
        }
        // The next round has room.
        let log = store.log("l").unwrap();
        assert!(log.end() < 20_000, "{}", log.end());
    }
}

#[test]
fn several_threads_that_wait_share_writes_and_get_numbers_of_their_own() {
    let directory = directory();
    let store = Store::create(directory.path().join("store"), SIZE_BYTES).unwrap();
    let counter = store.counter("c").unwrap();
    let before = store.counts();
    let mut numbers = std::thread::scope(|scope| {
        let produce = || {
            let mut own = Vec::new();
            for _ in 0..200 {
                let lsn = counter.add(1).unwrap();
                store.wait(lsn).unwrap();
                assert!(store.durable() >= lsn);
                own.push(lsn);
            }
            assert!(own.is_sorted());
            own
        };
        let producers: Vec<_> = (0..8).map(|_| scope.spawn(produce)).collect();
        producers.into_iter().flat_map(|one| one.join().unwrap()).collect::<Vec<Lsn>>()
    });
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!((numbers.len(), counter.get()), (1600, 1600));
    let after = store.counts();
    let (batches, writes) = (after.batches - before.batches, after.writes - before.writes);
    assert!(batches >= 1600 && writes <= batches, "{batches} in {writes} writes");
}

#[test]
fn an_event_loop_hears_of_each_change_by_epoll_and_by_poll() {
    let directory = directory();
    let store = Store::create(directory.path().join("store"), SIZE_BYTES).unwrap();
    let (bell, log) = (store.doorbell().unwrap(), store.log("l").unwrap());
    let set = epoll::create(CreateFlags::CLOEXEC).unwrap();
    epoll::add(&set, &bell, EventData::new_u64(7), EventFlags::IN | EventFlags::ET).unwrap();
    let by_poll = |limit| poll(&mut [PollFd::new(&bell, PollFlags::IN)], Some(limit)).unwrap() == 1;
    let by_epoll = |limit| {
        let mut events = Vec::with_capacity(4);
        epoll::wait(&set, rustix::buffer::spare_capacity(&mut events), Some(limit)).unwrap();
        events.len() == 1 && events[0].data.u64() == 7
    };
    for round in 0..50 {
        // Several threads bring changes, one of which is asked for.
        let lsn = std::thread::scope(|scope| {
            let append = || log.append(b"entry").unwrap();
            let others: Vec<_> = (0..3).map(|_| scope.spawn(append)).collect();
            others.into_iter().map(|one| one.join().unwrap()).max().unwrap()
        });
        assert!(!by_poll(&NOW), "round {round}: nobody has asked for it");
        bell.ring_at(lsn).unwrap();
        assert!(if round % 2 == 0 { by_epoll(&LONG) } else { by_poll(&LONG) }, "round {round}");
        assert!(bell.take().unwrap() >= lsn && !by_poll(&NOW));
        // An edge that only poll has seen is gone with the next ring.
        let _ = by_epoll(&NOW);
    }
}

//! Stores on a real disk: what is promised, one user at a time, bad files, and kills.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use tenacious::{Error, Lsn, Store};

const SIZE_BYTES: u64 = 2 << 20;
const LONG: Duration = Duration::from_secs(60);

/// A directory on a disk: a file system in memory may know no O_DIRECT.
fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn told(error: Result<Store, Error>) -> String {
    let line = error.unwrap_err().to_string();
    assert!(!line.contains('\n'), "{line}");
    line
}

#[test]
fn a_store_that_is_opened_again_has_all_its_structures_as_they_were() {
    let directory = directory();
    let path = directory.path().join("store");
    let store = Store::create(&path, SIZE_BYTES).unwrap();
    let (log, queue) = (store.log("l").unwrap(), store.queue("q").unwrap());
    let (map, counter) = (store.map("m").unwrap(), store.counter("c").unwrap());
    for n in 0..10u8 {
        log.append(&[n]).unwrap();
        queue.push(&[n; 2]).unwrap();
        map.insert(&[n], &[n; 3]).unwrap();
        counter.add(i64::from(n)).unwrap();
    }
    log.trim(4).unwrap();
    let first = queue.take().unwrap();
    queue.done(&first).unwrap();
    let second = queue.take().unwrap();
    map.remove(&[3]).unwrap();
    assert_eq!((first.bytes, second.number), (vec![0; 2], 1));
    drop((store, log, queue, map, counter));

    let store = Store::open(&path).unwrap();
    let (log, queue) = (store.log("l").unwrap(), store.queue("q").unwrap());
    let (map, counter) = (store.map("m").unwrap(), store.counter("c").unwrap());
    assert_eq!((log.begin(), log.end(), log.get(3), log.get(4)), (4, 10, None, Some(vec![4])));
    // Nobody has done with the second one.
    assert_eq!((queue.len(), queue.take()), (9, Some(second)));
    assert_eq!((map.len(), map.get(&[3]), map.get(&[9])), (9, None, Some(vec![9; 3])));
    assert_eq!(map.next(Some(&[2])), Some((vec![4], vec![4; 3])));
    assert_eq!(counter.get(), 45);
    assert_eq!(store.map("c").unwrap_err(), Error::OtherKind);
}

#[test]
fn a_store_that_is_full_says_so_takes_nothing_and_has_room_again_after_removals() {
    let directory = directory();
    let store = Store::create(directory.path().join("store"), 1 << 20).unwrap();
    let map = store.map("m").unwrap();
    let mut keys = 0u32;
    let refused = loop {
        match map.insert(&keys.to_le_bytes(), &[7; 5000]) {
            Ok(_) => keys += 1,
            Err(why) => break why,
        }
    };
    assert_eq!((refused, map.len()), (Error::Full, keys as usize));
    assert!(keys > 20, "{keys}");
    // What makes it no longer is taken, however often.
    for n in 0..1000u32 {
        map.insert(&0u32.to_le_bytes(), &n.to_le_bytes()).unwrap();
        map.remove(&0u32.to_le_bytes()).unwrap();
    }
    map.insert(b"more", &[7; 4000]).unwrap();
    store.wait(store.last()).unwrap();
    assert_eq!(map.insert(b"long", &vec![0; tenacious::BATCH_BYTES_MAX]), Err(Error::TooLong));
}

#[test]
fn callbacks_come_in_order_once_their_changes_are_durable() {
    let directory = directory();
    let store = Store::create(directory.path().join("store"), SIZE_BYTES).unwrap();
    let counter = store.counter("c").unwrap();
    let (send, receive) = mpsc::channel();
    for n in 0..50 {
        let lsn = counter.add(1).unwrap();
        let send = send.clone();
        store.on_durable(lsn, move |result| send.send((n, result)).unwrap()).unwrap();
    }
    for n in 0..50 {
        assert_eq!(receive.recv_timeout(LONG), Ok((n, Ok(()))));
    }
    assert!(store.durable() >= Lsn(50));
    let never = Lsn(store.last().0 + 1);
    assert_eq!(store.wait(never), Err(Error::Unknown));
    assert_eq!(store.on_durable(never, |_| ()), Err(Error::Unknown));
}

#[test]
fn what_nobody_waits_for_is_written_too() {
    let directory = directory();
    let path = directory.path().join("store");
    let store = Store::create(&path, SIZE_BYTES).unwrap();
    let counter = store.counter("c").unwrap();
    for round in 1..=3 {
        let lsn = counter.add(1).unwrap();
        let since = std::time::Instant::now();
        while store.durable() < lsn {
            assert!(since.elapsed() < LONG, "round {round}");
            std::thread::yield_now();
        }
    }
}

#[test]
fn each_item_goes_to_one_of_several_consumers() {
    let directory = directory();
    let store = Store::create(directory.path().join("store"), SIZE_BYTES).unwrap();
    let queue = store.queue("q").unwrap();
    let consume = || {
        let mut taken = Vec::new();
        while let Some(item) = queue.take_within(LONG).filter(|item| item.bytes != b"end") {
            queue.done(&item).unwrap();
            taken.push(item.number);
        }
        taken
    };
    let mut taken = std::thread::scope(|scope| {
        let consumers: Vec<_> = (0..4).map(|_| scope.spawn(consume)).collect();
        for n in 0..400u32 {
            queue.push(&n.to_le_bytes()).unwrap();
        }
        for _ in 0..4 {
            queue.push(b"end").unwrap();
        }
        consumers.into_iter().flat_map(|one| one.join().unwrap()).collect::<Vec<_>>()
    });
    taken.sort_unstable();
    assert_eq!(taken, (0..400).collect::<Vec<_>>());
    assert_eq!(queue.take(), None);
}

#[test]
fn an_item_that_is_put_back_comes_first_again_and_one_that_is_done_cannot_be() {
    let directory = directory();
    let store = Store::create(directory.path().join("store"), SIZE_BYTES).unwrap();
    let queue = store.queue("q").unwrap();
    queue.push(b"a").unwrap();
    queue.push(b"b").unwrap();
    let first = queue.take().unwrap();
    queue.put_back(&first).unwrap();
    assert_eq!(queue.take(), Some(first.clone()));
    queue.done(&first).unwrap();
    assert_eq!(queue.done(&first), Err(Error::NoItem));
    assert_eq!(queue.put_back(&first), Err(Error::NoItem));
}

#[test]
fn a_batch_counts_as_a_whole_or_not_at_all() {
    let directory = directory();
    let store = Store::create(directory.path().join("store"), SIZE_BYTES).unwrap();
    let other = Store::create(directory.path().join("other"), SIZE_BYTES).unwrap();
    let (map, counter) = (store.map("m").unwrap(), store.counter("c").unwrap());
    let mut batch = store.batch();
    let refused =
        batch.insert(&map, b"k", b"v").count(&counter, i64::MAX).count(&counter, 1).commit();
    assert_eq!((refused, map.get(b"k"), counter.get()), (Err(Error::Overflow), None, 0));
    let foreign = other.counter("c").unwrap();
    assert_eq!(store.batch().count(&foreign, 1).commit(), Err(Error::OtherStore));
    store.batch().insert(&map, b"k", b"v").count(&counter, 2).commit().unwrap();
    assert_eq!((map.get(b"k"), counter.get()), (Some(b"v".to_vec()), 2));
}

#[test]
fn one_process_at_a_time_has_a_store_and_bad_files_are_told_in_one_line() {
    let directory = directory();
    let path = directory.path().join("store");
    let at = |name: &str| directory.path().join(name);
    let store = Store::create(&path, SIZE_BYTES).unwrap();
    let used = told(Store::open(&path));
    assert!(used.contains(&format!("process {} uses it", std::process::id())), "{used}");
    drop(store);
    drop(Store::open(&path).unwrap());
    for (line, why) in [
        (told(Store::create(&path, SIZE_BYTES)), "is already there"),
        (told(Store::create(at("small"), 4096)), "1 MiB to 64 TiB"),
        (told(Store::create(at("no/such"), SIZE_BYTES)), "no such file"),
        (told(Store::open(at("none"))), "is gone"),
    ] {
        assert!(line.contains(why), "{line}");
    }
    std::fs::write(at("text"), vec![b'x'; 1 << 20]).unwrap();
    std::fs::write(at("zeros"), vec![0; 1 << 20]).unwrap();
    let whole = std::fs::read(&path).unwrap();
    std::fs::write(at("cut"), &whole[..1 << 20]).unwrap();
    let mut rotten = whole;
    rotten[100] ^= 1;
    rotten[4096 + 100] ^= 1;
    std::fs::write(at("rotten"), rotten).unwrap();
    for (name, why) in [
        ("text", "is something else"),
        ("zeros", "is empty"),
        ("cut", "ends at byte 1048576"),
        ("rotten", "is damaged"),
    ] {
        let line = told(Store::open(at(name)));
        assert!(line.contains(why), "{name}: {line}");
    }
}

/// Works until it is killed: tells each change that is durable.
fn work(path: &Path) -> ! {
    let store = Store::open(path).unwrap();
    let (log, counter) = (store.log("l").unwrap(), store.counter("c").unwrap());
    loop {
        let n = counter.get();
        let mut batch = store.batch();
        let lsn = batch.append(&log, &n.to_le_bytes()).count(&counter, 1).commit().unwrap();
        if n % 200 == 199 {
            let keep = log.end() - 50;
            log.trim(keep).unwrap();
        }
        store.wait(lsn).unwrap();
        println!("{n}");
    }
}

#[test]
fn whenever_a_process_is_killed_all_that_it_was_told_is_there() {
    const ROLE: &str = "TENACIOUS_WORKS_ON";
    if let Some(path) = std::env::var_os(ROLE) {
        work(&PathBuf::from(path));
    }
    let directory = directory();
    let path = directory.path().join("store");
    drop(Store::create(&path, SIZE_BYTES).unwrap());
    for round in 1..=8u64 {
        let own = std::env::current_exe().unwrap();
        let name = "whenever_a_process_is_killed_all_that_it_was_told_is_there";
        let mut child = Command::new(own)
            .args(["--exact", name, "--nocapture"])
            .env(ROLE, &path)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut told = None;
        // The harness of the child says a few lines of its own.
        for line in lines.by_ref().map_while(Result::ok).filter_map(|line| line.parse().ok()) {
            told = Some(line);
            if line % 97 == round * 11 {
                break;
            }
        }
        child.kill().unwrap();
        child.wait().unwrap();
        told = lines.map_while(Result::ok).filter_map(|line| line.parse().ok()).last().or(told);
        let told: u64 = told.expect("it has said something");
        let store = Store::open(&path).unwrap();
        let (log, counter) = (store.log("l").unwrap(), store.counter("c").unwrap());
        let count = counter.get() as u64;
        assert!(count > told, "{count} of {told}");
        // Both of a batch, or none.
        assert_eq!(log.end(), count);
        let last = log.get(count - 1).unwrap();
        assert_eq!(last, (count - 1).to_le_bytes());
    }
}

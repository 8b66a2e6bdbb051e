//! Volumes from their making to their end, on the disk that the tests are on: who has one, and what
//! is said of one that is not as it was made.
#![forbid(unsafe_code)]

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use husk_storage::catalogue::{Catalogue, Row, State};
use husk_storage::log::{Found, Lsn};

const SIZE_BYTES: u64 = 1 << 20;
/// Names the catalogue whose volume `v` a second process is to hold.
const HOLD: &str = "HUSK_TEST_HOLD";

/// A directory of a disk: /tmp may be in memory.
struct Room {
    directory: tempfile::TempDir,
    catalogue: Catalogue,
}

impl Room {
    fn new() -> Self {
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let catalogue = Catalogue::at(directory.path().to_owned());
        Self { directory, catalogue }
    }

    /// One with a volume `v`.
    fn with_volume() -> Self {
        let room = Self::new();
        room.catalogue.create("v", SIZE_BYTES, None).unwrap();
        room
    }

    fn area(&self) -> PathBuf {
        self.directory.path().join("v.husk-area")
    }

    fn row(&self) -> Row {
        let (rows, problems) = self.catalogue.list().unwrap();
        assert!(problems.is_empty() && rows.len() == 1, "{problems:?}");
        rows.into_iter().next().unwrap()
    }

    fn write_at(&self, at: u64, bytes: &[u8]) {
        let file = File::options().write(true).open(self.area()).unwrap();
        file.write_all_at(bytes, at).unwrap();
        file.sync_all().unwrap();
    }

    /// What is said of whoever wants to have the volume, and of a check that cannot be made or
    /// finds something.
    fn refused(&self) -> String {
        self.catalogue.acquire("v").unwrap_err().to_string()
    }
}

fn files(directory: &Path) -> usize {
    fs::read_dir(directory).unwrap().count()
}

#[test]
fn a_volume_is_made_filled_listed_used_and_removed() {
    let room = Room::with_volume();
    let row = room.row();
    assert_eq!((row.name.as_str(), row.size_bytes, row.epoch), ("v", SIZE_BYTES, Some(0)));
    assert_eq!(row.state, State::Free);
    assert!(room.catalogue.check("v").unwrap().findings.is_empty());
    let (log, _) = room.catalogue.acquire("v").unwrap().open_log(|_| panic!("empty")).unwrap();
    log.wait(log.append(b"record").unwrap()).unwrap();
    log.checkpoint(Lsn(1), |to| to.write(b"one record")).unwrap();
    log.wait(log.append(b"another").unwrap()).unwrap();
    log.close().unwrap();
    let area = room.catalogue.acquire("v").unwrap();
    assert_eq!(area.header.epoch, 2);
    let mut found = Vec::new();
    let opened = area.open_log(|one| match one {
        Found::Snapshot(lsn, bytes) | Found::Record(lsn, bytes) => {
            found.push((lsn, bytes.to_vec()))
        }
    });
    assert_eq!(found, [(Lsn(1), b"one record".to_vec()), (Lsn(2), b"another".to_vec())]);
    drop(opened);
    assert!(room.catalogue.check("v").unwrap().findings.is_empty());
    room.catalogue.remove("v", false).unwrap();
    assert_eq!(files(room.directory.path()), 0);
}

#[test]
fn the_extent_is_written_whatever_is_done_with_it_later() {
    use std::os::unix::fs::MetadataExt;
    let room = Room::with_volume();
    assert!(fs::metadata(room.area()).unwrap().blocks() * 512 >= SIZE_BYTES);
    assert_eq!(fs::metadata(room.area()).unwrap().mode() & 0o777, 0o600);
}

#[test]
fn who_wants_a_volume_that_is_in_use_is_refused_with_the_number_of_who_has_it() {
    let room = Room::with_volume();
    let area = room.catalogue.acquire("v").unwrap();
    let me = std::process::id();
    assert_eq!((room.row().state, room.row().holder_pid), (State::InUse, Some(me)));
    for problem in [
        room.catalogue.acquire("v").unwrap_err(),
        room.catalogue.check("v").unwrap_err(),
        room.catalogue.remove("v", false).unwrap_err(),
    ] {
        assert!(problem.to_string().contains(&format!("process {me} uses it; end")), "{problem}");
    }
    // A descriptor that was passed on has the volume as well.
    let passed = area.as_fd().try_clone_to_owned().unwrap();
    drop(area);
    assert!(room.refused().contains("uses it"));
    drop(passed);
    assert_eq!(room.catalogue.acquire("v").unwrap().header.epoch, 2);
}

/// Not a test of its own: the process that `who_is_killed` kills.
#[test]
fn holds_a_volume_when_asked_to() {
    let Some(directory) = std::env::var_os(HOLD) else { return };
    let area = Catalogue::at(directory.into()).acquire("v").unwrap();
    println!("\nhas epoch {}", area.header.epoch);
    let (log, _) = area.open_log(|_| ()).unwrap();
    while let Ok(lsn) = log.append(b"0123456789") {
        log.wait(lsn).unwrap();
        println!("{}", lsn.0);
    }
    let _ = std::io::stdin().lines().next();
}

#[test]
fn who_is_killed_gives_the_volume_to_the_next_with_a_higher_epoch_and_all_that_was_durable() {
    let room = Room::with_volume();
    let mut holder = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "holds_a_volume_when_asked_to", "--nocapture"])
        .env(HOLD, room.directory.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(holder.stdout.take().unwrap()).lines().map_while(Result::ok);
    assert!(lines.any(|line| line == "has epoch 1"));
    assert!(room.refused().contains(&format!("process {} uses it", holder.id())));
    assert!(lines.any(|line| line == "9"));
    holder.kill().unwrap();
    holder.wait().unwrap();
    let acknowledged = lines.filter_map(|line| line.parse().ok()).last().unwrap_or(9);
    let area = room.catalogue.acquire("v").unwrap();
    assert_eq!(area.header.epoch, 2);
    let mut last = Lsn(0);
    let opened = area.open_log(|found| match found {
        Found::Record(lsn, record) => {
            assert_eq!((lsn.0, record), (last.0 + 1, &b"0123456789"[..]));
            last = lsn;
        }
        Found::Snapshot(..) => panic!("nobody has made one"),
    });
    opened.unwrap();
    assert!(last.0 >= acknowledged, "{last:?} of {acknowledged}");
}

#[test]
fn a_log_that_is_damaged_is_located_and_left_as_it_is() {
    let room = Room::with_volume();
    let (log, _) = room.catalogue.acquire("v").unwrap().open_log(|_| ()).unwrap();
    for _ in 0..3 {
        log.wait(log.append(b"record").unwrap()).unwrap();
    }
    drop(log);
    // The second frame: behind the header and the root, two blocks each.
    room.write_at(5 * 4096 + 110, b"x");
    let report = room.catalogue.check("v").unwrap();
    assert_eq!(report.findings.len(), 1, "{:?}", report.findings);
    assert_eq!(report.findings[0].at_bytes, 5 * 4096);
    let damage = room.catalogue.acquire("v").unwrap().open_log(|_| ()).unwrap_err();
    assert!(damage.to_string().contains("record 2 is damaged, there is 3 behind it"), "{damage}");
    assert_eq!(room.catalogue.check("v").unwrap().findings, report.findings);
}

#[test]
fn of_two_that_make_the_same_name_one_is_refused_and_changes_nothing() {
    let room = Room::with_volume();
    let before = fs::read(room.directory.path().join("v.json")).unwrap();
    let problem = room.catalogue.create("v", SIZE_BYTES, None).unwrap_err();
    assert!(problem.to_string().contains("there is one of that name"), "{problem}");
    assert_eq!(fs::read(room.directory.path().join("v.json")).unwrap(), before);
    assert!(room.catalogue.acquire("v").is_ok());
}

#[test]
fn a_file_that_is_there_already_is_not_overwritten() {
    let room = Room::new();
    fs::write(room.area(), "mine").unwrap();
    let problem = room.catalogue.create("v", SIZE_BYTES, None).unwrap_err();
    assert!(problem.to_string().contains("is already there; remove it"), "{problem}");
    assert_eq!(fs::read(room.area()).unwrap(), b"mine");
    assert_eq!(files(room.directory.path()), 1);
}

#[test]
fn a_turned_bit_of_the_header_is_located_and_the_other_copy_used_with_a_note() {
    for at in [16_u64, 4096 + 70] {
        let room = Room::with_volume();
        room.write_at(at, &[0xff]);
        let report = room.catalogue.check("v").unwrap();
        let found: Vec<u64> = report.findings.iter().map(|finding| finding.at_bytes).collect();
        assert_eq!(found, [at / 4096 * 4096]);
        // The look has changed nothing.
        assert_eq!(room.catalogue.check("v").unwrap().findings, report.findings);
        assert_eq!(room.catalogue.acquire("v").unwrap().notes, report.findings);
        assert!(room.catalogue.check("v").unwrap().findings.is_empty());
    }
}

#[test]
fn a_header_with_both_copies_damaged_is_refused_and_left_as_it_is() {
    let room = Room::with_volume();
    room.write_at(100, &[0xff]);
    room.write_at(4096 + 100, &[0xff]);
    let before = fs::read(room.area()).unwrap();
    assert!(room.refused().contains("damaged: both copies of its header (bytes 0, 4096)"));
    assert_eq!(room.row().state, State::Unfit);
    assert_eq!(room.catalogue.check("v").unwrap().findings.len(), 1);
    let problem = room.catalogue.remove("v", false).unwrap_err();
    assert!(problem.to_string().contains("--forget"), "{problem}");
    assert_eq!(fs::read(room.area()).unwrap(), before);
    room.catalogue.remove("v", true).unwrap();
    assert_eq!(fs::read(room.area()).unwrap(), before);
}

#[test]
fn an_area_that_is_cut_off_foreign_or_gone_is_told() {
    let room = Room::with_volume();
    let file = File::options().write(true).open(room.area()).unwrap();
    file.set_len(SIZE_BYTES - 512).unwrap();
    assert!(room.refused().contains("ends at byte 1048064; restore it"), "{}", room.refused());
    assert_eq!(room.catalogue.check("v").unwrap().findings[0].at_bytes, SIZE_BYTES - 512);
    fs::write(room.area(), "x".repeat(SIZE_BYTES as usize)).unwrap();
    assert!(room.refused().contains("is something else (byte 0)"), "{}", room.refused());
    fs::write(room.area(), "x").unwrap();
    assert!(room.refused().contains("is something else (byte 0)"), "{}", room.refused());
    assert!(room.catalogue.remove("v", false).is_err());
    fs::remove_file(room.area()).unwrap();
    assert!(room.refused().contains("is gone; bring it back"), "{}", room.refused());
    assert_eq!(room.row().state, State::Missing);
    room.catalogue.remove("v", false).unwrap();
}

#[test]
fn an_area_without_a_header_that_was_whole_is_empty_and_is_not_removed() {
    let room = Room::with_volume();
    fs::write(room.area(), vec![0; SIZE_BYTES as usize]).unwrap();
    assert!(room.refused().contains("is empty: it has no header"), "{}", room.refused());
    assert_eq!(room.row().state, State::Unfit);
    assert!(room.catalogue.check("v").unwrap().findings[0].what.contains("is empty"));
    let kept = room.catalogue.remove("v", false).unwrap_err().to_string();
    assert!(kept.contains("--forget"), "{kept}");
}

#[test]
fn a_device_that_has_gone_keeps_its_volume_until_it_is_forgotten() {
    let room = Room::with_volume();
    let entry = room.directory.path().join("v.json");
    let text = fs::read_to_string(&entry).unwrap();
    let area = room.area().display().to_string();
    fs::write(&entry, text.replace(&area, "/dev/no-such-disk")).unwrap();
    let row = room.row();
    assert_eq!(
        (row.state, row.why.as_deref()),
        (State::Missing, Some("/dev/no-such-disk has no disk"))
    );
    for problem in [
        room.catalogue.acquire("v").unwrap_err(),
        room.catalogue.check("v").unwrap_err(),
        room.catalogue.remove("v", false).unwrap_err(),
    ] {
        let line = problem.to_string();
        assert!(line.contains("attach the disk again, or forget the volume"), "{line}");
    }
    room.catalogue.remove("v", true).unwrap();
}

#[test]
fn the_area_of_another_volume_in_its_place_is_told() {
    let room = Room::with_volume();
    room.catalogue.create("w", SIZE_BYTES, None).unwrap();
    fs::copy(room.directory.path().join("w.husk-area"), room.area()).unwrap();
    assert!(room.refused().contains("is something else"), "{}", room.refused());
    assert!(room.catalogue.remove("v", false).is_err());
    assert!(room.area().exists());
}

#[test]
fn what_a_killed_create_leaves_is_told_and_can_be_removed() {
    let room = Room::with_volume();
    let entry = room.directory.path().join("v.json");
    let text = fs::read_to_string(&entry).unwrap();
    fs::write(&entry, text.replace("\"is_made\": true", "\"is_made\": false")).unwrap();
    for length in [0, 4096, SIZE_BYTES] {
        // Killed before its room was taken, meanwhile, and before its header was written.
        fs::write(room.area(), vec![0; length as usize]).unwrap();
        assert_eq!(room.row().state, State::HalfMade);
        assert!(room.refused().contains("half-made"), "{}", room.refused());
    }
    let again = room.catalogue.create("v", SIZE_BYTES, None).unwrap_err();
    assert!(again.to_string().contains("husk volume rm"), "{again}");
    room.catalogue.remove("v", false).unwrap();
    assert_eq!(files(room.directory.path()), 0);
}

#[test]
fn an_entry_that_is_damaged_or_newer_is_told_and_hides_no_other() {
    let room = Room::with_volume();
    fs::write(room.directory.path().join("bad.json"), "{").unwrap();
    let text = fs::read_to_string(room.directory.path().join("v.json")).unwrap();
    let newer = text.replace("\"version\": 1", "\"version\": 2").replace("\"v\"", "\"new\"");
    fs::write(room.directory.path().join("new.json"), newer).unwrap();
    let (rows, problems) = room.catalogue.list().unwrap();
    assert_eq!((rows.len(), problems.len()), (1, 2), "{problems:?}");
    let new = room.catalogue.acquire("new").unwrap_err();
    assert!(new.to_string().contains("version 2; use a newer husk"), "{new}");
    assert!(room.catalogue.acquire("bad").unwrap_err().to_string().contains("bad.json"));
    room.catalogue.remove("bad", true).unwrap();
}

#[test]
fn names_and_sizes_out_of_range_are_refused_and_leave_nothing() {
    let room = Room::new();
    for name in ["", "1st", "a/b", "../v", &"n".repeat(65)] {
        let problem = room.catalogue.create(name, SIZE_BYTES, None).unwrap_err();
        assert!(problem.to_string().contains("beginning with a letter"), "{problem}");
    }
    for size_bytes in [0, SIZE_BYTES - 1, 65 << 40, u64::MAX] {
        let problem = room.catalogue.create("v", size_bytes, None).unwrap_err();
        assert!(problem.to_string().contains("choose --size 1M to 64T"), "{problem}");
    }
    assert!(room.catalogue.acquire("v").unwrap_err().to_string().contains("none of that name"));
    assert_eq!(files(room.directory.path()), 0);
}

#[test]
fn a_volume_in_memory_or_larger_than_the_disk_is_refused_and_leaves_nothing() {
    let room = Room::new();
    let memory = room.catalogue.create("v", SIZE_BYTES, Some(Path::new("/dev/shm"))).unwrap_err();
    assert!(memory.to_string().contains("in memory (tmpfs); name a directory"), "{memory}");
    // More than an ext4 file may have, or than there is room for.
    let full = room.catalogue.create("v", 40 << 40, None).unwrap_err();
    assert!(full.to_string().contains("cannot make volume v: "), "{full}");
    for on in ["/dev/null", "/no/such/place"] {
        let problem = room.catalogue.create("v", SIZE_BYTES, Some(Path::new(on))).unwrap_err();
        assert!(problem.to_string().contains("name a directory or a block device"), "{problem}");
    }
    assert_eq!(files(room.directory.path()), 0);
}

/// What a volume holds, as a tree would get it.
fn held(room: &Room) -> Vec<u8> {
    let mut held = Vec::new();
    let opened = room.catalogue.acquire("v").unwrap().open_log(|found| match found {
        Found::Snapshot(_, part) => held.extend_from_slice(part),
        Found::Record(_, record) => held.extend_from_slice(&husk_storage::tree::framed(record)),
    });
    opened.unwrap();
    held
}

#[test]
fn a_volume_that_nobody_uses_gets_another_size_and_keeps_what_it_holds() {
    let room = Room::with_volume();
    let (log, _) = room.catalogue.acquire("v").unwrap().open_log(|_| ()).unwrap();
    log.wait(log.append(&[1; 200_000]).unwrap()).unwrap();
    log.checkpoint(Lsn(1), |to| to.write(&[2; 250_000])).unwrap();
    (0..9).for_each(|n| log.wait(log.append(&[n; 5000]).unwrap()).unwrap());
    let used = room.catalogue.resize("v", 4 * SIZE_BYTES, &mut |_| true).unwrap_err().to_string();
    assert!(used.contains("uses it"), "{used}");
    drop(log);
    let before = held(&room);
    assert_eq!(before.len(), 250_000 + 9 * 5004);
    // What a killed one has left beside it is in nobody's way.
    fs::write(room.directory.path().join("v.husk-area.new"), "half").unwrap();
    for size_bytes in [4 * SIZE_BYTES, SIZE_BYTES] {
        room.catalogue.resize("v", size_bytes, &mut |_| true).unwrap();
        assert_eq!((room.row().size_bytes, files(room.directory.path())), (size_bytes, 2));
        assert!(room.catalogue.check("v").unwrap().findings.is_empty());
        assert!(held(&room) == before);
    }
    // A size below what it holds is refused, and changes nothing.
    room.catalogue.resize("v", 2 * SIZE_BYTES, &mut |_| true).unwrap();
    let (log, _) = room.catalogue.acquire("v").unwrap().open_log(|_| ()).unwrap();
    log.checkpoint(Lsn(0), |to| to.write(&[3; 600_000])).unwrap();
    drop(log);
    let small = room.catalogue.resize("v", SIZE_BYTES, &mut |_| true).unwrap_err().to_string();
    assert!(small.contains("what it holds does not fit; choose more --size"), "{small}");
    assert_eq!((held(&room).len(), room.row().size_bytes), (600_000, 2 * SIZE_BYTES));
    assert_eq!(files(room.directory.path()), 2);
    assert!(
        room.catalogue.resize("v", 0, &mut |_| true).unwrap_err().to_string().contains("--size 1M")
    );
    assert!(
        room.catalogue
            .resize("w", SIZE_BYTES, &mut |_| true)
            .unwrap_err()
            .to_string()
            .contains("none of")
    );
    fs::write(room.directory.path().join("v.husk-area.new"), "half").unwrap();
    room.catalogue.remove("v", false).unwrap();
    assert_eq!(files(room.directory.path()), 0);
}

#[test]
fn what_a_killed_resize_has_left_goes_when_the_volume_is_used_and_not_before() {
    let room = Room::with_volume();
    let left = room.directory.path().join("v.husk-area.new");
    let user = room.catalogue.acquire("v").unwrap();
    // Another size is being made.
    fs::write(&left, "half").unwrap();
    room.refused();
    assert!(room.catalogue.check("v").is_err() && left.exists());
    drop(user);
    assert!(room.catalogue.check("v").is_ok() && left.exists(), "a check changes nothing");
    room.catalogue.acquire("v").unwrap();
    assert!(!left.exists());
}

#[test]
fn an_area_on_a_disk_that_is_not_mounted_keeps_its_name_until_it_is_forgotten() {
    let room = Room::new();
    let disk = room.directory.path().join("disk");
    fs::create_dir(&disk).unwrap();
    room.catalogue.create("v", SIZE_BYTES, Some(&disk)).unwrap();
    fs::rename(&disk, room.directory.path().join("elsewhere")).unwrap();
    assert_eq!(room.row().state, State::Missing);
    let kept = room.catalogue.remove("v", false).unwrap_err().to_string();
    assert!(kept.contains("is gone; bring it back, or forget the volume with"), "{kept}");
    room.catalogue.remove("v", true).unwrap();
}

#[test]
fn a_damaged_volume_is_not_resized() {
    let room = Room::with_volume();
    let (log, _) = room.catalogue.acquire("v").unwrap().open_log(|_| ()).unwrap();
    (0..3).for_each(|_| log.wait(log.append(b"record").unwrap()).unwrap());
    drop(log);
    room.write_at(5 * 4096 + 110, b"x");
    let problem =
        room.catalogue.resize("v", 2 * SIZE_BYTES, &mut |_| true).unwrap_err().to_string();
    assert!(problem.contains("record 2 is damaged"), "{problem}");
    assert_eq!((room.row().size_bytes, files(room.directory.path())), (SIZE_BYTES, 2));
}

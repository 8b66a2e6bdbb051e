//! `husk fsck`: the structure of a running image, checked while its programs work.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use husk_carrier::{HEADER_BYTES, Header, read_header};
use husk_tests::toolchain::build_c;
use husk_tests::{Outcome, Run, Scratch, against_native, husk};

use crate::{as_nobody, run};

/// How long programs work under the checker.
const STORM: Duration = Duration::from_secs(4);

fn fsck(image: &str, options: &[&str]) -> Outcome {
    looked(&[&["fsck"], options, &["--", image]].concat())
}

fn looked(arguments: &[&str]) -> Outcome {
    let mut command = Command::new(husk_tests::husk::binary());
    command.args(arguments);
    let scratch = Scratch::new("fsck");
    run(&scratch, scratch.path(), command)
}

/// Runs `argv` in an image until `ready` was printed; its run.
fn started(scratch: &Scratch, argv: &[&str]) -> Run {
    let work = scratch.fresh("work");
    let mut run = Run::start_piped(husk(&["--memory", "64M"], argv), &work, scratch.path());
    ready(&mut run, "ready");
    run
}

/// Waits until a run has printed `word` (20 s at most).
pub fn ready(run: &mut Run, word: &str) {
    for _ in 0..4000 {
        if String::from_utf8_lossy(&run.stdout()).contains(word) {
            return;
        }
        assert!(!run.ended(), "it ended before it printed {word:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("no {word:?} in 20 s");
}

/// Lets a program that reads its standard input end.
fn end(mut run: Run) {
    drop(run.stdin());
    let outcome = run.wait(Duration::from_secs(30)).unwrap_or_else(|hang| panic!("{hang}"));
    assert_eq!(outcome.code(), 0, "{}", outcome.shown());
}

/// The region of a running image, as `husk fsck` finds it.
pub fn region(pid: i32) -> File {
    let listing = fs::read_dir(format!("/proc/{pid}/fd")).expect("its descriptors").flatten();
    let is_region = |path: &std::path::PathBuf| {
        fs::read_link(path).is_ok_and(|link| link.to_string_lossy().contains("husk-region"))
    };
    let path = listing.map(|entry| entry.path()).find(is_region).expect("the region");
    File::options().read(true).write(true).open(path).expect("the region opens")
}

#[test]
fn an_image_is_found_clean_while_its_programs_change_it() {
    if against_native() {
        return;
    }
    let scratch = Scratch::new("fsck");
    let program = scratch.path().join("storm");
    build_c(include_str!("../../faults/sources/storm.c"), &program);
    let seconds = (STORM.as_secs() + 1).to_string();
    let argv = [program.to_str().expect("a plain path"), "3", &seconds];
    let run = started(&scratch, &argv);
    let (pid, end) = (run.pid().to_string(), Instant::now() + STORM);
    let mut checks = 0;
    while Instant::now() < end {
        let output = fsck(&pid, &[]);
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{text}{output:?}");
        assert!(text.starts_with("clean; held up for "), "{text}");
        checks += 1;
    }
    println!("{checks} checks");
    assert!(checks > 3, "only {checks} checks");
    let outcome = run.wait(Duration::from_secs(60)).unwrap_or_else(|hang| panic!("{hang}"));
    assert_eq!(outcome.code(), 0, "{}", outcome.shown());
}

#[test]
fn damage_is_told_line_by_line_and_in_json() {
    if against_native() {
        return;
    }
    let scratch = Scratch::new("fsck-damage");
    let run = started(&scratch, &["sh", "-c", "echo text > file; echo ready; cat"]);
    let (pid, region) = (run.pid().to_string(), region(run.pid()));
    let mut header = [0; HEADER_BYTES];
    region.read_exact_at(&mut header, 0).expect("a header");
    let Header::Ours(layout) = read_header(&header) else { panic!("no header") };
    let (map, place) = (layout.map(), free_blocks(&region));
    let word = damage(&region, place, |free| free - 3);
    let told = fsck(&pid, &[]);
    let text = String::from_utf8_lossy(&told.stdout).into_owned();
    assert_eq!(told.status.code(), Some(1), "{text}");
    let line = format!("free blocks of a chunk {}: 1021, expected 1024\n", map.chunk_count - 1);
    assert!(text.starts_with(&line) && text.contains("\n1 findings; held up"), "{text}");
    let told = fsck(&pid, &["--json"]);
    let json: serde_json::Value = serde_json::from_slice(&told.stdout).expect("JSON");
    assert_eq!(json["findings"][0]["found"], 1021, "{json}");
    region.write_all_at(&word, place).expect("repaired");
    assert_eq!(fsck(&pid, &[]).status.code(), Some(0));
    refuses_damaged_headers(&pid, &region, header);
    end(run);
}

/// Changes a word of a region; what was there.
fn damage(region: &File, at: u64, change: impl Fn(u64) -> u64) -> [u8; 8] {
    let mut before = [0; 8];
    region.read_exact_at(&mut before, at).expect("a word");
    let changed = change(u64::from_le_bytes(before));
    region.write_all_at(&changed.to_le_bytes(), at).expect("damage");
    before
}

/// Where the free blocks of the last chunk are counted: the word behind its lock.
pub fn free_blocks(region: &File) -> u64 {
    let mut header = [0; HEADER_BYTES];
    region.read_exact_at(&mut header, 0).expect("a header");
    let Header::Ours(layout) = read_header(&header) else { panic!("no header") };
    let map = layout.map();
    u64::from(map.chunk(map.chunk_count - 1).word(1).index()) * 8
}

/// The checks of `HUSK_FSCK` look at the header, too.
#[test]
fn a_run_that_ends_with_a_damaged_image_says_so_and_what_became_of_its_files() {
    if against_native() {
        return;
    }
    for (name, finding, of_header) in [
        ("fsck-run", "fsck: finding: Finding { what: \"free blocks of a chunk\"", false),
        ("fsck-run-header", "fsck: finding: the header: its memory is damaged", true),
    ] {
        let scratch = Scratch::new(name);
        let mut run = started(&scratch, &["sh", "-c", "echo text > file; echo ready; cat"]);
        let region = region(run.pid());
        match of_header {
            true => damage(&region, 0, |_| 5),
            false => damage(&region, free_blocks(&region), |free| free - 3),
        };
        drop(run.stdin());
        let outcome = run.wait(Duration::from_secs(30)).unwrap_or_else(|hang| panic!("{hang}"));
        assert_eq!(outcome.status.code(), Some(125), "{}", outcome.shown());
        assert!(outcome.stderr.contains(finding), "{}", outcome.stderr);
        let said = "husk: the image is damaged (1 finding of its structure): \
                    all that it showed was written back; compare what it changed\n";
        assert!(outcome.stderr.contains(said), "{}", outcome.stderr);
        let file = fs::read_to_string(scratch.path().join("work/file"));
        assert_eq!(file.expect("written back"), "text\n");
    }
}

/// Another version's, nobody's, and one whose numbers lie.
fn refuses_damaged_headers(pid: &str, region: &File, header: [u8; HEADER_BYTES]) {
    let damaged = |at: u64, value: u64, arguments: &[&str]| {
        let mut before = [0; 8];
        region.read_exact_at(&mut before, at).expect("a word");
        region.write_all_at(&value.to_le_bytes(), at).expect("damage");
        let outcome = looked(arguments);
        region.write_all_at(&before, at).expect("repaired");
        outcome
    };
    let told = |at: u64, value: u64| refused(&damaged(at, value, &["fsck", pid]));
    let magic = u64::from_le_bytes(header[..8].try_into().expect("eight"));
    assert!(
        told(0, magic >> 32 << 32 | 42).contains("another version of Husk made it (format 42)")
    );
    assert!(told(0, 5).contains("damaged"));
    assert!(told(8, 100_000).contains("damaged"));
    assert!(told(16, 1 << 33).contains("damaged"));
    // The first object never used, of inodes.
    assert!(told(17 * 8, 1 << 30).contains("damaged"));
    for arguments in [&["stat", pid][..], &["top", "--once", pid]] {
        let outcome = damaged(17 * 8, 1 << 30, arguments);
        assert_eq!(outcome.status.code(), Some(125), "{arguments:?}: {}", outcome.stderr);
        assert!(outcome.stderr.contains("are impossible: it is damaged"), "{}", outcome.stderr);
    }
    assert_eq!(fsck(pid, &[]).status.code(), Some(0));
}

/// What was said: one line, with status 2.
fn refused(outcome: &Outcome) -> String {
    let text = outcome.stderr.clone();
    assert_eq!(outcome.status.code(), Some(2), "{text}");
    assert!(text.starts_with("husk: cannot check image ") && text.lines().count() == 1, "{text}");
    text
}

#[test]
fn what_is_no_image_is_refused_in_one_line() {
    if against_native() {
        return;
    }
    assert!(refused(&fsck("nightly", &[])).contains("there is no such image"));
    assert!(refused(&fsck("99999999", &[])).contains("there is no such process"));
    assert!(refused(&fsck("-1", &["--json"])).contains("no such image"));
    // Not this process: tests beside this one open regions.
    let mut other = Command::new("sleep").arg("20").spawn().expect("another process");
    let pid = other.id().to_string();
    let in_none = fsck(&pid, &[]);
    let of_another = rustix::process::getuid().is_root().then(|| {
        let mut command = Command::new(husk_tests::husk::binary());
        command.args(["fsck", &pid]);
        let scratch = Scratch::new("fsck-nobody");
        run(&scratch, Path::new("/"), as_nobody(&command))
    });
    other.kill().and_then(|()| other.wait()).expect("it ends");
    assert!(refused(&in_none).contains("that process is in no image"));
    if let Some(outcome) = of_another {
        assert!(refused(&outcome).contains("another user's"));
    }
}

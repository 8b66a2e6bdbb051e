//! Memory that an image does not need any more is the host's again.

use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use husk_tests::{Run, Scratch, against_native, husk};

use crate::memory::fsck::{ready, region};

/// From the removal of a file until its memory is back.
const BACK_WITHIN: Duration = Duration::from_secs(2);
const MIB: u64 = 1 << 20;

#[test]
fn memory_of_removed_files_goes_back_to_the_host() {
    if against_native() {
        return;
    }
    let scratch = Scratch::new("memory");
    let work = scratch.fresh("work");
    let script = "head -c 209715200 /dev/urandom > big; echo kept > small; echo ready
        read line; rm big; echo removed; read line; cat small; head -c 50000000 /dev/zero > again
        cmp -n 50000000 again /dev/zero && echo zeros";
    let command = husk(&["--memory", "256M", "--discard"], &["bash", "-euc", script]);
    let mut run = Run::start_piped(command, &work, scratch.path());
    ready(&mut run, "ready");
    let region = region(run.pid());
    let held = || region.metadata().expect("its size").blocks() * 512;
    let full = held();
    assert!(full > 200 * MIB, "{full} bytes for 200 MiB");
    let mut input = run.stdin().expect("a pipe");
    input.write_all(b"\n").expect("it reads");
    ready(&mut run, "removed");
    let end = Instant::now() + BACK_WITHIN;
    while held() + 190 * MIB > full && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(20));
    }
    let left = held();
    assert!(left + 190 * MIB <= full, "{left} of {full} bytes are still held");
    input.write_all(b"\n").expect("it reads");
    let outcome = run.wait(Duration::from_secs(30)).unwrap_or_else(|hang| panic!("{hang}"));
    assert_eq!(outcome.stdout, b"ready\nremoved\nkept\nzeros\n", "{}", outcome.shown());
    assert!(outcome.stderr.contains("fsck: clean"), "{}", outcome.shown());
}

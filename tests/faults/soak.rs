//! Everything at once for long: storms of names with kills, of signals, floods through pipes,
//! builds, shells. It gets no slower, and when it is quiet nothing has been kept.

use std::collections::HashMap;
use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use husk_tests::case::findings;
use husk_tests::run::patience;
use husk_tests::toolchain::build_c;
use husk_tests::{Run, Scratch, Side, process};

const SCRIPT: &str = include_str!("sources/soak.sh");
const PROGRAMS: [(&str, &str); 4] = [
    ("tempest", include_str!("sources/tempest.c")),
    ("storm", include_str!("sources/storm.c")),
    ("flood", include_str!("../scale/sources/flood.c")),
    ("probe", include_str!("sources/probe.c")),
];
/// How long, in seconds: for every change and natively, and with `HUSK_FULL`.
const SECONDS: (u64, u64) = (5, 600);
/// What a supervisor may have grown by, KiB.
const OWN_MORE_KIB: u64 = 1024;
/// Descriptors that a supervisor at work may have open when it is looked at: some are for a while.
const AT_WORK: usize = 4;
/// And the image's memory, in the long form (after seconds, compilers are still being gathered in
/// huge pages): tables stay as large as the most that was there at once.
const IMAGE_MORE_KIB: u64 = 16384;
/// How much more time a probe may take in the end than in the beginning, of a hundred: processors
/// that others use as well are not as fast at all times.
const SLOWER_PERCENT: u64 = 25;

/// What is there when it is quiet.
#[derive(Debug)]
struct Quiet {
    blocks: u64,
    inodes: u64,
    probes: usize,
    own_kib: u64,
    image_kib: u64,
    descriptors: usize,
}

impl Quiet {
    fn read(run: &Run, line: &str) -> Quiet {
        let numbers: Vec<u64> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
        let [blocks, inodes, probes] = numbers[..] else { panic!("not three numbers: {line:?}") };
        let place = format!("/proc/{}", run.pid());
        let status = fs::read_to_string(format!("{place}/status")).expect("its status");
        let own = process::field(&status, "RssAnon:").expect("its memory");
        let own_kib = own.trim_end_matches(" kB").parse().expect("a number");
        let fds: Vec<_> = fs::read_dir(format!("{place}/fd")).expect("its own").flatten().collect();
        let is_image = |path: &Path| {
            fs::read_link(path).is_ok_and(|link| link.to_string_lossy().starts_with("/memfd:"))
        };
        let images = fds.iter().map(|entry| entry.path()).filter(|path| is_image(path));
        // One of them under several numbers counts once.
        let sizes: HashMap<u64, u64> = images
            .filter_map(|path| fs::metadata(path).ok())
            .map(|facts| (facts.ino(), facts.blocks() / 2))
            .collect();
        let image_kib = sizes.values().sum();
        let descriptors = fds.len();
        Quiet { blocks, inodes, probes: probes as usize, own_kib, image_kib, descriptors }
    }
}

fn await_quiet(run: &mut Run, word: &str, seconds: u64) -> Quiet {
    let end = Instant::now() + Duration::from_secs(seconds + 90) * patience();
    loop {
        let text = String::from_utf8_lossy(&run.stdout()).into_owned();
        if let Some(rest) = text.lines().find_map(|line| line.strip_prefix(word)) {
            return Quiet::read(run, rest.trim());
        }
        assert!(!run.ended() && Instant::now() < end, "no {word:?}: {text}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn soak(scratch: &Scratch, side: Side, seconds: u64) {
    let work = scratch.fresh("work");
    let programs = scratch.path().to_str().expect("a plain path");
    let argv = ["bash", "-c", SCRIPT, "bash", &seconds.to_string(), programs];
    let mut run = Run::start_piped(side.command(&["--discard"][..], &argv), &work, scratch.path());
    let warm = await_quiet(&mut run, "warm", seconds / 10);
    let mut input = run.stdin().expect("a pipe");
    input.write_all(b"go on\n").expect("the script reads");
    let worn = await_quiet(&mut run, "worn", seconds);
    input.write_all(b"go on\n").expect("the script reads");
    let outcome = run.wait(Duration::from_secs(2 * seconds + 300));
    let outcome = outcome.unwrap_or_else(|hang| panic!("{side:?} {hang}"));
    let shown = outcome.shown();
    assert!(outcome.status.success() && outcome.left.is_empty(), "{side:?}:\n{shown}");
    let said = String::from_utf8_lossy(&outcome.stdout).into_owned();
    let probes: Vec<u64> = said.lines().filter_map(|line| line.parse().ok()).collect();
    assert_eq!(probes.len(), worn.probes, "{side:?}: {shown}");
    let last = &probes[warm.probes..];
    let tenth = last.len().div_ceil(10);
    let least = |part: &[u64]| part.iter().min().copied().expect("a probe");
    let (first, last) = (least(&last[..tenth]), least(&last[last.len() - tenth..]));
    println!("{side:?}: probes {first} to {last} ns of {}, {warm:?}, {worn:?}", probes.len());
    println!("{}", outcome.stderr);
    if side == Side::Native {
        return;
    }
    let long = seconds == SECONDS.1;
    assert!(!long || last * 100 <= first * (100 + SLOWER_PERCENT), "{first} to {last} ns");
    assert!(worn.blocks >= warm.blocks && worn.inodes >= warm.inodes, "{warm:?}, {worn:?}");
    assert!(worn.descriptors <= warm.descriptors + AT_WORK, "{warm:?}, {worn:?}");
    assert!(worn.own_kib <= warm.own_kib + OWN_MORE_KIB, "{warm:?}, {worn:?}");
    assert!(!long || worn.image_kib <= warm.image_kib + IMAGE_MORE_KIB, "{warm:?}, {worn:?}");
    assert!(findings(&outcome.stderr).is_empty(), "{shown}");
}

#[test]
fn everything_at_once_for_long_gets_no_slower_and_keeps_nothing() {
    let scratch = Scratch::new("soak");
    for (name, source) in PROGRAMS {
        build_c(source, &scratch.path().join(name));
    }
    soak(&scratch, Side::Native, SECONDS.0);
    let full = std::env::var_os("HUSK_FULL").is_some();
    soak(&scratch, Side::tested(), if full { SECONDS.1 } else { SECONDS.0 });
}

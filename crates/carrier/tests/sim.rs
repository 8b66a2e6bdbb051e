//! An image in one thread, from one seed: simulated programs take turns, and Linux is asked the
//! same.
//!
//! ```text
//!   bytes ─► steps (who, what, which names) ─┬─► clients over the kernels, one after the other
//!   (a seed's, or anybody's)                 └─► threads of Linux, each with tables of its own
//!                                                  every answer the same, else: seed and steps
//! ```
//!
//! `HUSK_SEED=7 HUSK_STEPS=1 cargo test -p husk-carrier --test sim -- --nocapture` repeats one
//! sequence, step by step. Bytes are the whole input, so that a fuzzer can take the place of the
//! seed (`Bytes`). The second half throws calls at a client whose pointers lead nowhere, from seeds
//! and from inputs that are changed as a fuzzer does it (`hostile`).

#[path = "support/hostile.rs"]
mod hostile;
#[path = "client/plain.rs"]
#[allow(dead_code)]
mod plain;
#[path = "client/script.rs"]
#[allow(dead_code)]
mod script;
#[path = "support/mod.rs"]
mod support;
#[path = "client/system.rs"]
#[allow(dead_code)]
mod system;
#[path = "support/world.rs"]
mod world;

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use hostile::{Bytes, boss, direct, sound, throw};
use husk_abi::nr;
use husk_carrier::Direct;
use husk_client::{Buffers, Client};
use husk_proto::{Fs, Processes, Shortcuts as _};
use script::{APPEND, CREAT, DIRECTORY, EXCL, NOFOLLOW, RD, RW, Script, TRUNC, WR};
use system::{Husk, Linux, System};

/// Sequences tried for every change, and with `HUSK_FULL`.
const SEEDS: (u64, u64) = (300, 5000);
const STEPS: usize = 300;
const CLIENTS_MAX: u64 = 8;
/// Longest that Linux may take for a call.
const ANSWER_MAX: Duration = Duration::from_secs(60);
/// Calls thrown at a client whose pointers lead nowhere, for each of as many seeds.
const HOSTILE_CALLS: usize = 3000;
/// How long inputs are changed, for every change and with `HUSK_FULL`.
const FUZZED: (Duration, Duration) = (Duration::from_secs(3), Duration::from_secs(60));
/// Bytes of one such input.
const INPUT_MAX: usize = 1500;
const NAMES: [&str; 13] =
    ["a", "b", "c", "d", "d/x", "d/y", "e", "e/x", "e/f", "d/../a", "./b", "d/", "a/x"];
const PLACES: [usize; 7] = [0, 1, 100, 4095, 4096, 9000, 70_000];

/// What `plain` asks for.
fn clock() -> i64 {
    support::clock()
}

/// One call of one program.
#[derive(Clone, Copy, Debug)]
struct Step {
    who: usize,
    what: usize,
    names: [&'static str; 2],
    fd: i64,
    numbers: [usize; 2],
    flags: usize,
}

const FLAGS: [usize; 10] = [
    RD,
    RW,
    WR | CREAT,
    RW | CREAT,
    RW | CREAT | EXCL,
    WR | CREAT | TRUNC,
    WR | CREAT | APPEND,
    RD | DIRECTORY,
    RD | NOFOLLOW,
    RW | TRUNC,
];

fn step(bytes: &mut Bytes, clients: usize) -> Step {
    Step {
        who: bytes.below(clients),
        what: bytes.below(26),
        names: [bytes.one(&NAMES), bytes.one(&NAMES)],
        fd: 3 + bytes.below(6) as i64,
        numbers: [bytes.one(&PLACES), bytes.one(&PLACES)],
        flags: bytes.one(&FLAGS),
    }
}

/// Makes one call, in the current directory; everything it answers.
fn make(step: &Step, system: &mut dyn System) -> Vec<String> {
    let mut s = Script::new(system, "");
    let [one, two] = step.names.map(|name| format!("={name}"));
    let ([here, there], fd) = (step.numbers, step.fd);
    match step.what {
        0..=3 => drop(s.open(&one, step.flags, 0o644)),
        4 => drop(s.fd(nr::close, fd, 0, 0)),
        5 => drop(s.read(fd, here.min(200))),
        6 | 7 => drop(s.write(fd, &"w".repeat(here))),
        8 => s.pread(fd, here.min(200), there),
        9 => drop(s.pwrite(fd, &"p".repeat(here), there)),
        10 => drop(s.seek(fd, here as i64, there % 2)),
        11 => s.stat(&one),
        12 => s.lstat(&one),
        13 => s.fstat(fd),
        14 => drop(s.on(nr::mkdir, &one, 0o755, 0)),
        15 => drop(s.on(nr::rmdir, &one, 0, 0)),
        16 => drop(s.on(nr::unlink, &one, 0, 0)),
        17 => drop(s.both(nr::rename, &one, &two)),
        18 => drop(s.rename2(&one, &two, 1 + there % 2)),
        19 => drop(s.both(nr::link, &one, &two)),
        20 => drop(s.symlink(step.names[0], &two)),
        21 => s.readlink(&one, 64),
        22 => s.list(&one),
        23 => drop(s.on(nr::truncate, &one, here, 0)),
        24 => drop(s.fd(nr::dup2, fd, 3 + there % 6, 0)),
        _ => drop(s.fd(nr::ftruncate, fd, here, 0)),
    }
    s.log
}

/// A thread of Linux with a descriptor table and a directory of its own.
struct Native {
    steps: Sender<Step>,
    answers: Receiver<Vec<String>>,
}

impl Native {
    fn new(root: &str) -> Native {
        let (steps, wanted) = channel::<Step>();
        let (told, answers) = channel();
        let root = format!("{root}\0");
        std::thread::spawn(move || {
            // CLONE_FS | CLONE_FILES
            assert_eq!(plain::host(nr::unshare, [0x600, 0, 0, 0, 0, 0]), 0);
            assert_eq!(plain::host(nr::chdir, [root.as_ptr() as usize, 0, 0, 0, 0, 0]), 0);
            told.send(Vec::new()).expect("it waits");
            while let Ok(step) = wanted.recv() {
                if told.send(make(&step, &mut Linux)).is_err() {
                    break;
                }
            }
        });
        // What another thread had open at that moment would be in the new table, too.
        answers.recv_timeout(ANSWER_MAX).expect("it begins");
        Native { steps, answers }
    }

    fn make(&self, step: &Step) -> Vec<String> {
        self.steps.send(*step).expect("it listens");
        self.answers
            .recv_timeout(ANSWER_MAX)
            .unwrap_or_else(|_| panic!("Linux: no answer: {step:?}"))
    }
}

/// The one image of this test program, used by one test at a time.
static TURN: Mutex<()> = Mutex::new(());

fn husk(boss: &mut Direct) -> Husk<Direct> {
    let plain = plain::Plain { region: support::FD_HIGH };
    let buffers = Box::leak(Box::new(Buffers::new()));
    Husk { client: Client::new(direct(boss, clock), plain, plain, buffers) }
}

/// A planted bug: long writes lose a byte, and do not say so.
struct Forgetful<'a>(&'a mut dyn System);

impl System for Forgetful<'_> {
    fn call(&mut self, number: usize, mut args: [usize; 6]) -> i64 {
        let long = number == nr::pwrite64 && args[2] > 4096;
        args[2] -= usize::from(long);
        let result = self.0.call(number, args);
        if long && result > 0 { result + 1 } else { result }
    }
}

/// Plays one sequence on both; the first answers that differ.
fn play(given: &[u8], seed: u64, planted: bool) -> Option<String> {
    let mut bytes = Bytes { given, seed: seed.wrapping_mul(husk_abi::SPREAD) };
    let clients = 1 + bytes.below(CLIENTS_MAX as usize);
    let root = format!("/dev/shm/husk-sim-{}-{seed}", std::process::id());
    std::fs::create_dir(&root).expect("a directory");
    let mut boss = boss();
    let room = room_left(&mut boss);
    let natives: Vec<Native> = (0..clients).map(|_| Native::new(&root)).collect();
    let mut programs: Vec<_> = (0..clients).map(|_| husk(&mut boss)).collect();
    let place = format!("/tmp/mount/{seed}\0");
    let at = [place.as_ptr() as usize, 0o755, 0, 0, 0, 0];
    assert_eq!(programs[0].call(nr::mkdir, at), 0, "a directory in the image");
    for program in &mut programs {
        assert_eq!(program.call(nr::chdir, at), 0);
    }
    let mut told = None;
    for n in 0..STEPS {
        let step = step(&mut bytes, clients);
        let linux = natives[step.who].make(&step);
        let program = &mut programs[step.who];
        let husk =
            if planted { make(&step, &mut Forgetful(program)) } else { make(&step, program) };
        if std::env::var_os("HUSK_STEPS").is_some() {
            println!("{n} {step:?}\n    {linux:?}");
        }
        if linux != husk {
            told = Some(format!("step {n} {step:?}\n  Linux: {linux:?}\n  Husk:  {husk:?}"));
            break;
        }
    }
    for mut program in programs {
        program.client.services().exit();
        program.client.services().detach();
    }
    drop(natives);
    std::fs::remove_dir_all(&root).expect("removed");
    let found = world::findings(&boss);
    clear(&mut boss, seed);
    let left = room_left(&mut boss);
    boss.detach();
    if left != room {
        told = told.or(Some(format!("{left:?} blocks and inodes are left of {room:?}")));
    }
    told.or_else(|| (!found.is_empty()).then(|| format!("{found:?}")))
}

/// Blocks and inodes that are free.
fn room_left(boss: &mut Direct) -> (u64, u64) {
    let usage = boss.usage();
    (usage.blocks_free, usage.inodes_free)
}

/// Removes what a sequence has left in the image.
fn clear(boss: &mut Direct, seed: u64) {
    let root = boss.mount(0).root;
    let name = seed.to_string();
    let dir = boss.lookup(root, name.as_bytes()).expect("its directory").inode;
    world::remove_all(boss, dir);
    boss.rmdir(&support::root_user(), root, name.as_bytes()).expect("removed");
}

fn seeds() -> std::ops::Range<u64> {
    match std::env::var("HUSK_SEED").ok().and_then(|seed| seed.parse().ok()) {
        Some(seed) => seed..seed + 1,
        None if std::env::var_os("HUSK_FULL").is_some() => 1..SEEDS.1,
        None => 1..SEEDS.0,
    }
}

#[test]
fn programs_that_take_turns_are_answered_as_linux_answers() {
    let _turn = TURN.lock();
    for seed in seeds() {
        let told = play(&[], seed, false);
        assert!(told.is_none(), "HUSK_SEED={seed}: {}", told.unwrap_or_default());
    }
}

#[test]
fn a_planted_bug_is_found_and_its_seed_finds_it_again() {
    let _turn = TURN.lock();
    let found = (10_000..10_100).find_map(|seed| play(&[], seed, true).map(|told| (seed, told)));
    let (seed, told) = found.expect("a bug that no sequence met");
    // Another place, the same sequence: the directory of a seed is used once.
    assert!(told.contains("step "), "{told}");
    println!("seed {seed}: {told}");
}

#[test]
fn calls_with_odd_arguments_are_answered_and_break_nothing() {
    let _turn = TURN.lock();
    let thrown = seeds().map(|seed| {
        let answered = throw(&[], seed, HOSTILE_CALLS).len();
        sound(&format!("HUSK_SEED={seed}"));
        answered
    });
    let answered: usize = thrown.sum();
    assert!(answered > HOSTILE_CALLS / 4, "only {answered} calls concerned the image");
    println!("{answered} calls answered");
}

/// Another input, made from those that were answered as none before.
fn mutated(inputs: &[Vec<u8>], dice: &mut Bytes) -> Vec<u8> {
    let mut input = inputs[dice.below(inputs.len())].clone();
    for _ in 0..1 + dice.below(4) {
        let at = dice.below(input.len() + 1);
        match dice.below(4) {
            0 => {
                let more: Vec<u8> =
                    (0..1 + dice.below(240)).map(|_| dice.below(256) as u8).collect();
                input.splice(at..at, more);
            }
            1 => input.iter_mut().skip(at).take(2).for_each(|byte| *byte = dice.below(256) as u8),
            2 => drop(input.drain(at..(at + dice.below(30)).min(input.len()))),
            _ => input.extend_from_within(at..),
        }
    }
    input.truncate(INPUT_MAX);
    input
}

/// A fuzzer in small: inputs that were answered as none before are changed further. The input at
/// work lies in a file, for whoever finds that this test has crashed; `HUSK_INPUT` names one to be
/// thrown again.
#[test]
fn calls_made_from_those_that_were_answered_anew_break_nothing() {
    let _turn = TURN.lock();
    if let Some(input) = std::env::var_os("HUSK_INPUT") {
        println!("{:?}", throw(&std::fs::read(input).expect("an input"), 0, HOSTILE_CALLS));
        return sound("HUSK_INPUT");
    }
    let file = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("husk-fuzzed-calls-{}", std::process::id()));
    let seed = std::env::var("HUSK_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let mut dice = Bytes { given: &[], seed };
    let (mut inputs, mut known, mut tries) = (vec![vec![0; 16]], BTreeSet::new(), 0);
    let (start, long) = (Instant::now(), std::env::var_os("HUSK_FULL").is_some());
    while start.elapsed() < if long { FUZZED.1 } else { FUZZED.0 } || tries < 100 {
        let input = mutated(&inputs, &mut dice);
        std::fs::write(&file, &input).expect("a note of the input");
        let before = known.len();
        let answers = throw(&input, 0, HOSTILE_CALLS);
        if answers.iter().any(|answer| !known.contains(answer)) {
            let again = throw(&input, 0, HOSTILE_CALLS);
            assert_eq!(answers, again, "the same input was answered otherwise: {input:?}");
        }
        known.extend(answers);
        // That takes longer than the calls.
        if known.len() > before || tries % 32 == 0 {
            sound("one of the last 32 inputs");
        }
        if known.len() > before {
            inputs.push(input);
        }
        tries += 1;
    }
    std::fs::remove_file(&file).expect("the note");
    println!("{tries} inputs, {} of them new, {} kinds of answers", inputs.len(), known.len());
    assert!(inputs.len() > 8, "{} of {tries} inputs told anything new", inputs.len());
}

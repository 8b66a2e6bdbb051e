//! Both sides change one tree at random, with syncs and refreshes in between: what nobody has
//! destroyed is there in the end, in the tree, beside it, or in a rescue. `HUSK_SEED=7` plays one
//! seed.
//!
//! ```text
//!   seed ─► image: 8 changes ─► host: 6 ─► sync, refresh or both ─► image: 6 ─► host: 4 ─► down
//!           each write is a line of its own; who destroys one says so
//!   lines of all files in the end  ⊇  lines made - lines destroyed
//! ```

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use husk_tests::against_native;
use husk_tests::husk::workspace;

use crate::{Images, shown, text};

/// Seeds of a plain run, and of a full one.
const SEEDS: u32 = 20;
const SEEDS_FULL: u32 = 400;
/// Seeds that find faults which others do not, also in a plain run.
const SEEDS_TOO: [u32; 2] = [45, 275];

const TREE: &str = "mkdir -p a/a b/c c d/e/f
    for p in a/x a/a/y b/x b/c/d c/a c/b d/e/f/a d/b e; do echo base_$p > $p; done
    ln -s a/x f; ln c/a c/l; find . -type f -exec touch -d 2024-01-01 {} +";

/// What is done between both rounds.
const BETWEEN: [&[&str]; 6] = [
    &[],
    &["sync"],
    &["refresh"],
    &["refresh", "sync"],
    &["sync", "refresh"],
    &["sync", "refresh", "sync"],
];

/// One seed.
struct Game {
    images: Images,
    seed: u32,
    /// Lines that were made, or were there, and lines that somebody has destroyed.
    made: BTreeSet<String>,
    destroyed: BTreeSet<String>,
    /// What the commands said.
    said: String,
}

impl Game {
    fn new(seed: u32) -> Game {
        let images = Images::new(&format!("both-sides-{seed}"));
        let (made, destroyed, said) = Default::default();
        Game { images, seed, made, destroyed, said }
    }

    fn on_host(&self, script: &str) {
        let output = self.images.command("bash", &["-euc", script]).output().expect("bash");
        assert!(output.status.success(), "seed {}: {}", self.seed, shown(&output));
    }

    /// What was made and destroyed, as the script says.
    fn note(&mut self, told: &str) {
        for line in told.lines() {
            match line.split_at_checked(1) {
                Some(("+", line)) => self.made.insert(line.to_owned()),
                Some(("-", line)) => self.destroyed.insert(line.to_owned()),
                _ => panic!("seed {}: {told}", self.seed),
            };
        }
    }

    /// Changes of one side. With `peek`, the script reads what it destroys.
    fn change(&mut self, round: u32, count: u32, inside: bool, peek: bool, at: &Path) {
        let script = workspace().join("tests/named/sources/both_sides.py");
        let (seed, count) = (format!("{}.{round}", self.seed), count.to_string());
        let (side, peek) = (if inside { "I" } else { "H" }, if peek { "1" } else { "0" });
        let script = ["python3", script.to_str().expect("plain"), &seed, &count, side, peek];
        let output = match inside && at == self.images.work {
            true => self.images.husk(&[&["exec", "ci", "--"], &script[..]].concat()),
            false => {
                let mut command = self.images.command(script[0], &script[1..]);
                command.current_dir(at).output().expect("python3")
            }
        };
        assert!(output.status.success(), "seed {}: {}", self.seed, shown(&output));
        if peek == "1" {
            self.note(&text(&output.stdout));
        }
    }

    /// A command about the image, which may have something to tell.
    fn husk(&mut self, what: &str) {
        let output = self.images.husk(&[what, "ci"]);
        let status = output.status.code();
        assert!(matches!(status, Some(0 | 1 | 125)), "seed {}: {}", self.seed, shown(&output));
        self.said += &format!("{what}: {}", shown(&output));
    }

    fn play(&mut self) {
        let (seed, work) = (self.seed, self.images.work.clone());
        self.on_host(TREE);
        self.made = lines_below(&work);
        self.images.up("ci");
        if seed.is_multiple_of(2) {
            self.images.script("ci", "find . > /dev/null");
        }
        if (seed / 6).is_multiple_of(2) {
            // The image reads nothing; another tree says what becomes of it.
            let twin = self.images.scratch.path().join("twin");
            self.on_host(&format!("cp -a . {}", twin.display()));
            self.change(1, 8, true, false, &work);
            self.change(1, 8, true, true, &twin);
            fs::remove_dir_all(&twin).expect("it goes");
        } else {
            self.change(1, 8, true, true, &work);
        }
        self.change(1, 6, false, true, &work);
        let between = BETWEEN[seed as usize % BETWEEN.len()];
        between.iter().for_each(|what| self.husk(what));
        if !between.is_empty() {
            self.change(2, 6, true, true, &work);
            self.change(2, 4, false, true, &work);
        }
        if seed % 4 == 1 {
            ["sync", "sync", "diff"].iter().for_each(|what| self.husk(what));
        }
        self.husk("down");
    }

    fn judge(&self) {
        let Game { images, seed, said, .. } = self;
        assert!(said.contains("husk: fsck: clean\n"), "seed {seed}: {said}");
        let mut left = lines_below(&images.work);
        left.extend(lines_below(&images.scratch.path().join("state")));
        let kept = self.made.difference(&self.destroyed);
        let lost: Vec<_> = kept.filter(|line| !left.contains(*line)).collect();
        assert!(lost.is_empty(), "seed {seed}: {lost:?} is gone:\n{said}");
        let names = names_below(&images.work);
        assert!(!names.contains(".husk-tmp-"), "seed {seed}: {names}\n{said}");
        let beside = names.contains(".husk-");
        assert!(!beside || said.contains("125"), "seed {seed}: a copy beside, and no word of it");
        assert!(images.row("ci").is_null(), "seed {seed}: it has not ended:\n{said}");
    }
}

/// Lines of all files below a directory.
fn lines_below(top: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(top).into_iter().flatten().flatten() {
        let path = entry.path();
        match entry.file_type().expect("a kind") {
            kind if kind.is_dir() => found.append(&mut lines_below(&path)),
            kind if kind.is_file() => {
                let content =
                    String::from_utf8_lossy(&fs::read(&path).expect("it is read")).into_owned();
                found.extend(content.lines().map(str::to_owned));
            }
            _ => {}
        }
    }
    found
}

fn names_below(top: &Path) -> String {
    let mut found = String::new();
    for entry in fs::read_dir(top).into_iter().flatten().flatten() {
        found += &format!("{} ", entry.path().display());
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            found += &names_below(&entry.path());
        }
    }
    found
}

#[test]
fn what_nobody_has_destroyed_is_there_after_changes_of_both_sides() {
    if against_native() {
        return;
    }
    let full = std::env::var_os("HUSK_FULL").is_some();
    let given = std::env::var("HUSK_SEED").ok().map(|seed| seed.parse().expect("a seed"));
    let seeds = match given {
        Some(seed) => vec![seed],
        None if full => (0..SEEDS_FULL).collect(),
        None => (0..SEEDS).chain(SEEDS_TOO).collect(),
    };
    for seed in seeds {
        let mut game = Game::new(seed);
        game.play();
        game.judge();
    }
}

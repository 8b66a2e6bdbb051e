//! What SQLite, Redis and git do to their files, with a crash after each of their syncs, or at any
//! write inside of it.
//!
//! The traces were recorded with strace: SQLite with a rollback journal and with a write-ahead log,
//! Redis with `appendfsync always` and a rewrite of its log, git with `core.fsync=all`, two commits
//! and a repack. Bytes are other ones here, from the seed.

use super::*;

/// A line is an operation, its paths, and numbers: where bytes go and how many, or a length.
const TRACES: &[(&str, &str)] = &[
    ("SQLite", include_str!("traces/sqlite.txt")),
    ("Redis", include_str!("traces/redis.txt")),
    ("git", include_str!("traces/git.txt")),
];
/// Seeds of each crash, for every change, and with `HUSK_FULL`.
const SEEDS: (u64, u64) = (1, 40);

impl World {
    fn found(&mut self, path: &str) -> Result<Inode, Errno> {
        let mut names = path.split('/').filter(|name| *name != ".");
        names.try_fold(self.root, |dir, name| Ok(self.direct.lookup(dir, name.as_bytes())?.inode))
    }

    fn placed<'a>(&mut self, path: &'a str) -> Result<(Inode, &'a [u8]), Errno> {
        let (dir, name) = path.rsplit_once('/').unwrap_or((".", path));
        Ok((self.found(dir)?, name.as_bytes()))
    }

    /// Does what a line says; what it syncs.
    fn traced(&mut self, line: &str) -> Result<Option<Inode>, Errno> {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |n: usize| words[n].parse::<u64>().expect("a number");
        let path = words[1];
        match words[0] {
            "sync" => return self.found(path).map(Some),
            "create" | "mkdir" => {
                let (dir, name) = self.placed(path)?;
                let is_file = words[0] == "create";
                let node = if is_file { Make::File(0o644) } else { Make::Directory(0o755) };
                self.direct.create(&ROOT, dir, name, node)?;
            }
            "write" => {
                let inode = self.found(path)?;
                let bytes: Vec<u8> = (0..number(3)).map(|_| self.dice.draw() as u8).collect();
                assert_eq!(self.direct.write_at(inode, number(2), &bytes)?, bytes.len());
                self.changed(inode)?;
            }
            "cut" => {
                let inode = self.found(path)?;
                self.direct.truncate(inode, number(2))?;
                self.changed(inode)?;
            }
            "link" => {
                let inode = self.found(path)?;
                let (dir, name) = self.placed(words[2])?;
                self.direct.link(&ROOT, inode, dir, name)?;
            }
            "rename" => {
                let (source, target) = (self.placed(path)?, self.placed(words[2])?);
                self.direct.rename(&ROOT, source.0, source.1, target.0, target.1, 0)?;
            }
            "unlink" => {
                let (dir, name) = self.placed(path)?;
                self.direct.unlink(&ROOT, dir, name)?;
            }
            "remove" => {
                let (dir, name) = self.placed(path)?;
                self.direct.rmdir(&ROOT, dir, name)?;
            }
            other => panic!("no operation: {other}"),
        }
        Ok(None)
    }
}

/// Follows a trace up to its `last`th sync, where the power goes after `cut` writes.
fn follow(mut world: World, trace: &str, last: usize, cut: u64) -> Result<(), String> {
    let mut syncs = 0;
    for line in trace.lines() {
        let asked = world.traced(line).unwrap_or_else(|errno| panic!("{line}: {errno:?}"));
        let Some(inode) = asked else { continue };
        if syncs < last {
            assert!(world.sync(inode), "nothing fails yet");
            syncs += 1;
            continue;
        }
        let now = world.names();
        world.disk.cut_after(cut);
        let is_done = world.sync(inode);
        world.disk.crash();
        return world.judge((!is_done).then_some(&now));
    }
    unreachable!("a sync that there is none of")
}

/// All crashes of all traces; how many they were, or the first that breaks a promise.
pub fn all_traced(region: &OwnedFd) -> Result<u64, String> {
    let is_full = std::env::var_os("HUSK_FULL").is_some();
    let (seeds, mut done) = (if is_full { SEEDS.1 } else { SEEDS.0 }, 0);
    for (name, trace) in TRACES {
        let syncs = trace.lines().filter(|line| line.starts_with("sync ")).count();
        for (last, cut) in (0..syncs).flat_map(|last| (0..=STEPS).map(move |cut| (last, cut))) {
            for seed in 1..=seeds {
                let world = World::new(region, seed << 20 | (last as u64) << 8 | cut);
                let judged = follow(world, trace, last, cut);
                judged.map_err(|why| format!("{name}, sync {last}, cut {cut}: {why}"))?;
                done += 1;
            }
        }
    }
    Ok(done)
}

//! One directory, several threads that change its names at once: what wide directories promise, and
//! that they come and go by themselves. Each test in a child with its own image.

#[path = "../support/mod.rs"]
mod support;
#[path = "../support/world.rs"]
mod world;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use husk_carrier::{Direct, Directories, Layout};
use husk_proto::fs::{Change, Node, Time};
use husk_proto::image::Cover;
use husk_proto::{Errno, Fs, Inode, Process, Processes, Shortcuts as _};
use support::{LAYOUT, beside, clock, in_child, joined, program, root_user, shared_image, until};
use world::{at, findings};

const SMALL: Layout = Layout { kernels: 2, memory_bytes: 4 << 20 };
/// One in so many points where a death could strike lets others run instead.
#[cfg(feature = "kill-points")]
const JITTER: u64 = 24;
/// How long a race runs at least, and at most on a busy machine.
const RACE: Duration = Duration::from_millis(1000);
const RACE_MAX: Duration = Duration::from_secs(20);

/// Runs `body` in a child process with an image of its own; the structure must be whole after.
#[track_caller]
fn in_image(layout: Layout, rule: Directories, body: fn(&mut Direct, Inode)) {
    in_child(|| {
        delays(true);
        let (mut boss, root) = shared_image(layout, Cover::Memory, rule);
        let mut me = program(&mut boss, clock);
        body(&mut me, root);
        me.exit();
        assert_eq!(findings(&boss), []);
    });
}

/// With kill points compiled in: others run instead at some of them, or no longer.
fn delays(on: bool) {
    #[cfg(feature = "kill-points")]
    husk_region::observe::kill::jitter(if on { JITTER } else { 0 });
    let _ = on;
}

/// Fails at once when a thread beside has failed: what it left undone would be waited for.
fn nobody_failed<T>(threads: &[std::thread::JoinHandle<T>], stop: &AtomicBool) {
    let early = threads.iter().any(std::thread::JoinHandle::is_finished);
    assert!(!early || stop.load(Ordering::Relaxed), "a thread beside has failed, see above");
}

/// Runs `step(me, n)` in a thread of its own until `stop`; how often.
fn again(
    process: Process,
    stop: &'static AtomicBool,
    mut step: impl FnMut(&mut Direct, u64) + Send + 'static,
) -> std::thread::JoinHandle<u64> {
    beside(process, move |me| {
        let mut n = 0;
        while !stop.load(Ordering::Relaxed) {
            step(me, n);
            n += 1;
        }
        n
    })
}

fn mkdir(me: &mut Direct, dir: Inode, name: &[u8]) -> Inode {
    me.create(&root_user(), dir, name, Node::Directory(0o755)).expect("mkdir")
}

fn touch(me: &mut Direct, dir: Inode, name: &[u8]) -> Result<Inode, Errno> {
    me.create(&root_user(), dir, name, Node::File(0o644))
}

/// All names, sorted.
fn names(me: &mut Direct, dir: Inode) -> Vec<Vec<u8>> {
    let mut names = Vec::new();
    me.list(dir, 0, &mut |entry| {
        names.push(entry.name.to_vec());
        true
    })
    .expect("list");
    names.sort();
    names
}

#[test]
fn what_several_threads_change_adds_up() {
    in_image(LAYOUT, Directories::Wide, |me, root| {
        const EACH: u64 = 400;
        let dir = mkdir(me, root, b"d");
        let process = me.current();
        let makers: Vec<_> = (0..4u64)
            .map(|maker| {
                beside(process, move |me| {
                    for n in 0..EACH {
                        mkdir(me, dir, format!("dir-{maker}-{n}").as_bytes());
                        touch(me, dir, format!("file-{maker}-{n}").as_bytes()).expect("create");
                    }
                })
            })
            .collect();
        makers.into_iter().for_each(|maker| joined("a maker", maker));
        assert!(me.is_wide(dir), "nobody widened it");
        assert_eq!(me.attributes(dir).expect("stat").links as u64, 2 + 4 * EACH);
        assert_eq!(names(me, dir).len() as u64, 8 * EACH);
        // One takes away what the others have made.
        for maker in 0..4u64 {
            for n in 0..EACH {
                me.rmdir(&root_user(), dir, format!("dir-{maker}-{n}").as_bytes()).expect("rmdir");
                let file = format!("file-{maker}-{n}");
                assert_eq!(me.rmdir(&root_user(), root, b"d"), Err(Errno::ENOTEMPTY));
                me.unlink(&root_user(), dir, file.as_bytes()).expect("unlink");
            }
        }
        assert_eq!(me.attributes(dir).expect("stat").links, 2);
        assert_eq!(names(me, dir), Vec::<Vec<u8>>::new());
        me.rmdir(&root_user(), root, b"d").expect("rmdir");
    });
}

/// Removes "d" and makes another, in one step or in two.
fn remove(me: &mut Direct, root: Inode, tries: u32) -> Result<(), Errno> {
    let who = root_user();
    if tries & 1 == 0 {
        me.rmdir(&who, root, b"d")?;
        mkdir(me, root, b"d");
        return Ok(());
    }
    mkdir(me, root, b"e");
    let result = me.rename(&who, root, b"e", root, b"d", 0);
    if result.is_err() {
        me.rmdir(&who, root, b"e").expect("rmdir");
    }
    result
}

/// One makes, widens and removes a directory in a circle, others make names in it: whoever was told
/// that a name is made must find it.
#[test]
fn no_name_is_made_in_a_directory_that_is_gone() {
    in_image(LAYOUT, Directories::ByContention, |me, root| {
        static STOP: AtomicBool = AtomicBool::new(false);
        static MADE: AtomicU64 = AtomicU64::new(0);
        let process = me.current();
        let makers: Vec<_> = (0..2u8)
            .map(|maker| {
                again(process, &STOP, move |me, _| {
                    let Ok(step) = me.lookup(root, b"d") else { return };
                    let name = [b'f', b'0' + maker];
                    match touch(me, step.inode, &name) {
                        Ok(_) => {
                            MADE.fetch_add(1, Ordering::Relaxed);
                            let gone = me.unlink(&root_user(), step.inode, &name);
                            assert_eq!(gone, Ok(()), "a name is gone with its directory");
                        }
                        Err(error) => {
                            let fine = [Errno::ENOENT, Errno::ESTALE].contains(&error);
                            assert!(fine, "create: {error:?}");
                        }
                    }
                })
            })
            .collect();
        let (start, mut removed, mut refused) = (Instant::now(), 0, 0);
        mkdir(me, root, b"d");
        let goes_on = |removed| start.elapsed() < RACE || removed < 300;
        while goes_on(removed) && start.elapsed() < RACE_MAX {
            let dir = at(me, root, b"d");
            me.switch_directory(dir, true).expect("wide");
            // Until the makers have a part in it: who joins is kept out anyway.
            let (made, mut looks) = (MADE.load(Ordering::Relaxed), 0);
            while MADE.load(Ordering::Relaxed) < made + 4 && looks < 10_000 {
                looks += 1;
                std::hint::spin_loop();
            }
            let mut tries = 0;
            while let Err(error) = remove(me, root, tries) {
                assert_eq!(error, Errno::ENOTEMPTY);
                nobody_failed(&makers, &STOP);
                assert!(start.elapsed() < RACE_MAX * 3, "never empty: {tries} tries");
                tries += 1;
                // Back and forth between the modes meanwhile.
                me.switch_directory(dir, tries & 2 != 0).expect("switched");
            }
            removed += 1;
            refused += tries;
        }
        STOP.store(true, Ordering::Relaxed);
        for maker in makers {
            joined("a maker", maker);
        }
        let made = MADE.load(Ordering::Relaxed);
        assert!(removed > 50 && made > 100 && refused > 0, "{removed} {made} {refused}");
    });
}

#[test]
fn a_listing_is_exact_while_its_directory_changes_and_switches() {
    in_image(LAYOUT, Directories::ByContention, |me, root| {
        static STOP: AtomicBool = AtomicBool::new(false);
        static CHANGES: AtomicU64 = AtomicU64::new(0);
        let who = root_user();
        let dir = mkdir(me, root, b"d");
        let process = me.current();
        for n in 0..300 {
            touch(me, dir, format!("stable-{n:03}").as_bytes()).expect("create");
            touch(me, dir, format!("v{n}").as_bytes()).expect("create");
            if n == 150 {
                me.switch_directory(dir, true).expect("wide");
            }
        }
        let stormers: Vec<_> = (0..2u64)
            .map(|seed| {
                let mut dice = seed;
                again(process, &STOP, move |me, _| {
                    dice = dice.wrapping_mul(6364136223846793005).wrapping_add(seed + 99991);
                    let (one, two) = (dice >> 40 & 255, dice >> 50 & 255);
                    let (one, two) = (format!("v{one}"), format!("v{two}"));
                    CHANGES.fetch_add(1, Ordering::Relaxed);
                    let _ = match dice >> 33 & 3 {
                        0 => me.unlink(&who, dir, one.as_bytes()),
                        1 => me.rename(&who, dir, one.as_bytes(), dir, two.as_bytes(), 0),
                        _ => touch(me, dir, one.as_bytes()).map(|_| ()),
                    };
                })
            })
            .collect();
        let switcher = again(process, &STOP, move |me, n| {
            me.switch_directory(dir, n % 2 == 0).expect("switched");
        });
        let (start, mut listings) = (Instant::now(), 0);
        let enough = |listings| listings >= 100 && CHANGES.load(Ordering::Relaxed) > 400;
        while (start.elapsed() < RACE || !enough(listings)) && start.elapsed() < RACE_MAX {
            // In pieces, as a program with a small buffer does it.
            let (mut cookie, mut stable, mut more) = (0, Vec::new(), true);
            while more {
                more = false;
                me.list(dir, cookie, &mut |entry| {
                    assert!(entry.next < 1 << 31);
                    if entry.name.starts_with(b"stable") {
                        stable.push(String::from_utf8_lossy(entry.name).into_owned());
                    }
                    more = entry.next % 7 == 0;
                    cookie = entry.next;
                    !more
                })
                .expect("list");
            }
            stable.sort();
            assert!(stable.iter().enumerate().all(|(n, name)| *name == format!("stable-{n:03}")));
            assert_eq!(stable.len(), 300);
            listings += 1;
        }
        STOP.store(true, Ordering::Relaxed);
        let changes: u64 = stormers.into_iter().map(|one| joined("a stormer", one)).sum();
        let switches = joined("the switcher", switcher);
        let facts = format!("{changes} changes, {switches} switches, {listings} listings");
        assert!(changes > 100 && switches > 30 && listings > 20, "{facts}");
    });
}

#[test]
fn a_renamed_file_is_listed_once() {
    in_image(LAYOUT, Directories::Wide, |me, root| {
        static STOP: AtomicBool = AtomicBool::new(false);
        let dir = mkdir(me, root, b"d");
        for n in 0..200 {
            touch(me, dir, format!("before-{n}").as_bytes()).expect("create");
        }
        touch(me, dir, b"x0").expect("create");
        static RENAMES: AtomicU64 = AtomicU64::new(0);
        let renamer = again(me.current(), &STOP, move |me, n| {
            let (one, two) = (format!("x{n}"), format!("x{}", n + 1));
            me.rename(&root_user(), dir, one.as_bytes(), dir, two.as_bytes(), 0).expect("rename");
            RENAMES.fetch_add(1, Ordering::Relaxed);
        });
        let (start, mut listings) = (Instant::now(), 0);
        let enough = |listings| listings >= 100 && RENAMES.load(Ordering::Relaxed) > 50;
        while (start.elapsed() < RACE || !enough(listings)) && start.elapsed() < RACE_MAX {
            let seen = names(me, dir).into_iter().filter(|name| name[0] == b'x').count();
            assert_eq!(seen, 1, "in listing {listings}");
            listings += 1;
        }
        STOP.store(true, Ordering::Relaxed);
        assert!(joined("the renamer", renamer) > 50);
    });
}

#[test]
fn directories_widen_where_threads_meet_and_narrow_where_one_is_left() {
    in_image(LAYOUT, Directories::ByContention, |me, root| {
        static STOP: AtomicBool = AtomicBool::new(false);
        let process = me.current();
        let (shared, alone) = (mkdir(me, root, b"shared"), mkdir(me, root, b"alone"));
        for n in 0..5000 {
            touch(me, alone, b"x").expect("create");
            me.unlink(&root_user(), alone, b"x").expect("unlink");
            assert!(n > 0 || !me.is_wide(alone));
        }
        assert!(!me.is_wide(alone), "one thread alone has widened a directory");
        let workers: Vec<_> = (0..2u8)
            .map(|worker| {
                again(process, &STOP, move |me, _| {
                    touch(me, shared, &[b'w', worker + b'0']).expect("create");
                    me.unlink(&root_user(), shared, &[b'w', worker + b'0']).expect("unlink");
                })
            })
            .collect();
        let start = Instant::now();
        while !me.is_wide(shared) && start.elapsed() < Duration::from_secs(20) {
            std::thread::yield_now();
        }
        let wide = me.is_wide(shared);
        STOP.store(true, Ordering::Relaxed);
        for worker in workers {
            joined("a worker", worker);
        }
        assert!(wide, "two threads at once did not widen it");
        delays(false);
        // Twice the 65,536 changes after which a thread looks around, and some.
        let mut changes = 0;
        while me.is_wide(shared) && changes < 200_000 {
            touch(me, shared, b"x").expect("create");
            me.unlink(&root_user(), shared, b"x").expect("unlink");
            changes += 2;
        }
        assert!(!me.is_wide(shared), "one thread alone did not narrow it");
    });
}

#[test]
fn own_directories_stay_narrow_though_their_tokens_are_shared() {
    const ONE: Layout = Layout { kernels: 1, memory_bytes: 8 << 20 };
    in_image(ONE, Directories::ByContention, |me, root| {
        let process = me.current();
        // Eight tokens: among 2 x 8 directories many share one.
        let dirs: Vec<Inode> = (0..16).map(|n| mkdir(me, root, &[b'd', n + b'A'])).collect();
        let workers: Vec<_> = dirs
            .chunks(8)
            .map(|own| {
                let own = own.to_vec();
                beside(process, move |me| {
                    for n in 0..40_000 {
                        let dir = own[n % own.len()];
                        touch(me, dir, b"x").expect("create");
                        me.unlink(&root_user(), dir, b"x").expect("unlink");
                    }
                })
            })
            .collect();
        workers.into_iter().for_each(|worker| joined("a worker", worker));
        let wide = dirs.iter().filter(|&&dir| me.is_wide(dir)).count();
        assert_eq!(wide, 0, "widened though nobody shares it");
    });
}

#[test]
fn times_of_a_wide_directory_go_forward_by_changes_and_back_by_order() {
    in_image(LAYOUT, Directories::Wide, |me, root| {
        let dir = mkdir(me, root, b"d");
        let process = me.current();
        touch(me, dir, b"a").expect("create");
        joined("b", beside(process, move |me| touch(me, dir, b"b"))).expect("b");
        assert!(me.is_wide(dir));
        for at in [5, -5_000_000_000, i64::MAX / 2] {
            let change = Change { modified: Some(Time::At(at)), ..Change::default() };
            me.change(&root_user(), dir, change).expect("change");
            assert_eq!(me.attributes(dir).expect("stat").modified_ns, at);
        }
        let back = Change { modified: Some(Time::At(7)), ..Change::default() };
        me.change(&root_user(), dir, back).expect("change");
        let before = clock();
        joined("a", beside(process, move |me| me.unlink(&root_user(), dir, b"a"))).expect("a");
        let seen = me.attributes(dir).expect("stat");
        assert!(seen.modified_ns >= before && seen.changed_ns >= before, "{seen:?}");
    });
}

/// One makes names, another removes them: arrays and pools stay as long as what lives in them.
#[test]
fn what_one_makes_and_another_removes_leaves_no_room_behind() {
    in_image(SMALL, Directories::Wide, |me, root| {
        let dir = mkdir(me, root, b"d");
        let process = me.current();
        // Five times as many names as the image has inodes, twice as many as it has slots for.
        const NAMES: u64 = 40_000;
        const AHEAD: u64 = 500;
        static MADE: AtomicU64 = AtomicU64::new(0);
        static GONE: AtomicU64 = AtomicU64::new(0);
        let remover = beside(process, move |me| {
            for n in 0..NAMES {
                until("the next name is made", || MADE.load(Ordering::Acquire) > n);
                me.unlink(&root_user(), dir, format!("n{n}").as_bytes()).expect("unlink");
                GONE.store(n + 1, Ordering::Release);
            }
        });
        for n in 0..NAMES {
            until("names are removed", || GONE.load(Ordering::Acquire) + AHEAD > n);
            touch(me, dir, format!("n{n}").as_bytes()).expect("no room though it is nearly empty");
            MADE.store(n + 1, Ordering::Release);
        }
        joined("the remover", remover);
        let mut last = 0;
        touch(me, dir, b"last").expect("create");
        me.list(dir, 0, &mut |entry| {
            last = entry.next;
            true
        })
        .expect("list");
        assert!(last / 128 < 4 * AHEAD, "the array has {} slots", last / 128);
    });
}

#[test]
fn in_an_image_without_a_line_left_a_thread_without_a_part_removes_names() {
    in_image(SMALL, Directories::Wide, |me, root| {
        let who = root_user();
        let dir = mkdir(me, root, b"d");
        let file = touch(me, dir, b"file").expect("create");
        let mut made = 0;
        let error = loop {
            match me.link(&who, file, dir, format!("link-{made}").as_bytes()) {
                Ok(()) => made += 1,
                Err(error) => break error,
            }
        };
        assert_eq!(error, Errno::ENOSPC);
        assert!(me.is_wide(dir) && made > 1000);
        let gone = beside(me.current(), move |me| {
            (0..made).try_for_each(|n| me.unlink(&root_user(), dir, format!("link-{n}").as_bytes()))
        });
        assert_eq!(joined("the remover", gone), Ok(()));
        assert_eq!(names(me, dir), [b"file".to_vec()]);
    });
}

#[test]
fn what_threads_that_have_gone_kept_ready_is_not_lost() {
    in_image(SMALL, Directories::ByContention, |me, root| {
        static READY: AtomicU64 = AtomicU64::new(0);
        const THREADS: u64 = 40;
        let process = me.current();
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                beside(process, move |me| {
                    let name = format!("t{thread}");
                    touch(me, root, name.as_bytes()).expect("create");
                    READY.fetch_add(1, Ordering::Relaxed);
                    until("all are there", || READY.load(Ordering::Relaxed) == THREADS);
                    me.unlink(&root_user(), root, name.as_bytes()).expect("unlink");
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| joined("a thread", thread));
        let mut made = 0;
        let error = loop {
            match touch(me, root, format!("n{made}").as_bytes()) {
                Ok(_) => made += 1,
                Err(error) => break error,
            }
        };
        assert_eq!(error, Errno::ENOSPC);
        assert_eq!(me.usage().inodes_free, 0, "full, it says, after {made} names");
    });
}

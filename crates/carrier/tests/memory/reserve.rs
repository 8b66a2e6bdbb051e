//! What an image that is full of names keeps for processes and open files: no number of forks uses
//! it up, whoever else asks for room and whoever dies. Each test in a child with its own image.

#[path = "../support/mod.rs"]
mod support;
#[path = "../support/world.rs"]
mod world;

use std::sync::atomic::{AtomicBool, Ordering};

use husk_carrier::{Direct, Directories, Layout};
use husk_proto::fs::Node;
use husk_proto::image::Cover;
use husk_proto::process::Sharing;
use husk_proto::{Admin as _, Errno, Fs, Inode, Process, Processes, Shortcuts as _};
use support::{
    beside, enter, fork, format_again, frozen, in_child, joined, map, program, root_user, wait,
};
use world::findings;

const SMALL: Layout = Layout { kernels: 2, memory_bytes: 4 << 20 };
/// More than the reserve has of anything.
const FORKS: u32 = 3000;
/// Children that live at once.
const CHILDREN: usize = 20;
/// More points than a fork, its end and a refused name have.
const POINTS_MAX: u64 = 3000;

/// Names of one file: there is always one more inode, and no room for what it is called.
struct Names {
    dir: Inode,
    file: Inode,
}

impl Names {
    fn new(me: &mut Direct, root: Inode) -> Names {
        let who = root_user();
        let dir = me.create(&who, root, b"d", Node::Directory(0o755)).expect("mkdir");
        Names { dir, file: me.create(&who, root, b"short", Node::File(0o644)).expect("short") }
    }

    fn add(&self, me: &mut Direct, n: u64) -> Result<(), Errno> {
        me.link(&root_user(), self.file, self.dir, format!("{n:0>200}").as_bytes()).map(|_| ())
    }

    /// Adds from `n` on until there is no room for more; how many there are then.
    fn fill(&self, me: &mut Direct, n: u64) -> u64 {
        let (made, why) =
            (n..).find_map(|n| self.add(me, n).err().map(|why| (n, why))).expect("an end");
        assert_eq!(why, Errno::ENOSPC);
        made
    }

    fn remove(&self, me: &mut Direct, n: u64) {
        let name = format!("{n:0>200}");
        me.unlink(&root_user(), self.dir, name.as_bytes()).expect("unlink in a full image");
    }
}

fn fresh() -> (Direct, Inode) {
    format_again(SMALL, Cover::Memory, Directories::ByContention)
}

/// An image, a program of it, and so many names that it is full.
fn full() -> (Direct, Direct, Names, u64) {
    map(SMALL);
    let (mut boss, root) = fresh();
    let mut me = program(&mut boss, frozen);
    let names = Names::new(&mut me, root);
    let made = names.fill(&mut me, 0);
    (boss, me, names, made)
}

/// Makes children, `CHILDREN` at a time, each with a file open, and ends them.
fn make_children(me: &mut Direct, names: &Names) {
    let files = me.files();
    me.open(&root_user(), files, names.file, 2, 0, 64).expect("open");
    let mut children: Vec<Process> = Vec::new();
    for n in 0..FORKS {
        if children.len() == CHILDREN {
            me.cancel_fork(children.remove(n as usize % CHILDREN));
        }
        children.push(me.prepare_fork(Sharing::default()).expect("fork in a full image"));
    }
    children.into_iter().for_each(|child| me.cancel_fork(child));
}

#[test]
fn no_number_of_forks_uses_up_what_a_full_image_keeps_for_them() {
    in_child(|| {
        let (boss, mut me, names, made) = full();
        static FORKED: AtomicBool = AtomicBool::new(false);
        let (dir, file) = (names.dir, names.file);
        let other = beside(me.current(), move |me| {
            let (names, mut n) = (Names { dir, file }, made);
            while !FORKED.load(Ordering::Acquire) {
                n = names.fill(me, n);
            }
            n
        });
        make_children(&mut me, &names);
        FORKED.store(true, Ordering::Release);
        let more = joined("the other", other);
        assert!(more <= made + 100, "{} names took the room of children", more - made);
        // Processes with a seat of their own, each of which asks for room, too.
        for _ in 0..300 {
            let child = me.prepare_fork(Sharing::default()).expect("fork in a full image");
            let pid = fork(|| {
                me.enter_child(child, std::process::id());
                assert_eq!(names.add(&mut me, more), Err(Errno::ENOSPC));
                me.exit();
            });
            assert_eq!(wait(pid), 0);
        }
        for n in 0..more {
            names.remove(&mut me, n);
        }
        assert!(names.fill(&mut me, 0) >= made, "what was lent is there again");
        me.exit();
        assert_eq!(findings(&boss), []);
    });
}

#[test]
fn names_find_room_again_when_more_are_removed_than_is_lent() {
    in_child(|| {
        let (boss, mut me, names, made) = full();
        let fork = |me: &mut Direct| me.prepare_fork(Sharing::default()).expect("fork");
        let children: Vec<Process> = (0..50).map(|_| fork(&mut me)).collect();
        for n in 0..200 {
            names.remove(&mut me, n);
        }
        let again = names.fill(&mut me, made) - made;
        assert!((50..=160).contains(&again), "{again} of 200 while 50 children have theirs");
        children.into_iter().for_each(|child| me.cancel_fork(child));
        let all = names.fill(&mut me, made + again) - made;
        assert!((190..=200).contains(&all), "{all} of 200");
        me.exit();
        assert_eq!(findings(&boss), []);
    });
}

fn die() {
    // SAFETY: this very process, a child.
    unsafe { libc::kill(std::process::id() as i32, libc::SIGKILL) };
}

#[test]
fn who_dies_while_it_borrows_or_pays_back_takes_nothing_along() {
    in_child(|| {
        map(SMALL);
        let (mut boss, root) = fresh();
        let names = Names::new(&mut boss, root);
        let made = names.fill(&mut boss, 0);
        let dies = |boss: &mut Direct, point: u64| {
            let child = fork(|| {
                let mut me = enter();
                husk_region::observe::kill::arm(point, die);
                for _ in 0..3 {
                    let child = me.prepare_fork(Sharing::default()).expect("fork");
                    assert_eq!(names.add(&mut me, made), Err(Errno::ENOSPC));
                    me.cancel_fork(child);
                    assert_eq!(names.add(&mut me, made), Err(Errno::ENOSPC));
                }
                husk_region::observe::kill::arm(0, die);
                me.exit();
            });
            let status = wait(child);
            let died = libc::WIFSIGNALED(status);
            assert!(died || status == 0, "the child failed, point {point}");
            boss.reap(child as u32).expect("reaped");
            assert_eq!(findings(boss), [], "died at {point}");
            died
        };
        let last = (1..POINTS_MAX).step_by(3).find(|&point| !dies(&mut boss, point));
        assert!(last.expect("an end") > 100, "only {last:?} points");
        for n in 0..made {
            names.remove(&mut boss, n);
        }
        assert_eq!(names.fill(&mut boss, 0), made, "what was lent is there again");
        assert_eq!(findings(&boss), []);
    });
}

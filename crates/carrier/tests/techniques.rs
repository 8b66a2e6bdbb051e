//! Techniques that can be switched off really are, and what they do while they are on: each test in
//! a child with its own image.

#[path = "support/mod.rs"]
mod support;
#[path = "support/world.rs"]
mod world;

use husk_carrier::{Direct, Directories, Layout, STATE_ADDRESS, Without};
use husk_proto::fs::{Imported, Node, Place, Run};
use husk_proto::image::Cover;
use husk_proto::{Admin as _, Errno, Fs, Inode, Process, Processes, Shortcuts as _};
use husk_region::INODE;
use support::{beside, clock, in_child, joined, map, program, root_user, tid};
use world::{contents, findings, put};

const LAYOUT: Layout = Layout { kernels: 2, memory_bytes: 64 << 20 };
const BLOCK: usize = 4096;
/// Blocks of a file for which memory is worth bringing ahead.
const MANY: usize = 1024;
/// Word of a partition where the pool of inodes begins.
const POOL_OF_INODES: u32 = 5;

/// Runs `body` in an image that does without some techniques; the structure must be whole after.
#[track_caller]
fn in_image(without: Without, body: impl FnOnce(&mut Direct, Inode)) {
    in_child(|| {
        map(LAYOUT);
        husk_carrier::format(LAYOUT, 77, b"/tmp/copies").expect("formatted");
        let mut boss = Direct::attach(clock, Process(0), std::process::id(), tid()).expect("there");
        boss.set_directories(Directories::default());
        boss.set_without(without);
        let root = boss
            .add_mount(b"/tmp/mount", Cover::Memory, &Imported::top(b"/tmp/mount", 0o755))
            .expect("mounted");
        let mut me = program(&mut boss, clock);
        assert_eq!(me.without(), without);
        body(&mut me, root);
        me.exit();
        assert_eq!(findings(&boss), []);
    });
}

fn file(me: &mut Direct, dir: Inode, name: &[u8]) -> Inode {
    me.create(&root_user(), dir, name, Node::File(0o644)).expect("create")
}

/// What moves whenever the lock of any name, or of `inode`, is taken.
fn locks(me: &Direct, inode: Inode) -> (u64, u64) {
    let region = me.kernel().session.region;
    let buckets = (0..=region.map.bucket_mask).map(|hash| region.load(region.map.bucket(hash)));
    (buckets.sum(), region.load(region.map.object(INODE, inode.number)))
}

/// How often a name's lock and the inode's were taken by `look`.
fn taken(me: &mut Direct, inode: Inode, look: impl FnOnce(&mut Direct)) -> (u64, u64) {
    const STEP: u64 = 4;
    let before = locks(me, inode);
    look(me);
    let after = locks(me, inode);
    ((after.0 - before.0) / STEP, (after.1 - before.1) / STEP)
}

#[test]
fn looks_take_locks_only_where_they_are_not_optimistic() {
    for (without, each) in [(Without::NOTHING, 0), (Without::OPTIMISTIC, 1)] {
        in_image(without, |me, root| {
            let inode = file(me, root, b"name");
            let look = |me: &mut Direct| assert!(me.lookup(root, b"name").is_ok());
            assert_eq!(taken(me, inode, look), (each, 0));
            let absent = |me: &mut Direct| {
                assert_eq!(me.lookup(root, b"absent").err(), Some(Errno::ENOENT));
            };
            assert_eq!(taken(me, inode, absent), (each, 0));
            assert_eq!(taken(me, inode, |me| assert!(me.attributes(inode).is_ok())), (0, each));
            assert_eq!(taken(me, inode, |me| assert!(me.step(inode).is_ok())), (0, each));
            put(me, inode, 0, 10, 7);
            let read = |me: &mut Direct| assert_eq!(me.read_at(inode, 0, &mut [0; 4]), Ok(4));
            assert_eq!(taken(me, inode, read), (0, each));
            // What was seen is not taken for known: the next walk looks, and locks, again.
            let mut witness = Default::default();
            me.step_witnessed(root, &mut witness).expect("the root");
            assert_eq!(me.holds(&[witness]), each == 0);
            me.lookup_witnessed(root, b"name", &mut witness).expect("is there");
            assert_eq!(me.holds(&[witness]), each == 0);
        });
    }
}

#[test]
fn removals_and_renames_look_within_their_transactions_without_optimism_too() {
    in_image(Without::OPTIMISTIC, |me, root| {
        let who = root_user();
        let one = me.create(&who, root, b"one", Node::Directory(0o755)).expect("mkdir");
        file(me, one, b"a");
        file(me, root, b"b");
        me.rename(&who, one, b"a", root, b"b", 0).expect("rename");
        me.rmdir(&who, root, b"one").expect("rmdir");
        me.unlink(&who, root, b"b").expect("unlink");
    });
}

/// Pools of inodes that threads fill and drain.
fn pools(me: &Direct) -> Vec<u32> {
    let region = me.kernel().session.region;
    let head = |k: &u32| region.load(region.map.partition(*k).word(POOL_OF_INODES)) as u32 != 0;
    (0..=region.map.partition_mask).filter(head).collect()
}

#[test]
fn threads_share_one_pool_only_without_affinity() {
    for without in [Without::NOTHING, Without::AFFINITY] {
        in_image(without, move |me, root| {
            let process = me.current();
            let churn = move |me: &mut Direct| {
                let name = format!("{}", tid());
                let dir = me.create(&root_user(), root, name.as_bytes(), Node::Directory(0o755));
                let dir = dir.expect("mkdir");
                let names = (0..100).map(|n| n.to_string());
                for name in names.clone() {
                    file(me, dir, name.as_bytes());
                }
                for name in names {
                    me.unlink(&root_user(), dir, name.as_bytes()).expect("unlink");
                }
            };
            churn(me);
            joined("churning", beside(process, churn));
            let used = pools(me);
            if without == Without::AFFINITY {
                assert_eq!(used, [0]);
            } else {
                assert!(used.len() > 1 && !used.contains(&0), "{used:?}");
            }
        });
    }
}

fn runs(me: &mut Direct, inode: Inode) -> Vec<Run> {
    let mut runs = Vec::new();
    let length = me.attributes(inode).expect("attributes").size;
    me.runs(inode, 0, length, false, &mut |run| {
        runs.push(run);
        Ok(())
    })
    .expect("runs");
    runs
}

fn append(me: &mut Direct, inode: Inode, blocks: usize) {
    for n in 0..blocks {
        let wrote = me.write_at(inode, (n * BLOCK) as u64, &[n as u8 | 1; BLOCK]);
        assert_eq!(wrote, Ok(BLOCK));
    }
}

#[test]
fn blocks_of_removed_files_are_filled_again_before_others_whoever_writes() {
    in_image(Without::NOTHING, |me, root| {
        let first = file(me, root, b"first");
        append(me, first, MANY);
        let mut left: Vec<u64> = runs(me, first).iter().flat_map(blocks).collect();
        left.sort_unstable();
        me.unlink(&root_user(), root, b"first").expect("unlink");
        let process = me.current();
        let writer = beside(process, move |me| {
            let second = file(me, root, b"second");
            append(me, second, MANY / 2);
            runs(me, second)
        });
        let again = joined("writing", writer);
        let again: Vec<u64> = again.iter().flat_map(blocks).collect();
        let reused = again.iter().filter(|block| left.binary_search(block).is_ok()).count();
        assert!(reused >= MANY / 2 - 64, "{reused} of {} blocks", again.len());
    });
}

#[test]
fn a_look_at_a_populated_arena_takes_no_faults() {
    in_child(|| {
        let fd = map(LAYOUT);
        let (mut boss, root) = support::formatted(LAYOUT, clock, Cover::Memory, Default::default());
        for n in 0..3000u32 {
            file(&mut boss, root, n.to_string().as_bytes());
        }
        let mut scratch = vec![1; husk_carrier::scratch_words(boss.kernel())];
        let mut look = |populated: bool| {
            forget_pages();
            if populated {
                husk_carrier::populate(fd as u32, LAYOUT);
            }
            scratch.fill(0);
            let before = faults();
            husk_carrier::check(boss.kernel(), &mut scratch, &mut |finding| panic!("{finding:?}"));
            faults() - before
        };
        let (bare, populated) = (look(false), look(true));
        // The host maps in some neighbours of a page at once.
        assert!(bare > 20 && populated < bare / 5, "{bare} faults, populated {populated}");
    });
}

/// This process has mapped in nothing of the arena, as if it had just come.
fn forget_pages() {
    let bytes = LAYOUT.state_bytes() as usize;
    // SAFETY: of shared memory only the mapping goes.
    let gone = unsafe { libc::madvise(STATE_ADDRESS as *mut _, bytes, libc::MADV_DONTNEED) };
    assert_eq!(gone, 0);
}

fn blocks(run: &Run) -> impl Iterator<Item = u64> + use<> {
    let first = run.cache_offset.expect("blocks, no hole");
    (first..first + run.length).step_by(BLOCK)
}

/// Page faults of this thread so far.
fn faults() -> i64 {
    // SAFETY: plain call with room for its answer.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        assert_eq!(libc::getrusage(libc::RUSAGE_THREAD, &mut usage), 0);
        usage.ru_minflt
    }
}

/// Whether this host gives huge pages at all.
fn host_gathers() -> bool {
    // SAFETY: a new descriptor, closed again.
    unsafe {
        let fd = libc::memfd_create(c"husk-test-huge".as_ptr(), 0);
        assert_eq!(libc::ftruncate(fd, 4 << 20), 0);
        let gathered = husk_host::huge::gather(fd as usize, 0).is_ok();
        libc::close(fd);
        gathered
    }
}

#[test]
fn who_appends_much_takes_few_faults_and_nobody_sees_other_bytes() {
    for (without, most) in [(Without::NOTHING, MANY as i64 / 3), (Without::AHEAD, i64::MAX)] {
        in_image(without, move |me, root| {
            let inode = file(me, root, b"log");
            let before = faults();
            append(me, inode, MANY);
            let took = faults() - before;
            if without == Without::AHEAD {
                assert!(took >= MANY as i64 * 3 / 4, "{took} faults for {MANY} blocks");
            } else if host_gathers() && !me.kernel().session.region.had_dear_huge_page() {
                assert!(took <= most, "{took} faults for {MANY} blocks");
            }
            let bytes = contents(me, inode);
            let right = |(n, block): (usize, &[u8])| block.iter().all(|&byte| byte == n as u8 | 1);
            assert!(bytes.len() == MANY * BLOCK && bytes.chunks(BLOCK).enumerate().all(right));
            // Others' blocks in the same page stay what they are while it is gathered again.
            let other = file(me, root, b"other");
            me.write(other, Place::At(0), BLOCK, &mut |_| Ok(())).expect("write");
            append(me, other, 8);
            assert_eq!(contents(me, inode), bytes);
        });
    }
}

#[test]
fn blocks_written_through_the_descriptor_show_nothing_of_the_files_that_had_them() {
    for by_descriptor in [true, false] {
        in_image(Without::NOTHING, move |me, root| {
            let gone = file(me, root, b"gone");
            append(me, gone, MANY);
            me.unlink(&root_user(), root, b"gone").expect("unlink");
            husk_region::set_by_descriptor(by_descriptor);
            // Ends within a block, goes on there, begins within one behind a hole.
            let inode = file(me, root, b"file");
            let (some, more, far) = (vec![b'a'; 80_000], vec![b'b'; 150_001], 80 * BLOCK + 100);
            assert_eq!(me.append(inode, &some), Ok((0, some.len())));
            assert_eq!(me.append(inode, &more), Ok((some.len() as u64, more.len())));
            assert_eq!(me.write_at(inode, far as u64, &more), Ok(more.len()));
            let end = far + more.len() + 3 * BLOCK;
            me.truncate(inode, end as u64).expect("longer");
            let mut wanted = [some, more.clone()].concat();
            wanted.resize(far, 0);
            wanted.extend(more);
            wanted.resize(end, 0);
            assert!(contents(me, inode) == wanted, "by descriptor: {by_descriptor}");
        });
    }
}

#[test]
fn nobody_asks_for_huge_pages_while_they_are_dear() {
    in_image(Without::NOTHING, |me, root| {
        husk_region::set_by_descriptor(true);
        me.kernel().session.region.note_dear_huge_page();
        let inode = file(me, root, b"log");
        for n in 0..MANY / 64 {
            let wrote = me.write_at(inode, (n * 32 * BLOCK) as u64, &[7; 32 * BLOCK]);
            assert_eq!(wrote, Ok(32 * BLOCK));
        }
        let first = runs(me, inode)[0].cache_offset.expect("blocks");
        let address = husk_carrier::CACHE_ADDRESS + (first - LAYOUT.cache_offset()) as usize;
        assert!(!is_mapped(address + 200 * BLOCK), "what was written has been mapped, too");
    });
}

/// Whether this process has a page mapped.
fn is_mapped(address: usize) -> bool {
    use std::os::unix::fs::FileExt;
    let pages = std::fs::File::open("/proc/self/pagemap").expect("pagemap");
    let mut entry = [0; 8];
    pages.read_exact_at(&mut entry, (address / BLOCK * 8) as u64).expect("an entry");
    u64::from_le_bytes(entry) >> 63 == 1
}

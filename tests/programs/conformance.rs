//! File calls are answered as Linux answers them: one after the other, and racing.
//!
//! The seed of a random sequence is its whole input:
//! `HUSK_SEED=7 cargo test -p husk-tests random_sequences`.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use husk_tests::toolchain::build_c;
use husk_tests::{Case, Length, Scratch};
use rustix::fs::{XattrFlags, getxattr, setxattr};

/// Seeds tried for every change, and with `HUSK_FULL`.
const SEEDS: (u32, u32) = (12, 300);
/// Calls of one sequence.
const CALLS: &str = "1500";

fn seeds() -> Vec<String> {
    if let Ok(seed) = std::env::var("HUSK_SEED") {
        return vec![seed];
    }
    let count = if std::env::var_os("HUSK_FULL").is_some() { SEEDS.1 } else { SEEDS.0 };
    (1..=count).map(|seed| seed.to_string()).collect()
}

#[test]
fn random_sequences_of_file_calls_are_answered_as_linux_does() {
    let script = include_str!("sources/conformance/sequence.py");
    for seed in seeds() {
        println!("HUSK_SEED={seed}");
        Case::new("sequence", Length::Once, &["python3", "-c", script, &seed, CALLS]).check();
    }
}

/// Runs a script of `sources/calls` in a tmpfs: the host's `/dev/shm`, and a tree laid over it.
fn answered_as_a_tmpfs_does(name: &'static str, script: &str) {
    let script = [include_str!("sources/calls/prelude.py"), script].concat();
    let case = Case::new(name, Length::Once, &["python3", "-c", &script]);
    case.options(&["--mount", "/dev/shm"]).check();
}

#[test]
fn fifos_sockets_and_devices_are_names_as_in_a_tmpfs() {
    answered_as_a_tmpfs_does("nodes", include_str!("sources/calls/nodes.py"));
}

#[test]
fn access_control_lists_are_set_handed_down_and_obeyed_as_in_a_tmpfs() {
    answered_as_a_tmpfs_does("lists", include_str!("sources/calls/lists.py"));
}

#[test]
fn a_fifo_is_opened_waited_for_and_told_of_as_in_a_tmpfs() {
    answered_as_a_tmpfs_does("fifos", include_str!("sources/calls/fifos.py"));
}

#[test]
fn bytes_are_spliced_between_files_and_pipes_as_in_a_tmpfs() {
    answered_as_a_tmpfs_does("splices", include_str!("sources/calls/splices.py"));
}

#[test]
fn ranges_are_copied_between_the_image_and_the_host() {
    let script = "
import os
host, made = os.open('host', os.O_RDONLY), os.open('made', os.O_RDWR | os.O_CREAT)
beside = os.open('../beside', os.O_RDWR | os.O_CREAT | os.O_TRUNC)
print(os.copy_file_range(host, made, 1 << 20), os.copy_file_range(host, made, 9))
print(os.copy_file_range(made, beside, 50000, 3), os.lseek(beside, 0, 1), os.lseek(made, 0, 1))
print(os.copy_file_range(beside, made, 10, 5, 100000), os.fstat(made).st_size)
print(os.pread(beside, 1 << 20, 0) == os.pread(host, 50000, 3))
for source, target in [(beside, host), (made, host)]:
    try:
        print(os.copy_file_range(source, target, 9, 0))
    except OSError as error:
        print(error.errno)
os.unlink('../beside')
";
    let case = Case::new("ranges", Length::Once, &["python3", "-c", script]);
    let content: Vec<u8> = (0..100_000u32).map(|n| (n % 251) as u8).collect();
    case.input(move |work| fs::write(work.join("host"), &content).expect("a file")).check();
}

#[test]
fn sockets_with_names_are_reached_by_those_whom_their_modes_let() {
    answered_as_a_tmpfs_does("sockets", include_str!("sources/calls/sockets.py"));
}

#[test]
fn flags_and_masks_are_taken_and_refused_as_in_a_tmpfs() {
    answered_as_a_tmpfs_does("flags", include_str!("sources/calls/flags.py"));
}

#[test]
fn descriptors_in_proc_and_files_without_a_name_are_as_on_linux() {
    answered_as_a_tmpfs_does("descriptors", include_str!("sources/calls/descriptors.py"));
}

#[test]
fn descriptors_that_are_taken_from_another_process_are_as_on_linux() {
    answered_as_a_tmpfs_does("taken", include_str!("sources/calls/taken.py"));
}

#[test]
fn no_path_at_all_is_never_that_of_the_call_before() {
    answered_as_a_tmpfs_does("nowhere", include_str!("sources/calls/nowhere.py"));
}

#[test]
fn a_link_in_proc_is_the_same_in_all_its_spellings() {
    answered_as_a_tmpfs_does("spelled", include_str!("sources/calls/spelled.py"));
}

#[test]
fn inodes_have_the_flags_of_new_ones_in_a_tmpfs() {
    answered_as_a_tmpfs_does("inode-flags", include_str!("sources/calls/inode_flags.py"));
}

#[test]
fn one_read_gives_all_events_that_were_counted() {
    answered_as_a_tmpfs_does("told-at-once", include_str!("sources/calls/told_at_once.py"));
}

#[test]
fn what_is_in_no_set_is_refused_for_the_reason_that_linux_finds_first() {
    answered_as_a_tmpfs_does("sets", include_str!("sources/calls/sets.py"));
}

#[test]
fn a_file_is_on_one_mount_whoever_tells_of_it() {
    answered_as_a_tmpfs_does("placed", include_str!("sources/calls/placed.py"));
}

#[test]
fn what_runs_is_not_written_and_what_is_written_does_not_run() {
    answered_as_a_tmpfs_does("busy", include_str!("sources/calls/busy.py"));
}

#[test]
fn what_is_told_of_changes_is_what_a_tmpfs_tells() {
    answered_as_a_tmpfs_does("watched", include_str!("sources/calls/watched.py"));
}

#[test]
fn what_an_instance_watches_is_shown_as_in_a_tmpfs() {
    answered_as_a_tmpfs_does("watch-facts", include_str!("sources/calls/watch_facts.py"));
}

#[test]
fn watchers_wait_and_share_as_on_linux() {
    answered_as_a_tmpfs_does("watchers", include_str!("sources/calls/watchers.py"));
}

#[test]
fn a_limit_on_the_size_of_files_stops_writes_with_a_signal() {
    answered_as_a_tmpfs_does("limits", include_str!("sources/calls/limits.py"));
}

#[test]
fn extended_attributes_are_those_of_a_tmpfs() {
    answered_as_a_tmpfs_does("extended", include_str!("sources/calls/extended.py"));
}

#[test]
fn a_program_is_called_by_the_name_it_was_started_by() {
    answered_as_a_tmpfs_does("names", include_str!("sources/calls/names.py"));
}

#[test]
fn names_outside_become_links_into_trees_and_are_followed() {
    answered_as_a_tmpfs_does("later", include_str!("sources/calls/later.py"));
}

#[test]
fn owners_change_and_take_set_bits_along_as_in_a_tmpfs() {
    answered_as_a_tmpfs_does("owners", include_str!("sources/calls/owners.py"));
}

#[test]
fn what_lies_at_the_bounds_of_calls_is_as_in_a_tmpfs() {
    answered_as_a_tmpfs_does("bounds", include_str!("sources/calls/bounds.py"));
}

#[test]
fn times_and_link_counts_change_as_in_a_tmpfs() {
    answered_as_a_tmpfs_does("times", include_str!("sources/calls/times.py"));
}

#[test]
fn rights_that_files_lend_go_with_their_content_as_in_a_tmpfs() {
    answered_as_a_tmpfs_does("rights", include_str!("sources/calls/rights.py"));
}

#[test]
fn record_locks_are_split_joined_named_and_waited_for_as_on_linux() {
    answered_as_a_tmpfs_does("records", include_str!("sources/calls/records.py"));
}

#[test]
fn pointers_that_lead_nowhere_are_told_of_as_in_a_tmpfs() {
    answered_as_a_tmpfs_does("faults", include_str!("sources/calls/faults.py"));
}

#[test]
fn offsets_at_the_bounds_and_wrong_descriptors_are_told_of_as_in_a_tmpfs() {
    answered_as_a_tmpfs_does("offsets", include_str!("sources/calls/offsets.py"));
}

#[test]
fn space_holes_and_far_offsets_are_those_of_a_tmpfs() {
    answered_as_a_tmpfs_does("space", include_str!("sources/calls/space.py"));
}

#[test]
fn mappings_of_holes_and_of_files_that_grow_are_those_of_a_tmpfs() {
    answered_as_a_tmpfs_does("mappings", include_str!("sources/calls/mappings.py"));
}

#[test]
fn listings_go_on_where_they_were_whatever_comes_and_goes() {
    answered_as_a_tmpfs_does("cookies", include_str!("sources/calls/cookies.py"));
}

#[test]
fn msync_takes_refuses_and_shows_what_it_does_on_a_tmpfs() {
    answered_as_a_tmpfs_does("synced", include_str!("sources/calls/synced.py"));
}

#[test]
fn a_walk_with_resolve_flags_stays_where_it_may_go() {
    answered_as_a_tmpfs_does("resolve", include_str!("sources/calls/resolve.py"));
}

#[test]
fn a_descriptor_shows_the_flags_that_linux_shows() {
    let script = include_str!("sources/calls/shown.py");
    let case = Case::new("shown", Length::Once, &["python3", "-c", script]);
    case.input(|work| fs::write(work.join("host"), "of the host").expect("a file")).check();
}

/// Paths of one seed in `borders.py`, seeds for every change, and with `HUSK_FULL`.
const PATHS: &str = "4000";
const BORDER_SEEDS: (u32, u32) = (3, 60);

/// All resolve flags but RESOLVE_CACHED, whose answer depends on what the host remembers.
const ALL_FLAGS: &str = "0x1f";
/// The same without RESOLVE_NO_XDEV: an overlay is a file system of its own, a directory is not.
const FLAGS_IN_ONE_FILE_SYSTEM: &str = "0x1e";

#[test]
fn resolve_flags_are_held_over_the_borders_of_an_overlay() {
    crossing(&["--overlay", "tree"], Some("tree"), FLAGS_IN_ONE_FILE_SYSTEM);
}

#[test]
fn resolve_flags_are_held_over_the_borders_of_a_mount() {
    crossing(&["--mount", "/dev/shm", "--overlay", "elsewhere"], None, ALL_FLAGS);
}

/// A script behind the prelude that finds where it was started in `owned`.
fn beside_a_tree(script: &str) -> String {
    let here = "import os\nowned = os.getcwd()\n";
    [here, include_str!("sources/calls/prelude.py"), script].concat()
}

/// Runs `borders.py` beside a tree laid over a directory of the work directory, or `/dev/shm`.
fn crossing(options: &[&'static str], tree: Option<&'static str>, flags: &str) {
    let script = beside_a_tree(include_str!("sources/calls/borders.py"));
    let full = std::env::var_os("HUSK_FULL").is_some();
    for seed in 1..=if full { BORDER_SEEDS.1 } else { BORDER_SEEDS.0 } {
        let seed = seed.to_string();
        println!("seed {seed}");
        let words = ["python3", "-c", &script, tree.unwrap_or(""), &seed, PATHS, flags];
        let case = Case::new("borders", Length::Once, &words).options(options);
        case.input(|work| {
            fs::create_dir_all(work.join("tree/dir")).expect("a tree");
            fs::create_dir_all(work.join("side/dir/deep")).expect("what lies beside it");
            fs::create_dir_all(work.join("elsewhere")).expect("another tree");
            fs::write(work.join("tree/dir/in"), "from before").expect("a file");
        })
        .check();
    }
}

#[test]
fn what_the_image_has_put_for_the_hosts_is_found_through_a_link_of_the_host() {
    let script = beside_a_tree(include_str!("sources/calls/behind.py"));
    let words = ["python3", "-c", &script];
    let case = Case::new("behind", Length::Once, &words).options(&["--overlay", "tree"]);
    case.input(|work| {
        fs::create_dir_all(work.join("tree/directory/below")).expect("a directory");
        fs::create_dir_all(work.join("tree/gone/below")).expect("another");
        for name in ["side", "elsewhere/passwd"] {
            fs::create_dir_all(work.join(name)).expect("what lies beside it");
        }
        fs::write(work.join("tree/directory/below/file"), "of the host").expect("a file");
        fs::write(work.join("tree/file"), "of the host").expect("a file");
        for name in ["outside", "changed"] {
            symlink("../elsewhere", work.join("tree").join(name)).expect("a link");
        }
        symlink("../tree", work.join("side/tree")).expect("a link into the tree");
        symlink("../tree/directory", work.join("side/directory")).expect("one further into it");
    })
    .check();
}

#[test]
fn extended_attributes_pass_an_overlay_and_its_write_back() {
    const NAMES: [&str; 6] = ["same", "more", "less", "bytes", "moved", "copied"];
    let script = "
import os, shutil
print([(n, sorted(os.listxattr(n)), os.getxattr(n, 'user.one')) for n in sorted(os.listdir())])
os.setxattr('more', 'user.two', b'2'); os.removexattr('less', 'user.one')
os.rename('moved', 'there')
open('bytes', 'a').write('more'); shutil.copy2('copied', 'copy')
os.mkdir('new', 0o500); os.setxattr('new', 'user.dir', b'd'); os.setxattr('.', 'user.top', b't')
open('own', 'w').close(); os.setxattr('own', 'user.own', b'o' * 3000); os.chmod('own', 0o400)
print([(n, sorted(os.listxattr(n))) for n in sorted(os.listdir())])
";
    let prepare = |work: &Path| {
        for name in NAMES {
            fs::write(work.join(name), name).expect("a file");
            setxattr(work.join(name), "user.one", b"1", XattrFlags::empty()).expect("an attribute");
        }
    };
    let value = |path: &Path, name: &str| {
        let mut value = vec![0; 4096];
        let length = getxattr(path, name, &mut value[..]);
        length.map_or(-1, |length| length as i64)
    };
    let look = move |work: &Path| {
        let found = |file: &str, name: &str| value(&work.join(file), name);
        let ones = ["same", "more", "less", "bytes", "there", "copied", "copy"];
        let ones = ones.map(|file| found(file, "user.one"));
        assert_eq!(ones, [1, 1, -1, 1, 1, 1, 1]);
        let others = [("more", "user.two"), ("new", "user.dir"), (".", "user.top")];
        assert_eq!(others.map(|(file, name)| found(file, name)), [1, 1, 1]);
        assert_eq!(found("own", "user.own"), 3000);
    };
    let case = Case::new("attributes", Length::Once, &["python3", "-c", script]);
    case.input(prepare).afterwards(look).check();
}

#[test]
fn a_file_of_the_host_takes_the_space_it_takes_there() {
    let script = "
import os
def space():
    print([(n, os.stat(n).st_size, os.stat(n).st_blocks) for n in sorted(os.listdir())])
space()
os.chmod('1', 0o600); os.rename('4097', 'moved'); os.open('100000', os.O_RDONLY)
space()
for name, size in [('1', 0), ('4096', 0), ('0', 0), ('ahead', 0), ('sparse', 0)]:
    os.truncate(name, size)
space()
for name in ['1', '0', 'moved', 'ahead']:
    with open(name, 'wb') as file: file.write(b'x' * 8192)
space()
";
    let prepare = |work: &Path| {
        for size in [0, 1, 4096, 4097, 100_000] {
            fs::write(work.join(size.to_string()), vec![7; size]).expect("a file");
        }
        let file = |name: &str| fs::File::create(work.join(name)).expect("a file");
        let sparse = file("sparse");
        sparse.set_len(1 << 20).expect("a hole");
        std::os::unix::fs::FileExt::write_all_at(&sparse, &[7; 4096], 1 << 19).expect("bytes");
        let (ahead, keep) = (file("ahead"), rustix::fs::FallocateFlags::KEEP_SIZE);
        // Not every file system can.
        let _ = rustix::fs::fallocate(&ahead, keep, 0, 1 << 16);
        // What is not on the disk yet has no blocks on some file systems.
        for entry in fs::read_dir(work).expect("a directory").flatten() {
            fs::File::open(entry.path()).and_then(|file| file.sync_all()).expect("on the disk");
        }
    };
    let case = Case::new("blocks", Length::Once, &["python3", "-c", script]);
    case.input(prepare).check();
}

#[test]
fn special_files_are_written_back_with_their_names_modes_and_times() {
    let script = "
import os, stat
os.mkdir('d'); os.mkfifo('d/fifo', 0o640); os.link('d/fifo', 'again'); os.mkfifo('gone')
os.mknod('socket', stat.S_IFSOCK | 0o600); os.rename('socket', 'moved'); os.unlink('gone')
os.utime('moved', ns=(1_000_000_000, 2_000_000_000)); os.chmod('again', 0o2604)
";
    Case::new("special", Length::Once, &["python3", "-c", script]).check();
}

#[test]
fn calls_answered_at_a_glance_keep_registers_and_red_zone_under_signals() {
    let scratch = Scratch::new("glances-build");
    let program = scratch.path().join("glances");
    build_c(include_str!("sources/conformance/glances.c"), &program);
    Case::new("glances", Length::Once, &[program.to_str().expect("a plain path")]).check();
}

#[test]
fn calls_of_the_host_fill_pages_that_nobody_has_touched() {
    let scratch = Scratch::new("untouched-build");
    let program = scratch.path().join("untouched");
    build_c(include_str!("sources/conformance/untouched.c"), &program);
    Case::new("untouched", Length::Once, &[program.to_str().expect("a plain path")]).check();
}

#[test]
fn what_shortens_a_file_takes_as_long_as_it_has_places_and_not_their_square() {
    let scratch = Scratch::new("shortened-build");
    let program = scratch.path().join("shortened");
    build_c(include_str!("sources/conformance/shortened.c"), &program);
    Case::new("shortened", Length::Once, &[program.to_str().expect("a plain path")]).check();
}

#[test]
fn calls_that_fit_no_file_say_so_and_descriptors_are_told_of_in_proc() {
    let scratch = Scratch::new("errnos-build");
    let program = scratch.path().join("errnos");
    build_c(include_str!("sources/conformance/errnos.c"), &program);
    Case::new("errnos", Length::Once, &[program.to_str().expect("a plain path")]).check();
}

#[test]
fn a_program_finds_itself_wherever_its_file_has_gone() {
    let scratch = Scratch::new("itself-build");
    let program = scratch.path().join("itself");
    build_c(include_str!("sources/conformance/itself.c"), &program);
    let words = [program.to_str().expect("a plain path"), "copy", "itself"];
    Case::new("itself", Length::Once, &words).check();
}

#[test]
fn threads_that_touch_a_page_together_all_find_it() {
    let scratch = Scratch::new("together-build");
    let program = scratch.path().join("together");
    build_c(include_str!("sources/conformance/together.c"), &program);
    Case::new("together", Length::Long, &[program.to_str().expect("a plain path")]).check();
}

/// Files of the host that the threads of `numbers.c` read and change.
const GIVEN: u32 = 64;

#[test]
fn a_number_stays_what_it_was_opened_as_whatever_other_threads_do() {
    let scratch = Scratch::new("numbers-build");
    let program = scratch.path().join("numbers");
    build_c(include_str!("sources/conformance/numbers.c"), &program);
    Case::new("numbers", Length::Short, &[program.to_str().expect("a plain path")])
        .input(|work| {
            for n in 0..GIVEN {
                let path = work.join(format!("given-{n}"));
                std::fs::write(path, "given- yes more").expect("a file of the host");
            }
        })
        .unspecified(|path| path.to_string_lossy().contains("own-"))
        .check();
}

#[test]
fn a_pidfd_is_its_own_however_late_its_number_is_known() {
    let scratch = Scratch::new("transit-build");
    let program = scratch.path().join("transit");
    build_c(include_str!("sources/conformance/transit.c"), &program);
    Case::new("transit", Length::Short, &[program.to_str().expect("a plain path")]).check();
}

#[test]
fn a_reader_beside_a_truncation_sees_no_foreign_bytes() {
    let scratch = Scratch::new("torn-build");
    let program = scratch.path().join("torn");
    build_c(include_str!("sources/conformance/torn.c"), &program);
    Case::new("torn", Length::Long, &[program.to_str().expect("a plain path")]).check();
}

#[test]
fn children_that_share_memory_leave_none_of_it_taken() {
    let scratch = Scratch::new("sharers-build");
    let program = scratch.path().join("sharers");
    build_c(include_str!("sources/conformance/sharers.c"), &program);
    Case::new("sharers", Length::Long, &[program.to_str().expect("a plain path")]).check();
}

/// More mappings of one file than a table of a few thousand has room for: each is forgotten when
/// it is unmapped, so that the file goes with the last one.
#[test]
fn a_file_goes_with_the_last_of_many_mappings() {
    if husk_tests::against_native() {
        return;
    }
    let script = "
import ctypes, os
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
fd = os.open('f', os.O_RDWR | os.O_CREAT)
os.pwrite(fd, b'x' * (1 << 20), 0)
maps = [libc.mmap(None, 4096, 1 + n % 2 * 2, 1, fd, 0) for n in range(6000)]
os.close(fd); os.unlink('f')
held = os.statvfs('.').f_bfree
for one in maps: libc.munmap(one, 4096)
print('came back:', os.statvfs('.').f_bfree - held >= 256)
";
    let scratch = Scratch::new("mappings");
    let work = scratch.fresh("work");
    let command = husk_tests::husk(&[], &["python3", "-c", script]);
    let outcome = husk_tests::Run::start(command, &work, scratch.path());
    let outcome = outcome.wait(std::time::Duration::from_secs(60)).expect("it ends");
    assert_eq!(outcome.stdout, b"came back: True\n", "{}", outcome.shown());
}

/// Through which patched calls reach Husk, at an address that every stray pointer may have.
#[test]
fn the_table_of_calls_is_read_only_whatever_is_mapped() {
    if husk_tests::against_native() {
        return;
    }
    let script = "
import ctypes, os, subprocess, threading
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
size = ctypes.c_size_t(1 << 20)
fd = os.open('f', os.O_RDWR | os.O_CREAT)
os.ftruncate(fd, 1 << 20)
def table():
    # A process is not shown this row of its own.
    maps = subprocess.check_output(['cat', f'/proc/{os.getpid()}/maps'], text=True)
    print(*[line.split()[1] for line in maps.splitlines() if line.startswith('00060000-')])
def hole(): return libc.mmap(None, size, 3, 1, fd, ctypes.c_long(0))
def unmap(view): libc.munmap(ctypes.c_void_p(view), size)
def turns():
    for _ in range(500): unmap(hole())
table()
view = hole()
table()
if (child := os.fork()) == 0:
    unmap(view)
    table()
    os._exit(0)
os.waitpid(child, 0)
unmap(view)
table()
threads = [threading.Thread(target=turns) for _ in range(4)]
for one in threads: one.start()
for one in threads: one.join()
table()
";
    let scratch = Scratch::new("table");
    let work = scratch.fresh("work");
    let command = husk_tests::husk(&[], &["python3", "-u", "-c", script]);
    let outcome = husk_tests::Run::start(command, &work, scratch.path());
    let outcome = outcome.wait(std::time::Duration::from_secs(60)).expect("it ends");
    // It is shared by all of the image, and one's own while a mapping has holes.
    assert_eq!(outcome.stdout, b"r--s\nr--p\nr--s\nr--s\nr--s\n", "{}", outcome.shown());
}

/// A page that another process's truncation leaves mapped (docs/caveats.md) is nobody's.
#[test]
fn a_page_behind_the_end_of_a_file_is_no_other_files() {
    if husk_tests::against_native() {
        return;
    }
    let script = "
import mmap, os
fd = os.open('f', os.O_RDWR | os.O_CREAT)
os.write(fd, b'full' * 65536)
view = mmap.mmap(fd, 1 << 18)
shown = view[:]
if (child := os.fork()) == 0:
    os.ftruncate(fd, 0)
    os._exit(0)
os.waitpid(child, 0)
others = 0
try:
    while True:
        with open('other%d' % others, 'wb', 0) as other:
            others += 1
            while other.write(b'else' * 65536) == 1 << 18: pass
except OSError as error:
    print(error.errno, others > 0)
print(set(view[:]))
view[:] = b'lost' * 65536
names = ['other%d' % n for n in range(others)]
print(all(not open(n, 'rb').read().replace(b'else', b'') for n in names))
for n in names: os.unlink(n)
os.ftruncate(fd, 1 << 18)
print(set(view[:]), set(os.pread(fd, 1 << 18, 0)))
";
    let scratch = Scratch::new("behind");
    let work = scratch.fresh("work");
    let command = husk_tests::husk(&["--memory", "64M"], &["python3", "-c", script]);
    let outcome = husk_tests::Run::start(command, &work, scratch.path());
    let outcome = outcome.wait(std::time::Duration::from_secs(60)).expect("it ends");
    let expected = "28 True\n{0}\nTrue\n{0} {0}\n";
    assert_eq!(String::from_utf8_lossy(&outcome.stdout), expected, "{}", outcome.shown());
}

#[test]
fn races_for_names_and_bytes_have_one_winner_each() {
    let scratch = Scratch::new("races-build");
    let program = scratch.path().join("races");
    build_c(include_str!("sources/conformance/races.c"), &program);
    Case::new("races", Length::Short, &[program.to_str().expect("a plain path")]).check();
}

#[test]
fn bytes_and_names_may_end_where_memory_ends() {
    let scratch = Scratch::new("edges-build");
    let program = scratch.path().join("edges");
    build_c(include_str!("sources/conformance/edges.c"), &program);
    Case::new("edges", Length::Once, &[program.to_str().expect("a plain path")]).check();
}

#[test]
fn buffers_that_another_thread_unmaps_during_a_call_are_told_of_and_nothing_stays_held() {
    let scratch = Scratch::new("vanishing-build");
    let program = scratch.path().join("vanishing");
    build_c(include_str!("sources/conformance/vanishing.c"), &program);
    Case::new("vanishing", Length::Short, &[program.to_str().expect("a plain path")]).check();
}

#[test]
fn what_the_host_has_not_is_absent_until_it_is_there() {
    let script = include_str!("sources/calls/absent.py");
    Case::new("absent", Length::Once, &["python3", "-c", script]).check();
}

#[test]
fn signal_actions_are_found_as_they_were_set() {
    let scratch = Scratch::new("actions-build");
    let program = scratch.path().join("actions");
    build_c(include_str!("sources/conformance/actions.c"), &program);
    Case::new("actions", Length::Once, &[program.to_str().expect("a plain path")]).check();
}

#[test]
fn a_signal_interrupts_the_first_thread_whichever_calls_others_make() {
    let scratch = Scratch::new("rung-build");
    let program = scratch.path().join("rung");
    build_c(include_str!("sources/conformance/rung.c"), &program);
    Case::new("rung", Length::Once, &[program.to_str().expect("a plain path")]).check();
}

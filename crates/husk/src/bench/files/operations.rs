//! The operations that are measured: what each does once, and what figure is wanted of it.
//!
//! All paths are relative to the worker's directory, as in the baseline table of the design. The
//! calls go through libc like any program's: the call sites that Husk patches are libc's. Only the
//! rows of an answered call make it themselves: their goals are for the call alone.

use std::ffi::CStr;
use std::fs;
use std::hint::black_box;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::process::{Command, Stdio};

use anyhow::Context;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::{Mode, fstat, mkdirat, stat};
use nix::sys::uio::{pread, pwrite};
use nix::unistd::{AccessFlags, Whence, access, ftruncate, getpgid, getppid, lseek, read, write};

/// Bytes of a large transfer.
const BLOCK: usize = 4096;
/// Length of the file that is read and written in place.
const FILE_BYTES: usize = 16 * BLOCK;
/// Appends before the file is cut back to nothing.
const APPENDS: u64 = 256;
/// Calls each time the dispatcher is armed: arming it hardly counts.
const ARMED: u64 = 2_000;
/// How deep the deep path is.
const DEEP: &CStr = c"deep/2/3/4/5/6/7/8";

/// What a row must reach.
#[derive(Clone, Copy, Debug)]
pub enum Wanted {
    /// Nothing is promised; the row informs.
    Nothing,
    /// Native time over Husk's.
    FasterBy(f64),
    /// Husk's time over native.
    SlowerAtMost(f64),
    /// Husk's time, ns, on the machine whose figures the goals are.
    AtMostNs(f64),
    /// Husk's time less the native one, ns, on the same.
    ExtraAtMostNs(f64),
}

/// One row of the table.
pub struct Operation {
    /// Name in the table, in `--only` and between parent and worker.
    pub name: &'static str,
    /// What the row is to reach.
    pub wanted: Wanted,
    /// Fewest repetitions in one slice.
    pub slice_min: u64,
    /// Most repetitions in one batch of a row of processes, which is timed as a whole; 0: slices.
    pub batch_max: u64,
    /// Does it `count` times.
    pub run: fn(&Place, u64) -> anyhow::Result<()>,
}

/// What the operations work on, made once per worker.
pub struct Place {
    file: OwnedFd,
    appended: OwnedFd,
    pipe: (OwnedFd, OwnedFd),
}

/// `getppid` with the host's dispatcher armed, natively: what of a passed call is not Husk's price.
pub const DISPATCHED: &str = "getppid, dispatcher armed (native)";
/// A call answered in the process.
const ANSWERED: &str = "fcntl F_GETFL (answered)";
/// The same in an image of its own, without a guard.
pub const UNGUARDED: &str = "fcntl F_GETFL, guard off";

/// A large file from its making to its end.
const NEW_FILE: &str = "16 MiB in 64 KiB blocks + unlink";
const COPIED: &str = "16 MiB copied + unlink";
const LARGE_BYTES: usize = 16 << 20;
const LARGE_BLOCK: usize = 64 << 10;

/// All rows, in the order of the table.
pub const ALL: &[Operation] = &[
    row("compute", Wanted::Nothing, compute),
    row("getppid", Wanted::ExtraAtMostNs(10.0), |_, n| repeat(n, || done(getppid()))),
    Operation {
        slice_min: ARMED,
        ..row(DISPATCHED, Wanted::Nothing, |_, n| dispatched(|| repeat(n, || done(getppid()))))
    },
    row("getpgid (passed)", Wanted::ExtraAtMostNs(10.0), |_, n| repeat(n, || done(getpgid(None)?))),
    row(ANSWERED, Wanted::AtMostNs(45.0), get_flags),
    row(UNGUARDED, Wanted::AtMostNs(15.0), get_flags),
    row("lseek", Wanted::Nothing, |place, n| {
        repeat(n, || done(lseek(&place.file, 0, Whence::SeekSet)?))
    }),
    row("open + close", Wanted::FasterBy(2.5), |_, n| repeat(n, || open_close(c"d/file"))),
    row("stat", Wanted::FasterBy(2.5), |_, n| repeat(n, || done(stat(c"d/file")?))),
    row("fstat", Wanted::Nothing, |place, n| repeat(n, || done(fstat(&place.file)?))),
    row("access, name absent", Wanted::Nothing, |_, n| {
        repeat(n, || {
            anyhow::ensure!(access(c"d/absent", AccessFlags::F_OK).is_err(), "d/absent is there");
            Ok(())
        })
    }),
    row("dup + close", Wanted::Nothing, |place, n| {
        repeat(n, || done(nix::unistd::dup(place.file.as_fd())?))
    }),
    row("create + close + unlink", Wanted::FasterBy(4.0), |_, n| repeat(n, create_unlink)),
    row("rename", Wanted::Nothing, renames),
    row("mkdir + rmdir", Wanted::Nothing, |_, n| repeat(n, mkdir_rmdir)),
    row("pread 4 KiB", Wanted::FasterBy(1.5), preads),
    row("pwrite 4 KiB in place", Wanted::FasterBy(1.5), pwrites),
    row("read 1 byte", Wanted::Nothing, reads_of_one_byte),
    row("pipe, write + read 1 byte", Wanted::Nothing, |place, n| through_pipe(place, n, 1)),
    row("pipe, write + read 4 KiB", Wanted::Nothing, |place, n| through_pipe(place, n, BLOCK)),
    Operation { slice_min: APPENDS, ..row("append 4 KiB", Wanted::Nothing, appends) },
    Operation { batch_max: 8, ..row(NEW_FILE, Wanted::FasterBy(1.0), |_, n| repeat(n, new_file)) },
    Operation { batch_max: 8, ..row(COPIED, Wanted::FasterBy(1.0), |_, n| repeat(n, copied)) },
    row("open 8 deep + close", Wanted::Nothing, |_, n| repeat(n, || open_close(DEEP))),
    row("open(O_TRUNC) + write + close", Wanted::Nothing, |_, n| repeat(n, overwrite)),
    row("small file, whole life", Wanted::Nothing, |_, n| repeat(n, small_file)),
    row("readdir of 1,000", Wanted::Nothing, |_, n| repeat(n, || list("thousand", 1_000))),
    row("readdir of 10,000", Wanted::Nothing, |_, n| repeat(n, || list("myriad", 10_000))),
    Operation {
        name: "start of /bin/true",
        wanted: Wanted::SlowerAtMost(1.20),
        slice_min: 1,
        batch_max: 20,
        run: |_, n| repeat(n, || succeed(Command::new("/bin/true"))),
    },
    Operation {
        name: "gcc -c hello.c",
        wanted: Wanted::SlowerAtMost(1.06),
        slice_min: 1,
        batch_max: 1,
        run: |_, n| repeat(n, compile),
    },
];

const fn row(
    name: &'static str,
    wanted: Wanted,
    run: fn(&Place, u64) -> anyhow::Result<()>,
) -> Operation {
    Operation { name, wanted, slice_min: 1, batch_max: 0, run }
}

/// The row called `name`.
pub fn find(name: &str) -> anyhow::Result<&'static Operation> {
    ALL.iter().find(|row| row.name == name).with_context(|| format!("no operation {name:?}"))
}

impl Place {
    /// Makes what the operations need, in the working directory.
    pub fn prepare() -> anyhow::Result<Self> {
        fs::create_dir_all("deep/2/3/4/5/6/7")?;
        fs::create_dir("d")?;
        fs::write("d/file", vec![b'x'; FILE_BYTES])?;
        fs::write("deep/2/3/4/5/6/7/8", "")?;
        fs::write("d/one", "")?;
        fs::write("d/appended", "")?;
        fs::write("hello.c", "#include <stdio.h>\nint main(void) { puts(\"hello\"); }\n")?;
        make_files("thousand", 1_000)?;
        make_files("myriad", 10_000)?;
        let file = open(c"d/file", OFlag::O_RDWR, Mode::empty())?;
        let appended = open(c"d/appended", OFlag::O_WRONLY | OFlag::O_APPEND, Mode::empty())?;
        Ok(Self { file, appended, pipe: nix::unistd::pipe()? })
    }
}

/// `count` empty files in the new directory `directory`.
pub fn make_files(directory: &str, count: u32) -> anyhow::Result<()> {
    fs::create_dir(directory)?;
    for number in 0..count {
        fs::File::create(format!("{directory}/file-{number:05}"))?;
    }
    Ok(())
}

fn repeat(count: u64, mut once: impl FnMut() -> anyhow::Result<()>) -> anyhow::Result<()> {
    (0..count).try_for_each(|_| once())
}

/// Lets go of an answer that nobody needs; of a descriptor: closes it.
fn done<T>(answer: T) -> anyhow::Result<()> {
    drop(black_box(answer));
    Ok(())
}

/// No system call at all: reads 1.0 when both sides run on an equally fast processor.
fn compute(_: &Place, count: u64) -> anyhow::Result<()> {
    let mut value = black_box(1u64);
    for _ in 0..count * 64 {
        value = black_box(value.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
    }
    black_box(value);
    Ok(())
}

fn dispatched(body: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<()> {
    husk_supervisor::show::check::dispatched(body)
        .map_err(|errno| anyhow::anyhow!("no dispatcher: {errno:?}"))?
}

fn get_flags(place: &Place, count: u64) -> anyhow::Result<()> {
    let file = place.file.as_raw_fd();
    repeat(count, || {
        anyhow::ensure!(husk_supervisor::show::check::flags_of(file) >= 0, "no flags of {file}");
        Ok(())
    })
}

fn open_close(path: &CStr) -> anyhow::Result<()> {
    done(open(path, OFlag::O_RDONLY, Mode::empty())?)
}

fn create(path: &CStr) -> nix::Result<OwnedFd> {
    open(path, OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL, Mode::from_bits_truncate(0o644))
}

fn create_unlink() -> anyhow::Result<()> {
    drop(create(c"d/new")?);
    Ok(nix::unistd::unlink(c"d/new")?)
}

/// There and back, so that an odd count only leaves the file under its other name once.
fn renames(_: &Place, count: u64) -> anyhow::Result<()> {
    let (mut source, mut target) = ("d/one", "d/other");
    for _ in 0..count {
        fs::rename(source, target)?;
        std::mem::swap(&mut source, &mut target);
    }
    if source == "d/other" { Ok(fs::rename(source, target)?) } else { Ok(()) }
}

fn mkdir_rmdir() -> anyhow::Result<()> {
    mkdirat(nix::fcntl::AT_FDCWD, c"d/sub", Mode::from_bits_truncate(0o755))?;
    Ok(fs::remove_dir("d/sub")?)
}

fn offset(step: u64) -> i64 {
    (step as usize * BLOCK % FILE_BYTES) as i64
}

fn preads(place: &Place, count: u64) -> anyhow::Result<()> {
    let mut buffer = [0; BLOCK];
    for step in 0..count {
        anyhow::ensure!(pread(&place.file, &mut buffer, offset(step))? == BLOCK, "short read");
    }
    Ok(())
}

fn pwrites(place: &Place, count: u64) -> anyhow::Result<()> {
    let buffer = [b'y'; BLOCK];
    for step in 0..count {
        anyhow::ensure!(pwrite(&place.file, &buffer, offset(step))? == BLOCK, "short write");
    }
    Ok(())
}

fn reads_of_one_byte(place: &Place, count: u64) -> anyhow::Result<()> {
    let mut byte = [0];
    for step in 0..count {
        if step % FILE_BYTES as u64 == 0 {
            lseek(&place.file, 0, Whence::SeekSet)?;
        }
        anyhow::ensure!(read(&place.file, &mut byte)? == 1, "short read");
    }
    Ok(())
}

/// There and back in one thread: hardly a call of these enters the host.
fn through_pipe(place: &Place, count: u64, bytes: usize) -> anyhow::Result<()> {
    let mut buffer = [b'p'; BLOCK];
    let (reads, writes) = &place.pipe;
    for _ in 0..count {
        anyhow::ensure!(write(writes, &buffer[..bytes])? == bytes, "short write");
        anyhow::ensure!(read(reads, &mut buffer[..bytes])? == bytes, "short read");
    }
    Ok(())
}

fn appends(place: &Place, count: u64) -> anyhow::Result<()> {
    let buffer = [b'z'; BLOCK];
    for step in 0..count {
        if step % APPENDS == 0 {
            ftruncate(&place.appended, 0)?;
        }
        anyhow::ensure!(write(&place.appended, &buffer)? == BLOCK, "short write");
    }
    Ok(())
}

fn overwrite() -> anyhow::Result<()> {
    let file = open(
        c"d/over",
        OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_TRUNC,
        Mode::from_bits_truncate(0o644),
    )?;
    anyhow::ensure!(write(&file, &[b'w'; BLOCK])? == BLOCK, "short write");
    Ok(())
}

fn small_file() -> anyhow::Result<()> {
    let mut buffer = [b's'; BLOCK];
    anyhow::ensure!(write(create(c"d/small")?, &buffer)? == BLOCK, "short write");
    let file = open(c"d/small", OFlag::O_RDONLY, Mode::empty())?;
    anyhow::ensure!(read(&file, &mut buffer)? == BLOCK, "short read");
    drop(file);
    Ok(nix::unistd::unlink(c"d/small")?)
}

fn new_file() -> anyhow::Result<()> {
    write_large(c"d/large")?;
    Ok(nix::unistd::unlink(c"d/large")?)
}

fn write_large(path: &CStr) -> anyhow::Result<()> {
    let (file, buffer) = (create(path)?, [b'l'; LARGE_BLOCK]);
    (0..LARGE_BYTES / LARGE_BLOCK).try_for_each(|_| {
        anyhow::ensure!(write(&file, &buffer)? == LARGE_BLOCK, "short write");
        Ok(())
    })
}

fn copied() -> anyhow::Result<()> {
    if !fs::exists("d/source")? {
        write_large(c"d/source")?;
    }
    anyhow::ensure!(fs::copy("d/source", "d/copy")? == LARGE_BYTES as u64, "short copy");
    Ok(nix::unistd::unlink(c"d/copy")?)
}

/// By `readdir`: `readdir_r`, which nobody should use, copies 280 bytes for each entry.
fn list(directory: &str, expected: usize) -> anyhow::Result<()> {
    let names = fs::read_dir(directory)?.filter(Result::is_ok).count();
    anyhow::ensure!(names == expected, "{names} names listed, not {expected}");
    Ok(())
}

/// Runs a command, which has to succeed.
pub fn succeed(mut command: Command) -> anyhow::Result<()> {
    let status = command.stdin(Stdio::null()).status().with_context(|| format!("{command:?}"))?;
    anyhow::ensure!(status.success(), "{command:?}: {status}");
    Ok(())
}

fn compile() -> anyhow::Result<()> {
    let mut command = Command::new("gcc");
    command.args(["-c", "hello.c"]);
    succeed(command)
}

//! Starts a program from a recording: what its loader would do again is mapped as it was left, and
//! what differs from one start to the next is put in its place.
//!
//! ```text
//!   head (region's file) ─► files as they were? ─► areas ─► fix-ups ─► thread ─► the loader
//!                                  no: the loader links it, as ever
//! ```
//!
//! Invariants
//! 1. A recording is used only where everything it rests on is as it was: its files, those that
//!    were not there, the limit of the stack, an environment that says nothing to the loader.
//! 2. Until the last area is mapped a failure leaves nothing behind.

use crate::client::programs::identity_of;
use crate::facts::facts;
use crate::load::Loaded;
use crate::thread::Thread;
use core::ffi::CStr;
use husk_abi::memory::{MAP_ANONYMOUS, MAP_FIXED_NOREPLACE, MAP_PRIVATE, PROT_READ, PROT_WRITE};
use husk_abi::nr;
use husk_client::{ExecTarget, Program};
use husk_host::{calls, syscall};
use husk_proto::fs::HostIdentity;
use husk_proto::snapshot::{Area, FILES_MAX, Facts, File, HEAD_BYTES_MAX, Head, Source, Value};

const NONE: usize = usize::MAX;

/// What a start depends on besides the files.
pub struct Inputs {
    /// Where `argc` lies.
    pub stack: usize,
    /// `argc`.
    pub count: usize,
    /// Where the environment lies.
    pub environment: usize,
    /// Where the auxiliary vector lies.
    pub auxiliary: usize,
    /// `AT_RANDOM`.
    pub random: usize,
    /// `AT_PLATFORM`.
    pub platform: usize,
    /// The first argument, and what follows its last slash.
    pub first: [usize; 2],
    /// `AT_SECURE`, or there is no first argument.
    pub secure: bool,
    /// The environment says something to the loader.
    pub tells_loader: bool,
}

/// Puts the program in memory as it was recorded; `None`: it is to be linked.
pub fn begin(thread: &mut Thread, program: &Program, inputs: &Inputs) -> Option<Loaded> {
    if inputs.tells_loader || inputs.secure {
        return None;
    }
    let at = thread.client.recorded(program, facts().path.to_bytes())?;
    restore(thread, program, inputs, at)
}

#[inline(never)]
fn restore(thread: &mut Thread, program: &Program, inputs: &Inputs, at: u64) -> Option<Loaded> {
    let mut words = [0u64; HEAD_BYTES_MAX / 8];
    let region = facts().handover.region_fd as usize;
    // SAFETY: plain words, as bytes.
    let bytes =
        unsafe { core::slice::from_raw_parts_mut(words.as_mut_ptr().cast::<u8>(), HEAD_BYTES_MAX) };
    if calls::pread(region, bytes, at).ok()? != HEAD_BYTES_MAX {
        return None;
    }
    let head = Head::parse(&words)?;
    let state = head.facts();
    if stack_limit() != state.stack_limit || !rests_on_the_same(&head, &words, program) {
        return None;
    }
    let mut opened = Opened { thread, program, words: &words, fds: [NONE; FILES_MAX] };
    let mapped = map_all(&head, &mut opened, region, at + HEAD_BYTES_MAX as u64);
    opened.close();
    mapped?;
    fix(&head, &state, inputs);
    // As `load` does when it has mapped it.
    thread.client.close_program(*program);
    Some(Loaded {
        start: state.begin as usize,
        entry: state.entry as usize,
        headers_address: state.headers as usize,
        headers: state.headers_count as usize,
        interpreter_base: state.interpreter as usize,
        result: state.entry as usize,
    })
}

fn stack_limit() -> u64 {
    const RLIMIT_STACK: usize = 3;
    let mut limit = [0u64; 2];
    let args = [0, RLIMIT_STACK, 0, (&raw mut limit) as usize, 0, 0];
    // SAFETY: two words for the answer.
    unsafe { syscall(nr::prlimit64, args) };
    limit[0]
}

/// Whether all files are as they were, the program (which is open) among them.
fn rests_on_the_same(head: &Head<'_>, words: &[u64], program: &Program) -> bool {
    let mut files = head.files();
    let own = program.identity;
    files.clone().count() <= FILES_MAX
        && files.clone().any(|file| own == Some(file.identity))
        && files.all(|file| own == Some(file.identity) || is_the_same(&file, words))
}

fn is_the_same(file: &File, words: &[u64]) -> bool {
    const ENOENT: isize = -2;
    let Some(path) = path(file, words) else { return false };
    let mut stat = calls::Stat::default();
    let args = [path.as_ptr() as usize, (&raw mut stat) as usize, 0, 0, 0, 0];
    // SAFETY: a path with NUL, and room for the answer.
    let found = unsafe { syscall(nr::stat, args) };
    if file.identity == HostIdentity::default() {
        return found == ENOENT;
    }
    found == 0 && identity_of(&stat) == file.identity
}

fn path<'a>(file: &File, words: &'a [u64]) -> Option<&'a CStr> {
    // SAFETY: the words, as bytes.
    let bytes =
        unsafe { core::slice::from_raw_parts(words.as_ptr().cast::<u8>(), size_of_val(words)) };
    CStr::from_bytes_until_nul(bytes.get(file.path as usize..)?).ok()
}

/// Files that areas are mapped from, opened at the first: the rewritten copy if there is one.
struct Opened<'a> {
    thread: &'a mut Thread,
    program: &'a Program,
    words: &'a [u64],
    fds: [usize; FILES_MAX],
}

impl Opened<'_> {
    fn fd(&mut self, index: u32, file: &File) -> Option<usize> {
        let index = index as usize;
        if *self.fds.get(index)? == NONE {
            self.fds[index] = self.open(file)?;
        }
        Some(self.fds[index])
    }

    fn open(&mut self, file: &File) -> Option<usize> {
        let path = path(file, self.words)?;
        let text = path.to_bytes();
        let copy = self.thread.client.rewritten(&file.identity, |out| {
            out[..text.len()].copy_from_slice(text);
            text.len()
        });
        let own = self.program.identity == Some(file.identity);
        match (copy, self.own_fd()) {
            (Some(copy), _) => Some(copy),
            (None, Some(fd)) if own => Some(fd),
            _ => {
                // It was looked at by name: another may have it by now.
                let fd = calls::open(path).ok()?;
                let same = calls::fstat(fd).is_ok_and(|stat| identity_of(&stat) == file.identity);
                if !same {
                    calls::close(fd);
                }
                same.then_some(fd)
            }
        }
    }

    fn own_fd(&self) -> Option<usize> {
        match self.program.target {
            ExecTarget::Host(fd) => Some(fd as usize),
            ExecTarget::Husk(_) => None,
        }
    }

    fn close(&mut self) {
        for fd in self.fds.into_iter().filter(|&fd| fd != NONE && Some(fd) != self.own_fd()) {
            calls::close(fd);
        }
    }
}

fn map_all(head: &Head<'_>, opened: &mut Opened<'_>, region: usize, pages: u64) -> Option<()> {
    for (count, area) in head.areas().enumerate() {
        if map(head, opened, region, pages, &area).is_none() {
            for area in head.areas().take(count) {
                let args = [area.start as usize, area.bytes as usize, 0, 0, 0, 0];
                // SAFETY: our own fresh mapping, of which nobody knows yet.
                unsafe { syscall(nr::munmap, args) };
            }
            return None;
        }
    }
    Some(())
}

fn map(
    head: &Head<'_>,
    opened: &mut Opened<'_>,
    region: usize,
    pages: u64,
    area: &Area,
) -> Option<()> {
    let private = MAP_PRIVATE | MAP_FIXED_NOREPLACE;
    let (flags, fd, offset) = match area.source {
        Source::Recorded(at) => (private, region, pages + at),
        Source::Zero => (private | MAP_ANONYMOUS, NONE, 0),
        Source::File(index, at) => (private, opened.fd(index, &head.file(index)?)?, at),
    };
    let more = if area.opened { PROT_READ | PROT_WRITE } else { 0 };
    let prot = area.protection as usize | more;
    let (start, bytes) = (area.start as usize, area.bytes as usize);
    // SAFETY: a fresh mapping that replaces nothing.
    let at = unsafe { calls::raw(nr::mmap, [start, bytes, prot, flags, fd, offset as usize]) };
    (at.ok()? == start).then_some(())
}

/// From here on nothing fails.
fn fix(head: &Head<'_>, state: &Facts, inputs: &Inputs) {
    let values = values(state, inputs);
    for fixup in head.fixups() {
        let word = values[fixup.value as usize].wrapping_add_signed(i64::from(fixup.operand));
        let at = fixup.address as usize;
        // SAFETY: words of areas that have just been mapped to be written to: the recorder made
        // the list from them.
        unsafe {
            match fixup.value {
                Value::Thread | Value::CountShort => (at as *mut u32).write(word as u32),
                _ => (at as *mut u64).write(word),
            }
        }
    }
    for area in head.areas().filter(|area| area.opened) {
        let args = [area.start as usize, area.bytes as usize, area.protection as usize, 0, 0, 0];
        // SAFETY: the program's own memory, as its loader leaves it.
        unsafe { syscall(nr::mprotect, args) };
    }
    register(state);
}

fn values(state: &Facts, inputs: &Inputs) -> [u64; Value::ALL.len()] {
    // SAFETY: no memory is involved; where the heap begins, and the address of a word of the
    // program's own, which the host clears when the thread ends.
    let (heap, tid) = unsafe {
        let tid = syscall(nr::set_tid_address, [state.tid as usize, 0, 0, 0, 0, 0]);
        (syscall(nr::brk, [0; 6]) as u64, tid as u64)
    };
    let random = inputs.random as *const u64;
    // SAFETY: the host put sixteen bytes there.
    let (canary, guard) =
        unsafe { (random.read_unaligned() & !0xff, random.add(1).read_unaligned()) };
    Value::ALL.map(|value| match value {
        Value::Stack => inputs.stack as u64,
        Value::Count | Value::CountShort => inputs.count as u64,
        Value::Arguments => inputs.stack as u64 + 8,
        Value::Environment => inputs.environment as u64,
        Value::Auxiliary => inputs.auxiliary as u64,
        Value::Random => inputs.random as u64,
        Value::Name => facts().given.as_ptr() as u64,
        Value::Platform => inputs.platform as u64,
        Value::First => inputs.first[0] as u64,
        Value::FirstShort => inputs.first[1] as u64,
        Value::Vdso => facts().vdso as u64,
        Value::Break => heap,
        Value::Thread => tid,
        Value::Canary => canary,
        Value::Guard => guard,
        Value::Clock => calls::ticks(),
    })
}

/// What the C library has told the host of its first thread.
fn register(state: &Facts) {
    const ARCH_SET_FS: usize = 0x1002;
    const ROBUST_BYTES: usize = 24;
    const FAILED: u32 = -2i32 as u32;
    let (bytes, signature) = (state.rseq_shape & 0xffff_ffff, state.rseq_shape >> 32);
    // SAFETY: addresses of the program's own memory, as it has said itself when it was recorded.
    unsafe {
        syscall(nr::arch_prctl, [ARCH_SET_FS, state.thread as usize, 0, 0, 0, 0]);
        if state.robust != 0 {
            syscall(nr::set_robust_list, [state.robust as usize, ROBUST_BYTES, 0, 0, 0, 0]);
        }
        if state.rseq != 0 {
            let args = [state.rseq as usize, bytes as usize, 0, signature as usize, 0, 0];
            if syscall(nr::rseq, args) != 0 {
                (state.rseq as *mut u32).add(1).write(FAILED);
            }
        }
    }
}

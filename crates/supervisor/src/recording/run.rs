//! One recording: a program is started natively, moved to where it is to lie before its first
//! instruction, and followed through its linking up to where its loader has linked everything.
//!
//! ```text
//!   exec ─► moved (mremap) ─► the loader's one call, call by call ─► a trap where it returns to
//!                               │ mmap: its place is chosen            ▼
//!                               '─ any call that acts: refused         registers, areas, pages
//! ```
//!
//! A loader's first instructions call the function that does its work, and that returns where the
//! program begins. What comes next, at every start, are the libraries' own functions.
//!
//! Invariants
//! 1. Nothing happens outside the process: a call that is not one of those a loader makes to read
//!    and map files ends the recording before it is made.
//! 2. The process never runs a function of the program or of a library but those that say which of
//!    several functions a name means, and ends with its recorder.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use husk_abi::memory::{
    MAP_FIXED, MAP_FIXED_NOREPLACE, MAP_PRIVATE, MAP_TYPE, MREMAP_FIXED, MREMAP_MAYMOVE,
};
use husk_abi::nr;
use husk_abi::sys::general::{AT_FDCWD, O_ACCMODE, O_CREAT, O_TRUNC};
use nix::libc::user_regs_struct as Registers;
use nix::sys::ptrace;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use super::memory::{Area, Memory, areas};
use husk_proto::fs::HostIdentity;
use husk_proto::snapshot::FILES_MAX;

use super::{PAGE, Refusal};
use crate::write_back::host::{identity_of, path_of};

/// Calls of a loader at most; a large program makes some hundreds.
const CALLS_MAX: usize = 4000;
/// Names that a loader may have looked for in vain: each is looked for at every start.
const ABSENT_MAX: usize = 8;
/// Instructions of a loader before it calls what does its work.
const STEPS_MAX: usize = 8;
/// Bytes of an instruction that calls.
const CALL_BYTES: std::ops::RangeInclusive<u64> = 2..=7;
const TRAP: u8 = 0xcc;
/// Programs that lie where they say lie below this; all others above.
const FIXED_BELOW: u64 = 1 << 32;
/// Between the program, its loader and the rest.
const GAP_BYTES: u64 = 64 << 10;

/// Program headers: how many at most, how long, which kind, and where they say how to lie.
const HEADERS_MAX: u64 = 64;
const HEADER_BYTES: u64 = 56;
const PT_LOAD: u32 = 1;
const PT_GNU_STACK: u32 = 0x6474_e551;
/// `PF_X`.
const EXECUTE: u32 = 1;
const AUDIT_ARCH_X86_64: u32 = 0xc000_003e;
const ALIGN_AT: u64 = 48;
const ALIGN_MAX: u64 = 2 << 20;

const AT_PHDR: u64 = 3;
const AT_PHNUM: u64 = 5;
const AT_BASE: u64 = 7;
const AT_ENTRY: u64 = 9;
const AT_SECURE: u64 = 23;
/// Sixteen random bytes.
pub const AT_RANDOM: u64 = 25;
/// The processor's name.
pub const AT_PLATFORM: u64 = 15;
/// The name that was given to exec.
pub const AT_EXECFN: u64 = 31;
/// The vDSO.
pub const AT_SYSINFO_EHDR: u64 = 33;

/// What a process is started with, so that two have nothing in common.
pub struct Guise<'a> {
    /// The name it is called by.
    pub called: &'a str,
    /// Its other arguments.
    pub arguments: &'a [&'a str],
    /// Its environment.
    pub environment: &'a [(&'a str, &'a str)],
}

/// A file that the loader has opened, or looked for in vain.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Opened {
    /// As it was named.
    pub path: PathBuf,
    /// As in a head (`husk_proto::snapshot::File`).
    pub identity: HostIdentity,
}

/// What a start depends on besides the files.
#[derive(Clone, Debug, Default)]
pub struct Inputs {
    /// Where `argc` lies.
    pub stack: u64,
    pub count: u64,
    pub environment: u64,
    pub auxiliary: u64,
    /// By the numbers of the auxiliary vector.
    pub vector: BTreeMap<u64, u64>,
    /// The first argument, and where its last part begins.
    pub first: [u64; 2],
    pub heap: u64,
    pub tid: u64,
    /// What `AT_RANDOM` points to.
    pub random: [u64; 2],
    /// The processor's clock before the first and after the last instruction.
    pub clock: [u64; 2],
}

/// What is noted of a process on its way.
#[derive(Default)]
pub struct Noted {
    pub inputs: Inputs,
    /// What is added to the program's own addresses (0: it lies where it says).
    pub base: u64,
    pub interpreter: u64,
    /// Where its program headers lie, and how many there are.
    pub headers: [u64; 2],
    pub files: Vec<Opened>,
    pub tid: u64,
    pub robust: u64,
    pub rseq: [u64; 2],
}

/// The state where the loader has linked everything.
pub struct Recorded {
    pub noted: Noted,
    /// Where the loader goes on.
    pub begin: u64,
    pub registers: Registers,
    pub areas: Vec<Area>,
    /// Of the process, which is still stopped.
    pub memory: Memory,
    _process: Process,
}

/// The process, which ends with this.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts `program` at `low` and follows it until it is linked.
pub fn record(program: &Path, guise: &Guise<'_>, low: u64) -> Result<Recorded, Refusal> {
    let mut child = Command::new(crate::named::SELF)
        .args(["record-start", guise.called])
        .arg(program)
        .args(guise.arguments)
        .env_clear()
        .envs(guise.environment.iter().copied())
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let begin = child.stdin.take();
    let mut run = Run::follow(child, low)?;
    if let Some(mut begin) = begin {
        begin.write_all(b".")?;
    }
    run.wait_for_exec()?;
    run.arrange(program)?;
    run.link()?;
    run.finish()
}

struct Run {
    process: Process,
    pid: Pid,
    memory: Memory,
    /// Where the next mapping goes.
    next: u64,
    low: u64,
    /// Where the program begins, and where its loader goes on when all is linked.
    entry: u64,
    begin: u64,
    first_byte: u8,
    noted: Noted,
}

impl Run {
    fn follow(child: Child, low: u64) -> Result<Run, Refusal> {
        let pid = Pid::from_raw(child.id().cast_signed());
        let process = Process(child);
        let options = ptrace::Options::PTRACE_O_TRACEEXEC
            | ptrace::Options::PTRACE_O_TRACESYSGOOD
            | ptrace::Options::PTRACE_O_EXITKILL;
        ptrace::seize(pid, options)?;
        let memory = Memory::of(pid)?;
        let noted = Noted::default();
        Ok(Run { process, pid, memory, next: low, low, entry: 0, begin: 0, first_byte: 0, noted })
    }

    fn wait(&self) -> Result<WaitStatus, Refusal> {
        Ok(waitpid(self.pid, Some(WaitPidFlag::__WALL))?)
    }

    fn wait_for_exec(&mut self) -> Result<(), Refusal> {
        loop {
            match self.wait()? {
                WaitStatus::PtraceEvent(_, _, event)
                    if event == ptrace::Event::PTRACE_EVENT_EXEC as i32 =>
                {
                    self.memory = Memory::of(self.pid)?;
                    // The host sets the call's result at its end, and nothing of ours after that.
                    ptrace::syscall(self.pid, None)?;
                }
                WaitStatus::PtraceSyscall(_) => return Ok(()),
                WaitStatus::Stopped(_, signal) => ptrace::cont(self.pid, signal)?,
                WaitStatus::PtraceEvent(..) => ptrace::cont(self.pid, None)?,
                other => return Err(Refusal::of(&format!("did not start: {other:?}"))),
            }
        }
    }

    /// Reads what it starts with, and moves it to its place.
    fn arrange(&mut self, program: &Path) -> Result<(), Refusal> {
        let mut registers = ptrace::getregs(self.pid)?;
        self.read_inputs(registers.rsp)?;
        let given = self.noted.inputs.vector.clone();
        let vector = |kind: u64| given.get(&kind).copied().unwrap_or(0);
        let (headers, vdso, interpreter) =
            (vector(AT_PHDR), vector(AT_SYSINFO_EHDR), vector(AT_BASE));
        if interpreter == 0 || vdso == 0 || vector(AT_SECURE) != 0 {
            return Err(Refusal::of("it has no interpreter, or more rights than its caller"));
        }
        self.align(headers, vector(AT_PHNUM))?;
        let all = areas(self.pid)?;
        let call = self.find_call(vdso)?;
        let own = fs::canonicalize(program)?;
        let (moved, base) = self.relocate(&all, headers, &own, call)?;
        let loader = all.iter().find(|area| area.start == interpreter);
        let loader = loader.map(|area| area.path.clone());
        let loader = loader.ok_or_else(|| Refusal::of("its interpreter is not mapped"))?;
        let (loaded, _) = self.relocate(&all, interpreter, &loader, call)?;
        self.noted.base = base;
        self.noted.interpreter = interpreter.wrapping_add(loaded);
        self.noted.headers = [headers.wrapping_add(moved), vector(AT_PHNUM)];
        self.entry = vector(AT_ENTRY).wrapping_add(moved);
        self.set_vector(AT_PHDR, self.noted.headers[0])?;
        self.set_vector(AT_ENTRY, self.entry)?;
        self.set_vector(AT_BASE, self.noted.interpreter)?;
        for path in [own, loader] {
            self.note_file(&path, false)?;
        }
        registers.rip = registers.rip.wrapping_add(loaded);
        ptrace::setregs(self.pid, registers)?;
        self.begin = self.find_return()?;
        self.set_trap()
    }

    /// Follows the loader into the call that does its work: where that returns to.
    fn find_return(&mut self) -> Result<u64, Refusal> {
        for _ in 0..STEPS_MAX {
            let before = ptrace::getregs(self.pid)?;
            ptrace::step(self.pid, None)?;
            match self.wait()? {
                WaitStatus::Stopped(_, Signal::SIGTRAP) => {}
                other => return Err(Refusal::of(&format!("its loader ended with {other:?}"))),
            }
            let now = ptrace::getregs(self.pid)?;
            if now.rsp == before.rsp.wrapping_sub(8) {
                let back = self.memory.word(now.rsp)?;
                if CALL_BYTES.contains(&back.wrapping_sub(before.rip)) {
                    return Ok(back);
                }
            }
        }
        Err(Refusal::of("its loader begins in a way that is not known"))
    }

    /// The program begins where its own segments want it to.
    fn align(&mut self, headers: u64, count: u64) -> Result<(), Refusal> {
        for header in (0..count.min(HEADERS_MAX)).map(|n| headers + n * HEADER_BYTES) {
            let kind = self.memory.word(header)?;
            if kind as u32 == PT_GNU_STACK && (kind >> 32) as u32 & EXECUTE != 0 {
                return Err(Refusal::of("it wants to execute its stack"));
            }
            if kind as u32 == PT_LOAD {
                let align = self.memory.word(header + ALIGN_AT)?;
                if align > ALIGN_MAX || !align.max(1).is_power_of_two() {
                    return Err(Refusal::of("it wants to lie at odd places"));
                }
                self.next = self.next.next_multiple_of(align.max(PAGE));
            }
        }
        self.low = self.next;
        Ok(())
    }

    /// The first instruction behind the loader's call is one that stops it.
    fn set_trap(&mut self) -> Result<(), Refusal> {
        let mut byte = [0];
        self.memory.read(self.begin, &mut byte)?;
        self.first_byte = byte[0];
        self.memory.write(self.begin, &[TRAP])
    }

    fn read_inputs(&mut self, stack: u64) -> Result<(), Refusal> {
        let memory = &self.memory;
        let inputs = &mut self.noted.inputs;
        inputs.stack = stack;
        inputs.count = memory.word(stack)?;
        inputs.environment = stack + 8 * (inputs.count + 2);
        let mut at = inputs.environment;
        while memory.word(at)? != 0 {
            at += 8;
        }
        at += 8;
        inputs.auxiliary = at;
        while memory.word(at)? != 0 {
            inputs.vector.insert(memory.word(at)?, memory.word(at + 8)?);
            at += 16;
        }
        let first = memory.word(stack + 8)?;
        let text = memory.text(first)?;
        let short = text.iter().rposition(|&byte| byte == b'/').map_or(0, |at| at as u64 + 1);
        inputs.first = [first, first + short];
        inputs.tid = self.pid.as_raw().cast_unsigned().into();
        let random = inputs.vector.get(&AT_RANDOM).copied().unwrap_or(0);
        inputs.random = [memory.word(random)?, memory.word(random + 8)?];
        inputs.clock[0] = husk_host::calls::ticks();
        Ok(())
    }

    /// Changes an entry of the auxiliary vector.
    fn set_vector(&mut self, kind: u64, value: u64) -> Result<(), Refusal> {
        let mut at = self.noted.inputs.auxiliary;
        while self.memory.word(at)? != kind {
            at += 16;
        }
        self.memory.write(at + 8, &value.to_le_bytes())
    }

    /// An instruction `syscall` in the vDSO.
    fn find_call(&self, vdso: u64) -> Result<u64, Refusal> {
        const VDSO_BYTES: usize = 8192;
        let mut bytes = vec![0; VDSO_BYTES];
        let length = self.memory.read_some(vdso, &mut bytes)?;
        let found = bytes[..length].windows(2).position(|pair| pair == [0x0f, 0x05]);
        found.map(|at| vdso + at as u64).ok_or_else(|| Refusal::of("the vDSO makes no call"))
    }

    /// Moves what is mapped of `path`, at `address` too, to the next place: by how much, and where
    /// it begins then (0 and 0: it lies where it says itself).
    fn relocate(
        &mut self,
        all: &[Area],
        address: u64,
        path: &Path,
        call: u64,
    ) -> Result<(u64, u64), Refusal> {
        let of_file = |area: &&Area| area.path == path;
        let first = all.iter().filter(of_file).map(|area| area.start).min();
        let last = all.iter().filter(of_file).map(|area| area.end).max();
        let (Some(first), Some(mut last)) = (first, last) else {
            return Err(Refusal::of("it is not mapped from its own file"));
        };
        // What begins as zeros lies right behind.
        let none = |area: &&Area| area.path.as_os_str().is_empty();
        while let Some(area) = all.iter().filter(none).find(|area| area.start == last) {
            last = area.end;
        }
        if first < FIXED_BELOW && (first..last).contains(&address) {
            return Ok((0, 0));
        }
        let (to, by) = (self.next, self.next.wrapping_sub(first));
        let moves = (MREMAP_MAYMOVE | MREMAP_FIXED) as u64;
        for area in all.iter().filter(|area| area.start >= first && area.end <= last) {
            let (bytes, to) = (area.end - area.start, area.start.wrapping_add(by));
            let args = [area.start, bytes, bytes, moves, to, 0];
            if self.make(call, nr::mremap as u64, args)? != to {
                return Err(Refusal::of("it cannot be moved to its place"));
            }
        }
        self.next = (last.wrapping_add(by) + GAP_BYTES).next_multiple_of(PAGE);
        Ok((by, to))
    }

    /// Has the process make one call; its result.
    fn make(&self, call: u64, number: u64, args: [u64; 6]) -> Result<u64, Refusal> {
        let before = ptrace::getregs(self.pid)?;
        let [rdi, rsi, rdx, r10, r8, r9] = args;
        let now = Registers { rip: call, rax: number, rdi, rsi, rdx, r10, r8, r9, ..before };
        ptrace::setregs(self.pid, now)?;
        ptrace::step(self.pid, None)?;
        match self.wait()? {
            WaitStatus::Stopped(_, Signal::SIGTRAP) => {}
            other => return Err(Refusal::of(&format!("a call of ours ended it: {other:?}"))),
        }
        let result = ptrace::getregs(self.pid)?.rax;
        ptrace::setregs(self.pid, before)?;
        Ok(result)
    }

    fn link(&mut self) -> Result<(), Refusal> {
        let mut entered = false;
        for _ in 0..2 * CALLS_MAX {
            ptrace::syscall(self.pid, None)?;
            match self.wait()? {
                WaitStatus::PtraceSyscall(_) => {
                    entered = !entered;
                    if entered { self.call_begins() } else { self.call_ended() }?;
                }
                WaitStatus::Stopped(_, Signal::SIGTRAP)
                    if ptrace::getregs(self.pid)?.rip == self.begin + 1 =>
                {
                    self.noted.inputs.clock[1] = husk_host::calls::ticks();
                    return self.memory.write(self.begin, &[self.first_byte]);
                }
                other => return Err(Refusal::of(&format!("its linking ended with {other:?}"))),
            }
        }
        Err(Refusal::of("its linking makes too many calls"))
    }

    /// Lets a call be made, or not.
    fn call_begins(&mut self) -> Result<(), Refusal> {
        let mut registers = ptrace::getregs(self.pid)?;
        let Registers { rdi, rsi, rdx, r10, .. } = registers;
        // Calls of 32 bits have other numbers.
        if ptrace::syscall_info(self.pid)?.arch != AUDIT_ARCH_X86_64 {
            return Err(Refusal::of("its linking makes calls of another kind"));
        }
        let own = self.is_own(rdi, rsi);
        let opens = registers.orig_rax as usize == nr::openat;
        if opens && opens_to_read(rdx) && rdi as i32 == AT_FDCWD {
            return self.may_open(rsi);
        }
        let noted = &mut self.noted;
        match registers.orig_rax as usize {
            nr::read | nr::pread64 | nr::fstat | nr::close | nr::brk => {}
            nr::access | nr::newfstatat | nr::arch_prctl | nr::uname => {}
            nr::mprotect | nr::munmap if own => {}
            nr::prlimit64 if rdx == 0 => {}
            nr::set_tid_address => noted.tid = rdi,
            nr::set_robust_list => noted.robust = rdi,
            nr::rseq => noted.rseq = [rdi, (rsi & 0xffff_ffff) | r10 << 32],
            nr::mmap if r10 as usize & MAP_TYPE == MAP_PRIVATE => self.place(&mut registers)?,
            number => return Err(Refusal::of(&format!("its linking makes call {number}"))),
        }
        Ok(())
    }

    /// Whether memory is of what is recorded.
    fn is_own(&self, start: u64, bytes: u64) -> bool {
        let end = start.saturating_add(bytes);
        let fixed = self.noted.base == 0 && end <= FIXED_BELOW;
        fixed || start >= self.low && end <= self.next.next_multiple_of(PAGE)
    }

    /// Before a file is opened, for that alone may do something.
    fn may_open(&self, path: u64) -> Result<(), Refusal> {
        let path = path_of(&self.memory.text(path)?);
        fs::metadata(path).map_or(Ok(()), |found| trusted(found).map(|_| ()))
    }

    /// Chooses where a mapping goes that may lie anywhere.
    fn place(&mut self, registers: &mut Registers) -> Result<(), Refusal> {
        if registers.r10 as usize & MAP_FIXED != 0 {
            let inside = self.is_own(registers.rdi, registers.rsi);
            return if inside { Ok(()) } else { Err(Refusal::of("it maps over something else")) };
        }
        registers.rdi = self.next;
        registers.r10 |= MAP_FIXED_NOREPLACE as u64;
        self.next = (self.next + registers.rsi).next_multiple_of(PAGE);
        Ok(ptrace::setregs(self.pid, *registers)?)
    }

    /// Notes what a call has told of the world.
    fn call_ended(&mut self) -> Result<(), Refusal> {
        let registers = ptrace::getregs(self.pid)?;
        let failed = registers.rax.cast_signed() < 0;
        let path = match registers.orig_rax as usize {
            nr::openat | nr::newfstatat => registers.rsi,
            nr::access => registers.rdi,
            nr::brk if registers.rdi == 0 => {
                self.noted.inputs.heap = registers.rax;
                return Ok(());
            }
            nr::brk => return Err(Refusal::of("its linking needs a heap")),
            _ => return Ok(()),
        };
        let path = path_of(&self.memory.text(path)?);
        // A directory that is there is looked into, or not: what it has is asked for by name.
        let looks = registers.orig_rax as usize == nr::newfstatat && !failed && path.is_dir();
        match path {
            path if path.as_os_str().is_empty() || looks && path.is_absolute() => Ok(()),
            path if !path.is_absolute() => {
                Err(Refusal::of("it looks for files from where it is started"))
            }
            path if failed => self.note_file(first_absent(&path), true),
            path => self.note_file(&path, false),
        }
    }

    fn note_file(&mut self, path: &Path, absent: bool) -> Result<(), Refusal> {
        let mut opened = Opened { path: path.to_owned(), identity: HostIdentity::default() };
        match fs::metadata(path) {
            Ok(found) if !absent => opened.identity = identity_of(&trusted(found)?),
            Err(problem) if absent && problem.kind() == io::ErrorKind::NotFound => {}
            _ => return Err(Refusal::of("a file comes and goes")),
        }
        let files = &mut self.noted.files;
        if !files.contains(&opened) {
            files.push(opened);
        }
        let none = HostIdentity::default();
        let absent = files.iter().filter(|file| file.identity == none).count();
        if absent > ABSENT_MAX || files.len() > FILES_MAX {
            return Err(Refusal::of("it looks for too many files"));
        }
        Ok(())
    }

    fn finish(self) -> Result<Recorded, Refusal> {
        let registers = ptrace::getregs(self.pid)?;
        if registers.rsp != self.noted.inputs.stack {
            return Err(Refusal::of("its loader moves the stack"));
        }
        // What a function leaves besides its result, its caller has put there: here, nobody.
        let Registers { rbx, rbp, r12, r13, r14, r15, .. } = registers;
        if registers.rax != self.entry || [rbx, rbp, r12, r13, r14, r15] != [0; 6] {
            return Err(Refusal::of("its loader goes on in a way that is not known"));
        }
        let here = |area: &Area| self.is_own(area.start, area.end - area.start);
        let areas = areas(self.pid)?.into_iter().filter(here).collect();
        let (noted, begin, memory, _process) = (self.noted, self.begin, self.memory, self.process);
        Ok(Recorded { noted, begin, registers, areas, memory, _process })
    }
}

/// The shortest part of an absent path that is not there: while that is so, nothing is below it.
fn first_absent(path: &Path) -> &Path {
    let absent = |part: &&Path| {
        fs::metadata(part).is_err_and(|problem| problem.kind() == io::ErrorKind::NotFound)
    };
    path.ancestors().take_while(absent).last().unwrap_or(path)
}

/// A file that nobody can have made to deceive whoever records: its code runs as that user.
fn trusted(found: fs::Metadata) -> Result<fs::Metadata, Refusal> {
    const GROUP_WRITES: u32 = 0o020;
    const OTHERS_WRITE: u32 = 0o002;
    let owner = found.uid() == 0 || found.uid() == rustix::process::getuid().as_raw();
    let own_group = found.gid() == rustix::process::getgid().as_raw();
    let writers = OTHERS_WRITE | if own_group { 0 } else { GROUP_WRITES };
    if found.is_file() && owner && found.mode() & writers == 0 {
        return Ok(found);
    }
    Err(Refusal::of("it rests on a file that others may write to"))
}

fn opens_to_read(flags: u64) -> bool {
    flags as u32 & (O_ACCMODE | O_CREAT | O_TRUNC) == 0
}

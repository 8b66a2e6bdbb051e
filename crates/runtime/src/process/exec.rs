//! `execve` and `execveat`: find the program, say no in time, hand over.
//!
//! ```text
//!   path ─► open ─► head ──ELF──► the loader again, path in the hand-over
//!             ▲        ├──#!───► interpreter is the path now, arguments grow (5 times at most)
//!             └────────┘  privileged (set-id, capabilities), or not to be read ─► the host's own
//!                         exec, out of Husk
//! ```
//!
//! Invariant: every error the host would give before the point of no return is given here,
//! because after it there is nobody left to hear it.

use crate::facts::{self, facts};
use crate::frame::{Answer, Frame};
use crate::memory;
use crate::process::elsewhere::{self, Asked, Ready};
use crate::process::limits;
use crate::process::refusal;
use crate::process::shadow::{self, AFAR};
use crate::signal;
use crate::signal::sigaction;
use crate::thread::Thread;
use core::ffi::CStr;
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::Relaxed;
use husk_abi::memory::{MAP_ANONYMOUS, MAP_PRIVATE, PROT_READ, PROT_WRITE};
use husk_abi::proc::put_decimal;
use husk_abi::{Errno, PAGE, PATH_MAX, nr};
use husk_client::{ExecTarget, Program};
use husk_host::{calls, syscall};
use husk_runtime::elf::{self, HEADER_BYTES, HEADERS_MAX, Header, Summary};
use husk_runtime::handover::{self, HEAD_MAX};
use husk_runtime::script;

const AT_EMPTY_PATH: usize = 0x1000;
const PTRACE_TRACEME: usize = 0;
const PTRACE_SYSCALL: usize = 24;
/// Words of argument arrays that lie on the service stack; longer ones get a mapping.
const WORDS_ON_STACK: usize = 1024;
/// Longest arrays accepted together (Linux stops earlier, at a quarter of the stack limit).
const WORDS_MAX: usize = 16 * 1024 * 1024;

/// How the host and the image show that a file has lost its name.
const DELETED: &[u8] = b" (deleted)";

/// Room for what stands before a path that starts from a descriptor: `/dev/fd/N/`.
const FRONT_BYTES: usize = 24;

/// The name that Linux gives a program: the path, also of a descriptor it starts from.
struct Given {
    start: usize,
    length: usize,
    text: [u8; FRONT_BYTES + PATH_MAX],
}

impl Given {
    fn read(at: usize, path: usize) -> Result<Given, Errno> {
        let mut given = Given { start: FRONT_BYTES, length: 0, text: [0; FRONT_BYTES + PATH_MAX] };
        given.length = memory::read_string(path, &mut given.text[FRONT_BYTES..])?;
        if at as i32 != calls::AT_FDCWD as i32 && given.path()[0] != b'/' {
            let mut digits = [0; 10];
            let length = put_decimal(&mut digits, at as u32);
            let slash = &b"/"[..usize::from(given.length > 0)];
            for part in [slash, &digits[..length], b"/dev/fd/"] {
                let end = given.start;
                given.start -= part.len();
                given.text[given.start..end].copy_from_slice(part);
            }
        }
        Ok(given)
    }

    /// The path as given, with its NUL.
    fn path(&self) -> &[u8] {
        &self.text[FRONT_BYTES..=FRONT_BYTES + self.length]
    }

    /// The name, with its NUL.
    fn name(&self) -> &[u8] {
        &self.text[self.start..=FRONT_BYTES + self.length]
    }

    fn starts_from_descriptor(&self) -> bool {
        self.start < FRONT_BYTES
    }

    /// Flags of the hand-over.
    fn flags(&self) -> u32 {
        let alone = self.starts_from_descriptor() && self.length == 0;
        handover::GIVEN | if alone { handover::OF_FILE } else { 0 }
    }
}

/// One `#!` line's contribution to the arguments.
struct Interpreted {
    text: [u8; script::HEAD_BYTES + 2],
    argument: Option<usize>,
}

/// What an exec will start.
struct Plan {
    program: Program,
    path: [u8; PATH_MAX],
    lines: [Interpreted; script::NESTING_MAX],
    depth: usize,
}

impl Plan {
    fn path(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.path).unwrap_or(c"")
    }
}

/// Serves the call. Returns only if it failed. Never inlined: its frame is large.
#[inline(never)]
pub fn exec(thread: &mut Thread, frame: &Frame) -> Answer {
    let (at, path, argv, envp, flags) = if frame.number == nr::execve {
        (calls::AT_FDCWD, frame.args[0], frame.args[1], frame.args[2], 0)
    } else {
        (frame.args[0], frame.args[1], frame.args[2], frame.args[3], frame.args[4])
    };
    let result =
        Given::read(at, path).and_then(|given| launch(thread, at, &given, flags, argv, envp));
    Answer::value(match result {
        Ok(never) => match never {},
        Err(errno) => errno.as_return(),
    })
}

/// Nothing: a successful exec does not come back.
enum Never {}

fn launch(
    thread: &mut Thread,
    at: usize,
    given: &Given,
    flags: usize,
    argv: usize,
    envp: usize,
) -> Result<Never, Errno> {
    let plan = resolve(thread, at, given.path(), flags)?;
    let gone = plan.depth > 0 && given.starts_from_descriptor();
    let result = if gone && thread.client.closes_on_exec(at as u32) {
        // The interpreter could not open the script.
        Err(Errno::ENOENT)
    } else if plan.depth == 0 && leaves(thread, &plan.program) {
        Err(natively(thread, &plan, argv, envp))
    } else {
        let stays = flags != 0 || given.starts_from_descriptor();
        let placed = if stays { Ok(()) } else { place(thread, &plan, given.path(), argv, envp) };
        placed.and_then(|()| hand_over(thread, &plan, given.name(), given.flags(), argv, envp))
    };
    thread.client.close_program(plan.program);
    result
}

/// Opens a program, which takes a number for a moment, as no exec of Linux does: where there is
/// none, one beyond the limit, if the limit may be raised.
fn open(thread: &mut Thread, at: usize, path: &[u8], flags: usize) -> Result<Program, Errno> {
    match thread.client.open_to_execute(at, path, flags) {
        Err(Errno::EMFILE) => {
            let _more = limits::MoreNumbers::raised().ok_or(Errno::EMFILE)?;
            thread.client.open_to_execute(at, path, flags)
        }
        other => other,
    }
}

/// Follows `#!` until an ELF program is found that the loader will accept.
fn resolve(thread: &mut Thread, at: usize, path: &[u8], flags: usize) -> Result<Plan, Errno> {
    const EMPTY: Interpreted = Interpreted { text: [0; script::HEAD_BYTES + 2], argument: None };
    let program = open(thread, at, path, flags)?;
    let mut plan =
        Plan { program, path: [0; PATH_MAX], lines: [EMPTY; script::NESTING_MAX], depth: 0 };
    thread.client.path_of(&plan.program, path, &mut plan.path);
    loop {
        match follow(thread, &mut plan) {
            Ok(true) => {}
            Ok(false) => return Ok(plan),
            Err(errno) => {
                thread.client.close_program(plan.program);
                return Err(errno);
            }
        }
    }
}

/// One step of `resolve`: true when the program was a script.
fn follow(thread: &mut Thread, plan: &mut Plan) -> Result<bool, Errno> {
    if plan.program.unreadable {
        // As an interpreter it would be the host's with arguments that are not.
        let here = plan.depth > 0 || thread.client.outside_is_sealed();
        return if here { Err(Errno::EACCES) } else { Ok(false) };
    }
    let mut head = [0u8; elf::HEAD_BYTES];
    let got = thread.client.read_program(&plan.program, &mut head, 0)?;
    let head = &head[..got];
    if !head.starts_with(b"#!") {
        return loadable(thread, &plan.program, head).map(|()| false);
    }
    let line = script::parse(&head[..got.min(script::HEAD_BYTES)]).ok_or(Errno::ENOEXEC)?;
    let Some(place) = plan.lines.get_mut(plan.depth) else { return Err(Errno::ELOOP) };
    let length = line.interpreter.len();
    place.text[..length].copy_from_slice(&head[line.interpreter]);
    place.text[length] = 0;
    if let Some(range) = line.argument {
        let argument = length + 1;
        place.text[argument..argument + range.len()].copy_from_slice(&head[range.clone()]);
        place.text[argument + range.len()] = 0;
        place.argument = Some(argument);
    }
    let next = open(thread, calls::AT_FDCWD, &place.text[..=length], 0)?;
    let before = core::mem::replace(&mut plan.program, next);
    thread.client.close_program(before);
    thread.client.path_of(&plan.program, &place.text[..=length], &mut plan.path);
    plan.depth += 1;
    Ok(true)
}

/// Whether the loader will take it.
fn loadable(thread: &mut Thread, program: &Program, head: &[u8]) -> Result<(), Errno> {
    let header = Header::parse(head).map_err(|_| Errno::ENOEXEC)?;
    let mut room = [0u8; HEADERS_MAX * HEADER_BYTES];
    let table = crate::load::headers(&mut thread.client, program, &header, head, &mut room)?;
    let summary = Summary::parse(table, header.headers_offset).map_err(|_| Errno::ENOEXEC)?;
    let Some((offset, bytes)) = summary.interpreter else { return Ok(()) };
    let mut last = [0u8; 1];
    let end = offset
        .checked_add(bytes)
        .filter(|_| (2..=crate::load::INTERPRETER_MAX as u64).contains(&bytes));
    let end = end.ok_or(Errno::ENOEXEC)?;
    match head.get((end - 1) as usize) {
        Some(&byte) => last[0] = byte,
        None if thread.client.read_program(program, &mut last, end - 1)? == 1 => {}
        None => return Err(Errno::ENOEXEC),
    }
    if last[0] != 0 {
        return Err(Errno::ENOEXEC);
    }
    Ok(())
}

/// Whether a program is the host's to start, outside the image. Where that is read-only none is:
/// it starts here, without new rights, as in a file system mounted `nosuid`.
fn leaves(thread: &mut Thread, program: &Program) -> bool {
    program.unreadable || privileged(program) && !thread.client.outside_is_sealed()
}

/// Whether the host would give this program other rights than its caller's.
fn privileged(program: &Program) -> bool {
    const S_ISUID: u32 = 0o4000;
    const S_ISGID_EXECUTABLE: u32 = 0o2010;
    let ExecTarget::Host(fd) = program.target else { return false };
    let fd = fd as usize;
    let mode = program.mode;
    // SAFETY: asks for the length only.
    let capabilities = unsafe {
        let name = c"security.capability".as_ptr() as usize;
        syscall(nr::fgetxattr, [fd, name, 0, 0, 0, 0]) > 0
    };
    mode & S_ISUID != 0 || mode & S_ISGID_EXECUTABLE == S_ISGID_EXECUTABLE || capabilities
}

fn natively(thread: &mut Thread, plan: &Plan, argv: usize, envp: usize) -> Errno {
    thread.client.tell_native(&plan.program, plan.path().to_bytes());
    let path = plan.path().as_ptr() as usize;
    let fd = match plan.program {
        // By its descriptor: in the image it may have another name.
        Program { unreadable: true, inode: Some(_), target: ExecTarget::Host(fd), .. } => Some(fd),
        _ => None,
    };
    start_natively(thread, fd, path, argv, envp)
}

/// Has the host start a program that is none of the image; why it did not. Its pipes are the host's
/// from now on. It is started by its descriptor, where there is `fd`, else by its path.
pub(super) fn start_natively(
    thread: &mut Thread,
    fd: Option<u32>,
    path: usize,
    argv: usize,
    envp: usize,
) -> Errno {
    thread.client.surrender_pipes();
    keep_open(false);
    signal::leave_actions(thread);
    begin_trace(thread);
    let by_path = (nr::execve, [path, argv, envp, 0, 0, 0]);
    let (number, args) = fd.map_or(by_path, |fd| {
        let empty = c"".as_ptr() as usize;
        (nr::execveat, [fd as usize, empty, argv, envp, AT_EMPTY_PATH, 0])
    });
    // SAFETY: the application's own arrays, or some that were built here; on success nothing is
    // left of us.
    let mut result = unsafe { syscall(number, args) };
    if number == nr::execveat && Errno(-result as i32) == Errno::ENOENT {
        // A script: its interpreter is to open it by a path.
        // SAFETY: as above.
        result = unsafe { syscall(by_path.0, by_path.1) };
    }
    signal::take_actions_back(thread);
    keep_open(true);
    Errno(-result as i32)
}

/// Whether our descriptors outlive an exec.
fn keep_open(on: bool) {
    const F_SETFD: usize = 2;
    for fd in &facts::kept_fds()[..2] {
        // SAFETY: our own descriptors.
        unsafe { syscall(nr::fcntl, [*fd as usize, F_SETFD, usize::from(!on), 0, 0, 0]) };
    }
}

fn hand_over(
    thread: &mut Thread,
    plan: &Plan,
    name: &[u8],
    flags: u32,
    argv: usize,
    envp: usize,
) -> Result<Never, Errno> {
    let mut text = [0u8; HEAD_MAX + PATH_MAX];
    let mut head = [0u8; HEAD_MAX];
    let mut next = facts().handover;
    next.process = thread.client.process();
    const ANEW: u32 = handover::INITIAL
        | handover::JOINS
        | handover::HOST
        | handover::DEFAULTS
        | handover::GIVEN
        | handover::OF_FILE
        | handover::OF_RECORD;
    next.flags = next.flags & !ANEW | flags | limits::flag();
    sigaction::learn_late(thread.group());
    if sigaction::all_default_after_exec(thread.group()) {
        next.flags |= handover::DEFAULTS;
    }
    let mut place = [0u8; PATH_MAX];
    // A file of the image that has lost its name is what the process record says it runs.
    let recorded = plan.program.inode.is_some() && plan.path().to_bytes().ends_with(DELETED);
    if recorded {
        next.flags |= handover::OF_RECORD;
    }
    let named = plan.program.inode.is_some();
    let bequest = if named { None } else { nameless(&plan.program, plan.path(), &mut place) };
    let path_text = if bequest.is_some() { &place } else { &plan.path };
    let path_text = CStr::from_bytes_until_nul(path_text).unwrap_or(c"");
    let host = matches!(plan.program.target, ExecTarget::Host(_));
    if bequest.is_some() || (host && thread.client.outside_mounts(path_text.to_bytes())) {
        next.flags |= handover::HOST;
    }
    let length = next.head(&mut head);
    text[..length].copy_from_slice(&head[..length]);
    let end = length + path_text.count_bytes();
    text[length..end].copy_from_slice(path_text.to_bytes());
    let before = thread.client.set_program(plan.program.inode)?;
    let result = with_arrays(thread, plan, name, &text[..=end], argv, envp);
    // It goes on running what it ran; if that is no more, there is nothing to keep others from.
    let _ = thread.client.set_program(before);
    if let Some(fd) = bequest {
        calls::close(fd);
    }
    result
}

/// A program without a name (a memfd, a removed file): its descriptor outlives the exec, and
/// `out` becomes its path.
fn nameless(program: &Program, path: &CStr, out: &mut [u8; PATH_MAX]) -> Option<usize> {
    const F_DUPFD: usize = 0;
    let ExecTarget::Host(fd) = program.target else { return None };
    let path = path.to_bytes();
    if path.starts_with(b"/") && !path.ends_with(DELETED) {
        return None;
    }
    // SAFETY: a second number for a descriptor of our own.
    let kept = unsafe { calls::raw(nr::fcntl, [fd as usize, F_DUPFD, 100, 0, 0, 0]) }.ok()?;
    let name = husk_abi::proc::descriptor(kept as u32);
    out[..name.len()].copy_from_slice(&name);
    Some(kept)
}

/// `text` is the hand-over, with its NUL; `name` what exec was given, with its own.
fn with_arrays(
    thread: &mut Thread,
    plan: &Plan,
    name: &[u8],
    text: &[u8],
    argv: usize,
    envp: usize,
) -> Result<Never, Errno> {
    let (arguments, variables) = (count(argv)?, count(envp)?);
    let words = arguments + variables + 2 * plan.depth + 6;
    if words > WORDS_MAX {
        return Err(Errno::E2BIG);
    }
    let mut small = [0usize; WORDS_ON_STACK];
    let arrays = if words <= WORDS_ON_STACK { &mut small[..] } else { area(thread, words)? };
    let new_argv = arguments_into(arrays, plan, name, argv, arguments)?;
    let (argv_words, envp_words) = arrays.split_at_mut(new_argv);
    envp_words[0] = text.as_ptr() as usize;
    envp_words[1] = name.as_ptr() as usize;
    copy_words(&mut envp_words[2..], envp, variables)?;
    envp_words[variables + 2] = 0;
    let argv_at = if plan.depth == 0 { argv } else { argv_words.as_ptr() as usize };
    Err(start_again(thread, argv_at, envp_words.as_ptr() as usize))
}

fn start_again(thread: &mut Thread, argv: usize, envp: usize) -> Errno {
    start_by(thread, facts().handover.loader_fd as usize, argv, envp)
}

/// Executes the runtime behind descriptor `loader`.
fn start_by(thread: &mut Thread, loader: usize, argv: usize, envp: usize) -> Errno {
    signal::leave_actions(thread);
    thread.client.before_exec();
    begin_trace(thread);
    let args = [loader, c"".as_ptr() as usize, argv, envp, AT_EMPTY_PATH, 0];
    // SAFETY: arrays built above or the application's; on success nothing is left of us.
    let result = unsafe { syscall(nr::execveat, args) };
    signal::take_actions_back(thread);
    Errno(-result as i32)
}

/// Goes on at another node of the image, or on another host, if this exec is to; returns if it is
/// not. An error: it cannot run where `HUSK_NODE` says.
fn place(
    thread: &mut Thread,
    plan: &Plan,
    path: &[u8],
    argv: usize,
    envp: usize,
) -> Result<(), Errno> {
    match thread.client.nodes() {
        0 | 1 => {}
        nodes @ AFAR.. => {
            let asked = Asked::of(envp).settle(nodes - AFAR + 1, plan.path())?;
            if plan.depth == 0 {
                let program = (&plan.program, plan.path());
                let _ = shadow::become_shadow(thread, nodes, program, argv, asked, envp);
            }
        }
        nodes => {
            let asked = Asked::of(envp).settle(nodes, plan.path())?;
            if let Some(node) = elsewhere::chosen(thread, nodes, asked)
                && let Some(ready) = elsewhere::join(thread, node, asked.is_some(), plan.path())?
            {
                let _ = go_elsewhere(thread, &ready, path, argv, envp);
            }
        }
    }
    Ok(())
}

/// Becomes a program of the node that has taken us in; returns if it cannot.
#[inline(never)]
fn go_elsewhere(
    thread: &mut Thread,
    ready: &Ready,
    path: &[u8],
    argv: usize,
    envp: usize,
) -> Option<()> {
    let variables = count(envp).ok()?;
    let mut text = [0; elsewhere::TOLD_BYTES];
    let text = elsewhere::handover(&mut text, ready, path)?;
    let words = variables + 2;
    let mut small = [0usize; WORDS_ON_STACK];
    let array = if words <= WORDS_ON_STACK { &mut small[..] } else { area(thread, words).ok()? };
    array[0] = text.as_ptr() as usize;
    copy_words(&mut array[1..], envp, variables).ok()?;
    array[variables + 1] = 0;
    thread.client.surrender_pipes();
    keep_open(false);
    let _ = start_by(thread, ready.loader.0, argv, array.as_ptr() as usize);
    keep_open(true);
    None
}

/// `ptrace`. A child of `vfork` that asks to be traced is traced when it starts a program: each
/// call of ours that traps stops a traced process for its tracer, who still sleeps in `vfork`.
/// Linux stops it there, too, at the program and not before.
pub fn trace(thread: &mut Thread, frame: &Frame) -> Answer {
    if frame.args[0] == PTRACE_SYSCALL && thread.client.knows(frame.args[1] as u32) {
        say_of_tracer(
            b" is not shown the system calls that Husk answers; \
            to see all calls, run on the host: husk trace IMAGE\n",
        );
    }
    if frame.args[0] == PTRACE_TRACEME && program_name() == b"ltrace" {
        // It looks for the program behind `/proc/PID/exe` of its child.
        say_of_tracer(b" cannot follow programs inside an image; run it on the host, or use gdb\n");
    }
    if frame.args[0] != PTRACE_TRACEME || !thread.creator_sleeps.load(Relaxed) {
        return Answer::PASSED;
    }
    match thread.traced_at_exec.swap(true, Relaxed) {
        true => Answer::value(Errno::EPERM.as_return()),
        false => Answer::value(0),
    }
}

/// Lets the user of a tracer know, once, what it cannot do here.
#[cold]
fn say_of_tracer(why: &[u8]) {
    static SAID: AtomicBool = AtomicBool::new(false);
    if SAID.swap(true, Relaxed) {
        return;
    }
    for part in [&b"husk: note: "[..], program_name(), why] {
        calls::write(2, part);
    }
}

/// The name of the program that this process runs, without the directories.
fn program_name() -> &'static [u8] {
    let name = facts().path.to_bytes();
    let from = name.iter().rposition(|&byte| byte == b'/').map_or(0, |at| at + 1);
    &name[from..]
}

/// The last before the host's `exec`.
fn begin_trace(thread: &Thread) {
    if thread.traced_at_exec.swap(false, Relaxed) {
        // SAFETY: touches no memory.
        unsafe { syscall(nr::ptrace, [PTRACE_TRACEME, 0, 0, 0, 0, 0]) };
    }
}

/// Pointers in an array that ends with 0; 0 for no array.
pub(super) fn count(array: usize) -> Result<usize, Errno> {
    let mut count = 0;
    while array != 0 && memory::word(array + 8 * count)? != 0 {
        count += 1;
        if count > WORDS_MAX {
            return Err(Errno::E2BIG);
        }
    }
    Ok(count)
}

pub(super) fn copy_words(target: &mut [usize], source: usize, count: usize) -> Result<(), Errno> {
    memory::copy(target.as_mut_ptr() as usize, source, 8 * count)
}

/// The arguments of a script's interpreter: innermost line first, then the script, then the rest.
/// Returns the words used, with the 0.
fn arguments_into(
    out: &mut [usize],
    plan: &Plan,
    name: &[u8],
    argv: usize,
    count: usize,
) -> Result<usize, Errno> {
    if plan.depth == 0 {
        return Ok(0);
    }
    let mut at = 0;
    for (index, line) in plan.lines[..plan.depth].iter().enumerate().rev() {
        // Each line names its interpreter; the file it stood in follows as an argument.
        if index == plan.depth - 1 {
            out[at] = line.text.as_ptr() as usize;
            at += 1;
        }
        if let Some(argument) = line.argument {
            out[at] = line.text[argument..].as_ptr() as usize;
            at += 1;
        }
        let script = if index == 0 { name } else { &plan.lines[index - 1].text };
        out[at] = script.as_ptr() as usize;
        at += 1;
    }
    let rest = count.saturating_sub(1);
    if rest > 0 {
        copy_words(&mut out[at..], argv + 8, rest)?;
    }
    out[at + rest] = 0;
    Ok(at + rest + 1)
}

/// A mapping for long arrays, kept in the block (a vfork child's goes back with it).
pub(super) fn area(thread: &mut Thread, words: usize) -> Result<&'static mut [usize], Errno> {
    let bytes = (words * 8).next_multiple_of(PAGE);
    if thread.exec_area[1] < bytes {
        let (prot, flags) = (PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS);
        let map = [0, bytes, prot, flags, -1isize as usize, 0];
        // SAFETY: a fresh mapping replaces our own old one.
        unsafe {
            if thread.exec_area[1] != 0 {
                let _ =
                    calls::raw(nr::munmap, [thread.exec_area[0], thread.exec_area[1], 0, 0, 0, 0]);
                thread.exec_area = [0; 2];
            }
            thread.exec_area = [calls::raw(nr::mmap, map)?, bytes];
        }
    }
    // SAFETY: the mapping has room for `words` and is ours.
    Ok(unsafe { core::slice::from_raw_parts_mut(thread.exec_area[0] as *mut usize, words) })
}

/// The first exec of an image: searches `PATH`, follows `#!`; ends with 127 or 126 as env does.
#[inline(never)]
pub fn first(thread: &mut Thread, argv: usize, envp: usize) -> Program {
    let typed = facts().path;
    let mut found = [0u8; PATH_MAX];
    say_nowhere(thread, &mut found);
    match search(thread, typed, envp, &mut found) {
        Ok(plan) => begin(thread, plan, &found, argv, envp),
        Err(errno) => {
            let status = if errno == Errno::ENOENT { 127 } else { 126 };
            let hidden = errno == Errno::ENOENT && is_on_host(typed);
            let why =
                if hidden { refusal::HIDDEN } else { refusal::why_not(typed.to_bytes(), errno) };
            refusal::die(status, b"cannot run ", typed.to_bytes(), why)
        }
    }
}

/// A working directory that only the host has: from there no relative path leads anywhere.
fn say_nowhere(thread: &mut Thread, room: &mut [u8; PATH_MAX]) {
    if !matches!(open(thread, calls::AT_FDCWD, b".\0", 0), Err(Errno::ENOENT)) {
        return;
    }
    // One that was removed has no path on the host either.
    let args = [room.as_mut_ptr() as usize, room.len(), 0, 0, 0, 0];
    // SAFETY: `room` is writable for its length.
    let length = unsafe { calls::raw(nr::getcwd, args) };
    if let Some(here) = length.ok().and_then(|length| room.get(..length.checked_sub(1)?)) {
        let why = b" is on the host, but not in the image, which has a tree of its own there; \
            change to another directory\n";
        for part in [&b"husk: note: "[..], here, why] {
            calls::write(2, part);
        }
    }
}

/// `found` is the path that led to the plan: a script's own.
fn begin(
    thread: &mut Thread,
    plan: Plan,
    found: &[u8; PATH_MAX],
    argv: usize,
    envp: usize,
) -> Program {
    let native = leaves(thread, &plan.program);
    if plan.depth == 0 && !native {
        facts::set_path(&plan.path, found);
        // In an image that it joins others may write to it.
        match thread.client.set_program(plan.program.inode) {
            Ok(_) => return plan.program,
            Err(errno) => refusal::die(126, plan.path().to_bytes(), b": ", refusal::message(errno)),
        }
    }
    let errno = if plan.depth == 0 {
        if !plan.program.unreadable {
            say_native(plan.path().to_bytes());
        }
        natively(thread, &plan, argv, envp)
    } else {
        match hand_over(thread, &plan, found, handover::GIVEN, argv, envp) {
            Ok(never) => match never {},
            Err(errno) => errno,
        }
    };
    refusal::die(126, plan.path().to_bytes(), b": ", refusal::message(errno))
}

/// Who joins an image hears it here: the note that the supervisor makes goes to its log.
fn say_native(path: &[u8]) {
    if facts().handover.flags & handover::JOINS != 0 {
        let why = b" gains rights when it starts: it runs natively, outside the image\n";
        for part in [&b"husk: note: "[..], path, why] {
            calls::write(2, part);
        }
    }
}

fn try_path(
    thread: &mut Thread,
    parts: &[&[u8]],
    found: &mut [u8; PATH_MAX],
) -> Result<Plan, Errno> {
    let mut at = 0;
    for part in parts {
        let room = found.get_mut(at..at + part.len()).ok_or(Errno::ENAMETOOLONG)?;
        room.copy_from_slice(part);
        at += part.len();
    }
    *found.get_mut(at).ok_or(Errno::ENAMETOOLONG)? = 0;
    resolve(thread, calls::AT_FDCWD, &found[..=at], 0)
}

fn search(
    thread: &mut Thread,
    typed: &CStr,
    envp: usize,
    found: &mut [u8; PATH_MAX],
) -> Result<Plan, Errno> {
    let name = typed.to_bytes();
    if name.is_empty() {
        return Err(Errno::ENOENT);
    }
    if name.contains(&b'/') {
        return try_path(thread, &[name], found);
    }
    let mut worst = Errno::ENOENT;
    for directory in variable(envp, b"PATH=").split(|&b| b == b':') {
        let result = if directory.is_empty() {
            try_path(thread, &[b"./", name], found)
        } else {
            try_path(thread, &[directory, b"/", name], found)
        };
        match result {
            Ok(plan) => return Ok(plan),
            Err(Errno::ENOENT | Errno::ENOTDIR) => {}
            Err(errno) => worst = errno,
        }
    }
    Err(worst)
}

fn variable(envp: usize, name: &[u8]) -> &'static [u8] {
    let mut at = envp as *const *const i8;
    // SAFETY: the stack of a new program, as the host made it.
    unsafe {
        while !(*at).is_null() {
            let text = CStr::from_ptr(*at).to_bytes();
            if let Some(value) = text.strip_prefix(name) {
                return value;
            }
            at = at.add(1);
        }
    }
    b"/usr/local/bin:/usr/bin:/bin"
}

/// Whether the host has something at the path `typed`.
fn is_on_host(typed: &CStr) -> bool {
    let args = [calls::AT_FDCWD, typed.as_ptr() as usize, 0, 0, 0, 0];
    // SAFETY: the path ends with NUL.
    typed.to_bytes().contains(&b'/') && unsafe { calls::raw(nr::faccessat, args) }.is_ok()
}

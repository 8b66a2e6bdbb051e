//! The core file: made as Linux makes it (`core_pattern`, mode 0600, an old one is replaced), up to
//! the limit. Pages that nobody has touched stay holes. A core that finds no room is removed.

use super::stop::{self, GateRegisters};
use super::{AUXILIARY, LEAST, call, exchange, look};
use core::ffi::CStr;
use core::sync::atomic::Ordering::Relaxed;
use husk_abi::memory::{MAP_ANONYMOUS, MAP_NORESERVE, MAP_PRIVATE, PROT_READ, PROT_WRITE};
use husk_abi::{Errno, PAGE, nr};
use husk_host::calls;
use husk_runtime::core_dump;
use husk_runtime::core_dump::file::{
    Head, NAME_BYTES_MAX, Named, Part, Process, Row, mark, path as named_path, rows,
};

/// Bytes of the text of `/proc/self/maps` that are looked at, and of a head.
const LARGE_BYTES: usize = 1 << 20;
/// Bytes of each thing that is small.
const SMALL_BYTES: usize = 4096;
/// Smalls: pattern, name, `comm`, arguments, what of memory is there.
const SMALLS: usize = 5;
const ROOM_BYTES: usize = 2 * LARGE_BYTES + SMALLS * SMALL_BYTES;
const HERE: usize = calls::AT_FDCWD;

/// Memory for all that is prepared: the stack may be a short one.
struct Room {
    start: usize,
    taken: usize,
}

impl Room {
    fn new() -> Option<Room> {
        let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
        let args = [0, ROOM_BYTES, PROT_READ | PROT_WRITE, flags, usize::MAX, 0];
        // SAFETY: a new mapping that replaces nothing.
        let start = unsafe { calls::raw(nr::mmap, args) }.ok()?;
        Some(Room { start, taken: 0 })
    }

    /// The next bytes of it, zeroed.
    fn take(&mut self, bytes: usize) -> &'static mut [u8] {
        let at = self.start + self.taken;
        self.taken += bytes;
        assert!(self.taken <= ROOM_BYTES);
        // SAFETY: within the mapping, which is never unmapped; each part is given once.
        unsafe { core::slice::from_raw_parts_mut(at as *mut u8, bytes) }
    }
}

/// Writes the core of this process, which `signal` ends. Whether there is one now.
pub fn write(signal: usize, siginfo: &[u8; 128], first: &GateRegisters) -> bool {
    try_write(signal, siginfo, first).unwrap_or(false)
}

fn try_write(signal: usize, siginfo: &[u8; 128], first: &GateRegisters) -> Option<bool> {
    let mut room = Room::new()?;
    let limit = core_dump::limit::meant(exchange(0, None).ok()?)[0];
    if limit < LEAST {
        return None;
    }
    let own = [room.start, room.start + ROOM_BYTES].map(|at| at as u64);
    let (text, head) = (room.take(LARGE_BYTES), room.take(LARGE_BYTES));
    let maps = read(c"/proc/self/maps", text);
    let (pages, seen) = (Pages::open(), room.take(SMALL_BYTES));
    mark(maps, |row| pages.any_own(row, seen));
    let program = look(c"/proc/self/comm", room.take(SMALL_BYTES));
    let arguments = read(c"/proc/self/cmdline", room.take(SMALL_BYTES));
    let process = Process {
        numbers: [ask(nr::getpid), ask(nr::getppid), ask(nr::getpgrp), session()],
        ids: [ask(nr::getuid), ask(nr::getgid)],
        siginfo,
        program,
        arguments,
        auxiliary: auxiliary(),
    };
    let all = rows(&*maps, own);
    let head = head_of(head, &process, first, all.clone())?;
    let pattern = look(c"/proc/sys/kernel/core_pattern", room.take(SMALL_BYTES));
    let name = room.take(SMALL_BYTES);
    let path = path_of(pattern, &process, signal, &mut name[..NAME_BYTES_MAX])?;
    let mut file = File::make(path, limit)?;
    file.put(head.as_ptr() as usize, head.len());
    all.for_each(|row| file.memory(&row, &pages, seen));
    Some(file.finish(path))
}

fn head_of<'a>(
    room: &'a mut [u8],
    process: &Process<'_>,
    first: &GateRegisters,
    all: impl Iterator<Item = Row<'a>> + Clone,
) -> Option<&'a [u8]> {
    let mut head = Head::new(room, all.clone().count());
    head.thread(&first.shown(), process);
    head.process(process, all.clone());
    stop::stopped().for_each(|other| head.thread(&other.shown(), process));
    head.finish(all)
}

fn path_of<'a>(
    pattern: &[u8],
    process: &Process<'_>,
    signal: usize,
    room: &'a mut [u8],
) -> Option<&'a [u8]> {
    let (mut digit, mut now) = ([0; 2], [0u64; 2]);
    let with_pid = look(c"/proc/sys/kernel/core_uses_pid", &mut digit) != b"0";
    // SAFETY: a time of ours (CLOCK_REALTIME).
    let _ = unsafe { calls::raw(nr::clock_gettime, [0, (&raw mut now) as usize, 0, 0, 0, 0]) };
    let named = Named {
        pid: process.numbers[0],
        tid: calls::gettid(),
        signal: signal as u32,
        ids: process.ids,
        time: core::hint::black_box(now)[0],
        program: process.program,
        with_pid,
    };
    named_path(pattern, &named, room)
}

fn ask(number: usize) -> u32 {
    // SAFETY: passes no memory.
    unsafe { calls::raw(number, [0; 6]) }.map_or(0, |value| value as u32)
}

fn session() -> u32 {
    // SAFETY: passes no memory.
    unsafe { calls::raw(nr::getsid, [0; 6]) }.map_or(0, |value| value as u32)
}

fn auxiliary() -> &'static [u8] {
    let (start, mut end) = (AUXILIARY.load(Relaxed), AUXILIARY.load(Relaxed));
    if start == 0 {
        return &[];
    }
    // SAFETY: the program's auxiliary vector, which ends with kind 0, of two words as all; if the
    // program has overwritten it, these are other bytes of its stack.
    unsafe {
        while *(end as *const usize) != 0 && end - start < SMALL_BYTES {
            end += 16;
        }
        core::slice::from_raw_parts(start as *const u8, end + 16 - start)
    }
}

/// A file as the program reads it.
fn read<'a>(path: &CStr, room: &'a mut [u8]) -> &'a mut [u8] {
    let fd = call(nr::openat, [HERE, path.as_ptr() as usize, 0, 0, 0, 0]);
    let Ok(fd) = usize::try_from(fd) else { return &mut [] };
    let mut length = 0;
    while length < room.len() {
        let at = room.as_mut_ptr() as usize + length;
        let got = call(nr::read, [fd, at, room.len() - length, 0, 0, 0]);
        match usize::try_from(got) {
            Ok(got @ 1..) => length += got,
            _ => break,
        }
    }
    call(nr::close, [fd, 0, 0, 0, 0, 0]);
    &mut core::hint::black_box(room)[..length]
}

struct File {
    fd: usize,
    at: u64,
    limit: u64,
    no_room: bool,
}

/// What the host says of each page of the program (`/proc/self/pagemap`).
struct Pages(Option<usize>);

impl Pages {
    fn open() -> Pages {
        Pages(calls::open(c"/proc/self/pagemap").ok())
    }

    /// The words of `count` pages from `start` on, as many as there are.
    fn words<'a>(&self, start: usize, count: usize, room: &'a mut [u8]) -> &'a [[u8; 8]] {
        let (bytes, at) = (8 * count, (start / PAGE * 8) as u64);
        let known = self.0.and_then(|fd| calls::pread(fd, &mut room[..bytes], at).ok());
        room[..known.unwrap_or(0)].as_chunks().0
    }

    /// Whether the program has pages of its own in a mapping of a file.
    fn any_own(&self, row: &Row<'_>, room: &mut [u8]) -> bool {
        let bytes = (row.end - row.start) as usize;
        parts(bytes, room).any(|(from, length)| {
            let words = self.words(row.start as usize + from, length / PAGE, room);
            words.iter().any(|word| is_there(word) && word[7] & OF_FILE == 0)
        })
    }
}

/// Bits in the last byte of such a word: present, swapped; of a file, or shared.
const PRESENT_OR_SWAPPED: u8 = 0xc0;
const OF_FILE: u8 = 0x20;

fn is_there(word: &[u8; 8]) -> bool {
    word[7] & PRESENT_OR_SWAPPED != 0
}

/// Parts of `bytes` whose words fit into `room`: where each begins, and its length.
fn parts(bytes: usize, room: &[u8]) -> impl Iterator<Item = (usize, usize)> + use<> {
    let most = room.len() / 8 * PAGE;
    (0..bytes).step_by(most).map(move |from| (from, most.min(bytes - from)))
}

impl File {
    fn make(path: &[u8], limit: u64) -> Option<File> {
        const O_WRONLY_CREAT_EXCL: usize = 0o301;
        const O_NOFOLLOW_CLOEXEC: usize = 0o2400000;
        let (path, flags) = (path.as_ptr() as usize, O_WRONLY_CREAT_EXCL | O_NOFOLLOW_CLOEXEC);
        // There need not be one.
        let _ = call(nr::unlink, [path, 0, 0, 0, 0, 0]);
        let fd = call(nr::openat, [HERE, path, flags, 0o600, 0, 0]);
        let fd = usize::try_from(fd).ok()?;
        Some(File { fd, at: 0, limit, no_room: false })
    }

    /// Writes what the program has at `address`, at the end; what cannot be read becomes a hole.
    fn put(&mut self, address: usize, length: usize) {
        let mut done = 0;
        while done < length && !self.no_room {
            let offset = self.at + done as u64;
            let count = self.limit.saturating_sub(offset).min((length - done) as u64) as usize;
            if count == 0 {
                break;
            }
            let args = [self.fd, address + done, count, offset as usize, 0, 0];
            let wrote = call(nr::pwrite64, args);
            match usize::try_from(wrote) {
                Ok(wrote @ 1..) => done += wrote,
                _ if wrote == Errno::EFAULT.as_return() => {
                    done += PAGE - (address + done) % PAGE;
                }
                _ if wrote == Errno::EINTR.as_return() => {}
                _ => self.no_room = true,
            }
        }
        self.at += length as u64;
    }

    /// The part of a mapping that is dumped.
    fn memory(&mut self, row: &Row<'_>, pages: &Pages, room: &mut [u8]) {
        let (start, bytes) = (row.start as usize, row.bytes() as usize);
        if row.part() != Part::Touched {
            return self.put(start, bytes);
        }
        for (from, length) in parts(bytes, room) {
            let words = pages.words(start + from, length / PAGE, room);
            self.touched(words, start + from, length / PAGE);
        }
    }

    /// What has been touched of `count` pages; the rest is a hole. What nobody knows has been.
    fn touched(&mut self, words: &[[u8; 8]], start: usize, count: usize) {
        let known = |page: usize| words.get(page).is_none_or(is_there);
        let mut page = 0;
        while page < count {
            let there = known(page);
            let run = (page..count).take_while(|&page| known(page) == there).count();
            match there {
                true => self.put(start + page * PAGE, run * PAGE),
                false => self.at += (run * PAGE) as u64,
            }
            page += run;
        }
    }

    /// Whether it is kept.
    fn finish(self, path: &[u8]) -> bool {
        let length = self.at.min(self.limit) as usize;
        call(nr::ftruncate, [self.fd, length, 0, 0, 0, 0]);
        call(nr::close, [self.fd, 0, 0, 0, 0, 0]);
        if self.no_room {
            call(nr::unlink, [path.as_ptr() as usize, 0, 0, 0, 0, 0]);
        }
        !self.no_room
    }
}

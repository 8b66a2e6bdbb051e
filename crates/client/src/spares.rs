//! Files of the host that a thread opens again and again: their descriptors are kept, so that to
//! open one costs a look.
//!
//! ```text
//!   open, the eighth time ──► the host's descriptor goes to a high number: a spare
//!   open ──► statx: the same file? ──► a number is lent, under which the host has nothing
//!   read, pread, sendfile, lseek, fstat, isatty, close ──► by the spare, at an offset kept here
//!   any other call ──► the spare takes that number (dup3): as if the host had opened it there
//! ```
//!
//! Invariants
//! 1. A number is lent by a thread that has its table alone, and is free in both tables meanwhile.
//!    Every call that could tell comes here first (`before`), and ends that.
//! 2. A spare is lent to one number at a time, and only its bytes and attributes are used, never
//!    its offset. So it can become that number: a description of its own, and as it was opened.
//! 3. What is lent is what the host would open: a look has found the same file, with the same mode,
//!    owners and time of change, and who asks is the same (`KEEPING` has no call that changes
//!    that). Its bytes are the host's of the moment when they are read.
//! 4. No process inherits a spare, and no program: whoever makes one gives them back first.
//! 5. Spares are used during a service only, so that no handler comes between; and nothing is lent
//!    to a handler, which may have interrupted a call for which the host has set a number aside.
//!
//! The host tells its own watchers of no opening and no closing of what is lent. A process that
//! sleeps may keep `SPARES_MAX` files open, as one with a cache of open files does.

use crate::lately::Lately;
use crate::layout::get64;
use crate::overlay::Fact;
use crate::transfer::Side;
use crate::vector::check_buffer;
use crate::{Answer, Call, Client, Host, Memory, value};
use husk_abi::nr;
use husk_abi::sys::general::{
    AT_EMPTY_PATH, AT_FDCWD, AT_NO_AUTOMOUNT, AT_SYMLINK_NOFOLLOW, F_DUPFD, F_DUPFD_CLOEXEC,
    IN_CLOSE_NOWRITE, IN_OPEN, O_CLOEXEC, O_LARGEFILE, O_NOCTTY, O_NONBLOCK, SEEK_CUR, SEEK_SET,
};
use husk_proto::descriptor::Shown;
use husk_proto::fs::{HostIdentity, Kind, Origin};
use husk_proto::{Errno, Files, Inode, Services};

/// Files whose openings are counted, and descriptors kept, at a time: a power of two.
pub(crate) const SPARES_MAX: usize = 16;
/// Openings before a descriptor is kept.
const OPENINGS: i32 = 8;
/// What the count falls to when something else was done with a lent number than what a spare does.
const OPENINGS_IN_VAIN: i32 = -64;
/// Bytes of the largest such file: what is removed meanwhile is not much.
const BYTES_MAX: u64 = 65536;
/// How long a file must be unchanged, ns: the host's clock would show a change of it by then.
const SETTLED_NS: i64 = 100_000_000;
/// Spares have numbers from so many below the limit on, or below this.
const NUMBERS: u32 = 64;
const LIMIT_MAX: u32 = 1024;

/// Flags of an opening that may be lent; that on exec is kept beside the description.
const LENT_FLAGS: u32 = O_CLOEXEC | O_NONBLOCK | O_LARGEFILE | O_NOCTTY;
/// `ioctl` that asks for the modes of a terminal.
const TCGETS: u32 = 0x5401;
/// `prctl` that asks for filters of calls.
const PR_GET_SECCOMP: usize = 21;

/// Local file systems, by `f_type`: what a look says there, an opening would say. ext4, XFS, Btrfs,
/// F2FS, tmpfs, ramfs, overlayfs, ZFS.
const LOCAL: [u64; 8] = [
    0xef53,
    0x5846_5342,
    0x9123_683e,
    0xf2f5_2010,
    0x0102_1994,
    0x8584_58f6,
    0x794c_7630,
    0x2fc1_2fc1,
];

/// Calls that move bytes of descriptors, and no descriptors: a number stays lent over them.
const LENDING: [bool; nr::LIMIT] = those(&[
    nr::read,
    nr::write,
    nr::readv,
    nr::writev,
    nr::pread64,
    nr::sendfile,
    nr::sendto,
    nr::recvfrom,
    nr::setsockopt,
    nr::getsockopt,
    nr::lseek,
    nr::fstat,
    nr::newfstatat,
    nr::close,
]);

/// Calls that change neither who asks nor the table as a whole, and name no number of their own
/// but argument 0: spares are kept over them.
const KEEPING: [bool; nr::LIMIT] = those(&[
    nr::read,
    nr::write,
    nr::readv,
    nr::writev,
    nr::pread64,
    nr::pwrite64,
    nr::sendfile,
    nr::sendto,
    nr::recvfrom,
    nr::sendmsg,
    nr::setsockopt,
    nr::getsockopt,
    nr::getsockname,
    nr::getpeername,
    nr::lseek,
    nr::ftruncate,
    nr::fsync,
    nr::fdatasync,
    nr::close,
    nr::open,
    nr::openat,
    nr::fstat,
    nr::stat,
    nr::lstat,
    nr::newfstatat,
    nr::statx,
    nr::access,
    nr::faccessat,
    nr::faccessat2,
    nr::readlink,
    nr::readlinkat,
    nr::getcwd,
    nr::getdents64,
    nr::unlink,
    nr::unlinkat,
    nr::rename,
    nr::renameat,
    nr::renameat2,
    nr::mkdir,
    nr::mkdirat,
    nr::rmdir,
    nr::ioctl,
    nr::fcntl,
    nr::socket,
    nr::bind,
    nr::listen,
    nr::connect,
    nr::accept,
    nr::accept4,
    nr::shutdown,
    nr::epoll_ctl,
    nr::epoll_wait,
    nr::epoll_pwait,
    nr::epoll_pwait2,
]);

const fn those(numbers: &[usize]) -> [bool; nr::LIMIT] {
    let mut table = [false; nr::LIMIT];
    let mut i = 0;
    while i < numbers.len() {
        table[numbers[i]] = true;
        i += 1;
    }
    table
}

/// What a thread opens again and again, and the descriptor of it where one is kept (`Spares::kept`
/// says so: any content is sound here, as of all buffers).
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Spare {
    /// The host's descriptor.
    fd: u32,
    /// Openings, less those of what else has this place.
    count: i32,
    of: Of,
    fact: Look,
}

impl Spare {
    /// Nothing.
    pub const NONE: Spare = Spare { fd: 0, count: 0, of: Of::NOTHING, fact: Look::NONE };
}

/// What is opened, and how.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq)]
struct Of {
    /// A file of the image whose bytes are the host's; number 0: none.
    inode: Inode,
    /// A text that leads outside every tree.
    text: Lately,
    /// Flags, without that on exec.
    flags: u32,
    zero: u32,
}

impl Of {
    const NOTHING: Of =
        Of { inode: Inode { number: 0, generation: 0 }, text: Lately::NONE, flags: 0, zero: 0 };

    /// Where it is kept.
    fn place(&self) -> usize {
        let inode = u64::from(self.inode.number) << 32 | u64::from(self.inode.generation);
        let tag = inode ^ self.text.tag() ^ u64::from(self.flags) << 16;
        (tag.wrapping_mul(husk_abi::SPREAD) >> 56) as usize % SPARES_MAX
    }
}

/// What a look at a file of the host says of it, as far as it matters here.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq)]
struct Look {
    identity: HostIdentity,
    mode: u32,
    uid: u32,
    gid: u32,
    zero: u32,
}

impl Look {
    const NONE: Look = Look {
        identity: HostIdentity { device: 0, inode: 0, size: 0, modified_ns: 0, changed_ns: 0 },
        mode: 0,
        uid: 0,
        gid: 0,
        zero: 0,
    };

    /// Of a regular file.
    fn of(fact: &Fact) -> Option<Look> {
        let Fact { identity, mode, uid, gid, .. } = *fact;
        (fact.kind == Kind::File).then_some(Look { identity, mode, uid, gid, zero: 0 })
    }
}

/// A number that the program has, and the host has nothing under.
#[derive(Clone, Copy)]
struct Lent {
    fd: u32,
    /// Which spare.
    place: usize,
    offset: u64,
    close_on_exec: bool,
}

/// What a thread has of spares, beside `Buffers::spares`.
pub(crate) struct Spares {
    /// Of whose table they are: a child of vfork has another, and its parent's memory.
    files: Files,
    lent: Option<Lent>,
    /// No number below is a spare's.
    lowest: u32,
    /// A bit for each place where a descriptor is kept.
    kept: u32,
    /// A handler runs, which may have interrupted a call that takes a number.
    interrupts: bool,
    /// The process has given up rights that an opening asks for each time.
    off: bool,
}

impl Spares {
    /// None.
    pub const NONE: Spares = Spares {
        files: Files(0),
        lent: None,
        lowest: u32::MAX,
        kept: 0,
        interrupts: false,
        off: false,
    };

    #[inline(always)]
    pub fn is_lending(&self) -> bool {
        self.lent.is_some()
    }

    fn has(&self, place: usize) -> bool {
        self.kept >> place & 1 == 1
    }

    /// Whether there was one at `place`, which is not kept any more.
    fn take(&mut self, place: usize) -> bool {
        let had = self.has(place);
        self.kept &= !(1 << place);
        had
    }
}

impl<S: Services, H: Host, M: Memory> Client<S, H, M> {
    /// Whether something is kept, so that calls have to come here first.
    #[inline(always)]
    pub fn has_spares(&self) -> bool {
        self.spares.kept != 0
    }

    /// Whether a signal's handler makes the calls that follow: nothing is lent to it.
    pub fn tell_handler(&mut self, runs: bool) {
        self.spares.interrupts = runs;
    }

    /// What opens the text in walk 0, which leads outside: a lent number.
    #[inline]
    pub(crate) fn lend_outside(&mut self, flags: u32) -> Option<u32> {
        if !self.may_lend(flags) {
            return None;
        }
        let of = Of { text: *self.lately_of()?, flags: flags & !O_CLOEXEC, ..Of::NOTHING };
        let path = self.buffers.walks[0].for_host();
        match self.openings(of)? {
            (place, true) => self.lend(place, path, 0, flags),
            (place, false) => {
                let args = [AT_FDCWD as usize, path, (flags | O_CLOEXEC) as usize, 0, 0, 0];
                let fd = Errno::check(self.host.call(nr::openat, args)).ok()?;
                self.keep(place, fd as u32, flags)
            }
        }
    }

    /// The same of a file of the image whose bytes are the host's. Who asks may read it.
    pub(crate) fn lend_inside(&mut self, inode: Inode, origin: Origin, flags: u32) -> Option<u32> {
        if !self.may_lend(flags) {
            return None;
        }
        let of = Of { inode, flags: flags & !O_CLOEXEC, ..Of::NOTHING };
        let lent = match self.openings(of)? {
            (place, true) => {
                let path = self.origin_text(origin).ok()?;
                self.lend(place, path, AT_NO_AUTOMOUNT | AT_SYMLINK_NOFOLLOW, flags)
            }
            (place, false) => {
                let fd = self.open_unlinked(origin, flags | O_CLOEXEC).ok()?;
                self.keep(place, fd as u32, flags)
            }
        }?;
        self.services.unguard();
        self.services.watch_note(inode, IN_OPEN);
        Some(lent)
    }

    #[inline]
    fn may_lend(&mut self, flags: u32) -> bool {
        if flags & !LENT_FLAGS != 0 || self.spares.off || !self.services.has_table_alone() {
            return false;
        }
        self.forget_others_spares();
        self.spares.lent.is_none() && !self.spares.interrupts
    }

    /// Forgets spares that a child of vfork has kept in its own table, in its parent's memory.
    #[inline]
    fn forget_others_spares(&mut self) {
        if self.spares.files != self.services.files() {
            let Spares { interrupts, off, .. } = self.spares;
            self.spares = Spares { files: self.services.files(), interrupts, off, ..Spares::NONE };
        }
    }

    /// Counts an opening more. Where what is opened is kept, and whether it is; nothing, while it
    /// was not opened often.
    #[inline]
    fn openings(&mut self, of: Of) -> Option<(usize, bool)> {
        let place = of.place();
        let spare = &mut self.buffers.spares[place];
        if spare.of != of {
            return self.contend(place, of);
        }
        spare.count = spare.count.saturating_add(1).min(OPENINGS);
        let kept = self.spares.has(place);
        (kept || spare.count == OPENINGS).then_some((place, kept))
    }

    /// Something else is opened that has the same place: it takes it once it is opened more often.
    fn contend<T>(&mut self, place: usize, of: Of) -> Option<T> {
        let spare = &mut self.buffers.spares[place];
        spare.count = spare.count.saturating_sub(1);
        if spare.count <= 0 || !self.spares.has(place) {
            self.close_spare(place);
            self.buffers.spares[place] = Spare { of, count: 1, ..Spare::NONE };
        }
        None
    }

    /// Lends the spare at `place`, if `path` leads to its file yet.
    fn lend(&mut self, place: usize, path: usize, how: u32, flags: u32) -> Option<u32> {
        let now = self.host_fact_at(AT_FDCWD as usize, path, how).ok();
        if now.and_then(|now| Look::of(&now)) == Some(self.buffers.spares[place].fact) {
            return self.lend_unchanged(place, flags);
        }
        self.close_spare(place);
        None
    }

    fn lend_unchanged(&mut self, place: usize, flags: u32) -> Option<u32> {
        let fd = self.free_number(self.spares.files, 0).ok()?;
        if fd >= self.spares.lowest {
            self.give_back_spares();
            return None;
        }
        let close_on_exec = flags & O_CLOEXEC != 0;
        self.spares.lent = Some(Lent { fd, place, offset: 0, close_on_exec });
        Some(fd)
    }

    /// Keeps what the host has opened under `fd`, if it is such a file, and lends it.
    #[cold]
    fn keep(&mut self, place: usize, fd: u32, flags: u32) -> Option<u32> {
        let kept = self.kept_of(fd);
        self.host_close(fd);
        let spare = &mut self.buffers.spares[place];
        let Some((fd, fact)) = kept else {
            spare.count = OPENINGS_IN_VAIN;
            return None;
        };
        (spare.fd, spare.fact) = (fd, fact);
        self.spares.kept |= 1 << place;
        self.lend_unchanged(place, flags)
    }

    /// A high number for what is kept of `fd`.
    fn kept_of(&mut self, fd: u32) -> Option<(u32, Look)> {
        // A filter would judge each opening, and none of ours.
        let filtered = self.host.call(nr::prctl, [PR_GET_SECCOMP, 0, 0, 0, 0, 0]);
        self.spares.off = filtered != 0;
        let fact = Look::of(&self.host_fact(fd as usize, None).ok()?)?;
        let settled = self.host.now_ns().saturating_sub(fact.identity.changed_ns) > SETTLED_NS;
        let small = fact.identity.size <= BYTES_MAX;
        if self.spares.off || !settled || !small || !self.is_local(fd as usize) {
            return None;
        }
        let from = self.descriptor_limit().min(LIMIT_MAX).checked_sub(NUMBERS)?;
        let args = [fd as usize, F_DUPFD_CLOEXEC as usize, from as usize, 0, 0, 0];
        let kept = Errno::check(self.host.call(nr::fcntl, args)).ok()? as u32;
        if kept >= from + NUMBERS {
            self.host_close(kept);
            return None;
        }
        self.spares.lowest = from;
        Some((kept, fact))
    }

    fn is_local(&mut self, fd: usize) -> bool {
        let out = self.buffers.base.as_mut_ptr() as usize;
        self.host.call(nr::fstatfs, [fd, out, 0, 0, 0, 0]) == 0
            && LOCAL.contains(&get64(&self.buffers.base, 0))
    }

    /// Closes the spare at `place`.
    fn close_spare(&mut self, place: usize) {
        if self.spares.take(place) {
            let spare = &mut self.buffers.spares[place];
            spare.count = 0;
            let fd = spare.fd;
            self.host_close(fd);
        }
    }

    /// Gives the host what is lent, and closes all that is kept: before a call that this could
    /// change, or that could tell.
    #[cold]
    pub fn give_back_spares(&mut self) {
        self.forget_others_spares();
        self.give_number();
        for place in 0..SPARES_MAX {
            self.close_spare(place);
        }
    }

    /// The process gives up rights: from now on, the host opens what is opened.
    #[cold]
    pub(crate) fn forgo_spares(&mut self) {
        self.give_back_spares();
        self.spares.off = true;
    }

    /// The lent number becomes the host's, as if it had opened the file under it.
    #[cold]
    pub(crate) fn give_number(&mut self) {
        let Some(lent) = self.spares.lent.take() else { return };
        self.services.unguard();
        if !self.spares.take(lent.place) {
            return;
        }
        let spare = &mut self.buffers.spares[lent.place];
        spare.count = OPENINGS_IN_VAIN;
        let Spare { fd, of, .. } = *spare;
        let on_exec = if lent.close_on_exec { O_CLOEXEC } else { 0 };
        let args = [fd as usize, lent.fd as usize, on_exec as usize, 0, 0, 0];
        let put = self.host.call(nr::dup3, args);
        if put >= 0 && lent.offset != 0 {
            let args = [lent.fd as usize, lent.offset as usize, SEEK_SET as usize, 0, 0, 0];
            self.host.call(nr::lseek, args);
        }
        self.host_close(fd);
        if put < 0 {
            return;
        }
        let shows = if of.inode.number == 0 { Shown::Nothing } else { Shown::File(of.inode) };
        let files = self.spares.files;
        let noted = self.services.host_opened(files, lent.fd, lent.close_on_exec, shows);
        if noted.is_err() {
            // The file has left the image meanwhile; the host's is there.
            let _ = self.services.host_opened(files, lent.fd, lent.close_on_exec, Shown::Nothing);
        }
    }

    /// What comes before every call while something is kept: the answer, if a spare has it.
    #[inline(never)]
    pub(crate) fn before(&mut self, c: &Call) -> Option<Answer> {
        self.forget_others_spares();
        let number = c.number % nr::LIMIT;
        if let Some(lent) = self.spares.lent {
            let answer = self.by_spare(c, lent);
            if answer.is_some() {
                return answer;
            }
            let names = c.args[0] as u32 == lent.fd
                || (number == nr::sendfile && c.args[1] as u32 == lent.fd);
            let by_path = number == nr::newfstatat && c.args[3] as u32 & AT_EMPTY_PATH == 0;
            if names || by_path || !LENDING[number] {
                self.give_number();
            }
        }
        let (fd, second) = (c.args[0] as u32, c.args[1] as u32);
        let copies = number == nr::fcntl && (second == F_DUPFD || second == F_DUPFD_CLOEXEC);
        let named = (self.spares.lowest..self.spares.lowest.saturating_add(NUMBERS)).contains(&fd);
        let opens = matches!(number, nr::open | nr::openat | nr::socket | nr::accept | nr::accept4);
        if copies || named || !KEEPING[number] || (opens && self.is_near_spares()) {
            self.give_back_spares();
        }
        if number == nr::landlock_create_ruleset {
            self.forgo_spares();
        }
        None
    }

    /// Whether the next number might be a spare's.
    fn is_near_spares(&mut self) -> bool {
        let files = self.spares.files;
        self.free_number(files, 0).is_ok_and(|free| free >= self.spares.lowest)
    }

    /// A call on the lent number, as far as a spare answers it.
    fn by_spare(&mut self, c: &Call, lent: Lent) -> Option<Answer> {
        let source = if c.number == nr::sendfile { c.args[1] } else { c.args[0] };
        if source as u32 != lent.fd {
            return None;
        }
        let Spare { fd, of, .. } = self.buffers.spares[lent.place];
        let inode = Some(of.inode).filter(|inode| inode.number != 0);
        if inode.is_some_and(|inode| !self.services.has_host_bytes(inode)) {
            return None;
        }
        let source = Side::Host(fd as usize, of.flags);
        let answer = match c.number {
            nr::close => {
                self.spares.lent = None;
                if let Some(inode) = inode {
                    self.services.unguard();
                    self.services.watch_note(inode, IN_CLOSE_NOWRITE);
                }
                value(0)
            }
            nr::read => self.read_spare(c, source, lent.offset),
            nr::pread64 => self.read_spare(c, source, c.args[3] as u64),
            nr::lseek => return self.seek_lent(c, lent),
            nr::fstat => return self.stat_spare(fd, inode, c.args[1]),
            nr::newfstatat if self.is_of_descriptor(c) => {
                return self.stat_spare(fd, inode, c.args[2]);
            }
            // Whether it is a terminal.
            nr::ioctl if c.args[1] as u32 == TCGETS => Err(Errno::ENOTTY),
            nr::sendfile if c.args[0] as u32 != lent.fd && c.args[2] != 0 => {
                self.send_spare(c, source)
            }
            _ => return None,
        };
        Some(answer)
    }

    fn send_spare(&mut self, c: &Call, source: Side) -> Answer {
        let target = self.opened(c.args[0])?;
        self.surrender(c.args[0])?;
        self.send(c, source, target)
    }

    /// Whether `newfstatat` is about its descriptor.
    fn is_of_descriptor(&self, c: &Call) -> bool {
        c.args[3] as u32 == AT_EMPTY_PATH
            && (c.args[1] == 0 || self.memory.peek(c.args[1]) == Ok(0))
    }

    fn stat_spare(&mut self, fd: u32, inode: Option<Inode>, out: usize) -> Option<Answer> {
        if let Some(inode) = inode {
            let answer = self.give_stat(inode, out);
            // Of a file that has left the image the host's is shown.
            return (answer != Err(Errno::ESTALE)).then_some(answer);
        }
        let stat = match self.host_stat(fd as usize) {
            Ok(stat) => self.memory.write(out, &stat),
            Err(errno) => Err(errno),
        };
        Some(stat.and_then(|()| value(0)))
    }

    fn read_spare(&mut self, c: &Call, source: Side, at: u64) -> Answer {
        if (at as i64) < 0 {
            return Err(Errno::EINVAL);
        }
        check_buffer(c.args[1], c.args[2])?;
        let (length, mut done) = (c.args[2], 0);
        while done < length {
            let wanted = (length - done).min(self.buffers.bounce.len());
            let got = self.fill_from(source, at.saturating_add(done as u64), wanted)?;
            match self.memory.write(c.args[1] + done, &self.buffers.bounce[..got]) {
                Err(errno) if done == 0 => return Err(errno),
                Err(_) => break,
                Ok(()) => done += got,
            }
            if got < wanted {
                break;
            }
        }
        if c.number == nr::read
            && let Some(lent) = &mut self.spares.lent
        {
            lent.offset += done as u64;
        }
        value(done as u64)
    }

    /// `lseek`, as far as no size matters.
    fn seek_lent(&mut self, c: &Call, lent: Lent) -> Option<Answer> {
        let base = match c.args[2] as u32 {
            SEEK_SET => 0,
            SEEK_CUR => lent.offset as i64,
            _ => return None,
        };
        let offset = base.checked_add(c.args[1] as i64).filter(|&offset| offset >= 0)?;
        self.spares.lent = Some(Lent { offset: offset as u64, ..lent });
        Some(value(offset as u64))
    }
}

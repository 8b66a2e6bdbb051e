//! Files of the host that a thread opens again and again: their descriptors are kept, so that to
//! open one costs a look.
//!
//! ```text
//!   open, the eighth time ──► the host's descriptor goes to a high number: a spare
//!   open ──► statx: the same file? ──► a number is lent, under which the host has nothing
//!   read, pread, sendfile, lseek, fstat, close of it ──► by the spare, at an offset kept here
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
//! 5. Spares are used during a service only, so that no handler comes between.
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
    IN_CLOSE_NOWRITE, IN_OPEN, O_CLOEXEC, O_LARGEFILE, O_NOCTTY, O_NONBLOCK, SEEK_CUR,
    SEEK_SET,
};
use husk_proto::descriptor::Shown;
use husk_proto::fs::{Kind, Origin};
use husk_proto::{Errno, Files, Inode, Services};

/// Files whose descriptors are kept at a time.
const SPARES_MAX: usize = 8;
/// Files whose openings are counted at a time, a power of two.
const COUNTED_MAX: usize = 16;
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

/// What a thread opens again and again.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Of {
    /// A text that leads outside every tree.
    Outside(Lately),
    /// A file of the image whose bytes are the host's.
    Inside(Inode),
}

/// A descriptor that is kept.
#[derive(Clone, Copy)]
struct Spare {
    fd: u32,
    of: Of,
    /// Flags of its openings.
    flags: u32,
    fact: Fact,
    /// Where its openings were counted.
    counted: usize,
}

/// A number that the program has, and the host has nothing under.
#[derive(Clone, Copy)]
struct Lent {
    fd: u32,
    /// Which spare.
    spare: usize,
    offset: u64,
    close_on_exec: bool,
}

/// How often something was opened.
#[derive(Clone, Copy)]
struct Openings {
    tag: u64,
    count: i32,
}

/// Spares of a thread.
pub(crate) struct Spares {
    /// Of whose table they are: a child of vfork has another, and its parent's memory.
    files: Files,
    kept: [Option<Spare>; SPARES_MAX],
    lent: Option<Lent>,
    next: usize,
    openings: [Openings; COUNTED_MAX],
    /// No number below is a spare's.
    lowest: u32,
    /// Something was kept since the last time when all was given back.
    used: bool,
    /// The process has given up rights that an opening asks for each time.
    off: bool,
}

impl Spares {
    /// None.
    pub const NONE: Spares = Spares {
        files: Files(0),
        kept: [None; SPARES_MAX],
        lent: None,
        next: 0,
        openings: [Openings { tag: 0, count: 0 }; COUNTED_MAX],
        lowest: u32::MAX,
        used: false,
        off: false,
    };

    /// Whether calls have to come here first.
    #[inline(always)]
    pub fn in_use(&self) -> bool {
        self.used
    }

    #[inline(always)]
    pub fn is_lending(&self) -> bool {
        self.lent.is_some()
    }

    fn find(&self, is_wanted: impl Fn(&Of) -> bool, flags: u32) -> Option<usize> {
        let same = |spare: &Spare| is_wanted(&spare.of) && spare.flags == flags & !O_CLOEXEC;
        self.kept.iter().position(|kept| kept.as_ref().is_some_and(same))
    }

    /// One opening more of what has this tag. Where it is counted, once that is enough.
    fn count(&mut self, tag: u64) -> Option<usize> {
        let place = (tag.wrapping_mul(husk_abi::SPREAD) >> 56) as usize % COUNTED_MAX;
        let openings = &mut self.openings[place];
        if openings.tag != tag {
            *openings = Openings { tag, count: 0 };
        }
        openings.count += 1;
        (openings.count >= OPENINGS).then_some(place)
    }
}

impl<S: Services, H: Host, M: Memory> Client<S, H, M> {
    /// Whether calls have to come here first (`give_back_spares`).
    #[inline(always)]
    pub fn has_spares(&self) -> bool {
        self.spares.in_use()
    }

    /// What opens the text in walk 0, which leads outside: a lent number.
    #[inline]
    pub(crate) fn lend_outside(&mut self, flags: u32) -> Option<u32> {
        if !self.may_lend(flags) {
            return None;
        }
        let text = *self.lately_of()?;
        let found = self.spares.find(|of| *of == Of::Outside(text), flags);
        let path = self.buffers.walks[0].for_host();
        if let Some(index) = found {
            return self.lend(index, path, 0, flags);
        }
        let counted = self.spares.count(text.tag() ^ u64::from(flags & !O_CLOEXEC))?;
        let args = [AT_FDCWD as usize, path, (flags | O_CLOEXEC) as usize, 0, 0, 0];
        let fd = Errno::check(self.host.call(nr::openat, args)).ok()?;
        self.keep(fd as u32, Of::Outside(text), flags, counted)
    }

    /// The same of a file of the image whose bytes are the host's. Who asks may read it.
    pub(crate) fn lend_inside(&mut self, inode: Inode, origin: Origin, flags: u32) -> Option<u32> {
        if !self.may_lend(flags) {
            return None;
        }
        let tag = u64::from(inode.number) << 32 | u64::from(inode.generation);
        let lent = match self.spares.find(|of| *of == Of::Inside(inode), flags) {
            Some(index) => {
                let path = self.origin_text(origin).ok()?;
                self.lend(index, path, AT_NO_AUTOMOUNT | AT_SYMLINK_NOFOLLOW, flags)
            }
            None => {
                let counted = self.spares.count(tag ^ u64::from(flags & !O_CLOEXEC))?;
                let fd = self.open_unlinked(origin, flags | O_CLOEXEC).ok()?;
                self.keep(fd as u32, Of::Inside(inode), flags, counted)
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
        self.spares.lent.is_none()
    }

    /// Forgets spares that a child of vfork has kept in its own table, in its parent's memory.
    #[inline]
    fn forget_others_spares(&mut self) {
        if self.spares.files != self.services.files() {
            self.spares = Spares { off: self.spares.off, ..Spares::NONE };
            self.spares.files = self.services.files();
        }
    }

    /// Lends spare `index`, if `path` leads to its file yet.
    fn lend(&mut self, index: usize, path: usize, look: u32, flags: u32) -> Option<u32> {
        let spare = self.spares.kept[index].as_ref()?;
        let now = self.host_fact_at(AT_FDCWD as usize, path, look);
        if now.is_ok_and(|now| now.is_unchanged(&spare.fact)) {
            return self.lend_unchanged(index, flags);
        }
        self.close_spare(index);
        None
    }

    fn lend_unchanged(&mut self, index: usize, flags: u32) -> Option<u32> {
        let fd = self.free_number(self.spares.files, 0).ok()?;
        if fd >= self.spares.lowest {
            self.give_back_spares();
            return None;
        }
        let close_on_exec = flags & O_CLOEXEC != 0;
        self.spares.lent = Some(Lent { fd, spare: index, offset: 0, close_on_exec });
        Some(fd)
    }

    /// Keeps what the host has opened under `fd`, if it is such a file, and lends it.
    #[cold]
    fn keep(&mut self, fd: u32, of: Of, flags: u32, counted: usize) -> Option<u32> {
        let kept = self.kept_of(fd);
        self.host_close(fd);
        // Not again at once.
        self.spares.openings[counted].count = OPENINGS_IN_VAIN;
        let (fd, fact) = kept?;
        let index = self.spares.next % SPARES_MAX;
        self.spares.next = index + 1;
        self.close_spare(index);
        let flags_kept = flags & !O_CLOEXEC;
        self.spares.kept[index] = Some(Spare { fd, of, flags: flags_kept, fact, counted });
        self.spares.used = true;
        self.lend_unchanged(index, flags)
    }

    /// A high number for what is kept of `fd`.
    fn kept_of(&mut self, fd: u32) -> Option<(u32, Fact)> {
        // A filter would judge each opening, and none of ours.
        let asked = self.host.call(nr::prctl, [PR_GET_SECCOMP, 0, 0, 0, 0, 0]);
        self.spares.off = asked != 0;
        let fact = self.host_fact(fd as usize, None).ok()?;
        let settled = self.host.now_ns().saturating_sub(fact.identity.changed_ns) > SETTLED_NS;
        let small = fact.identity.size <= BYTES_MAX && fact.kind == Kind::File;
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

    /// Closes spare `index`.
    fn close_spare(&mut self, index: usize) {
        if let Some(spare) = self.spares.kept[index].take() {
            self.host_close(spare.fd);
        }
    }

    /// Gives the host what is lent, and closes all that is kept: before a call that this could
    /// change, or that could tell.
    #[cold]
    pub fn give_back_spares(&mut self) {
        self.forget_others_spares();
        self.give_number();
        for index in 0..SPARES_MAX {
            self.close_spare(index);
        }
        (self.spares.used, self.spares.lowest) = (false, u32::MAX);
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
        let Some(spare) = self.spares.kept[lent.spare].take() else { return };
        self.spares.openings[spare.counted].count = OPENINGS_IN_VAIN;
        let on_exec = if lent.close_on_exec { O_CLOEXEC } else { 0 };
        let args = [spare.fd as usize, lent.fd as usize, on_exec as usize, 0, 0, 0];
        let put = self.host.call(nr::dup3, args);
        if put >= 0 && lent.offset != 0 {
            let args = [lent.fd as usize, lent.offset as usize, SEEK_SET as usize, 0, 0, 0];
            self.host.call(nr::lseek, args);
        }
        self.host_close(spare.fd);
        if put < 0 {
            return;
        }
        let shows = match spare.of {
            Of::Inside(inode) => Shown::File(inode),
            Of::Outside(_) => Shown::Nothing,
        };
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
        let spare = self.spares.kept[lent.spare]?;
        if source as u32 != lent.fd {
            return None;
        }
        let inode = match spare.of {
            Of::Inside(inode) if !self.services.has_host_bytes(inode) => return None,
            Of::Inside(inode) => Some(inode),
            Of::Outside(_) => None,
        };
        let answer = match c.number {
            nr::close => {
                self.spares.lent = None;
                if let Some(inode) = inode {
                    self.services.unguard();
                    self.services.watch_note(inode, IN_CLOSE_NOWRITE);
                }
                value(0)
            }
            nr::read => self.read_spare(c, &spare, lent.offset),
            nr::pread64 => self.read_spare(c, &spare, c.args[3] as u64),
            nr::lseek => return self.seek_lent(c, lent),
            nr::fstat => return self.stat_spare(&spare, inode, c.args[1]),
            nr::newfstatat if self.is_of_descriptor(c) => {
                return self.stat_spare(&spare, inode, c.args[2]);
            }
            nr::sendfile if c.args[0] as u32 != lent.fd && c.args[2] != 0 => {
                self.send_spare(c, &spare)
            }
            _ => return None,
        };
        Some(answer)
    }

    fn send_spare(&mut self, c: &Call, spare: &Spare) -> Answer {
        let target = self.opened(c.args[0])?;
        self.surrender(c.args[0])?;
        self.send(c, Side::Host(spare.fd as usize, spare.flags), target)
    }

    /// Whether `newfstatat` is about its descriptor.
    fn is_of_descriptor(&self, c: &Call) -> bool {
        c.args[3] as u32 == AT_EMPTY_PATH && (c.args[1] == 0 || self.memory.peek(c.args[1]) == Ok(0))
    }

    fn stat_spare(&mut self, spare: &Spare, inode: Option<Inode>, out: usize) -> Option<Answer> {
        if let Some(inode) = inode {
            let answer = self.give_stat(inode, out);
            // Of a file that has left the image the host's is shown.
            return (answer != Err(Errno::ESTALE)).then_some(answer);
        }
        let stat = match self.host_stat(spare.fd as usize) {
            Ok(stat) => self.memory.write(out, &stat),
            Err(errno) => Err(errno),
        };
        Some(stat.and_then(|()| value(0)))
    }

    fn read_spare(&mut self, c: &Call, spare: &Spare, at: u64) -> Answer {
        if (at as i64) < 0 {
            return Err(Errno::EINVAL);
        }
        check_buffer(c.args[1], c.args[2])?;
        let (length, mut done) = (c.args[2], 0);
        let side = Side::Host(spare.fd as usize, spare.flags);
        while done < length {
            let wanted = (length - done).min(self.buffers.bounce.len());
            let got = self.fill_from(side, at.saturating_add(done as u64), wanted)?;
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

//! Keeps descriptors of host files that a thread opens repeatedly, so that the next open costs one
//! `statx`.
//!
//! ```text
//!   open, the eighth time ──► the host's descriptor goes to a high number: a spare
//!   open ──► statx: the same file? ──► a number is lent, under which the host has nothing
//!   read, pread, sendfile, lseek, fstat, isatty, close ──► by the spare, at an offset kept here
//!   any other call ──► the spare takes that number (F_DUPFD): as if the host had opened it there
//! ```
//!
//! Invariants
//! 1. A number is lent by a thread that has its table alone, and is free in both tables then. Calls
//!    that could tell come here first (`before`), and end that.
//! 2. A spare is lent to one number at a time, and only its bytes and attributes are used, never
//!    its offset. So it can become that number: a description of its own, and as it was opened.
//! 3. What is lent is what the host would open: a look has found the same file, with the same mode,
//!    owners and time of change, and who asks is the same (no call of `fd_cache_policy` changes
//!    that). Its bytes are the host's of the moment when they are read.
//! 4. No process inherits a spare, and no program: whoever makes one gives them back first.
//! 5. Spares are used during a service only, so that no handler comes between; and nothing is lent
//!    to a handler, which may have interrupted a call that takes a number as it goes on, and does
//!    not come here.
//! 6. A file of the image is pinned while a spare of it is kept: what becomes of the number shows
//!    it, and nothing that is done to it reaches the host.
//! 7. A process that takes record locks has no spares from then on: to close one would take the
//!    locks away.
//!
//! The host tells its own watchers of no opening and no closing of what is lent. A process that
//! sleeps may keep `SPARES_MAX` files open, as one with a cache of open files does.

use crate::fd::fd_cache_policy::{KEEPING, LENDING};
use crate::iovec::check_buffer;
use crate::layout::get64;
use crate::overlay::lower::Fact;
use crate::path::outside_cache::Lately;
use crate::{Answer, Call, Client, Host, Memory, value};
use husk_abi::nr;
use husk_abi::sys::general::{
    AT_FDCWD, AT_NO_AUTOMOUNT, AT_SYMLINK_NOFOLLOW, F_DUPFD_CLOEXEC, F_GETFD, F_GETFL, F_SETFD,
    F_SETFL, IN_CLOSE_NOWRITE, IN_OPEN, O_CLOEXEC, O_LARGEFILE, O_NOCTTY, O_NONBLOCK, SEEK_CUR,
    SEEK_SET,
};
use husk_abi::sys::net::{MSG_DONTWAIT, MSG_NOSIGNAL};
use husk_proto::descriptor::Shown;
use husk_proto::fs::{HostIdentity, Kind, Origin};
use husk_proto::{Errno, Inode, Result, Services};

/// Files whose openings are counted, and descriptors kept, at a time: a power of two.
pub(crate) const SPARES_MAX: usize = 16;
/// Openings before a descriptor is kept.
const OPENINGS: i32 = 8;
/// What the count falls to when a lent number had to become the host's, and when what is opened is
/// not to be kept.
const OPENINGS_IN_VAIN: i32 = -64;
/// Bytes of the largest such file: what is removed meanwhile is not much.
const BYTES_MAX: u64 = 65536;
/// How long a file must be unchanged, ns: the host's clock would show a change of it by then.
const SETTLED_NS: i64 = 100_000_000;
/// Spares have numbers from so many below the limit on.
const NUMBERS: u32 = 64;
/// A limit above this counts as this: the host's table grows with the largest number.
const LIMIT_MAX: u32 = 16384;

/// Flags of an opening that may be lent; that on exec is kept beside the description.
const LENT_FLAGS: u32 = O_CLOEXEC | O_NONBLOCK | O_LARGEFILE | O_NOCTTY;
/// Besides, where a descriptor is made that is kept: nothing is waited for.
const AT_ONCE: u32 = O_CLOEXEC | O_NONBLOCK;
/// `ioctl` that asks for the modes of a terminal.
const TCGETS: u32 = 0x5401;

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
    stamp: Stamp,
}

impl Spare {
    /// Nothing.
    pub const NONE: Spare = Spare { fd: 0, count: 0, of: Of::NOTHING, stamp: Stamp::NONE };
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
}

impl Of {
    const NOTHING: Of =
        Of { inode: Inode { number: 0, generation: 0 }, text: Lately::NONE, flags: 0 };

    /// The file of the image, if it is one.
    fn image_file(&self) -> Option<Inode> {
        Some(self.inode).filter(|inode| inode.number != 0)
    }

    /// Where it is kept.
    fn place(&self) -> usize {
        let inode = u64::from(self.inode.number) << 32 | u64::from(self.inode.generation);
        let tag = inode ^ self.text.tag() ^ u64::from(self.flags) << 16;
        (tag.wrapping_mul(husk_abi::SPREAD) >> 56) as usize % SPARES_MAX
    }
}

/// What tells whether a file of the host is the same, and unchanged.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq)]
struct Stamp {
    identity: HostIdentity,
    mode: u32,
    uid: u32,
    gid: u32,
}

impl Stamp {
    const NONE: Stamp = Stamp {
        identity: HostIdentity { device: 0, inode: 0, size: 0, modified_ns: 0, changed_ns: 0 },
        mode: 0,
        uid: 0,
        gid: 0,
    };

    /// Of a regular file.
    fn of(fact: &Fact) -> Option<Stamp> {
        let Fact { identity, mode, uid, gid, .. } = *fact;
        (fact.kind == Kind::File).then_some(Stamp { identity, mode, uid, gid })
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
    lent: Option<Lent>,
    /// No number below is a spare's.
    lowest: u32,
    /// A bit for each place where a descriptor is kept.
    kept: u32,
    /// A handler runs, which may have interrupted a call that takes a number.
    interrupts: bool,
    /// The host is to be asked for each opening.
    off: bool,
}

impl Spares {
    /// None.
    pub const NONE: Spares =
        Spares { lent: None, lowest: u32::MAX, kept: 0, interrupts: false, off: false };

    #[inline(always)]
    pub fn is_lending(&self) -> bool {
        self.lent.is_some()
    }

    #[inline(always)]
    pub fn lends(&self, fd: u32) -> bool {
        self.lent.as_ref().is_some_and(|lent| lent.fd == fd)
    }

    /// The numbers that spares may have.
    pub fn numbers(&self) -> core::ops::Range<u32> {
        self.lowest..self.lowest.saturating_add(NUMBERS)
    }

    fn has(&self, place: usize) -> bool {
        self.kept >> place & 1 == 1
    }
}

impl<S: Services, H: Host, M: Memory> Client<S, H, M> {
    /// Whether something is kept, so that calls have to come here first.
    #[inline(always)]
    pub fn has_spares(&self) -> bool {
        self.numbers.spares.kept != 0
    }

    /// Whether a signal's handler makes the calls that follow: nothing is lent to it.
    pub fn tell_handler(&mut self, runs: bool) {
        self.numbers.spares.interrupts = runs;
    }

    /// What opens the text in walk 0, which leads outside: a lent number.
    #[inline]
    pub(crate) fn lend_outside(&mut self, flags: u32) -> Option<u32> {
        if !self.may_lend(flags) {
            return None;
        }
        let of = Of { text: *self.lately_of()?, flags: flags & !O_CLOEXEC, ..Of::NOTHING };
        let place = self.opened_often(of)?;
        let path = self.buffers.walks[0].for_host();
        let fact = self.host_fact_at(AT_FDCWD as usize, path, 0);
        self.lend(place, flags, fact, |client| client.host_open(path, flags | AT_ONCE))
    }

    /// The same of a file of the image whose bytes are the host's. Who asks may read it.
    pub(crate) fn lend_inside(&mut self, inode: Inode, origin: Origin, flags: u32) -> Option<u32> {
        if !self.may_lend(flags) || self.services.is_elsewhere(inode) {
            return None;
        }
        let of = Of { inode, flags: flags & !O_CLOEXEC, ..Of::NOTHING };
        let place = self.opened_often(of)?;
        let path = self.origin_text(origin).ok()?;
        let how = AT_NO_AUTOMOUNT | AT_SYMLINK_NOFOLLOW;
        let fact = self.host_fact_at(AT_FDCWD as usize, path, how);
        let open = |client: &mut Self| client.open_unlinked(origin, flags | AT_ONCE);
        let lent = self.lend(place, flags, fact, open)?;
        self.services.unguard();
        self.services.watch_note(inode, IN_OPEN);
        Some(lent)
    }

    #[inline]
    fn may_lend(&mut self, flags: u32) -> bool {
        let Spares { lent, interrupts, off, .. } = self.numbers.spares;
        let may = flags & !LENT_FLAGS == 0 && !off && !interrupts && lent.is_none();
        may && self.services.has_table_alone()
    }

    /// Counts an opening more. Where what is opened is kept, or is to be by now.
    #[inline]
    fn opened_often(&mut self, of: Of) -> Option<usize> {
        let place = of.place();
        let spare = &mut self.buffers.spares[place];
        if spare.of != of {
            self.contend(place, of);
            return None;
        }
        spare.count = spare.count.saturating_add(1).min(OPENINGS);
        (spare.count == OPENINGS || self.numbers.spares.has(place)).then_some(place)
    }

    /// Something else is opened that has the same place: it takes it once it is opened more often.
    fn contend(&mut self, place: usize, of: Of) {
        let spare = &mut self.buffers.spares[place];
        spare.count = spare.count.saturating_sub(1);
        if spare.count <= 0 || !self.numbers.spares.has(place) {
            self.close_spare(place);
            self.buffers.spares[place] = Spare { of, count: 1, ..Spare::NONE };
        }
    }

    /// Lends the spare at `place`, if what is opened is that file yet; or keeps what `open` opens.
    #[inline]
    fn lend(
        &mut self,
        place: usize,
        flags: u32,
        now: Result<Fact>,
        open: impl FnOnce(&mut Self) -> Result<usize>,
    ) -> Option<u32> {
        if !self.numbers.spares.has(place) {
            return self.keep(place, flags, now, open);
        }
        let stamp = now.ok().and_then(|now| Stamp::of(&now));
        if stamp == Some(self.buffers.spares[place].stamp) {
            return self.lend_unchanged(place, flags);
        }
        self.close_spare(place);
        None
    }

    fn lend_unchanged(&mut self, place: usize, flags: u32) -> Option<u32> {
        let files = self.services.files();
        let fd = self.free_number(files, 0).ok()?;
        if fd >= self.numbers.spares.lowest {
            self.give_back_spares();
            self.buffers.spares[place].count = OPENINGS_IN_VAIN;
            return None;
        }
        // Some calls make descriptors that nobody tells of (SO_PEERPIDFD).
        if self.host_fcntl(fd as usize, F_GETFD, 0) >= 0 {
            return None;
        }
        let close_on_exec = flags & O_CLOEXEC != 0;
        self.numbers.spares.lent = Some(Lent { fd, place, offset: 0, close_on_exec });
        Some(fd)
    }

    /// Keeps what `open` opens, which looks so, if it is a file to be kept, and lends it.
    #[cold]
    fn keep(
        &mut self,
        place: usize,
        flags: u32,
        fact: Result<Fact>,
        open: impl FnOnce(&mut Self) -> Result<usize>,
    ) -> Option<u32> {
        let spare = &mut self.buffers.spares[place];
        spare.count = OPENINGS_IN_VAIN;
        let inode = spare.of.image_file();
        // What is no file may wait to be opened, or notice.
        if !fact.is_ok_and(|fact| self.is_to_be_kept(&fact)) {
            return None;
        }
        let fd = open(self).ok()? as u32;
        let kept = self.kept_of(fd, flags);
        self.host_close(fd);
        let (fd, stamp) = kept?;
        if let Some(inode) = inode {
            self.services.unguard();
            if self.services.pin(inode).is_err() {
                self.host_close(fd);
                return None;
            }
        }
        let spare = &mut self.buffers.spares[place];
        (spare.fd, spare.stamp, spare.count) = (fd, stamp, OPENINGS);
        self.numbers.spares.kept |= 1 << place;
        self.lend_unchanged(place, flags)
    }

    fn is_to_be_kept(&self, fact: &Fact) -> bool {
        let age_ns = self.host.now_ns().saturating_sub(fact.identity.changed_ns);
        fact.kind == Kind::File && fact.identity.size <= BYTES_MAX && age_ns > SETTLED_NS
    }

    /// A high number for what is open under `fd`, with these flags.
    fn kept_of(&mut self, fd: u32, flags: u32) -> Option<(u32, Stamp)> {
        // A filter would judge each opening, and none of ours.
        self.numbers.spares.off = self.is_filtered();
        let fact = self.host_fact(fd as usize, None).ok()?;
        if self.numbers.spares.off || !self.is_to_be_kept(&fact) || !self.is_local(fd as usize) {
            return None;
        }
        let from = self.descriptor_limit().min(LIMIT_MAX).checked_sub(NUMBERS)?;
        let kept = self.host_fcntl(fd as usize, F_DUPFD_CLOEXEC, from as usize);
        let kept = Errno::check(kept).ok()? as u32;
        let shown = self.host_fcntl(kept as usize, F_SETFL, (flags & O_NONBLOCK) as usize);
        if kept >= from + NUMBERS || shown < 0 {
            self.host_close(kept);
            return None;
        }
        self.numbers.spares.lowest = from;
        Stamp::of(&fact).map(|stamp| (kept, stamp))
    }

    pub(crate) fn is_local(&mut self, fd: usize) -> bool {
        let out = self.buffers.base.as_mut_ptr() as usize;
        self.host.call(nr::fstatfs, [fd, out, 0, 0, 0, 0]) == 0
            && LOCAL.contains(&get64(&self.buffers.base, 0))
    }

    /// Takes the spare at `place`: its descriptor and its pin are the caller's.
    fn take_spare(&mut self, place: usize, count: i32) -> Option<Spare> {
        if !self.numbers.spares.has(place) {
            return None;
        }
        self.numbers.spares.kept &= !(1 << place);
        self.buffers.spares[place].count = count;
        Some(self.buffers.spares[place])
    }

    fn unpin_spare(&mut self, spare: &Spare) {
        if let Some(inode) = spare.of.image_file() {
            self.services.unguard();
            self.services.unpin(inode);
        }
    }

    /// Closes the spare at `place`.
    fn close_spare(&mut self, place: usize) {
        if let Some(spare) = self.take_spare(place, 0) {
            self.host_close(spare.fd);
            self.unpin_spare(&spare);
        }
    }

    /// Gives the host what is lent, and closes all that is kept: before a call that this could
    /// change, or that could tell.
    #[cold]
    pub fn give_back_spares(&mut self) {
        self.give_number();
        for place in 0..SPARES_MAX {
            self.close_spare(place);
        }
    }

    /// From now on, the host opens what is opened: the process gives up rights, or has locks.
    #[cold]
    pub fn forgo_spares(&mut self) {
        self.give_back_spares();
        self.numbers.spares.off = true;
    }

    /// The lent number becomes the host's, as if it had opened the file under it.
    #[cold]
    pub(crate) fn give_number(&mut self) {
        let Some(lent) = self.numbers.spares.lent.take() else { return };
        let Some(spare) = self.take_spare(lent.place, OPENINGS_IN_VAIN) else { return };
        self.services.unguard();
        // Takes the number only if the host has nothing there. If it has (of which nobody told), or
        // gives no such number (another process has changed the limit), the descriptor is gone.
        let put = self.host_fcntl(spare.fd as usize, F_DUPFD_CLOEXEC, lent.fd as usize);
        if put == i64::from(lent.fd) {
            if !lent.close_on_exec {
                self.host_fcntl(lent.fd as usize, F_SETFD, 0);
            }
            let _ = self.host_seek(lent.fd as usize, lent.offset, SEEK_SET);
            let shows = spare.of.image_file().map_or(Shown::Nothing, Shown::File);
            let files = self.services.files();
            if self.services.host_opened(files, lent.fd, lent.close_on_exec, shows).is_err() {
                self.host_close(lent.fd);
            }
        } else if put >= 0 {
            self.host_close(put as u32);
        }
        self.host_close(spare.fd);
        self.unpin_spare(&spare);
    }

    /// What comes before every call while something is kept: the answer, if a spare has it.
    #[inline(never)]
    pub(crate) fn before(&mut self, c: &Call) -> Option<Answer> {
        let number = c.number % nr::LIMIT;
        if let Some(lent) = self.numbers.spares.lent {
            let answer = self.by_spare(c, lent);
            if answer.is_some() {
                return answer;
            }
            let names = c.args[0] as u32 == lent.fd
                || (number == nr::sendfile && c.args[1] as u32 == lent.fd);
            let by_path =
                number == nr::newfstatat && !self.is_fstat(c.args[0] as u32, c.args[1], c.args[3]);
            if names || by_path || !LENDING[number] {
                self.give_number();
            }
        }
        let opens = matches!(number, nr::open | nr::openat | nr::socket | nr::accept | nr::accept4);
        let keeps = LENDING[number] || KEEPING[number];
        if !keeps || self.names_spare(c) || (opens && self.is_near_spares()) {
            self.give_back_spares();
        }
        None
    }

    /// Whether the next number might be a spare's.
    pub(crate) fn is_near_spares(&mut self) -> bool {
        let files = self.services.files();
        self.free_number(files, 0).is_ok_and(|free| free >= self.numbers.spares.lowest)
    }

    /// A call on the lent number, as far as a spare answers it.
    fn by_spare(&mut self, c: &Call, lent: Lent) -> Option<Answer> {
        let source = if c.number == nr::sendfile { c.args[1] } else { c.args[0] };
        if source as u32 != lent.fd {
            return None;
        }
        let Spare { fd, of, .. } = self.buffers.spares[lent.place];
        let inode = of.image_file();
        if inode.is_some_and(|inode| !self.services.has_host_bytes(inode)) {
            return None;
        }
        match c.number {
            nr::close => {
                self.numbers.spares.lent = None;
                if let Some(inode) = inode {
                    self.services.unguard();
                    self.services.watch_note(inode, IN_CLOSE_NOWRITE);
                }
                Some(value(0))
            }
            nr::read => {
                let count = self.read_spare(c, fd, lent.offset)?;
                self.numbers.spares.lent = Some(Lent { offset: lent.offset + count, ..lent });
                Some(value(count))
            }
            nr::pread64 if c.args[3] as i64 >= 0 => {
                self.read_spare(c, fd, c.args[3] as u64).map(value)
            }
            nr::lseek => self.seek_lent(c, lent),
            nr::fstat => self.stat_spare(fd, inode, c.args[1]),
            nr::newfstatat if self.is_fstat(c.args[0] as u32, c.args[1], c.args[3]) => {
                self.stat_spare(fd, inode, c.args[2])
            }
            // Whether it is a terminal.
            nr::ioctl if c.args[1] as u32 == TCGETS => Some(Err(Errno::ENOTTY)),
            nr::sendfile => self.send_spare(c, fd),
            _ => None,
        }
    }

    fn stat_spare(&mut self, fd: u32, inode: Option<Inode>, out: usize) -> Option<Answer> {
        if let Some(inode) = inode {
            return Some(self.give_stat_at(fd as usize, inode, out));
        }
        let stat = self.host_stat(fd as usize).ok()?;
        Some(self.memory.write(out, &stat).and_then(|()| value(0)))
    }

    /// Bytes of the spare; nothing, where not all of them fit into the program's memory.
    fn read_spare(&mut self, c: &Call, fd: u32, at: u64) -> Option<u64> {
        let length = c.args[2];
        check_buffer(c.args[1], length).ok()?;
        let mut done = 0;
        while done < length {
            let wanted = (length - done).min(self.buffers.bounce.len());
            let bounce = self.buffers.bounce.as_mut_ptr() as usize;
            let at = at.saturating_add(done as u64);
            let got = self.host_read(fd as usize, bounce, wanted, at).ok()?;
            self.memory.write(c.args[1] + done, &self.buffers.bounce[..got]).ok()?;
            done += got;
            if got < wanted {
                break;
            }
        }
        Some(done as u64)
    }

    /// `lseek`, as far as no size matters, nor how large a file may be.
    fn seek_lent(&mut self, c: &Call, lent: Lent) -> Option<Answer> {
        let base = match c.args[2] as u32 {
            SEEK_SET => 0,
            SEEK_CUR => lent.offset as i64,
            _ => return None,
        };
        let offset = base.checked_add(c.args[1] as i64)?;
        let near = (0..=i64::from(i32::MAX)).contains(&offset);
        let offset = near.then_some(offset as u64)?;
        self.numbers.spares.lent = Some(Lent { offset, ..lent });
        Some(value(offset))
    }

    /// `sendfile` to a socket that takes all at once, from an offset of the program's.
    fn send_spare(&mut self, c: &Call, fd: u32) -> Option<Answer> {
        let mut offset = [0; 8];
        if c.args[2] == 0 || self.memory.read(c.args[2], &mut offset).is_err() {
            return None;
        }
        let (offset, room) = (u64::from_le_bytes(offset), self.buffers.value.len());
        // More than a file may have is all the same, and behind an end there is nothing.
        let (length, target) = (c.args[3].min(room), c.args[0]);
        if offset > BYTES_MAX || self.described(target).ok()?.is_some() {
            return None;
        }
        let bytes = self.buffers.value.as_mut_ptr() as usize;
        let count = self.host_read(fd as usize, bytes, length, offset).ok()?;
        if count == 0 || (count == room && c.args[3] > room) {
            return None;
        }
        let lane = self.sending_lane(target);
        let sent = match lane {
            Some(lane) => self.send_into(target, lane, (bytes, count), MSG_NOSIGNAL),
            None => {
                let flags = (MSG_DONTWAIT | MSG_NOSIGNAL) as usize;
                let sent = self.host.call(nr::sendto, [target, bytes, count, flags, 0, 0]);
                Errno::check(sent).map(|sent| sent as usize)
            }
        };
        let sent = match sent {
            // No socket, nothing taken at once, or a signal: the host's `sendfile`.
            Err(Errno::ENOTSOCK | Errno::EAGAIN | Errno::EPIPE) => return None,
            Err(errno) => return Some(Err(errno)),
            Ok(sent) => sent as u64,
        };
        self.sent_of_spare(c, offset + sent, sent, count as u64)
    }

    /// The same once `sent` bytes of `count` are gone.
    fn sent_of_spare(&mut self, c: &Call, end: u64, sent: u64, count: u64) -> Option<Answer> {
        if let Err(errno) = self.memory.write(c.args[2], &end.to_le_bytes()) {
            return Some(Err(errno));
        }
        if sent == count || self.host_fcntl(c.args[0], F_GETFL, 0) as u32 & O_NONBLOCK != 0 {
            return Some(value(sent));
        }
        // A socket that is to be waited for.
        self.give_number();
        Some(self.sent_by_host(c, sent as usize))
    }
}

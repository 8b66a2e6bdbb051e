//! inotify: one descriptor with events of the host's files and of the image's.
//!
//! ```text
//!   inotify_init ──► the host's instance N ──► watches its marker, a file of the private directory
//!                                  │
//!   watch of a host path ──► the host's watch, with a descriptor of ours
//!   watch of a path of a tree ──► a watch in the region ◄── operations put events into its queue
//!                                                                  │ first one: touch the marker
//!   read: the host's events, and where a marker stands among them, those of the queue
//! ```
//!
//! Invariants
//! 1. There is an event in an instance's queue exactly while a marker waits at the host, is about
//!    to, or is being read: so `poll`, `select` and `epoll` need to know nothing.
//! 2. Only who has read a marker takes events out of the queue, and leaves another one if it could
//!    not take all. One reader at a time; the host is only asked for what is there.
//! 3. The marker is touched after the operation, with nothing held. Who dies or fails before leaves
//!    it to the supervisor.

use crate::layout::{STAT_INODE_AT, get32, get64, put};
use crate::path::{Aim, plain};
use crate::pipe::fifo::Text;
use crate::reason;
use crate::{After, Answer, Call, Client, Host, Memory, Verdict, value};
use husk_abi::nr;
use husk_abi::sys::general::{
    AT_FDCWD, F_GETFL, IN_ALL_EVENTS, IN_ATTRIB, IN_DONT_FOLLOW, IN_EXCL_UNLINK, IN_IGNORED,
    IN_ISDIR, IN_MASK_ADD, IN_MASK_CREATE, IN_ONESHOT, IN_ONLYDIR, IN_Q_OVERFLOW, IN_UNMOUNT,
    O_CLOEXEC, O_NONBLOCK, POLLIN, S_IFREG,
};
use husk_abi::sys::ioctl::FIONREAD;
use husk_proto::descriptor::{Shown, Slot};
use husk_proto::fs::{Kind, want};
use husk_proto::watch::{Instance, MarkerName, Removed};
use husk_proto::{Errno, Result, Services};

/// Bytes of `struct inotify_event` without its name.
const EVENT_BYTES: usize = 16;
/// Bytes read from the host, and given to the application, at a time.
const READ_BYTES: usize = 8192;
/// Reads that find nothing for the application, in one call.
const ROUNDS_MAX: u32 = 1000;
/// Instances told of in one call, and pieces of a list of watches looked through.
const TOLD_MAX: u32 = 128;
const PIECES_MAX: u32 = 64;
/// Whoever is in the image may touch a marker.
const OPEN_TO_ALL: usize = 0o666;
/// `inotify_add_watch` asks for something.
const KNOWN: u32 = IN_ALL_EVENTS
    | IN_UNMOUNT
    | IN_Q_OVERFLOW
    | IN_IGNORED
    | IN_ONLYDIR
    | IN_DONT_FOLLOW
    | IN_EXCL_UNLINK
    | IN_MASK_ADD
    | IN_MASK_CREATE
    | IN_ISDIR
    | IN_ONESHOT;

impl<S: Services, H: Host, M: Memory> Client<S, H, M> {
    /// The instance behind a number.
    #[inline]
    pub(crate) fn watcher(&mut self, fd: usize) -> Option<Instance> {
        let files = self.services.files();
        self.services.watch_instance(files, fd as u32)
    }

    /// Notes a new instance of the host.
    pub(crate) fn note_watcher(&mut self, after: &After, fd: u32) -> i64 {
        let flags = if after.number == nr::inotify_init1 { after.args[0] as u32 } else { 0 };
        let noted = self.note_opened(fd, flags & O_CLOEXEC != 0, Shown::Nothing);
        if noted < 0 {
            return noted;
        }
        let files = self.services.files();
        match self.services.watch_make(files, noted as u32) {
            Ok(instance) => self.make_marker(noted as usize, instance),
            Err(Errno::EMFILE) => {
                self.services.host_closed(files, noted as u32);
                self.host_close(noted as u32);
                return Errno::EMFILE.as_return();
            }
            // It stays all the host's.
            Err(_) => {}
        }
        noted
    }

    fn marker_path(&self, instance: Instance) -> Option<Text> {
        let directory = self.services.private_path();
        let name = MarkerName::new(instance);
        (!directory.is_empty()).then(|| Text::new(directory).then(name.as_bytes()))
    }

    /// Makes the instance's marker. Without one it tells of files of the host only.
    fn make_marker(&mut self, fd: usize, instance: Instance) {
        let Some(path) = self.marker_path(instance) else { return };
        let (here, at) = (AT_FDCWD as usize, path.address());
        self.host.call(nr::mknodat, [here, at, S_IFREG as usize, 0, 0, 0]);
        self.host.call(nr::fchmodat, [here, at, OPEN_TO_ALL, 0, 0, 0]);
        let marker = self.host.call(nr::inotify_add_watch, [fd, at, IN_ATTRIB as usize, 0, 0, 0]);
        let mut stat = [0u8; crate::layout::STAT_BYTES];
        let args = [here, at, stat.as_mut_ptr() as usize, 0, 0, 0];
        if marker > 0 && self.host.call(nr::newfstatat, args) == 0 {
            let file = get64(&core::hint::black_box(stat), STAT_INODE_AT);
            // It could only have been closed meanwhile.
            let _ = self.services.watch_mark(instance, marker as u32, file);
        }
    }

    /// Host number `fd` is one more of an instance's, if that is what was duplicated.
    pub(crate) fn watcher_joined(&mut self, instance: Option<Instance>, fd: u32) {
        if let Some(instance) = instance {
            let files = self.services.files();
            // Fails only when somebody closed one of the numbers meanwhile.
            let _ = self.services.watch_join(files, fd, instance);
        }
    }

    // ---- watches --------------------------------------------------------------------------------

    /// `inotify_add_watch`.
    pub(crate) fn add_watch(&mut self, c: &Call) -> Answer {
        let mask = c.args[2] as u32;
        if mask & KNOWN == 0 {
            return Err(Errno::EINVAL);
        }
        let instance = self.watcher(c.args[0]);
        if instance.is_none() {
            self.is_watcher(c.args[0], mask)?;
        }
        if mask & IN_MASK_ADD != 0 && mask & IN_MASK_CREATE != 0 {
            return Err(Errno::EINVAL);
        }
        let aim = Aim { follow: mask & IN_DONT_FOLLOW == 0, ..Aim::STAY };
        let mut husk = false;
        let answer = self.on_existing(c, plain(1), aim, |client, step| {
            husk = true;
            if mask & IN_ONLYDIR != 0 && step.kind != Kind::Directory {
                return Err(Errno::ENOTDIR);
            }
            client.permit(&step, want::READ)?;
            if step.unlisted {
                // Changes of the host are told only of names that the image knows. Where it has no
                // room for them, the changes of its programs are told all the same.
                let _ = client.import(step.inode);
            }
            let marked = instance.filter(|&instance| client.services.watch_marker(instance) != 0);
            match marked {
                Some(instance) => {
                    value(client.services.watch_add(instance, step.inode, mask)?.into())
                }
                None => client.refuse(c.number, Errno::EOPNOTSUPP),
            }
        })?;
        match (answer, instance) {
            (Verdict::Pass, Some(_)) => reason::then(c, reason::WATCH),
            (Verdict::Return(wd), Some(_)) if !husk && wd > 0 => {
                Ok(Verdict::Return(self.note_watch(c.args[0], wd as u32)))
            }
            (answer, _) => Ok(answer),
        }
    }

    /// Whether `fd` is the host's, and an instance of inotify; else the error.
    fn is_watcher(&mut self, fd: usize, mask: u32) -> Result<()> {
        let files = self.services.files();
        if let Slot::Husk(_) = self.services.slot(files, fd as u32) {
            return Err(Errno::EINVAL);
        }
        // The descriptor is judged before the path, and there is none.
        let asked = self.host.call(nr::inotify_add_watch, [fd, 0, mask as usize, 0, 0, 0]);
        match Errno::check(asked) {
            Err(Errno::EFAULT) => Ok(()),
            other => other.map(|_| ()),
        }
    }

    /// The program's descriptor for a watch of the host's.
    pub(crate) fn note_watch(&mut self, fd: usize, host: u32) -> i64 {
        let Some(instance) = self.watcher(fd) else { return i64::from(host) };
        match self.services.watch_host(instance, host) {
            Ok(wd) => i64::from(wd),
            Err(errno) => {
                self.host.call(nr::inotify_rm_watch, [fd, host as usize, 0, 0, 0, 0]);
                errno.as_return()
            }
        }
    }

    /// `inotify_rm_watch`.
    pub(crate) fn remove_watch(&mut self, c: &Call) -> Answer {
        let Some(instance) = self.watcher(c.args[0]) else {
            return self.other_kind(c, Errno::EINVAL);
        };
        match self.services.watch_remove(instance, c.args[1] as u32)? {
            Removed::Husk => value(0),
            Removed::Host(host) => {
                let args = [c.args[0], host as usize, 0, 0, 0, 0];
                Ok(Verdict::Return(self.host.call(c.number, args)))
            }
        }
    }

    // ---- events ---------------------------------------------------------------------------------

    /// `read`, and `readv`, which fills its first piece only, as the host's does.
    pub(crate) fn read_events(&mut self, c: &Call, instance: Instance) -> Answer {
        let (fd, mut to) = (c.args[0], (c.args[1], c.args[2]));
        if c.number == nr::readv {
            let mut first = [0u8; 16];
            if c.args[2] == 0 {
                return value(0);
            }
            self.memory.read(c.args[1], &mut first)?;
            to = (get64(&first, 0) as usize, get64(&first, 8) as usize);
        }
        let mut done = 0;
        for _ in 0..ROUNDS_MAX {
            match self.locked_events(fd, instance, to.1 - done) {
                Ok(Some(length)) => {
                    let events = &self.buffers.bounce[READ_BYTES..READ_BYTES + length];
                    self.memory.write(to.0 + done, events)?;
                    done += length;
                    // What is left of the queue is behind a marker that is touched now.
                    self.tell();
                }
                Ok(None) => {}
                Err(errno) if done == 0 => return Err(errno),
                // The next one does not fit.
                Err(_) => return value(done as u64),
            }
            if done + EVENT_BYTES <= to.1 && self.is_readable(fd) {
                continue;
            }
            if done > 0 {
                return value(done as u64);
            }
            if self.host_fcntl(fd, F_GETFL, 0) as u32 & O_NONBLOCK != 0 {
                return Err(Errno::EAGAIN);
            }
            return Ok(Verdict::Ready { fd, events: POLLIN as u16 });
        }
        if done > 0 { value(done as u64) } else { Err(Errno::EAGAIN) }
    }

    fn locked_events(
        &mut self,
        fd: usize,
        instance: Instance,
        most: usize,
    ) -> Result<Option<usize>> {
        self.services.watch_lock(instance)?;
        let got =
            if self.is_readable(fd) { self.some_events(fd, instance, most) } else { Ok(None) };
        self.services.watch_unlock(instance);
        got
    }

    fn is_readable(&self, fd: usize) -> bool {
        let mut entry = [0u8; 8];
        put(&mut entry, 0, (fd as u32).to_le_bytes());
        put(&mut entry, 4, (POLLIN as u16).to_le_bytes());
        self.host.call(nr::poll, [entry.as_mut_ptr() as usize, 1, 0, 0, 0, 0]) > 0
    }

    /// Puts what there is, at most `most` bytes, into the second half of `bounce`; how much.
    /// `None`: the host had nothing but a marker that was late.
    fn some_events(&mut self, fd: usize, instance: Instance, most: usize) -> Result<Option<usize>> {
        let most = most.min(READ_BYTES);
        let address = self.buffers.bounce.as_mut_ptr() as usize;
        let count = self.host.call(nr::read, [fd, address, most, 0, 0, 0]);
        let count = Errno::check(count)? as usize;
        let marker = self.services.watch_marker(instance);
        let (host, out) = self.buffers.bounce.split_at_mut(READ_BYTES);
        let (mut at, mut filled, mut left) = (0, 0, false);
        while at + EVENT_BYTES <= count {
            let wd = get32(host, at);
            let end = at + EVENT_BYTES + get32(host, at + 12) as usize;
            let event = at..end.min(count);
            at = end;
            if wd == marker && marker != 0 {
                let room = most - count.saturating_sub(at);
                let taken =
                    self.services.watch_take(instance, &mut out[filled..room.max(filled)])?;
                filled += taken.bytes;
                left |= taken.more;
                continue;
            }
            let gone = get32(host, event.start + 4) & IN_IGNORED != 0;
            let known = match wd {
                u32::MAX => Some(wd),
                _ => self.services.watch_of_host(instance, wd, gone),
            };
            // It may tell of a watch that another thread is about to be told of.
            let known = known
                .or_else(|| (!gone).then(|| self.services.watch_host(instance, wd).ok()).flatten());
            if let Some(wd) = known {
                let length = event.len();
                out[filled..filled + length].copy_from_slice(&host[event]);
                put(&mut out[filled..], 0, wd.to_le_bytes());
                filled += length;
            }
        }
        match filled {
            0 if left => Err(Errno::EINVAL),
            0 => Ok(None),
            _ => Ok(Some(filled)),
        }
    }

    /// `FIONREAD` on an instance.
    pub(crate) fn events_readable(&mut self, c: &Call, instance: Instance) -> Answer {
        let mut count = [0u8; 4];
        let args = [c.args[0], FIONREAD as usize, count.as_mut_ptr() as usize, 0, 0, 0];
        Errno::check(self.host.call(nr::ioctl, args))?;
        let there = get32(&core::hint::black_box(count), 0);
        let here = self.services.watch_waiting(instance);
        let marker = if here > 0 { EVENT_BYTES as u32 } else { 0 };
        let all = there.saturating_sub(marker) + here;
        self.memory.write(c.args[2], &all.to_le_bytes())?;
        value(0)
    }

    /// Touches the markers of those who are to be told of what this thread has done.
    #[cold]
    #[inline(never)]
    pub(crate) fn tell_watchers(&mut self) {
        for _ in 0..TOLD_MAX {
            let Some(instance) = self.services.watch_owed() else { return };
            let path = self.marker_path(instance);
            let touch = |path: Text| {
                let args = [AT_FDCWD as usize, path.address(), 0, 0, 0, 0];
                self.host.call(nr::utimensat, args) == 0
            };
            if !path.is_some_and(touch) {
                return self.services.watch_untold(instance);
            }
        }
    }

    // ---- strangers ------------------------------------------------------------------------------

    /// A descriptor that another process opened, perhaps: if it is an instance of the image, this
    /// number names it, too.
    pub(crate) fn meet_watcher(&mut self, fd: u32) {
        const NAME: &[u8] = b"anon_inode:inotify";
        if !self.services.watch_any() {
            return;
        }
        let bounce = self.buffers.bounce.as_mut_ptr() as usize;
        let length = self.descriptor_path(fd, bounce);
        if length == NAME.len() as i64 && self.buffers.bounce.starts_with(NAME) {
            let instance = self.find_watcher(fd);
            self.watcher_joined(instance, fd);
        }
    }

    /// The instance whose marker is among the watches that `/proc` shows of a descriptor.
    #[cold]
    fn find_watcher(&mut self, fd: u32) -> Option<Instance> {
        let path = Text::new(b"/proc/self/fdinfo/").with(fd);
        let args = [AT_FDCWD as usize, path.address(), O_CLOEXEC as usize, 0, 0, 0];
        let list = usize::try_from(self.host.call(nr::openat, args)).ok()?;
        let (mut found, mut kept) = (None, 0);
        for _ in 0..PIECES_MAX {
            let address = self.buffers.bounce.as_mut_ptr() as usize + kept;
            let got = self.host.call(nr::read, [list, address, READ_BYTES - kept, 0, 0, 0]);
            if got <= 0 || found.is_some() {
                break;
            }
            let length = kept + got as usize;
            let mut start = 0;
            while let Some(end) =
                self.buffers.bounce[start..length].iter().position(|&b| b == b'\n')
            {
                let line = &self.buffers.bounce[start..start + end];
                if let Some(file) = file_of(line) {
                    found = found.or(self.services.watch_find(file));
                }
                start += end + 1;
            }
            self.buffers.bounce.copy_within(start..length, 0);
            kept = length - start;
        }
        self.host_close(list as u32);
        found
    }
}

/// The inode that a line of `/proc/self/fdinfo` shows as watched.
fn file_of(line: &[u8]) -> Option<u64> {
    let line = core::str::from_utf8(line).ok()?.strip_prefix("inotify ")?;
    let number = line.split(' ').find_map(|word| word.strip_prefix("ino:"))?;
    u64::from_str_radix(number, 16).ok()
}

//! Descriptors of the image in messages (`SCM_RIGHTS`): what the host carries is a stand-in.
//!
//! ```text
//!   sendmsg(fd of a file) ──► flight, holds the description      ┐ the host's message carries
//!                        └──► PRIVATE/+.TID.COUNT, a FIFO's read end ┘ the read end
//!   recvmsg ──► its name says which flight ──► a number of the description; the read end is closed
//!   a FIFO without a read end ──► the flight is over: the receiver sees to it, or the supervisor
//! ```
//!
//! Invariants
//! 1. The stand-in is open before its flight begins, so that a flight without one is over.
//! 2. The sender's stand-ins are closed when the host has the message, or has refused it.
//! 3. The message's header and control messages are the application's own but for the stand-ins;
//!    they stand on its stack meanwhile, as does the list of these.
//!
//! Limits: outside the image a stand-in is a FIFO that nobody writes to.

use crate::layout::{get32, get64, put};
use crate::pipe::fifo::Text;
use crate::reason;
use crate::socket::messages::{
    CMSGHDR_BYTES, CONTROL_AT, CONTROL_LENGTH_AT, MSGHDR_BYTES, NAME_LENGTH_AT, PASSED_MAX,
    is_rights,
};
use crate::socket::name::{ADDRESS_BYTES, Name};
use crate::{After, Answer, Call, Client, Host, Memory, Verdict};
use husk_abi::nr;
use husk_abi::sys::general::{
    AT_FDCWD, F_DUPFD_CLOEXEC, F_GETFL, O_ACCMODE, O_CLOEXEC, O_NONBLOCK, O_PATH, O_WRONLY, S_IFIFO,
};
use husk_proto::flight::{Flight, StandInName};
use husk_proto::{Errno, Result, Services};

/// Where stand-ins are put, if numbers go so far: out of the way of others.
const STAND_INS_FROM: usize = 600;
/// Who may open a stand-in by its name: the supervisor.
const PRIVATE_MODE: u32 = 0o600;
/// Names tried for one stand-in; others were a thread's that had our number before.
const NAMES_TRIED: u32 = 64;
/// Bytes of control messages beside Husk descriptors: as many descriptors as fit, and credentials.
const CONTROL_BYTES_MAX: usize = 1088;
/// Bytes of the header on the application's stack, which may be a small one.
const HEAD_BYTES: usize = 64;

/// Descriptors of the host that stand for some of the image.
struct StandIns {
    fds: [u32; PASSED_MAX],
    count: usize,
}

impl StandIns {
    fn made(&self) -> &[u32] {
        &self.fds[..self.count]
    }

    /// Bytes of their list.
    fn bytes(&self) -> usize {
        (4 * self.count).next_multiple_of(16)
    }
}

impl<S: Services, H: Host, M: Memory> Client<S, H, M> {
    /// Sends the message at `header`, which carries Husk descriptors. `sent`: where the number of
    /// bytes is to stand if the call is to return how many messages (`sendmmsg`), or 0.
    #[cold]
    pub(crate) fn send_carrying(&mut self, c: &Call, header: usize, sent: usize) -> Answer {
        let mut head = [0u8; HEAD_BYTES];
        self.memory.read(header, &mut head[..MSGHDR_BYTES])?;
        let length = get64(&head, CONTROL_LENGTH_AT) as usize;
        if length > CONTROL_BYTES_MAX || self.services.private_path().is_empty() {
            return self.refuse(c.number, Errno::EOPNOTSUPP);
        }
        let (name_at, name_length) = (get64(&head, 0) as usize, get32(&head, NAME_LENGTH_AT));
        let name = match name_at {
            0 => None,
            _ => self.way(c.args[0], name_at, name_length as usize)?,
        };
        let control = get64(&head, CONTROL_AT) as usize;
        self.memory.read(control, &mut self.buffers.bounce[..length])?;
        let mut stand_ins = StandIns { fds: [0; PASSED_MAX], count: 0 };
        let laid = self.fill_in(length, &mut stand_ins);
        let laid = laid.and_then(|()| self.lay_out(&mut head, name.as_ref(), length, &stand_ins));
        let (at, room) = laid.inspect_err(|_| self.close_stand_ins(stand_ins.made()))?;
        let list = at + room - stand_ins.bytes();
        let flags = if sent == 0 { c.args[2] } else { c.args[3] };
        let args = [c.args[0], at, flags, list, stand_ins.count, sent];
        let call = After { number: nr::sendmsg, args, reason: reason::CARRIED };
        Ok(Verdict::Instead { call, room })
    }

    /// Puts the message and the list of stand-ins on the application's stack: where, and how many
    /// bytes that takes.
    fn lay_out(
        &mut self,
        head: &mut [u8; HEAD_BYTES],
        name: Option<&Name>,
        length: usize,
        stand_ins: &StandIns,
    ) -> Result<(usize, usize)> {
        let name_bytes = name.map_or(0, |_| ADDRESS_BYTES.next_multiple_of(8));
        let control_at = HEAD_BYTES + name_bytes;
        let list_at = control_at + length.next_multiple_of(8);
        let room = list_at + stand_ins.bytes();
        let at = self.host.stack_room(room);
        if let Some(name) = name {
            put(head, 0, ((at + HEAD_BYTES) as u64).to_le_bytes());
            put(head, NAME_LENGTH_AT, (name.length as u32).to_le_bytes());
            self.memory.write(at + HEAD_BYTES, &name.bytes)?;
        }
        put(head, CONTROL_AT, ((at + control_at) as u64).to_le_bytes());
        self.memory.write(at, head)?;
        self.memory.write(at + control_at, &self.buffers.bounce[..length])?;
        for (index, fd) in stand_ins.made().iter().enumerate() {
            self.memory.write(at + list_at + 4 * index, &fd.to_le_bytes())?;
        }
        Ok((at, room))
    }

    /// Puts stand-ins into the control messages in `bounce`.
    fn fill_in(&mut self, length: usize, stand_ins: &mut StandIns) -> Result<()> {
        let mut at = 0;
        while length - at >= CMSGHDR_BYTES {
            let size = get64(&self.buffers.bounce, at) as usize;
            if size < CMSGHDR_BYTES || size > length - at {
                break;
            }
            if is_rights(&self.buffers.bounce[at..]) {
                let first = at + CMSGHDR_BYTES;
                for place in (first..first + (size - CMSGHDR_BYTES) / 4 * 4).step_by(4) {
                    self.stand_in_at(place, stand_ins)?;
                }
            }
            at = (at + size.next_multiple_of(8)).min(length);
        }
        Ok(())
    }

    /// The same of the descriptor at one place.
    fn stand_in_at(&mut self, place: usize, stand_ins: &mut StandIns) -> Result<()> {
        let fd = get32(&self.buffers.bounce, place);
        if self.described(fd as usize)?.is_none() {
            // An end of a pipe is the host's from now on, behind one of Husk's as before it.
            let _ = self.surrender(fd as usize);
            return Ok(());
        }
        // More is EINVAL on Linux.
        let free = stand_ins.fds.get_mut(stand_ins.count).ok_or(Errno::EINVAL)?;
        let stand_in = self.make_stand_in(fd)?;
        *free = stand_in;
        stand_ins.count += 1;
        put(&mut self.buffers.bounce[..], place, stand_in.to_le_bytes());
        Ok(())
    }

    fn stand_in_path(&self, flight: Flight) -> Text {
        Text::new(self.services.private_path()).then(StandInName::new(flight).as_bytes())
    }

    /// A flight of Husk descriptor `fd`, and what stands for it.
    fn make_stand_in(&mut self, fd: u32) -> Result<u32> {
        let tid = self.host.call(nr::gettid, [0; 6]) as u32;
        let here = AT_FDCWD as usize;
        for _ in 0..NAMES_TRIED {
            let flight = self.streams.next_flight(tid);
            let path = self.stand_in_path(flight);
            let mode = (S_IFIFO | PRIVATE_MODE) as usize;
            match Errno::check(self.host.call(nr::mknodat, [here, path.address(), mode, 0, 0, 0])) {
                Err(Errno::EEXIST) => continue,
                // The directory is out of reach.
                Err(_) => return self.refuse(nr::sendmsg, Errno::EOPNOTSUPP),
                Ok(_) => {}
            }
            let stand_in = self.open_stand_in(&path).and_then(|stand_in| {
                self.take_off(fd, flight).map(|()| stand_in).inspect_err(|_| {
                    self.host_close(stand_in);
                })
            });
            if stand_in.is_err() {
                self.host.call(nr::unlinkat, [here, path.address(), 0, 0, 0, 0]);
            }
            return stand_in;
        }
        Err(Errno::ETOOMANYREFS)
    }

    fn take_off(&mut self, fd: u32, flight: Flight) -> Result<()> {
        let files = self.services.files();
        match self.services.fly(files, fd, flight) {
            Err(Errno::ETOOMANYREFS) if self.end_those_over() => {
                self.services.fly(files, fd, flight)
            }
            other => other,
        }
    }

    fn open_stand_in(&self, path: &Text) -> Result<u32> {
        let flags = (O_NONBLOCK | O_CLOEXEC) as usize;
        let args = [AT_FDCWD as usize, path.address(), flags, 0, 0, 0];
        let low = Errno::check(self.host.call(nr::openat, args))? as u32;
        match self.host_fcntl(low as usize, F_DUPFD_CLOEXEC, STAND_INS_FROM) {
            high @ 0.. => {
                self.host_close(low);
                Ok(high as u32)
            }
            _ => Ok(low),
        }
    }

    /// The host has the message, or has refused it; what the application's call returns.
    pub(crate) fn carried(&mut self, after: &After, result: i64) -> i64 {
        let (list, count, sent) = (after.args[3], after.args[4].min(PASSED_MAX), after.args[5]);
        for index in 0..count {
            let mut word = [0u8; 4];
            if self.memory.read(list + 4 * index, &mut word).is_ok() {
                self.host_close(u32::from_le_bytes(word));
            }
        }
        if sent == 0 || result < 0 {
            return result;
        }
        match self.memory.write(sent, &(result as u32).to_le_bytes()) {
            Ok(()) => 1,
            Err(errno) => errno.as_return(),
        }
    }

    fn close_stand_ins(&self, fds: &[u32]) {
        for &fd in fds {
            self.host_close(fd);
        }
    }

    /// If the host's `fd`, just received, is a stand-in: the number of what it stands for.
    pub(crate) fn landed(&mut self, fd: u32, close_on_exec: bool) -> Option<Result<u32>> {
        let flight = self.flight_of(fd)?;
        let files = self.services.files();
        let landed = self
            .new_number(|client, limit| client.services.land(files, flight, limit, close_on_exec));
        self.host_close(fd);
        self.end_if_over(flight);
        Some(landed)
    }

    /// Ends a flight of which no stand-in is left, as the supervisor would at its next look.
    fn end_if_over(&mut self, flight: Flight) -> bool {
        let path = self.stand_in_path(flight);
        let flags = (O_WRONLY | O_NONBLOCK | O_CLOEXEC) as usize;
        let here = AT_FDCWD as usize;
        match Errno::check(self.host.call(nr::openat, [here, path.address(), flags, 0, 0, 0])) {
            Err(Errno::ENXIO) => {}
            Err(_) => return false,
            Ok(fd) => {
                self.host_close(fd as u32);
                return false;
            }
        }
        let ended = self.services.end_flight(flight).is_ok();
        if ended {
            self.host.call(nr::unlinkat, [here, path.address(), 0, 0, 0, 0]);
        }
        ended
    }

    /// Ends all flights that are over; whether there were any.
    #[cold]
    fn end_those_over(&mut self) -> bool {
        let mut any = false;
        for index in 0.. {
            let Some(slot) = self.services.flight(index) else { break };
            any |= slot.is_some_and(|flight| self.end_if_over(flight));
        }
        any
    }

    fn flight_of(&mut self, fd: u32) -> Option<Flight> {
        let flags = u32::try_from(self.host_fcntl(fd as usize, F_GETFL, 0)).ok()?;
        if flags & (O_ACCMODE | O_PATH | O_NONBLOCK) != O_NONBLOCK {
            return None;
        }
        let base = self.buffers.base.as_mut_ptr() as usize;
        let length = usize::try_from(self.descriptor_path(fd, base)).ok()?;
        let path = self.buffers.base.get(..length)?;
        StandInName::parse(path.strip_prefix(self.services.private_path())?)
    }
}

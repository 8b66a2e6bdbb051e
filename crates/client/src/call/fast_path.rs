//! Calls that are answered from the process's tables alone: no path, no bytes, no store in the
//! region, no host call.
//!
//! What is found here is what the handlers of `call::table` would find; all else they are asked
//! for.

use crate::fd::table::shown_flags;
use crate::{Client, Host, Memory};
use husk_abi::nr;
use husk_abi::sys::general::{AT_EMPTY_PATH, AT_FDCWD, F_GETFD, F_GETFL, O_PATH, SEEK_CUR};
use husk_proto::Services;

/// The calls that a look may answer, or show to be the host's: all on the descriptor in argument 0.
/// The first three are often questions, the others go to files of an image as a rule.
pub const GLANCED: [usize; 13] = [
    nr::lseek,
    nr::fcntl,
    nr::epoll_wait,
    nr::read,
    nr::write,
    nr::readv,
    nr::writev,
    nr::pread64,
    nr::pwrite64,
    nr::fstat,
    nr::newfstatat,
    nr::sendto,
    nr::recvfrom,
];

/// What a look has shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Seen {
    /// The answer.
    Value(i64),
    /// The call is the host's alone.
    Pass,
    /// Too little: `Client::call` knows.
    Nothing,
}

impl<S: Services, H: Host, M: Memory> Client<S, H, M> {
    /// Looks at call `number` of `GLANCED` on descriptor `fd`, with its next four arguments.
    /// `hosts`: whether it was the host's, and none that Husk keeps, when it was last asked for.
    #[inline(always)]
    pub fn glance(
        &mut self,
        number: usize,
        fd: u32,
        [second, third, fourth, fifth]: [usize; 4],
        hosts: impl Fn() -> bool,
    ) -> Seen {
        if self.numbers.lends(fd) || (number == nr::epoll_wait && self.numbers.is_lending()) {
            // A lent number is in no table, which would be the host's to answer for; and who
            // sleeps lends none.
            return Seen::Nothing;
        }
        match number {
            nr::fcntl if second as u32 == F_GETFL => self.glance_at_flags(fd, hosts),
            nr::fcntl if second as u32 == F_GETFD => self.glance_at_mark(fd, hosts),
            nr::fcntl => Seen::Nothing,
            nr::lseek if second == 0 && third as u32 == SEEK_CUR => {
                self.glance_at_offset(fd, hosts)
            }
            nr::epoll_wait => {
                let seen = self.glance_at_set(fd, second, third, fourth);
                seen.unwrap_or_else(|| self.passed(fd, hosts))
            }
            _ if !hosts() => Seen::Nothing,
            nr::newfstatat if !self.is_fstat(fd, second, fourth) => Seen::Nothing,
            // Names of sockets may be ours.
            nr::sendto | nr::recvfrom if fifth != 0 => Seen::Nothing,
            _ if self.services.is_hosts(fd) => {
                self.services.pass_host(fd);
                Seen::Pass
            }
            nr::read | nr::readv | nr::pread64 if self.services.reads_host(fd) => Seen::Pass,
            _ => Seen::Nothing,
        }
    }

    /// Whether `newfstatat` with this path and these flags is about descriptor `fd` itself, and not
    /// about the working directory, which may be the image's.
    #[inline(always)]
    pub(crate) fn is_fstat(&self, fd: u32, path: usize, flags: usize) -> bool {
        fd != AT_FDCWD as u32
            && flags as u32 == AT_EMPTY_PATH
            && (path == 0 || self.memory.peek(path) == Ok(0))
    }

    #[inline(always)]
    fn glance_at_flags(&mut self, fd: u32, hosts: impl Fn() -> bool) -> Seen {
        let Some(seen) = self.services.glance(fd) else { return self.passed(fd, hosts) };
        match self.services.flags(seen.description) {
            Ok(flags) => Seen::Value(i64::from(shown_flags(flags))),
            Err(_) => Seen::Nothing,
        }
    }

    #[inline(always)]
    fn glance_at_mark(&mut self, fd: u32, hosts: impl Fn() -> bool) -> Seen {
        match self.services.glance(fd) {
            Some(seen) => Seen::Value(i64::from(seen.close_on_exec)),
            None => self.passed(fd, hosts),
        }
    }

    /// `lseek` that asks where the offset is.
    #[inline(always)]
    fn glance_at_offset(&mut self, fd: u32, hosts: impl Fn() -> bool) -> Seen {
        let Some(seen) = self.services.glance(fd) else { return self.passed(fd, hosts) };
        let flags = self.services.flags(seen.description);
        match (flags, self.services.offset(seen.description)) {
            (Ok(flags), Ok(at)) if flags & O_PATH == 0 => Seen::Value(at as i64),
            _ => Seen::Nothing,
        }
    }

    /// Of what is not Husk's.
    #[inline(always)]
    fn passed(&self, fd: u32, hosts: impl Fn() -> bool) -> Seen {
        if hosts() && self.services.is_hosts(fd) { Seen::Pass } else { Seen::Nothing }
    }
}

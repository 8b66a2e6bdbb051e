//! Setting times: `utimensat` and its ancestors.

use crate::layout::{SECOND_NS, get64};
use crate::path::{Aim, Spot};
use crate::{Answer, Call, Client, Host, Memory};
use husk_abi::sys::general::{AT_EMPTY_PATH, AT_FDCWD, AT_SYMLINK_NOFOLLOW, UTIME_NOW, UTIME_OMIT};
use husk_proto::fs::{Change, Time};
use husk_proto::{Errno, Result, Services};

/// What two time structures look like.
#[derive(Clone, Copy)]
enum Shape {
    Timespec,
    Timeval,
}

impl<S: Services, H: Host, M: Memory> Client<S, H, M> {
    /// `utimensat`.
    pub(crate) fn utimensat(&mut self, c: &Call) -> Answer {
        match self.times(c.args[2], Shape::Timespec) {
            Ok(Some(change)) => self.set_times(c, Ok(change)),
            Ok(None) => crate::value(0),
            // Whatever else is wrong comes first.
            Err(Errno::EINVAL) => self.set_times(c, Err(Errno::EINVAL)),
            Err(errno) => Err(errno),
        }
    }

    /// Sets times, or tells what is wrong with them once what they are for is found.
    fn set_times(&mut self, c: &Call, change: Result<Change>) -> Answer {
        let allowed = (AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH) as usize;
        if c.args[1] == 0 && c.args[0] as i32 != AT_FDCWD {
            if c.args[3] != 0 {
                return Err(Errno::EINVAL);
            }
            return self.change_open(c.args[0], change);
        }
        if c.args[3] & !allowed != 0 {
            return Err(Errno::EINVAL);
        }
        if c.args[1] == 0 {
            return Err(Errno::EFAULT);
        }
        let aim = crate::file::attributes::aim_of(c.args[3]);
        let change_it = |client: &mut Self, step| client.change_step(step, change?);
        self.on_existing(c, crate::path::at(0), aim, change_it)
    }

    /// `utimes`, `futimesat`.
    pub(crate) fn utimes(&mut self, c: &Call, spot: Spot, times: usize) -> Answer {
        let Some(change) = self.times(times, Shape::Timeval)? else { return crate::value(0) };
        if let (0, Some(directory)) = (c.args[spot.path], spot.directory) {
            return self.change_open(c.args[directory], Ok(change));
        }
        self.change_path(c, spot, Aim::FOLLOW, change)
    }

    /// `utime`.
    pub(crate) fn utime(&mut self, c: &Call) -> Answer {
        let mut change = now();
        if c.args[1] != 0 {
            let mut both = [0u8; 16];
            self.memory.read(c.args[1], &mut both)?;
            let time = |at| Some(Time::At((get64(&both, at) as i64).saturating_mul(SECOND_NS)));
            (change.accessed, change.modified) = (time(0), time(8));
        }
        self.change_path(c, crate::path::plain(0), Aim::FOLLOW, change)
    }

    /// The change two times at `address` ask for; `None` = nothing to do.
    fn times(&self, address: usize, shape: Shape) -> Result<Option<Change>> {
        if address == 0 {
            return Ok(Some(now()));
        }
        let mut both = [0u8; 32];
        self.memory.read(address, &mut both)?;
        let accessed = time(&both[..16], shape)?;
        let modified = time(&both[16..], shape)?;
        if accessed.is_none() && modified.is_none() {
            return Ok(None);
        }
        Ok(Some(Change { accessed, modified, ..Change::default() }))
    }
}

fn now() -> Change {
    Change { accessed: Some(Time::Now), modified: Some(Time::Now), ..Change::default() }
}

fn time(bytes: &[u8], shape: Shape) -> Result<Option<Time>> {
    let (seconds, rest) = (get64(bytes, 0) as i64, get64(bytes, 8));
    let ns = match shape {
        Shape::Timespec if rest == u64::from(UTIME_NOW) => return Ok(Some(Time::Now)),
        Shape::Timespec if rest == u64::from(UTIME_OMIT) => return Ok(None),
        Shape::Timespec if rest < SECOND_NS as u64 => rest as i64,
        Shape::Timeval if rest < 1_000_000 => rest as i64 * 1000,
        _ => return Err(Errno::EINVAL),
    };
    Ok(Some(Time::At(seconds.saturating_mul(SECOND_NS).saturating_add(ns))))
}

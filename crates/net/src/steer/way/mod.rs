//! The two ways of steering: eBPF, which takes privilege, and classic BPF, which any user has for
//! servers of their own.
//!
//! | | eBPF | cBPF |
//! |---|---|---|
//! | the table | memory; a move is a store | instructions; attached anew for moves |
//! | socket of a kernel | named | its index in Linux's list, found out by `order` |
//! | connections that come | counted by group | not counted: `brought` |
//! | the balancer is killed | Linux chooses after two seconds | the last table stays |

pub mod brought;
mod cbpf;
mod ebpf;
mod instructions;
mod order;
mod tree;

use std::fmt::{self, Display};
use std::os::fd::OwnedFd;

use husk_abi::Errno;
use serde::{Deserialize, Serialize};

use super::listeners::Place;
use crate::problem::Problem;
use cbpf::Cbpf;
use ebpf::Ebpf;
pub use ebpf::{SOCKETS_MAX, take_away, whole_table_us};
pub use order::without_privilege;

/// Which of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Of root, or with CAP_BPF and CAP_NET_ADMIN.
    #[default]
    Ebpf,
    /// Of every user.
    Cbpf,
}

impl Kind {
    /// Both.
    pub const ALL: [Kind; 2] = [Kind::Ebpf, Kind::Cbpf];

    /// As it is typed and printed.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Ebpf => "ebpf",
            Kind::Cbpf => "cbpf",
        }
    }
}

impl Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One that works here.
pub enum Way {
    /// With privilege.
    Ebpf(Ebpf),
    /// Without.
    Cbpf(Box<Cbpf>),
}

impl Way {
    /// The one that is wanted, else the best that works; nothing is steered yet.
    pub fn load(wanted: Option<Kind>) -> Result<Way, Problem> {
        let without = || Way::Cbpf(Box::new(Cbpf::new()));
        match (wanted, Ebpf::load) {
            (Some(Kind::Cbpf), _) => Ok(without()),
            (Some(Kind::Ebpf), load) => load().map(Way::Ebpf),
            (None, load) => Ok(load().map_or_else(|_| without(), Way::Ebpf)),
        }
    }

    /// Which it is.
    pub fn kind(&self) -> Kind {
        match self {
            Way::Ebpf(_) => Kind::Ebpf,
            Way::Cbpf(_) => Kind::Cbpf,
        }
    }

    /// Steers among these sockets of a place, one for each kernel, by the table that has been
    /// assigned. What steered before goes.
    pub fn steer(&mut self, pid: u32, place: &Place, kernels: &[OwnedFd]) -> Result<(), Problem> {
        match self {
            Way::Ebpf(way) => way.steer(kernels),
            Way::Cbpf(way) => way.steer(pid, place, kernels),
        }
    }

    /// Whether its last `steer` has worked, so far as that cannot be told from the sockets.
    pub fn is_attached(&self) -> bool {
        match self {
            Way::Ebpf(_) => true,
            Way::Cbpf(way) => way.is_attached(),
        }
    }

    /// Assigns a group to a kernel; it holds after `carry_out` at the latest.
    pub fn assign(&mut self, group: usize, kernel: usize) {
        match self {
            Way::Ebpf(way) => way.assign(group, kernel),
            Way::Cbpf(way) => way.assign(group, kernel),
        }
    }

    /// Makes the assigned table hold; `socket` is one of the sockets that are steered.
    pub fn carry_out(
        &mut self,
        socket: impl FnOnce() -> Result<OwnedFd, Errno>,
    ) -> Result<(), Problem> {
        match self {
            Way::Ebpf(_) => Ok(()),
            Way::Cbpf(way) => way.carry_out(socket),
        }
    }

    /// A sign of life, where that matters: it steers until then.
    pub fn live_until(&self, monotonic_ns: u64) {
        if let Way::Ebpf(way) = self {
            way.live_until(monotonic_ns);
        }
    }

    /// Connections of each group that have come, where they are counted.
    pub fn read_syns(&self, into: &mut [u64]) {
        if let Way::Ebpf(way) = self {
            way.read_syns(into);
        }
    }
}

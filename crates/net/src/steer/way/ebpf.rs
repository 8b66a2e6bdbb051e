//! Steering with privilege: a program of eBPF that selects among sockets, over memory that it
//! shares.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::Ordering::Relaxed;
use std::thread::sleep;
use std::time::{Duration, Instant};

use husk_abi::Errno;
use husk_host::bpf;

use super::instructions::selector;
use crate::groups::GROUPS;
use crate::problem::Problem;

/// Sockets of a place.
pub const SOCKETS_MAX: usize = 64;
/// How long sockets are waited for that the program of a killed balancer has.
const TAKEN_OVER_WITHIN: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(20);

/// A loaded program with its memory. It goes when no socket has it any more.
pub struct Ebpf {
    steering: bpf::Shared,
    sockets: bpf::Object,
    program: bpf::Object,
}

impl Ebpf {
    /// Loads the eBPF program into the kernel; nothing is steered yet.
    pub fn load() -> Result<Ebpf, Problem> {
        let refused = |errno| Problem::refused("load a program that steers", errno);
        let memory = bpf::steering().map_err(refused)?;
        let sockets = bpf::sockets(SOCKETS_MAX as u32).map_err(refused)?;
        let program = selector(memory.number(), sockets.number());
        let program = bpf::load_selector(&program).map_err(refused)?;
        Ok(Ebpf { steering: bpf::Shared::of(&memory).map_err(refused)?, sockets, program })
    }

    /// Steers among these sockets, one for each kernel, from the next sign of life on. What steered
    /// before goes.
    pub fn steer(&self, kernels: &[OwnedFd]) -> Result<(), Problem> {
        let refused = |errno| Problem::refused("steer the connections of these sockets", errno);
        for index in 0..SOCKETS_MAX {
            match bpf::clear_socket(&self.sockets, index as u32) {
                Ok(()) | Err(Errno::ENOENT) => {}
                Err(errno) => return Err(refused(errno)),
            }
        }
        if let Some(first) = kernels.first() {
            take_away(first).map_err(refused)?;
        }
        let until = Instant::now() + TAKEN_OVER_WITHIN;
        for (index, socket) in kernels.iter().enumerate() {
            let set = || bpf::set_socket(&self.sockets, index as u32, socket.as_raw_fd());
            let mut done = set();
            while done == Err(Errno::EBUSY) && Instant::now() < until {
                sleep(PAUSE);
                done = set();
            }
            done.map_err(refused)?;
        }
        let first = kernels.first().ok_or(Errno::ENOENT).map_err(refused)?;
        bpf::attach_selector(first.as_raw_fd(), &self.program).map_err(refused)
    }

    /// A sign of life: it steers until then.
    pub fn live_until(&self, monotonic_ns: u64) {
        self.steering.alive_until_ns.store(monotonic_ns, Relaxed);
    }

    /// Assigns a group to a kernel.
    pub fn assign(&self, group: usize, kernel: usize) {
        self.steering.kernels[group].store(kernel as u16, Relaxed);
    }

    /// Connections of each group that have come since the program was loaded.
    pub fn read_syns(&self, into: &mut [u64]) {
        let steering = &*self.steering;
        into.iter_mut().zip(&steering.syns).for_each(|(to, syns)| *to = syns.load(Relaxed));
    }
}

/// Times of moves of all groups, in microseconds, of the table alone.
pub fn whole_table_us(times: usize) -> Result<Vec<f64>, Problem> {
    let way = Ebpf::load()?;
    let one = |number: usize| {
        let began = Instant::now();
        (0..GROUPS).for_each(|group| way.assign(group, number % 2));
        began.elapsed().as_secs_f64() * 1e6
    };
    Ok((0..times).map(one).collect())
}

/// Linux chooses again, by hash, among the sockets that share a port with this one. Whether a
/// program had.
pub fn take_away(socket: &OwnedFd) -> Result<bool, Errno> {
    match bpf::detach_selector(socket.as_raw_fd()) {
        Ok(()) => Ok(true),
        Err(Errno::ENOENT) => Ok(false),
        Err(errno) => Err(errno),
    }
}

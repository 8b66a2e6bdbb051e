//! The client of one thread, as its block keeps it: only data; the methods are in `crate::client`.
//!
//! The block of a thread (`Thread`) is below all that work with it, so what others keep in it is
//! declared here, and `Side` is known here by name alone: `client::host` says what it does.

use core::mem::MaybeUninit;
use core::sync::atomic::AtomicU64;
use husk_carrier::{Direct, PassWords};
use husk_client::{Buffers, Client, Mapping};
use husk_proto::Inode;
use husk_proto::place::Placement;
use husk_proto::process::Process;

/// The client's interfaces to memory and host; holds nothing.
#[derive(Clone, Copy)]
pub struct Side;

pub(crate) type Served = Client<Direct, Side, Side>;

/// A child before it runs; `None` for a thread, or without an image.
pub type Embryo = Option<Unborn>;

/// What a child is told of before it runs.
#[derive(Clone, Copy)]
pub struct Unborn {
    /// Its record.
    pub process: Process,
    /// How its parent was placed, who may have ended before it asks.
    pub parent: Option<Placement>,
}

/// Descriptors with a hint of their own: a power of two.
pub const HINTS: usize = 64;

/// The client of one thread; what is large comes last (`repr(C)`), for pages touched are faults.
#[repr(C)]
pub struct ThreadClient {
    pub client: Option<Served>,
    pub process: u32,
    pub pid: u32,
    /// Descriptors whose last call was passed, one bit for those that are the same modulo `HINTS`.
    /// Only a hint; the gate reads it.
    pub hints: u64,
    /// Low descriptors that were ends of pipes, one bit each. Only a hint; the gate reads it.
    pub pipes: u64,
    /// Descriptors whose calls are the host's for sure, one bit each (`Session::set_pass`). The
    /// gate reads it.
    pub passes: PassWords,
    /// A mapping of a Husk file that the call just made has noted.
    pub noted: Option<(Mapping, Inode)>,
    pub buffers: MaybeUninit<Buffers>,
}

impl ThreadClient {
    /// Makes a fresh one of whatever bytes are there; the buffers stay as they are.
    pub fn reset(&mut self) {
        // SAFETY: plain fields of our own block; nothing in the old client needs dropping.
        unsafe { (&raw mut self.client).write(None) };
        self.passes = [const { AtomicU64::new(0) }; _];
        self.noted = None;
    }

    /// The process it belongs to.
    pub fn pid(&self) -> u32 {
        self.pid
    }
}

//! Service `flight`: descriptors of the image that are sent in a message (`SCM_RIGHTS`).
//!
//! A message goes through the host and carries only host descriptors. A *stand-in* takes the place
//! of a descriptor of the image. A flight keeps the description open from before the message is
//! sent until the host has closed the last stand-in, because a message can be read twice or never.

use crate::{Errno, Files, Result};
use husk_abi::proc::put_decimal;

/// A flight, by the name of its stand-ins; never 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flight(pub u64);

impl Flight {
    /// Number `count` of the thread that begins it.
    pub fn new(tid: u32, count: u32) -> Flight {
        Flight(u64::from(tid) << 32 | u64::from(count))
    }
}

/// The name of a flight's stand-in in the private directory.
pub struct StandInName {
    bytes: [u8; 32],
    length: usize,
}

impl StandInName {
    /// Of this one.
    pub fn new(flight: Flight) -> StandInName {
        let mut bytes = [0; 32];
        let mut length = STAND_IN_PREFIX.len();
        bytes[..length].copy_from_slice(STAND_IN_PREFIX);
        length += put_decimal(&mut bytes[length..], (flight.0 >> 32) as u32);
        bytes[length] = b'.';
        length += 1;
        length += put_decimal(&mut bytes[length..], flight.0 as u32);
        StandInName { bytes, length }
    }

    /// Its bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    /// The flight that a name in the private directory stands for.
    pub fn parse(name: &[u8]) -> Option<Flight> {
        let mut parts = name.strip_prefix(STAND_IN_PREFIX)?.split(|&byte| byte == b'.');
        let mut part = || core::str::from_utf8(parts.next()?).ok()?.parse::<u32>().ok();
        Some(Flight::new(part()?, part()?))
    }
}

const STAND_IN_PREFIX: &[u8] = b"+.";

operations! { ($) flight_operations

/// The flight service. What does not serve flights says so by these defaults.
Flights in flight, operations {
    /// The description of the Husk descriptor `fd` is on its way as `flight`, a name that no other
    /// one has. `ETOOMANYREFS`: too many are on their way.
    fly = Message { files: Files, fd: u32, flight: Flight } -> Result<()> = Err(Errno::ENOSYS),
        by descriptor::flight::fly;

    /// One more number of a description that is on its way, the lowest free below `limit`.
    /// `ENOENT`: it is not.
    land = Message {
        files: Files, flight: Flight, limit: u32, close_on_exec: bool,
    } -> Result<u32> = Err(Errno::ENOSYS),
        by descriptor::flight::land;

    /// No stand-in is left. `ENOENT`: it was over before.
    end_flight = - { flight: Flight } -> Result<()> = Err(Errno::ENOSYS),
        by descriptor::flight::end;
}}

//! Records of processes as words.
//!
//! ```text
//!   0 lock   1 state:32 pid:32   2 table:32 context:32   3 thread:32 parent:32   4 pins
//!   5 next free, or parent's pid:32 told:32   6 born   7 program (inode)
//! ```

use husk_proto::{Files, Process};
use husk_region::{Cell, Region};

use crate::Kernel;
use crate::state::{high, low};

/// Lock of the process records' free list.
pub(crate) const PROCESS_LOCK: u32 = 8;
pub(crate) const PROCESS_FREE: u32 = 9;
pub(crate) const PROCESS_HIGH: u32 = 10;
/// Process records.
pub(crate) const PROCESSES: u32 = 131_072;
/// Most processes in one image, plus one.
pub(crate) const PROCESSES_MAX: u32 = 32768;

pub(crate) const STATE: u32 = 1;
pub(crate) const PARTS: u32 = 2;
pub(crate) const PARENT: u32 = 3;
pub(crate) const PINS: u32 = 4;
pub(crate) const NEXT: u32 = 5;
pub(crate) const TOLD: u32 = 5;
pub(crate) const BORN: u32 = 6;
pub(crate) const PROGRAM: u32 = 7;

pub(crate) const FREE: u32 = 0;
pub(crate) const EMBRYO: u32 = 1;
pub(crate) const RUNNING: u32 = 2;
pub(crate) const DYING: u32 = 3;

/// The record of a process.
pub(crate) fn record(region: &Region, process: u32) -> Cell {
    region.map.fixed(PROCESSES + process % PROCESSES_MAX * 8)
}

/// The descriptor table of a process.
#[inline]
pub fn files(kernel: &Kernel) -> Files {
    let region = &kernel.session.region;
    Files(high(region.load(record(region, kernel.process).word(PARTS))))
}

pub(crate) fn files_of(kernel: &Kernel, process: Process) -> Files {
    let region = &kernel.session.region;
    Files(high(region.load(record(region, process.0).word(PARTS))))
}

/// Record and host process of all who live.
pub fn each(kernel: &Kernel, emit: &mut dyn FnMut(u32, u32)) {
    let region = &kernel.session.region;
    for process in 1..=region.load(region.map.fixed(PROCESS_HIGH)) as u32 {
        let state = region.load(record(region, process).word(STATE));
        if high(state) > EMBRYO && low(state) != 0 {
            emit(process, low(state));
        }
    }
}

//! A pair of rings in one process, and bytes by their seed.
#![allow(dead_code)]

use husk_link::{Doorbell, Memory, Mode, Ring, Side, View, memory_bytes};
use husk_wire::{Header, Kind, Role};

/// Numbers of one row, by a seed.
pub struct Dice(pub u64);

impl Dice {
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % bound
    }

    pub fn word(&mut self) -> u64 {
        self.below(1 << 31) << 33 ^ self.below(1 << 31) << 8 ^ self.below(256)
    }
}

/// Bytes that say where they belong.
pub fn bytes_of(seed: u64, count: usize) -> Vec<u8> {
    (0..count as u64).map(|n| (seed * 31 + n * 7 + n / 256) as u8).collect()
}

/// Ends a child of ours.
pub fn kill(child: i32) {
    // SAFETY: our own child.
    unsafe {
        assert_eq!(libc::kill(child, libc::SIGKILL), 0);
        assert_eq!(libc::waitpid(child, std::ptr::null_mut(), 0), child);
    }
}

pub fn posted(sequence: u32) -> Header {
    Header { sequence, ..Header::new(Kind::Return, Role::Posted) }
}

pub fn requests(request: u32) -> Header {
    Header { request, ..Header::new(Kind::Read, Role::Request) }
}

pub fn replies(request: u32) -> Header {
    requests(request).answer(None)
}

/// The memory of a pair.
pub struct Pair {
    pub memory: Memory,
    pub bells: [Memory; 2],
    channels: usize,
}

impl Pair {
    pub fn new(channels: usize) -> Self {
        let bell = || Memory::create(c"bell", Doorbell::BYTES).expect("memory");
        let memory = Memory::create(c"ring", memory_bytes(channels)).expect("memory");
        Self { memory, bells: [bell(), bell()], channels }
    }

    pub fn begin(
        &self,
        (side, epoch, channels): (Side, u32, usize),
        mode: Mode,
    ) -> Result<Ring<'_>, husk_abi::Errno> {
        let bell = Doorbell::of(&self.bells[1 - side as usize]);
        Ring::begin(&self.memory, side, side as u16, (epoch, channels), bell, mode)
    }

    pub fn side(&self, side: Side, mode: Mode) -> Ring<'_> {
        self.begin((side, 1, self.channels), mode).expect("a ring")
    }

    pub fn both(&self, mode: Mode) -> (Ring<'_>, Ring<'_>) {
        let maker = self.side(Side::Maker, mode);
        (maker, self.side(Side::Guest, mode))
    }

    /// A view that outlives the look it came with.
    pub fn view_again<'m>(&'m self, view: View<'_>) -> View<'m> {
        // SAFETY: what it shows is this pair's memory.
        unsafe { std::mem::transmute::<View<'_>, View<'m>>(view) }
    }
}

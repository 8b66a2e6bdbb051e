//! Facts about stack use in one stretch of code, found without following control flow.
//!
//! A call pushes eight bytes. That is harmless unless the function keeps data below its stack
//! pointer (the red zone) or runs on something that is not a stack. Three ways lead below it:
//!
//! ```text
//!   -8(%rsp)                                  directly
//!   mov %rsp,%rbp ... -0x14(%rbp)             a frame of which too little was allocated
//!   lea 8(%rsp),%r10 ... -0x10(%r10)          through a copy
//! ```
//!
//! Facts of several chunks of one function add up: each is true of the function if it is true of
//! a chunk.

use iced_x86::{FlowControl, Instruction, Mnemonic, OpKind, Register};

/// Bytes below the stack pointer that belong to a leaf function (System V ABI, 3.2.2).
const RED_ZONE_BYTES: i64 = 128;

/// Stack facts of a chunk or of a whole function.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Something below the stack pointer is addressed through it.
    below: bool,
    /// The stack pointer is changed in a way that is not understood.
    switched: bool,
    /// Registers that ever hold the stack pointer plus a constant, and the smallest constant.
    copies: u16,
    copy_min: [i32; 16],
    /// Registers ever used as a base, and the smallest displacement of each.
    bases: u16,
    base_min: [i32; 16],
    /// Registers the stack pointer is loaded from.
    sources: u16,
    /// Least number of bytes allocated below a frame pointer.
    frame: Option<i64>,
    frame_open: bool,
    /// An indirect jump through a register.
    pub indirect_jump: bool,
    /// One whose register was computed just before.
    pub computed_jump: bool,
    /// Read-only data whose address is taken: possible jump tables.
    pub tables: Vec<u64>,
    /// Contains a thread's exit.
    pub exits: bool,
}

impl Facts {
    /// Takes in one instruction.
    pub fn note(&mut self, instruction: &Instruction) {
        if self.frame_open {
            self.note_prologue(instruction);
        }
        self.note_memory(instruction);
        self.note_copy(instruction);
        self.note_switch(instruction);
    }

    /// Whether a call would be pushed onto something that is not known to be a stack.
    pub fn is_switched(&self) -> bool {
        let known = self.copies | 1 << bit_of(Register::RBP);
        self.switched || self.sources & !known != 0
    }

    /// Whether data may lie below the stack pointer.
    pub fn uses_red_zone(&self) -> bool {
        let rbp = bit_of(Register::RBP);
        let deep = |bit: usize| i64::from(self.base_min[bit]);
        let through_copy = (0..16)
            .filter(|&bit| (self.copies & self.bases) >> bit & 1 == 1)
            .any(|bit| deep(bit) + i64::from(self.copy_min[bit]) < 0);
        let below_frame = self.frame.is_some_and(|allocated| deep(rbp) + allocated < 0);
        self.below || through_copy || below_frame
    }

    /// Adds the facts of another chunk of the same function.
    pub fn merge(&mut self, other: Facts) {
        self.below |= other.below;
        self.switched |= other.switched;
        self.sources |= other.sources;
        self.indirect_jump |= other.indirect_jump;
        self.computed_jump |= other.computed_jump;
        self.exits |= other.exits;
        self.tables.extend(other.tables);
        self.frame = match (self.frame, other.frame) {
            (Some(one), Some(two)) => Some(one.min(two)),
            (one, two) => one.or(two),
        };
        self.bases |= other.bases;
        for bit in 0..16 {
            if other.copies >> bit & 1 == 1 {
                self.add_copy(bit, other.copy_min[bit]);
            }
            self.base_min[bit] = self.base_min[bit].min(other.base_min[bit]);
        }
    }

    /// What the prologue allocates below `mov %rsp,%rbp`.
    fn note_prologue(&mut self, instruction: &Instruction) {
        let Some(allocated) = self.frame.as_mut() else { return };
        match instruction.mnemonic() {
            Mnemonic::Push => *allocated += 8,
            Mnemonic::Sub if instruction.op0_register() == Register::RSP => {
                match instruction.op1_kind() {
                    OpKind::Immediate8to64 | OpKind::Immediate32to64 => {
                        *allocated += instruction.immediate(1) as i64;
                    }
                    _ => self.frame_open = false,
                }
            }
            _ if instruction.flow_control() != FlowControl::Next => self.frame_open = false,
            _ => {}
        }
    }

    fn note_memory(&mut self, instruction: &Instruction) {
        let base = instruction.memory_base();
        if base == Register::None || base.is_ip() {
            return;
        }
        let displacement = instruction.memory_displacement64() as i64;
        let address_only = instruction.mnemonic() == Mnemonic::Lea;
        if address_only && displacement < -RED_ZONE_BYTES {
            // Too far for a red zone: the limit of a stack probe, or plain arithmetic.
            return;
        }
        if base != Register::RSP {
            let displacement = displacement.clamp(i64::from(i32::MIN) / 2, 0);
            self.add_base(bit_of(base), displacement as i32);
        } else if displacement < 0 {
            // `lea -N(%rsp),%rsp` allocates.
            self.below |= !(address_only && instruction.op0_register() == Register::RSP);
        }
    }

    fn add_base(&mut self, bit: usize, displacement: i32) {
        self.base_min[bit] = self.base_min[bit].min(displacement);
        self.bases |= 1 << bit;
    }

    fn note_copy(&mut self, instruction: &Instruction) {
        let target = instruction.op0_register();
        if !target.is_gpr64() || target == Register::RSP {
            return;
        }
        let distance = match instruction.mnemonic() {
            Mnemonic::Mov if instruction.op1_register() == Register::RSP => 0,
            Mnemonic::Lea if instruction.memory_base() == Register::RSP => {
                instruction.memory_displacement64() as i32
            }
            _ => return,
        };
        if target == Register::RBP && instruction.mnemonic() == Mnemonic::Mov {
            self.frame = Some(self.frame.map_or(0, |old| old.min(0)));
            self.frame_open = true;
            return;
        }
        self.add_copy(bit_of(target), distance.max(i32::MIN / 2));
    }

    fn add_copy(&mut self, bit: usize, distance: i32) {
        let first = self.copies >> bit & 1 == 0;
        let least = if first { distance } else { self.copy_min[bit].min(distance) };
        self.copy_min[bit] = least;
        self.copies |= 1 << bit;
    }

    fn note_switch(&mut self, instruction: &Instruction) {
        let mnemonic = instruction.mnemonic();
        if mnemonic == Mnemonic::Enter {
            self.switched = true;
        }
        let second = instruction.op1_register() == Register::RSP;
        if second && matches!(mnemonic, Mnemonic::Xchg | Mnemonic::Xadd) {
            self.switched = true;
        }
        let first = instruction.op0_kind() == OpKind::Register
            && instruction.op0_register().is_gpr()
            && instruction.op0_register().full_register() == Register::RSP;
        if !first {
            return;
        }
        match mnemonic {
            Mnemonic::Push | Mnemonic::Cmp | Mnemonic::Test | Mnemonic::Add | Mnemonic::Sub => {}
            Mnemonic::And if instruction.op1_kind() != OpKind::Register => {}
            Mnemonic::Mov if instruction.op1_kind() == OpKind::Register => {
                self.note_source(instruction.op1_register());
            }
            Mnemonic::Lea if instruction.memory_base() == Register::RSP => {}
            Mnemonic::Lea if instruction.memory_base().is_gpr64() => {
                self.note_source(instruction.memory_base());
            }
            _ => self.switched = true,
        }
    }

    fn note_source(&mut self, register: Register) {
        self.sources |= 1 << bit_of(register);
    }
}

/// Bit of a general register in the masks above.
fn bit_of(register: Register) -> usize {
    if register.is_gpr() { register.full_register().number() } else { 0 }
}

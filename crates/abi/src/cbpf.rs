//! Classic BPF: `struct sock_filter`, and the codes that programs of Husk use.

/// Instructions of one program, at most (`BPF_MAXINSNS`).
pub const INSTRUCTIONS_MAX: usize = 4096;

/// `struct sock_filter`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Instruction {
    /// What it does.
    pub code: u16,
    /// Instructions that a jump skips where its condition holds.
    pub yes: u8,
    /// The same where it does not hold.
    pub no: u8,
    /// Its operand.
    pub value: u32,
}

/// An instruction without a condition.
pub const fn op(code: u16, value: u32) -> Instruction {
    branch(code, value, 0, 0)
}

/// A jump on a condition.
pub const fn branch(code: u16, value: u32, yes: u8, no: u8) -> Instruction {
    Instruction { code, yes, no, value }
}

/// Codes of instructions: A is the accumulator, X the index register.
#[allow(missing_docs)]
pub mod code {
    pub const LOAD_WORD: u16 = 0x20;
    pub const LOAD_HALF: u16 = 0x28;
    pub const LOAD_BYTE: u16 = 0x30;
    /// At X and the operand.
    pub const LOAD_HALF_X: u16 = 0x48;
    pub const LOAD_VALUE: u16 = 0x00;
    pub const LOAD_STORED: u16 = 0x60;
    /// X = four times the lower half of a byte.
    pub const X_IS_HEAD: u16 = 0xb1;
    pub const X_IS_STORED: u16 = 0x61;
    pub const STORE: u16 = 0x02;
    pub const AND: u16 = 0x54;
    pub const SHIFT_LEFT: u16 = 0x64;
    pub const SHIFT_RIGHT: u16 = 0x74;
    pub const SHIFT_RIGHT_X: u16 = 0x7c;
    pub const JUMP: u16 = 0x05;
    pub const IF_EQUAL: u16 = 0x15;
    pub const IF_GREATER_OR_EQUAL: u16 = 0x35;
    /// Ends with the operand.
    pub const RETURN_VALUE: u16 = 0x06;
    /// Ends with A.
    pub const RETURN: u16 = 0x16;
}

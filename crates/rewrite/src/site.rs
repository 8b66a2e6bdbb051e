//! Types of the rewriter: a call site, and what was done with it.
//!
//! ```text
//!   numbered      b8 NR NR NR NR  0f 05          mov $nr,%eax; syscall
//!   wide          48 c7 c0 NR NR NR NR  0f 05    mov $nr,%rax; syscall
//!   becomes       ff 14 25 <table + 8*nr>        call *[table + 8*nr]        (+ a 2-byte nop)
//!
//!   checked       0f 05  48 3d 0x f0 ff ff       syscall; cmp $-4095|-4096,%rax
//!   becomes       ff 14 25 <table + 8*511|510>   call *[table + 8*511|510]; nop
//! ```
//!
//! The table lies at a fixed address below 2 GiB, so that the call needs no register and no
//! relocation. The gate behind entries 510 and 511 redoes the compare before it returns.

use std::fmt;

/// Address of the gate table; entry `k` is at `GATE_TABLE + 8 * k`.
pub const GATE_TABLE: u32 = 0x6_0000;
/// System call numbers from here on are left to the trap.
pub const NUMBERS_MAX: u32 = 500;
/// Entry for `syscall; cmp $-4096,%rax`.
pub const ENTRY_COMPARE_4096: u32 = 510;
/// Entry for `syscall; cmp $-4095,%rax`.
pub const ENTRY_COMPARE_4095: u32 = 511;

/// `ff 14 25 disp32`: `call *disp32`, without base, index or segment.
const CALL_ABSOLUTE: [u8; 3] = [0xff, 0x14, 0x25];
/// Bytes of such a call.
pub const CALL_BYTES: usize = 7;
/// Longest patch, bytes.
pub const PATCH_BYTES_MAX: usize = 9;

/// How a site is patched.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Form {
    /// `mov $nr,%eax; syscall`, 7 bytes.
    Numbered,
    /// `mov $nr,%rax; syscall`, 9 bytes.
    NumberedWide,
    /// `syscall; cmp $-4095,%rax`, 8 bytes.
    Compare4095,
    /// `syscall; cmp $-4096,%rax`, 8 bytes.
    Compare4096,
}

impl Form {
    /// Bytes in front of the `syscall` that belong to the patch.
    pub fn lead_bytes(self) -> u64 {
        match self {
            Form::Numbered => 5,
            Form::NumberedWide => 7,
            Form::Compare4095 | Form::Compare4096 => 0,
        }
    }

    /// Bytes of the patch in all.
    pub fn bytes(self) -> u64 {
        match self {
            Form::Numbered => 7,
            Form::NumberedWide => 9,
            Form::Compare4095 | Form::Compare4096 => 8,
        }
    }
}

/// Why a site stays as it is, and is caught by the trap instead.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Reason {
    /// Neither the number before nor the compare after the instruction is known.
    NoForm,
    /// The number is outside the gate table.
    NumberTooLarge,
    /// `rt_sigreturn`: unwinders recognise these very bytes.
    Sigreturn,
    /// The stack may be somebody else's by now (thread exit, unmapping one's own stack).
    StackMayBeGone,
    /// The function loads the stack pointer from somewhere.
    StackSwitched,
    /// The function keeps data below the stack pointer, where a call would push.
    RedZone,
    /// Something may jump into the middle of the patch.
    TargetInside,
    /// The function has an indirect jump whose targets were not found.
    UnknownJump,
    /// A relocation changes bytes of the patch.
    RelocationInside,
    /// The function does not decode cleanly from its start to its end.
    Unclean,
}

impl fmt::Display for Reason {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Reason::NoForm => "no known form",
            Reason::NumberTooLarge => "number outside the table",
            Reason::Sigreturn => "rt_sigreturn",
            Reason::StackMayBeGone => "stack may be gone",
            Reason::StackSwitched => "stack pointer loaded",
            Reason::RedZone => "red zone in use",
            Reason::TargetInside => "jump target inside",
            Reason::UnknownJump => "indirect jump unknown",
            Reason::RelocationInside => "relocation inside",
            Reason::Unclean => "does not decode cleanly",
        })
    }
}

/// What became of a site.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Verdict {
    /// Replaced by a call.
    Patched(Form),
    /// Left to the trap.
    Left(Reason),
}

/// One `syscall` instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Site {
    /// Virtual address of the instruction, as linked.
    pub address: u64,
    /// Its place in the file.
    pub offset: usize,
    /// The number, where the instruction before says it.
    pub number: Option<u32>,
    /// What became of it.
    pub verdict: Verdict,
}

/// Bytes to put into the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Edit {
    /// Where in the file.
    pub offset: usize,
    bytes: [u8; PATCH_BYTES_MAX],
    len: usize,
}

impl Edit {
    /// The new bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl Site {
    /// The edit that patches this site; `None` where it is left alone.
    pub fn edit(&self) -> Option<Edit> {
        let Verdict::Patched(form) = self.verdict else { return None };
        let entry = match form {
            Form::Numbered | Form::NumberedWide => self.number?,
            Form::Compare4095 => ENTRY_COMPARE_4095,
            Form::Compare4096 => ENTRY_COMPARE_4096,
        };
        let mut bytes = [0; PATCH_BYTES_MAX];
        bytes[..3].copy_from_slice(&CALL_ABSOLUTE);
        bytes[3..CALL_BYTES].copy_from_slice(&(GATE_TABLE + 8 * entry).to_le_bytes());
        match form {
            Form::Numbered => {}
            Form::NumberedWide => bytes[CALL_BYTES..9].copy_from_slice(&[0x66, 0x90]),
            Form::Compare4095 | Form::Compare4096 => bytes[CALL_BYTES] = 0x90,
        }
        let offset = self.offset - form.lead_bytes() as usize;
        Some(Edit { offset, bytes, len: form.bytes() as usize })
    }
}

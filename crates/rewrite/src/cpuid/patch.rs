//! Moves the instructions around each `cpuid` of a dynamic loader into the slack of its text.

use std::ops::Range;

use iced_x86::{
    BlockEncoder, BlockEncoderOptions, Code as Opcode, Decoder, DecoderOptions, FlowControl,
    Instruction, InstructionBlock, MemoryOperand, Mnemonic, Register,
};

use super::table::Table;
use crate::decide::Survey;
use crate::elf::{Code, Image};

/// Bytes of `jmp rel32`.
const JUMP_BYTES: u64 = 5;
/// Bytes of the red zone.
const RED_ZONE_BYTES: i64 = 128;
const PAGE_BYTES: u64 = 4096;

/// The lookup. `rip`-relative distances at [`TABLE_AT`] and [`END_AT`] are filled in.
const LOOKUP: [u8; 56] = [
    0x9c, //                               pushfq
    0x48, 0x8d, 0x15, 0, 0, 0, 0, //       lea table(%rip),%rdx
    0x48, 0x8d, 0x1d, 0, 0, 0, 0, //       lea end(%rip),%rbx
    0x48, 0x39, 0xda, //             next: cmp %rbx,%rdx
    0x74, 0x23, //                         je unknown
    0x3b, 0x02, //                         cmp (%rdx),%eax
    0x75, 0x0b, //                         jne step
    0x3b, 0x4a, 0x04, //                   cmp 4(%rdx),%ecx
    0x74, 0x0c, //                         je found
    0x83, 0x7a, 0x04, 0xff, //             cmpl $-1,4(%rdx)
    0x74, 0x06, //                         je found
    0x48, 0x83, 0xc2, 0x18, //       step: add $24,%rdx
    0xeb, 0xe6, //                         jmp next
    0x8b, 0x42, 0x08, //            found: mov 8(%rdx),%eax
    0x8b, 0x5a, 0x0c, //                   mov 12(%rdx),%ebx
    0x8b, 0x4a, 0x10, //                   mov 16(%rdx),%ecx
    0x8b, 0x52, 0x14, //                   mov 20(%rdx),%edx
    0x9d, //                               popfq
    0xc3, //                               ret
    0x9d, //                      unknown: popfq
];
/// What follows `unknown: popfq`.
const LOOKUP_TAIL: [u8; 3] = [0x0f, 0xa2, 0xc3]; // cpuid; ret
const TABLE_AT: usize = 4;
const END_AT: usize = 11;

/// What the table did to a loader.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Cost {
    /// `cpuid` instructions found.
    pub found: usize,
    /// Answered from the table.
    pub answered: usize,
    /// Bytes of slack used.
    pub slack_bytes: usize,
}

/// Rewrites the `cpuid` sites of a dynamic loader in place; leaves any other file alone.
///
/// To be called before the system call sites are edited: both look at the original bytes.
pub fn answer_from(table: &Table, bytes: &mut [u8]) -> Cost {
    let Some((edits, cost)) = plan(table, bytes) else { return Cost::default() };
    for (offset, new) in edits {
        bytes[offset..][..new.len()].copy_from_slice(&new);
    }
    cost
}

/// Whether these are the bytes of a dynamic loader.
pub fn is_loader(bytes: &[u8]) -> bool {
    Image::parse(bytes).is_ok_and(|image| image.is_loader())
}

type Edits = Vec<(usize, Vec<u8>)>;

fn plan(table: &Table, bytes: &[u8]) -> Option<(Edits, Cost)> {
    let image = Image::parse(bytes).ok()?;
    if !image.is_loader() {
        return None;
    }
    let survey = Survey::make(&image).ok()??;
    let mut slack = Slack::of(&image)?;
    let answers = table.bytes();
    let start = slack.put(&answers)?;
    let lookup = slack.put(&lookup_code(slack.address(), start, answers.len())?)?;
    let mut plan = Plan { image: &image, survey: &survey, slack, lookup, edits: Vec::new() };
    let mut cost = Cost { found: survey.findings.cpuids.len(), ..Cost::default() };
    let mut behind = 0;
    for &(chunk, address) in &survey.findings.cpuids {
        if address < behind {
            cost.answered += 1;
        } else if let Some(end) = plan.site(chunk, address, behind) {
            behind = end;
            cost.answered += 1;
        }
    }
    cost.slack_bytes = plan.slack.bytes.len();
    let mut edits = plan.edits;
    edits.push((plan.slack.offset, plan.slack.bytes));
    Some((edits, cost))
}

/// The unused end of the last page of text.
struct Slack {
    offset: usize,
    start: u64,
    len: usize,
    bytes: Vec<u8>,
}

impl Slack {
    fn of(image: &Image<'_>) -> Option<Slack> {
        let code = image.code.last()?;
        let load = image.loads.iter().find(|load| {
            load.offset <= code.offset as u64 && (code.offset as u64) < load.file_end()
        })?;
        let offset = load.file_end();
        let start = load.address.checked_add(load.file_bytes)?;
        let end = offset.next_multiple_of(PAGE_BYTES).min(image.bytes.len() as u64);
        let taken = image.loads.iter().any(|other| other.offset < end && offset < other.file_end());
        let aligned = offset % PAGE_BYTES == start % PAGE_BYTES;
        if taken || !aligned || load.file_bytes != load.memory_bytes {
            return None;
        }
        let unused = image.bytes.get(offset as usize..end as usize)?;
        let len = unused.len();
        let empty = unused.iter().all(|&byte| byte == 0);
        empty.then_some(Slack { offset: offset as usize, start, len, bytes: Vec::new() })
    }

    /// Where the next bytes go.
    fn address(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }

    /// Puts bytes; `None` if they do not fit.
    fn put(&mut self, new: &[u8]) -> Option<u64> {
        let address = self.address();
        if self.bytes.len() + new.len() > self.len {
            return None;
        }
        self.bytes.extend_from_slice(new);
        Some(address)
    }
}

fn lookup_code(at: u64, table: u64, table_bytes: usize) -> Option<Vec<u8>> {
    let mut code = LOOKUP.to_vec();
    code.extend_from_slice(&LOOKUP_TAIL);
    for (place, target) in [(TABLE_AT, table), (END_AT, table + table_bytes as u64)] {
        let distance = target.wrapping_sub(at + place as u64 + 4).cast_signed();
        code[place..place + 4].copy_from_slice(&i32::try_from(distance).ok()?.to_le_bytes());
    }
    Some(code)
}

struct Plan<'a, 'b> {
    image: &'a Image<'b>,
    survey: &'a Survey,
    slack: Slack,
    lookup: u64,
    edits: Edits,
}

impl Plan<'_, '_> {
    /// Patches one site; returns the first address behind it.
    fn site(&mut self, chunk: usize, address: u64, behind: u64) -> Option<u64> {
        let function = self.survey.functions.of(chunk);
        if !function.clean || function.switched || function.unknown_jump {
            return None;
        }
        let code = *self.image.code_at(address)?;
        let instructions = self.decode(&code, chunk);
        let at = instructions.iter().position(|instruction| instruction.ip() == address)?;
        let window = self.window(&instructions, at, behind)?;
        let moved = &instructions[window];
        let (start, end) = (moved[0].ip(), moved[moved.len() - 1].next_ip());
        let stub = self.stub(moved, end)?;
        let stub_address = self.slack.put(&stub)?;
        let distance = stub_address.wrapping_sub(start + JUMP_BYTES).cast_signed();
        let mut jump = vec![0xe9];
        jump.extend_from_slice(&i32::try_from(distance).ok()?.to_le_bytes());
        jump.resize((end - start) as usize, 0x90);
        self.edits.push((code.offset + (start - code.address) as usize, jump));
        Some(end)
    }

    fn decode(&self, code: &Code, chunk: usize) -> Vec<Instruction> {
        let chunk = &self.survey.findings.chunks[chunk];
        let from = (chunk.start - code.address) as usize;
        let bytes = &self.image.code_bytes(code)[from..][..(chunk.end - chunk.start) as usize];
        Decoder::with_ip(64, bytes, chunk.start, DecoderOptions::NONE).into_iter().collect()
    }

    /// The instructions to move: the `cpuid`, then as many behind it as are needed, or else
    /// before it.
    fn window(&self, all: &[Instruction], at: usize, behind: u64) -> Option<Range<usize>> {
        let fits = |range: &Range<usize>| {
            let Some(moved) = all.get(range.clone()) else { return false };
            let start = moved[0].ip();
            let len = moved[moved.len() - 1].next_ip() - start;
            start >= behind
                && len >= JUMP_BYTES
                && moved.iter().all(is_movable)
                && self.survey.obstacle(start, len).is_none()
        };
        let ahead = (at + 2..at + 5).map(|end| at..end);
        let around = (1..4).filter_map(|back| Some(at.checked_sub(back)?..at + 1));
        let both = (1..4).filter_map(|back| Some(at.checked_sub(back)?..at + 2));
        ahead.chain(around).chain(both).find(fits)
    }

    /// The moved instructions with a call in place of each `cpuid`, then a jump back.
    fn stub(&self, moved: &[Instruction], back: u64) -> Option<Vec<u8>> {
        let mut code = Vec::new();
        for instruction in moved {
            if instruction.mnemonic() != Mnemonic::Cpuid {
                code.push(*instruction);
                continue;
            }
            code.push(move_stack(-RED_ZONE_BYTES)?);
            code.push(Instruction::with_branch(Opcode::Call_rel32_64, self.lookup).ok()?);
            code.push(move_stack(RED_ZONE_BYTES)?);
        }
        code.push(Instruction::with_branch(Opcode::Jmp_rel32_64, back).ok()?);
        let block = InstructionBlock::new(&code, self.slack.address());
        Some(BlockEncoder::encode(64, block, BlockEncoderOptions::NONE).ok()?.code_buffer)
    }
}

/// `lea` keeps the flags.
fn move_stack(bytes: i64) -> Option<Instruction> {
    let operand = MemoryOperand::with_base_displ(Register::RSP, bytes);
    Instruction::with2(Opcode::Lea_r64_m, Register::RSP, operand).ok()
}

/// Invariant 3.
fn is_movable(instruction: &Instruction) -> bool {
    matches!(
        instruction.flow_control(),
        FlowControl::Next | FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch
    ) && instruction.code() != Opcode::INVALID
}

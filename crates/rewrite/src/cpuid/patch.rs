//! Moves the instructions around each `cpuid` of a dynamic loader into the slack of its text, and
//! the calls that no other form fits: each is made once or more at every start.

use std::ops::Range;

use iced_x86::{
    BlockEncoder, BlockEncoderOptions, Code as Opcode, Decoder, DecoderOptions, FlowControl,
    Instruction, InstructionBlock, MemoryOperand, Mnemonic, Register,
};

use super::table::Table;
use crate::decide::Survey;
use crate::elf::{Code, Image};
use crate::scan::Candidate;
use crate::site::{Form, GATE_TABLE, NUMBERS_MAX, Reason, Verdict};

/// Bytes of `jmp rel32`.
const JUMP_BYTES: u64 = 5;
/// Bytes of the red zone.
const RED_ZONE_BYTES: i64 = 128;
const PAGE_BYTES: u64 = 4096;
/// Instructions between a call and what sets its number, at most.
const NUMBER_BEFORE_MAX: usize = 5;
/// Calls whose child, successor or handler finds the stack as it is at the call: `munmap`,
/// `rt_sigreturn`, `clone`, `fork`, `vfork`, `execve`, `exit`, `exit_group`, `clone3`.
const NEEDS_ITS_STACK: [u32; 9] = [11, 15, 56, 57, 58, 59, 60, 231, 435];

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
    /// Calls made from there.
    pub calls: usize,
    /// Bytes of slack used.
    pub slack_bytes: usize,
}

/// Rewrites the `cpuid` sites of a dynamic loader in place; leaves any other file alone.
///
/// To be called before the system call sites are edited: both look at the original bytes.
pub fn answer_from(table: &Table, bytes: &mut [u8]) -> Cost {
    rework(table, bytes, false)
}

/// The same, and its calls that have no other form go to the gate: it runs in an image only.
pub fn answer_and_call_from(table: &Table, bytes: &mut [u8]) -> Cost {
    rework(table, bytes, true)
}

fn rework(table: &Table, bytes: &mut [u8], calls: bool) -> Cost {
    let Some((edits, cost)) = plan(table, bytes, calls) else { return Cost::default() };
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

fn plan(table: &Table, bytes: &[u8], calls: bool) -> Option<(Edits, Cost)> {
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
    if calls {
        cost.calls = survey.findings.candidates.iter().filter_map(|site| plan.call(site)).count();
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
        self.divert(&code, start..end, &stub)?;
        Some(end)
    }

    /// Puts a stub into the slack and a jump to it in the place of what it replaces.
    fn divert(&mut self, code: &Code, replaced: Range<u64>, stub: &[u8]) -> Option<()> {
        let stub_address = self.slack.put(stub)?;
        let distance = stub_address.wrapping_sub(replaced.start + JUMP_BYTES).cast_signed();
        let mut jump = vec![0xe9];
        jump.extend_from_slice(&i32::try_from(distance).ok()?.to_le_bytes());
        jump.resize((replaced.end - replaced.start) as usize, 0x90);
        self.edits.push((code.offset + (replaced.start - code.address) as usize, jump));
        Some(())
    }

    /// Patches a system call that has no form of its own: in a function that uses the red zone, or
    /// whose number is set too far before it.
    fn call(&mut self, site: &Candidate) -> Option<()> {
        let function = self.survey.functions.of(site.chunk);
        if !function.clean || function.switched || function.unknown_jump || function.exits {
            return None;
        }
        let code = *self.image.code_at(site.address)?;
        let (start, end, number, behind) = match (self.survey.verdict(site), site.number) {
            (Verdict::Left(Reason::RedZone), Some((number, Form::Numbered))) => {
                let start = site.address - Form::Numbered.lead_bytes();
                (start, start + Form::Numbered.bytes(), number, Vec::new())
            }
            (Verdict::Left(Reason::RedZone | Reason::NoForm), None) => {
                let all = self.decode(&code, site.chunk);
                let at = all.iter().position(|instruction| instruction.ip() == site.address)?;
                let behind = behind_call(&all, at)?;
                let number = self.number_before(&all, at)?;
                (site.address, behind.last()?.next_ip(), number, behind.to_vec())
            }
            _ => return None,
        };
        if number >= NUMBERS_MAX || NEEDS_ITS_STACK.contains(&number) {
            return None;
        }
        let offset = code.offset + (start - code.address) as usize;
        let meets = |(at, bytes): &(usize, Vec<u8>)| {
            *at < offset + (end - start) as usize && offset < at + bytes.len()
        };
        if self.survey.obstacle(start, end - start).is_some() || self.edits.iter().any(meets) {
            return None;
        }
        let stub = self.call_stub(number, &behind, end)?;
        self.divert(&code, start..end, &stub)
    }

    /// The number of a call, set some plain instructions before it.
    fn number_before(&self, all: &[Instruction], at: usize) -> Option<u32> {
        let set = all[..at].iter().rev().take(NUMBER_BEFORE_MAX).find(|before| !is_plain(before));
        let set = set.filter(|set| set.code() == Opcode::Mov_r32_imm32)?;
        let whole = all[at].next_ip() - set.ip();
        let reached = self.survey.obstacle(set.ip(), whole).is_none();
        (reached && set.op0_register() == Register::EAX).then_some(set.immediate32())
    }

    /// The call through the gate, what moved along, then a jump back.
    fn call_stub(&self, number: u32, behind: &[Instruction], back: u64) -> Option<Vec<u8>> {
        let gate = MemoryOperand::with_displ(u64::from(GATE_TABLE + 8 * number), 8);
        let mut code = vec![
            move_stack(-RED_ZONE_BYTES)?,
            Instruction::with1(Opcode::Call_rm64, gate).ok()?,
            move_stack(RED_ZONE_BYTES)?,
        ];
        code.extend_from_slice(behind);
        code.push(Instruction::with_branch(Opcode::Jmp_rel32_64, back).ok()?);
        let block = InstructionBlock::new(&code, self.slack.address());
        Some(BlockEncoder::encode(64, block, BlockEncoderOptions::NONE).ok()?.code_buffer)
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

/// Whether an instruction leaves `rax` and the flow of control alone: those that are met.
fn is_plain(instruction: &Instruction) -> bool {
    let plain = matches!(
        instruction.mnemonic(),
        Mnemonic::Mov | Mnemonic::Lea | Mnemonic::Movq | Mnemonic::Punpcklqdq | Mnemonic::Movups
    );
    plain && instruction.op0_register().full_register() != Register::RAX
}

/// What follows the call `all[at]` and moves along, so that there is room for a jump. The first of
/// it sets the flags anew, for the gate does not keep them.
fn behind_call(all: &[Instruction], at: usize) -> Option<&[Instruction]> {
    let first = all.get(at + 1)?;
    if !matches!(first.mnemonic(), Mnemonic::Test | Mnemonic::Xor | Mnemonic::Cmp) {
        return None;
    }
    let room = |end: &usize| all[*end - 1].next_ip() - all[at].ip() >= JUMP_BYTES;
    let end = (at + 2..=all.len().min(at + 4)).find(room)?;
    let behind = &all[at + 1..end];
    behind.iter().all(is_movable).then_some(behind)
}

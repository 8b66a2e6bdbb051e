//! One pass over all code of a file: candidate sites, jump targets, stack facts.
//!
//! The whole file is decoded, not just the functions with sites, because anything anywhere may
//! jump into the middle of a site. Raw bytes are never searched: a static Go program has
//! five times more `0f 05` pairs than `syscall` instructions.

use iced_x86::{
    Code as Opcode, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register,
};

use crate::bounds::Bounds;
use crate::elf::{Code, Image};
use crate::facts::Facts;
use crate::site::Form;
use crate::targets::Targets;

/// Number of `exit`: ends a thread.
pub const NUMBER_EXIT: u32 = 60;
const SYSCALL: [u8; 2] = [0x0f, 0x05];
/// How many instructions before an indirect jump its register may have been computed.
const COMPUTED_WITHIN: usize = 4;

/// A piece of code between two known bounds.
pub struct Chunk {
    /// First address.
    pub start: u64,
    /// First address behind.
    pub end: u64,
    /// Decoded without an invalid instruction, and ended exactly at `end`.
    pub clean: bool,
    /// The last instruction may go on into the next chunk.
    pub falls_through: bool,
    /// Stack facts.
    pub facts: Facts,
    /// Direct jumps out of the chunk: target, and whether conditional.
    pub leaves: Vec<(u64, bool)>,
}

/// A `syscall` instruction.
#[derive(Clone, Copy)]
pub struct Candidate {
    /// Index of its chunk.
    pub chunk: usize,
    /// Its address.
    pub address: u64,
    /// Its place in the file.
    pub offset: usize,
    /// The number loaded right before, and by which form.
    pub number: Option<(u32, Form)>,
    /// The compare right behind.
    pub compare: Option<Form>,
}

/// Everything one pass finds.
#[derive(Default)]
pub struct Findings {
    /// In address order.
    pub chunks: Vec<Chunk>,
    /// In address order.
    pub candidates: Vec<Candidate>,
    /// Clean chunks' `cpuid` instructions: chunk index, address.
    pub cpuids: Vec<(usize, u64)>,
}

/// Whether any chunk has a `syscall` instruction. Raw bytes only tell where not to look.
pub fn has_sites(image: &Image<'_>, bounds: &Bounds) -> bool {
    image.code.iter().any(|code| {
        let (bytes, starts) = (image.code_bytes(code), bounds.chunks(code));
        let pairs = bytes.windows(2).enumerate().filter(|(_, pair)| *pair == SYSCALL);
        let chunk_of = |(place, _)| {
            let address = code.address + place as u64;
            starts.partition_point(|&start| start <= address) - 1
        };
        let mut decoded = None;
        pairs.map(chunk_of).any(|index| {
            let again = decoded.replace(index) == Some(index);
            !again && chunk_has_site(image, code, starts, index)
        })
    })
}

fn chunk_has_site(image: &Image<'_>, code: &Code, starts: &[u64], index: usize) -> bool {
    let from = (starts[index] - code.address) as usize;
    let to = starts.get(index + 1).map_or(code.len, |end| (end - code.address) as usize);
    let bytes = &image.code_bytes(code)[from..to];
    let mut decoder = Decoder::with_ip(64, bytes, starts[index], DecoderOptions::NONE);
    decoder.iter().any(|instruction| instruction.mnemonic() == Mnemonic::Syscall)
}

/// Decodes all code.
pub fn scan(image: &Image<'_>, bounds: &Bounds, targets: &mut Targets) -> Findings {
    let mut findings = Findings::default();
    for code in &image.code {
        let starts = bounds.chunks(code);
        for (index, &start) in starts.iter().enumerate() {
            let end = starts.get(index + 1).copied().unwrap_or(code.end());
            Pass { image, code, targets, findings: &mut findings }.chunk(start, end);
        }
    }
    findings
}

struct Pass<'a, 'b> {
    image: &'a Image<'b>,
    code: &'a Code,
    targets: &'a mut Targets,
    findings: &'a mut Findings,
}

impl Pass<'_, '_> {
    fn chunk(&mut self, start: u64, end: u64) {
        let mut chunk = Chunk {
            start,
            end,
            clean: true,
            falls_through: true,
            facts: Facts::default(),
            leaves: Vec::new(),
        };
        let place = (start - self.code.address) as usize;
        let bytes = &self.image.code_bytes(self.code)[place..][..(end - start) as usize];
        let mut decoder = Decoder::with_ip(64, bytes, start, DecoderOptions::NONE);
        let mut now = Instruction::default();
        let mut before = Instruction::default();
        let mut computed = [Register::None; COMPUTED_WITHIN];
        while decoder.can_decode() {
            decoder.decode_out(&mut now);
            if now.is_invalid() {
                chunk.clean = false;
                before = Instruction::default();
                continue;
            }
            self.note_flow(&mut chunk, &now, computed.contains(&now.op0_register()));
            computed.rotate_right(1);
            computed[0] = computed_register(&now);
            self.note_addresses(&mut chunk, &now);
            chunk.facts.note(&now);
            self.note_site(&mut chunk, &now, &before);
            before = now;
        }
        chunk.falls_through = may_continue(&before);
        self.findings.chunks.push(chunk);
    }

    fn note_flow(&mut self, chunk: &mut Chunk, now: &Instruction, computed: bool) {
        if matches!(now.op0_kind(), OpKind::NearBranch64) {
            let target = now.near_branch_target();
            self.targets.mark(target);
            let jumps = matches!(
                now.flow_control(),
                FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch
            );
            if jumps && !(chunk.start..chunk.end).contains(&target) {
                let conditional = now.flow_control() == FlowControl::ConditionalBranch;
                chunk.leaves.push((target, conditional));
            }
        }
        if now.flow_control() == FlowControl::IndirectBranch {
            let through_register = now.op0_kind() == OpKind::Register;
            chunk.facts.indirect_jump |= through_register;
            chunk.facts.computed_jump |= through_register && computed;
        }
    }

    fn note_addresses(&mut self, chunk: &mut Chunk, now: &Instruction) {
        if now.is_ip_rel_memory_operand() {
            self.note_pointer(chunk, now.ip_rel_memory_address());
        }
        if !self.image.absolute {
            return;
        }
        for operand in 0..now.op_count().min(2) {
            let immediate = matches!(
                now.op_kind(operand),
                OpKind::Immediate32 | OpKind::Immediate32to64 | OpKind::Immediate64
            );
            if immediate {
                self.note_pointer(chunk, now.immediate(operand));
            }
        }
    }

    fn note_pointer(&mut self, chunk: &mut Chunk, pointer: u64) {
        if !self.targets.mark(pointer) && self.image.constants_at(pointer).is_some() {
            chunk.facts.tables.push(pointer);
        }
    }

    fn note_site(&mut self, chunk: &mut Chunk, now: &Instruction, before: &Instruction) {
        let index = self.findings.chunks.len();
        if before.mnemonic() == Mnemonic::Syscall
            && let Some(candidate) = self.findings.candidates.last_mut()
        {
            candidate.compare = compare_form(now);
        }
        if now.mnemonic() == Mnemonic::Cpuid {
            self.findings.cpuids.push((index, now.ip()));
        }
        if now.mnemonic() != Mnemonic::Syscall {
            return;
        }
        let number = number_form(before);
        chunk.facts.exits |= number.is_some_and(|(number, _)| number == NUMBER_EXIT);
        self.findings.candidates.push(Candidate {
            chunk: index,
            address: now.ip(),
            offset: self.code.offset + (now.ip() - self.code.address) as usize,
            number,
            compare: None,
        });
    }
}

fn number_form(before: &Instruction) -> Option<(u32, Form)> {
    let form = match (before.code(), before.op0_register(), before.len()) {
        (Opcode::Mov_r32_imm32, Register::EAX, 5) => Form::Numbered,
        (Opcode::Mov_rm64_imm32, Register::RAX, 7) => Form::NumberedWide,
        _ => return None,
    };
    Some((u32::try_from(before.immediate(1)).ok()?, form))
}

fn compare_form(behind: &Instruction) -> Option<Form> {
    if behind.code() != Opcode::Cmp_RAX_imm32 || behind.len() != 6 {
        return None;
    }
    match behind.immediate(1) as i64 {
        -4095 => Some(Form::Compare4095),
        -4096 => Some(Form::Compare4096),
        _ => None,
    }
}

/// The register this may compute as the target of a jump through a table of distances.
fn computed_register(instruction: &Instruction) -> Register {
    match instruction.mnemonic() {
        Mnemonic::Lea if instruction.is_ip_rel_memory_operand() => Register::None,
        Mnemonic::Add | Mnemonic::Lea | Mnemonic::Sub => instruction.op0_register(),
        _ => Register::None,
    }
}

fn may_continue(last: &Instruction) -> bool {
    use FlowControl::{Exception, IndirectBranch, Interrupt, Return, UnconditionalBranch};
    !matches!(
        last.flow_control(),
        Return | UnconditionalBranch | IndirectBranch | Exception | Interrupt
    )
}

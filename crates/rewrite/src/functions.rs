//! Groups chunks into functions, and collects what is true of each function as a whole.
//!
//! Chunks are one function when a span holds both, when one falls through into the other at a
//! mere label, when one jumps into the middle of the other, or when one leaves by a conditional
//! jump (compilers move the unlikely part of a function elsewhere). A plain jump to another
//! function's start is a tail call; since it could also lead to a part moved elsewhere, a red zone
//! in use spreads along it.

use crate::bounds::Bounds;
use crate::elf::Image;
use crate::facts::Facts;
use crate::scan::{Chunk, Findings};
use crate::targets::{Targets, mark_table};

/// What must be known of a function before one of its sites may be patched.
#[derive(Clone, Copy, Default)]
pub struct Function {
    /// All its chunks decoded cleanly.
    pub clean: bool,
    /// Data may lie below the stack pointer.
    pub red_zone: bool,
    /// The stack pointer is loaded from somewhere.
    pub switched: bool,
    /// An indirect jump with unknown targets.
    pub unknown_jump: bool,
    /// It ends a thread.
    pub exits: bool,
}

/// The functions of a file.
pub struct Functions {
    of_chunk: Vec<u32>,
    functions: Vec<Function>,
}

impl Functions {
    /// Puts chunks together; entries of jump tables are marked on the way.
    pub fn gather(
        image: &Image<'_>,
        bounds: &Bounds,
        findings: &mut Findings,
        targets: &mut Targets,
    ) -> Functions {
        let parents = join(bounds, &findings.chunks);
        let mut facts = vec![Facts::default(); findings.chunks.len()];
        let mut functions = vec![Function { clean: true, ..Function::default() }; facts.len()];
        for (chunk, &root) in findings.chunks.iter_mut().zip(&parents) {
            facts[root as usize].merge(std::mem::take(&mut chunk.facts));
            functions[root as usize].clean &= chunk.clean;
        }
        for (function, facts) in functions.iter_mut().zip(&mut facts) {
            facts.tables.sort_unstable();
            facts.tables.dedup();
            let mut resolved = false;
            for &table in facts.tables.iter().filter(|_| facts.indirect_jump) {
                resolved |= mark_table(image, table, targets) > 0;
            }
            function.red_zone = facts.uses_red_zone();
            function.switched = facts.is_switched();
            function.unknown_jump = facts.computed_jump && !resolved;
            function.exits = facts.exits;
        }
        let mut all = Functions { of_chunk: parents, functions };
        all.spread_red_zones(&findings.chunks);
        all
    }

    /// The function of a chunk.
    pub fn of(&self, chunk: usize) -> Function {
        self.functions[self.of_chunk[chunk] as usize]
    }

    fn spread_red_zones(&mut self, chunks: &[Chunk]) {
        let mut edges: Vec<(u32, u32)> = Vec::new();
        for (index, chunk) in chunks.iter().enumerate() {
            for &(target, _) in &chunk.leaves {
                if let Some(other) = chunk_at(chunks, target) {
                    edges.push((self.of_chunk[index], self.of_chunk[other]));
                }
            }
        }
        edges.sort_unstable();
        edges.dedup();
        let mut todo: Vec<u32> = (0..self.functions.len() as u32)
            .filter(|&root| self.functions[root as usize].red_zone)
            .collect();
        while let Some(root) = todo.pop() {
            let first = edges.partition_point(|edge| edge.0 < root);
            for edge in edges[first..].iter().take_while(|edge| edge.0 == root) {
                let other = &mut self.functions[edge.1 as usize];
                if !std::mem::replace(&mut other.red_zone, true) {
                    todo.push(edge.1);
                }
            }
        }
    }
}

/// For each chunk the index that stands for its function.
fn join(bounds: &Bounds, chunks: &[Chunk]) -> Vec<u32> {
    let mut parents: Vec<u32> = (0..chunks.len() as u32).collect();
    unite_spans(&mut parents, bounds, chunks);
    let opens_span = |address: u64| bounds.spans().binary_search_by_key(&address, |s| s.0).is_ok();
    for (index, chunk) in chunks.iter().enumerate() {
        let next = index + 1;
        let adjacent = chunks.get(next).is_some_and(|other| other.start == chunk.end);
        if adjacent && chunk.falls_through && !opens_span(chunk.end) {
            unite(&mut parents, index, next);
        }
        for &(target, conditional) in &chunk.leaves {
            if let Some(other) = chunk_at(chunks, target)
                && (conditional || chunks[other].start != target || !opens_span(target))
            {
                unite(&mut parents, index, other);
            }
        }
    }
    (0..chunks.len()).map(|index| find(&mut parents, index as u32)).collect()
}

/// Spans that overlap share a chunk, so one sweep over their unions is enough.
fn unite_spans(parents: &mut [u32], bounds: &Bounds, chunks: &[Chunk]) {
    let mut first = 0;
    let mut reach = 0;
    let mut spans = bounds.spans().iter().peekable();
    for (index, chunk) in chunks.iter().enumerate() {
        if chunk.start < reach {
            unite(parents, first, index);
        } else {
            first = index;
        }
        while let Some(&(_, end)) = spans.next_if(|span| span.0 <= chunk.start) {
            reach = reach.max(end);
        }
    }
}

fn chunk_at(chunks: &[Chunk], address: u64) -> Option<usize> {
    let index = chunks.partition_point(|chunk| chunk.start <= address).checked_sub(1)?;
    (address < chunks[index].end).then_some(index)
}

fn find(parents: &mut [u32], mut index: u32) -> u32 {
    while parents[index as usize] != index {
        let above = parents[parents[index as usize] as usize];
        parents[index as usize] = above;
        index = above;
    }
    index
}

fn unite(parents: &mut [u32], one: usize, two: usize) {
    let (one, two) = (find(parents, one as u32), find(parents, two as u32));
    parents[one.max(two) as usize] = one.min(two);
}

//! Decides how a call site is patched, or why it is not.

use crate::bounds::Bounds;
use crate::elf::{Image, Refusal};
use crate::functions::{Function, Functions};
use crate::scan::{Candidate, Findings, NUMBER_EXIT, has_sites, scan};
use crate::site::{NUMBERS_MAX, Reason, Site, Verdict};
use crate::targets::{Targets, mark_declared};

const NUMBER_MUNMAP: u32 = 11;
const NUMBER_RT_SIGRETURN: u32 = 15;
/// Longest relocated field, bytes.
const RELOCATED_BYTES: u64 = 8;

/// A file looked through.
pub struct Survey {
    /// Sites, chunks, `cpuid`s.
    pub findings: Findings,
    /// Where control may arrive.
    pub targets: Targets,
    /// Facts of functions.
    pub functions: Functions,
    /// Relocated addresses, sorted.
    relocated: Vec<u64>,
}

impl Survey {
    /// Looks through a file; `None` if there is no site in it.
    pub fn make(image: &Image<'_>) -> Result<Option<Survey>, Refusal> {
        let mut targets = Targets::new(image);
        let bounds = Bounds::gather(image, &mut targets);
        if !has_sites(image, &bounds) {
            return Ok(None);
        }
        mark_declared(image, &mut targets);
        let mut findings = scan(image, &bounds, &mut targets);
        let functions = Functions::gather(image, &bounds, &mut findings, &mut targets);
        let mut relocated: Vec<u64> = image.relocations.iter().map(|r| r.address).collect();
        relocated.sort_unstable();
        if targets.is_incomplete() {
            return Err(Refusal::TooComplex);
        }
        Ok(Some(Survey { findings, targets, functions, relocated }))
    }

    /// Why these bytes may not be replaced by one instruction, if they may not.
    pub fn obstacle(&self, start: u64, len: u64) -> Option<Reason> {
        if self.targets.any_inside(start, len) {
            return Some(Reason::TargetInside);
        }
        let low = start.saturating_sub(RELOCATED_BYTES - 1);
        let first = self.relocated.partition_point(|&address| address < low);
        let hit = self.relocated.get(first).is_some_and(|&address| address < start + len);
        hit.then_some(Reason::RelocationInside)
    }

    /// What becomes of a site.
    pub fn verdict(&self, site: &Candidate) -> Verdict {
        let function = self.functions.of(site.chunk);
        match number_reason(site, function).or_else(|| function_reason(function)) {
            Some(reason) => Verdict::Left(reason),
            None => self.choose(site),
        }
    }

    /// The first form that fits; else the reason against the first that might have.
    fn choose(&self, site: &Candidate) -> Verdict {
        let numbered = site.number.filter(|(number, _)| *number < NUMBERS_MAX);
        let mut reason = None;
        for form in [numbered.map(|(_, form)| form), site.compare].into_iter().flatten() {
            match self.obstacle(site.address - form.lead_bytes(), form.bytes()) {
                None => return Verdict::Patched(form),
                Some(obstacle) => reason = reason.or(Some(obstacle)),
            }
        }
        let otherwise = if site.number.is_some() { Reason::NumberTooLarge } else { Reason::NoForm };
        Verdict::Left(reason.unwrap_or(otherwise))
    }
}

/// All sites of a file.
pub fn sites(image: &Image<'_>) -> Result<Vec<Site>, Refusal> {
    let Some(survey) = Survey::make(image)? else { return Ok(Vec::new()) };
    let site = |candidate: &Candidate| Site {
        address: candidate.address,
        offset: candidate.offset,
        number: candidate.number.map(|(number, _)| number),
        verdict: survey.verdict(candidate),
    };
    Ok(survey.findings.candidates.iter().map(site).collect())
}

fn number_reason(site: &Candidate, function: Function) -> Option<Reason> {
    match site.number?.0 {
        NUMBER_RT_SIGRETURN => Some(Reason::Sigreturn),
        NUMBER_EXIT => Some(Reason::StackMayBeGone),
        NUMBER_MUNMAP if function.exits => Some(Reason::StackMayBeGone),
        _ => None,
    }
}

fn function_reason(function: Function) -> Option<Reason> {
    if !function.clean {
        Some(Reason::Unclean)
    } else if function.switched {
        Some(Reason::StackSwitched)
    } else if function.red_zone {
        Some(Reason::RedZone)
    } else if function.unknown_jump {
        Some(Reason::UnknownJump)
    } else {
        None
    }
}

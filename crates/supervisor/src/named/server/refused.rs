//! Why an image does not end though somebody has asked for it, and what to type then.

use crate::differences::differences;
use crate::image::work::Work;
use crate::named::place::{Name, Place};
use crate::output::failure::Failure;
use crate::run::shortage;
use crate::write_back::Outcome;
use crate::write_back::plan::scan::Run;
use crate::write_back::record::ledger::Ledger;

/// Why it cannot end, where that is known before anything is touched: there is no room for what has
/// changed.
pub fn lacks_room(work: &mut Work, place: &Place, number: u32) -> Option<Failure> {
    if work.finds_room() {
        return None;
    }
    let run = Run { number, started_ns: work.image.started_ns, live: true };
    let (ledger, overlays) = (Ledger::at(place.ledger()), work.image.overlays());
    let found = differences(&mut work.image.direct, run, &ledger, &overlays, &[]);
    let bytes = shortage::bytes_of(&found.changes);
    let why = shortage::told(&work.lacks_room(bytes)?, bytes);
    let name = &place.name;
    let remedy = format!(
        "nothing is written back: make room and try again, or `husk sync {name}` writes what \
         fits, `husk down {name} --discard` drops all"
    );
    Some(Failure::new(cannot_end(name), why, remedy))
}

/// Why it goes on after a write-back: it has what found room neither in its place nor elsewhere, or
/// was stopped.
pub fn stays(name: &Name, outcome: &Outcome, had_nodes: bool) -> Failure {
    let first = if was_stopped(outcome) { "try again" } else { "make room and try again" };
    let remedy = format!("{first}, or drop it: husk down {name} --discard; it stays");
    let remedy = if had_nodes { remedy + ", with its first node only" } else { remedy };
    Failure::new(cannot_end(name), format!("not written back: {}", in_short(outcome)), remedy)
}

fn cannot_end(name: &Name) -> String {
    format!("cannot take image {name} down")
}

/// How many things found no place, and the first of them.
fn in_short(outcome: &Outcome) -> String {
    if was_stopped(outcome) {
        return "it was stopped".to_owned();
    }
    let lines = || outcome.failures.iter().chain(&outcome.busy);
    let first = lines().next().map_or("", String::as_str);
    match lines().count() {
        0 | 1 => first.to_owned(),
        count => format!("{first} (and {} more)", count - 1),
    }
}

/// Nothing was in its way but a wish (`named::waiting`).
fn was_stopped(outcome: &Outcome) -> bool {
    outcome.untouched && outcome.failures.is_empty() && outcome.busy.is_empty()
}

//! Each change, with a death at each store of it, is asked again: it is made once.

use std::collections::BTreeMap;

use husk_wire::record::{Object, What};
use husk_wire::{Header, Kind, Role};

use super::asks::{AT_END, Ask, BOTH, Heard, TRUNCATE};
use super::home::{self, Home};
use super::own_process::in_own_process;
use crate::planted::{Bug, plant};
use crate::translate::object;

/// Most stores of a handler.
const POINTS_MAX: u64 = 400;

fn header(request: u32, again: bool) -> Header {
    Header { source: 1, request, again, ..Header::new(Kind::Walk, Role::Request) }
}

/// A home with directory `d` and, beside it, `f`, which has bytes with a hole before them.
fn prepared() -> (Home, Object, Object) {
    let mut home = Home::new();
    home.start_agent();
    let root = object(home.root);
    let made = [Ask::MakeDirectory(root, b'd', 0o755), Ask::Create(root, b'f', 0o644, None)];
    for (n, ask) in (1..).zip(made) {
        said(&mut home, &ask, header(n, false)).expect("made");
    }
    let [d, f] = [b'd', b'f'].map(|name| home.named(root, name).expect("it is there"));
    said(&mut home, &Ask::Write(f, 9000, vec![b'x'; 100]), header(3, false)).expect("written");
    (home, d, f)
}

fn said(home: &mut Home, ask: &Ask, header: Header) -> super::asker::Outcome {
    let answer = home.answer(0, &ask.message(header), false);
    let (header, body) = Header::split(&answer).expect("sound");
    ask.heard(&header, body)
}

fn changes(root: Object, d: Object, f: Object) -> Vec<Ask> {
    vec![
        Ask::Create(root, b'n', 0o444, None),
        Ask::Create(root, b'n', 0o444, Some(BOTH)),
        Ask::Symlink(root, b'n', vec![b't'; 300]),
        Ask::MakeDirectory(d, b'n', 0o700),
        Ask::Link(f, d, b'n'),
        Ask::Remove(root, b'f', What::File),
        Ask::Remove(root, b'd', What::Directory),
        Ask::Rename(root, b'f', d, b'n', 0),
        Ask::Rename(root, b'f', root, b'd', 2),
        Ask::SetMode(f, 0o600),
        Ask::Truncate(f, 5),
        Ask::Open(f, BOTH),
        Ask::Open(f, BOTH | TRUNCATE),
        Ask::Write(f, 0, vec![b'y'; 20_000]),
        Ask::Write(f, AT_END, vec![b'z'; 9000]),
        Ask::Punch(f, 0, 9050),
        Ask::SetExtended(f, b'a', vec![1; 30]),
        Ask::SetExtended(f, b'a', vec![1; 9000]),
    ]
}

/// What may differ between a change that was made at once and one that was asked for again: the
/// number of what was made in between and has gone.
fn told(seen: BTreeMap<String, String>) -> Vec<String> {
    let without = |line: &str| line.split_once("}, sort").map_or(line, |split| split.1).to_owned();
    seen.into_iter().map(|(path, line)| format!("{path} {}", without(&line))).collect()
}

fn kind_of(heard: Heard) -> Heard {
    match heard {
        Heard::Facts(facts, target, hold) => {
            let object = Object { number: 0, generation: 0 };
            let facts = super::asks::Facts { object, ..facts };
            Heard::Facts(facts, target, hold.map(|_| 1))
        }
        other => other,
    }
}

/// Plays one change with a death at `point`; what is wrong. `None`: it has not so many.
fn dies(which: usize, point: u64, right: &(Heard, Vec<String>)) -> Option<Result<(), String>> {
    let (mut home, d, f) = prepared();
    let ask = &changes(object(home.root), d, f)[which];
    let was_killed = home.die_inside(0, &ask.message(header(9, false)), point);
    home.kill_agent();
    home.bury_agents();
    home.start_agent();
    let heard = said(&mut home, ask, header(9, true)).map(kind_of);
    let open = home.holds() as u64;
    let seen = told(home.snapshot());
    let once_more = said(&mut home, ask, header(9, true)).map(kind_of);
    let is_right = heard.as_ref() == Ok(&right.0) && seen == right.1 && home.holds() as u64 == open;
    let stays = once_more == heard && told(home.snapshot()) == right.1;
    let found = home.findings();
    let told = || format!("{} dies at {point}: {heard:?}, {once_more:?}, {found:?}", ask.line());
    let result = if is_right && stays && found.is_empty() { Ok(()) } else { Err(told()) };
    was_killed.then_some(result)
}

/// The first change that is wrong with a death in it.
fn first_wrong() -> Result<(), String> {
    let (home, d, f) = prepared();
    let count = changes(object(home.root), d, f).len();
    drop(home);
    for which in 0..count {
        let (mut home, d, f) = prepared();
        let ask = &changes(object(home.root), d, f)[which];
        let heard = said(&mut home, ask, header(9, false)).map_err(|why| format!("{why:?}"))?;
        let right = (kind_of(heard), told(home.snapshot()));
        drop(home);
        let mut points = 0;
        for point in 1..=POINTS_MAX {
            match dies(which, point, &right) {
                Some(result) => result?,
                None => break,
            }
            points += 1;
        }
        assert!((10..POINTS_MAX).contains(&points), "{which}: {points} points");
    }
    Ok(())
}

#[test]
fn a_change_that_its_agent_dies_over_at_any_store_is_made_once_when_it_is_asked_again() {
    in_own_process(
        "sim::twice::\
         a_change_that_its_agent_dies_over_at_any_store_is_made_once_when_it_is_asked_again",
        || {
            home::map();
            assert_eq!(first_wrong(), Ok(()));
            for bug in [Bug::NoRecord, Bug::RecordApart] {
                plant(Some(bug));
                let found = first_wrong();
                plant(None);
                println!("{bug:?}: {found:?}");
                assert!(found.is_err(), "{bug:?} is not found");
            }
        },
    );
}

//! A file without a name that another node has open, with deaths of the agent at each store of what
//! is done to it: it stays as long as it is open, and no longer.

use husk_wire::record::{Object, What};
use husk_wire::{Header, Kind, Role};

use super::asks::{Ask, BOTH, Heard};
use super::home::{self, Home};
use super::own_process::in_own_process;
use crate::planted::{Bug, plant};
use crate::translate::object;

/// Most stores of a handler.
const POINTS_MAX: u64 = 400;
const BYTES: &[u8] = b"bytes that no name leads to";

fn header(request: u32, again: bool) -> Header {
    Header { source: 1, request, again, ..Header::new(Kind::Walk, Role::Request) }
}

fn said(home: &mut Home, ask: &Ask, header: Header) -> super::asker::Outcome {
    let answer = home.answer(0, &ask.message(header), false);
    let (header, body) = Header::split(&answer).expect("sound");
    ask.heard(&header, body)
}

fn opened(home: &mut Home, file: Object, request: u32, again: bool) -> Option<u64> {
    match said(home, &Ask::Open(file, BOTH), header(request, again)) {
        Ok(Heard::Facts(_, _, hold)) => hold,
        _ => None,
    }
}

/// A home with a file without a name that node 1 has open, and the room that there is without it.
fn prepared() -> (Home, Object, u64, (u64, u64)) {
    let mut home = Home::new();
    home.start_agent();
    let (root, before) = (object(home.root), home.room_left());
    said(&mut home, &Ask::Create(root, b'f', 0o644, None), header(1, false)).expect("made");
    let file = home.named(root, b'f').expect("it is there");
    said(&mut home, &Ask::Write(file, 0, BYTES.to_vec()), header(2, false)).expect("written");
    let hold = opened(&mut home, file, 3, false).expect("opened");
    said(&mut home, &Ask::Remove(root, b'f', What::File), header(4, false)).expect("removed");
    (home, file, hold, before)
}

/// The next agent.
fn next_agent(home: &mut Home) {
    home.kill_agent();
    home.bury_agents();
    home.start_agent();
}

/// What is wrong with a file that is to have these bytes.
fn is_there(home: &mut Home, file: Object) -> Result<(), String> {
    let bytes = said(home, &Ask::Read(file, 0, 100), header(90, false));
    let right = Ok(Heard::Bytes(BYTES.to_vec()));
    if bytes == right { Ok(()) } else { Err(format!("{bytes:?} is read")) }
}

/// What is wrong where nothing is to be left.
fn is_gone(home: &mut Home, before: (u64, u64)) -> Result<(), String> {
    let (found, room, holds) = (home.findings(), home.room_left(), home.holds());
    if found.is_empty() && room == before && holds == 0 {
        return Ok(());
    }
    Err(format!("{found:?}, {room:?} not {before:?}, {holds} holds"))
}

/// Node 1 opens it once more and closes both, the agent dies at `point` of the first or the second.
fn dies(at_open: bool, point: u64) -> Option<Result<(), String>> {
    let (mut home, file, first, before) = prepared();
    next_agent(&mut home);
    let mut was_killed = true;
    if at_open {
        let message = Ask::Open(file, BOTH).message(header(9, false));
        was_killed = home.die_inside(0, &message, point);
        next_agent(&mut home);
    }
    let second = opened(&mut home, file, 9, at_open);
    let told =
        |what: &str, why| Some(Err(format!("{what}, at {point} of an open {at_open}: {why}")));
    let Some(second) = second else { return told("opened again", "no hold".to_owned()) };
    if home.holds() != 2 {
        return told("opened again", format!("{} holds", home.holds()));
    }
    if let Err(why) = is_there(&mut home, file) {
        return told("opened again", why);
    }
    let back = Ask::Return(vec![first, second]);
    if !at_open {
        was_killed = home.die_inside(0, &back.message(header(10, false)), point);
        next_agent(&mut home);
    }
    said(&mut home, &back, header(10, !at_open)).expect("given back");
    if let Err(why) = is_gone(&mut home, before) {
        return told("given back", why);
    }
    was_killed.then_some(Ok(()))
}

fn first_wrong() -> Result<(), String> {
    for at_open in [true, false] {
        let mut points = 0;
        for point in 1..=POINTS_MAX {
            match dies(at_open, point) {
                Some(result) => result?,
                None => break,
            }
            points += 1;
        }
        assert!((10..POINTS_MAX).contains(&points), "{at_open}: {points} points");
    }
    let (mut home, file, _, before) = prepared();
    next_agent(&mut home);
    is_there(&mut home, file)?;
    home.answer(0, &Ask::Dead(vec![1], 1).message(header(1, false)), true);
    is_gone(&mut home, before)
}

#[test]
fn a_file_without_a_name_stays_while_it_is_open_and_no_longer_whenever_the_agent_dies() {
    in_own_process(
        "sim::held::\
         a_file_without_a_name_stays_while_it_is_open_and_no_longer_whenever_the_agent_dies",
        || {
            home::map();
            assert_eq!(first_wrong(), Ok(()));
            for bug in [Bug::HoldsDieWithAgent, Bug::FirstTryKept, Bug::DeathKeepsHolds] {
                plant(Some(bug));
                let found = first_wrong();
                plant(None);
                println!("{bug:?}: {found:?}");
                assert!(found.is_err(), "{bug:?} is not found");
            }
        },
    );
}

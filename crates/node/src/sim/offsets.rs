//! What is done at a shared offset, and each descriptor that goes to another node, with a death of
//! the agent at each store of it: it is done once when it is asked again.

use husk_wire::messages::{decode_reply, encode};
use husk_wire::record::{Leaves, Object, Passed, Transfer};
use husk_wire::text::Bytes;
use husk_wire::{Header, Kind, Role, message, request};

use super::asks::Ask;
use super::home::{self, Home};
use super::own_process::in_own_process;
use crate::CALL_BYTES_MAX;
use crate::planted::{Bug, plant};
use crate::translate::object;

/// Most stores of a handler.
const POINTS_MAX: u64 = 400;
const APPEND: u32 = 0o2000;
/// Where the offset stands at first, and how long the file is.
const BEGIN: u64 = 10;
const SIZE: usize = 9000;

/// What is asked.
#[derive(Clone, Copy, Debug)]
enum Turn {
    Io(Transfer, u64, u64, u32, usize),
    Pass,
}

const TURNS: [Turn; 7] = [
    Turn::Io(Transfer::Read, 60, 0, 0, 0),
    Turn::Io(Transfer::Read, 1 << 20, 0, 0, 0),
    Turn::Io(Transfer::Write, 20_000, 0, 0, 20_000),
    Turn::Io(Transfer::Write, 9000, 0, APPEND, 9000),
    Turn::Io(Transfer::Seek, 700, 0, 0, 0),
    Turn::Io(Transfer::Return, 4, BEGIN, 0, 0),
    Turn::Pass,
];

/// A home with a file that a program of it has open.
struct Scene {
    home: Home,
    file: Object,
    process: u32,
    number: u32,
    description: Object,
}

/// What is there after a turn.
#[derive(PartialEq, Debug)]
struct Seen {
    answer: String,
    offset: u64,
    bytes: Vec<u8>,
}

fn header(kind: Kind, length: usize, request: u32, again: bool) -> Header {
    let length = length as u32;
    Header { source: 1, request, length, again, ..Header::new(kind, Role::Request) }
}

impl Scene {
    fn new() -> Scene {
        let mut home = Home::new();
        home.start_agent();
        let root = object(home.root);
        let create = Ask::Create(root, b'f', 0o644, None);
        home.answer(
            0,
            &create.message(Header { request: 1, ..header(Kind::Walk, 0, 1, false) }),
            false,
        );
        let file = home.named(root, b'f').expect("it is there");
        let write = Ask::Write(file, 0, vec![b'x'; SIZE]);
        home.answer(0, &write.message(header(Kind::Walk, 0, 2, false)), false);
        let (process, number, description) = home.program_with(file, BEGIN);
        Scene { home, file, process, number, description }
    }

    fn message(&self, turn: Turn, request: u32, again: bool) -> Vec<u8> {
        let mut body = vec![0; CALL_BYTES_MAX];
        let bytes: Vec<u8> = (0..40_000).map(|n| (n % 251) as u8).collect();
        let (kind, length) = match turn {
            Turn::Io(call, count, from, flags, length) => {
                let data = Bytes::new(&bytes[..length]).expect("short");
                let (description, leaves) = (self.description, Leaves::All);
                let asked =
                    request::DescriptionIo { description, call, count, from, flags, leaves, data };
                (Kind::DescriptionIo, encode(&asked, &mut body).expect("it fits"))
            }
            Turn::Pass => {
                let (process, number) = (self.process, self.number);
                let asked = request::PassDescription { process, number };
                (Kind::PassDescription, encode(&asked, &mut body).expect("it fits"))
            }
        };
        [&header(kind, length, request, again).encode()[..], &body[..length]].concat()
    }

    fn said(&mut self, turn: Turn, request: u32, again: bool) -> String {
        let message = self.message(turn, request, again);
        let answer = self.home.answer(0, &message, false);
        let (header, body) = Header::split(&answer).expect("sound");
        match turn {
            Turn::Io(..) => {
                format!("{:?}", decode_reply::<message::DescriptionIo>(&header, body))
            }
            Turn::Pass => {
                let said = decode_reply::<message::PassDescription>(&header, body);
                let said = said.expect("sound").expect("it is open");
                format!("{:?} {:?}", said.what, Passed { hold: 0, ..said.passed })
            }
        }
    }

    fn seen(&mut self, answer: String) -> Seen {
        let tell = self.said(Turn::Io(Transfer::Tell, 0, 0, 0, 0), 77, false);
        let digits = tell.split("offset: ").nth(1).and_then(|rest| rest.split(',').next());
        let offset = digits.and_then(|digits| digits.parse().ok()).expect("an offset");
        let bytes = self.home.bytes_of(self.file).expect("it is there");
        Seen { answer, offset, bytes }
    }
}

/// Plays one turn with a death at `point`; what is wrong. `None`: it has not so many.
fn dies(turn: Turn, point: u64, right: &Seen) -> Option<Result<(), String>> {
    let mut scene = Scene::new();
    let message = scene.message(turn, 9, false);
    let was_killed = scene.home.die_inside(0, &message, point);
    scene.home.kill_agent();
    scene.home.bury_agents();
    scene.home.start_agent();
    for _ in 0..2 {
        let answer = scene.said(turn, 9, true);
        let seen = scene.seen(answer);
        if &seen != right {
            let Seen { answer, offset, .. } = seen;
            return Some(Err(format!("{turn:?} dies at {point}: {answer}, {offset}")));
        }
    }
    let found = scene.home.findings();
    let is_one = scene.home.holds() == usize::from(matches!(turn, Turn::Pass));
    let told = || format!("{turn:?} dies at {point}: {found:?}");
    let result = if found.is_empty() && is_one { Ok(()) } else { Err(told()) };
    was_killed.then_some(result)
}

fn first_wrong() -> Result<(), String> {
    for turn in TURNS {
        let mut scene = Scene::new();
        let answer = scene.said(turn, 9, false);
        let right = scene.seen(answer);
        drop(scene);
        let mut points = 0;
        for point in 1..=POINTS_MAX {
            match dies(turn, point, &right) {
                Some(result) => result?,
                None => break,
            }
            points += 1;
        }
        assert!((5..POINTS_MAX).contains(&points), "{turn:?}: {points} points");
    }
    Ok(())
}

#[test]
fn an_offset_moves_once_and_a_descriptor_goes_once_whenever_the_agent_dies_over_it() {
    in_own_process(
        "sim::offsets::\
         an_offset_moves_once_and_a_descriptor_goes_once_whenever_the_agent_dies_over_it",
        || {
            home::map();
            assert_eq!(first_wrong(), Ok(()));
            plant(Some(Bug::NoRecord));
            let found = first_wrong();
            plant(None);
            println!("{found:?}");
            assert!(found.is_err(), "an offset that moves twice is not found");
        },
    );
}

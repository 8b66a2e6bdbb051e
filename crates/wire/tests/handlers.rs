//! From bytes to a typed handler and back.
#![forbid(unsafe_code)]

use husk_abi::Errno;
use husk_wire::counts::Count;
use husk_wire::messages::{decode_reply, encode};
use husk_wire::record::{Data, LockBy, LockMode, Object, Range};
use husk_wire::{
    Answer, Counts, Dispatched, Failure, Fault, Handlers, Header, Kind, Role, Serve, handlers,
    message, reply, request,
};

/// A home of one file.
struct Home {
    bytes: Vec<u8>,
    waiting: Option<Header>,
    returned: usize,
}

impl Serve<message::Read> for Home {
    fn serve<'a>(&'a mut self, _: &Header, asked: request::Read) -> Answer<reply::Read<'a>> {
        let begin = asked.offset.min(self.bytes.len() as u64) as usize;
        let end = begin.saturating_add(asked.length as usize).min(self.bytes.len());
        match Data::new(&self.bytes[begin..end]) {
            Ok(data) => Answer::Now(reply::Read { data, change: 1 }),
            Err(_) => Answer::Failed(Failure::Errno(Errno::EINVAL)),
        }
    }
}

impl Serve<message::Lock> for Home {
    fn serve(&mut self, header: &Header, asked: request::Lock) -> Answer<reply::Lock> {
        if !asked.waits {
            return Answer::Failed(Failure::Errno(Errno::EAGAIN));
        }
        self.waiting = Some(*header);
        Answer::Later
    }
}

impl Serve<message::Return> for Home {
    fn serve(&mut self, _: &Header, told: request::Return<'_>) -> Answer<reply::Return> {
        self.returned += told.grants.len();
        Answer::Now(reply::Return {})
    }
}

const HANDLERS: Handlers<Home> =
    Handlers::new().on::<message::Read>().on::<message::Lock>().on::<message::Return>();

fn home() -> Home {
    Home { bytes: b"some bytes".to_vec(), waiting: None, returned: 0 }
}

fn asked(kind: Kind) -> Header {
    Header { request: 4, source: 2, target: 1, epoch: 9, ..Header::new(kind, Role::Request) }
}

#[test]
fn a_request_reaches_its_handler_and_its_reply_can_be_read() {
    let mut body = [0; 64];
    let read = request::Read { hold: 1, offset: 5, length: 100, ahead: 0 };
    let length = encode(&read, &mut body).expect("room");
    let mut room = [0; 64];
    let (mut home, head) = (home(), asked(Kind::Read));
    let came = HANDLERS.dispatch(&mut home, &head, &body[..length], &mut room);
    let Ok(Dispatched::Reply(answer)) = came else { panic!("{came:?}") };
    assert_eq!((answer.source, answer.target, answer.request, answer.epoch), (1, 2, 4, 9));
    let said = decode_reply::<message::Read>(&answer, &room[..answer.length as usize]);
    assert_eq!(said.expect("sound").expect("done").data.bytes(), b"bytes");
}

#[test]
fn a_failure_travels_in_the_header() {
    let mut body = [0; 64];
    let lock = request::Lock {
        object: Object { number: 1, generation: 1 },
        owner: 1,
        range: Range { start: 0, length: 0 },
        mode: LockMode::Shared,
        waits: false,
        by: LockBy::Process,
    };
    let length = encode(&lock, &mut body).expect("room");
    let came = HANDLERS.dispatch(&mut home(), &asked(Kind::Lock), &body[..length], &mut []);
    let Ok(Dispatched::Reply(answer)) = came else { panic!("{came:?}") };
    let said = decode_reply::<message::Lock>(&answer, b"").expect("sound");
    assert_eq!(said.err(), Some(Failure::Errno(Errno::EAGAIN)));
}

#[test]
fn a_handler_may_answer_later() {
    let mut body = [0; 64];
    let lock = request::Lock {
        object: Object { number: 1, generation: 1 },
        owner: 1,
        range: Range { start: 0, length: 0 },
        mode: LockMode::Exclusive,
        waits: true,
        by: LockBy::Process,
    };
    let length = encode(&lock, &mut body).expect("room");
    let mut home = home();
    let came = HANDLERS.dispatch(&mut home, &asked(Kind::Lock), &body[..length], &mut []);
    assert_eq!(came, Ok(Dispatched::Nothing));
    let mut room = [0; 16];
    let waiting = home.waiting.expect("kept");
    let had = reply::Lock { is_granted: true, change: 3 };
    let answer = handlers::reply::<message::Lock>(&waiting, &had, &mut room).expect("room");
    let said = decode_reply::<message::Lock>(&answer, &room[..answer.length as usize]);
    assert_eq!(said, Ok(Ok(had)));
}

#[test]
fn what_is_not_served_is_answered_and_what_breaks_the_rules_never_reaches_a_handler() {
    let mut home = home();
    let mut dispatch =
        |header: &Header, body: &[u8]| HANDLERS.dispatch(&mut home, header, body, &mut []);
    let unserved = Some(Failure::Unserved);
    for header in [asked(Kind::Walk), Header { kind: 60_000, ..asked(Kind::Walk) }] {
        assert_eq!(dispatch(&header, b""), Ok(Dispatched::Reply(header.answer(unserved))));
    }
    let posted = Header { request: 0, ..Header::new(Kind::Load, Role::Posted) };
    assert_eq!(dispatch(&posted, b""), Ok(Dispatched::Nothing));
    assert_eq!(dispatch(&asked(Kind::Read), b"short"), Err(Fault::Short));
    let unanswered = Header { request: 0, ..Header::new(Kind::Return, Role::Posted) };
    assert_eq!(dispatch(&unanswered, b"\0\0"), Err(Fault::Role));
    let answered = Header { role: Role::Reply, ..asked(Kind::Read) };
    assert_eq!(dispatch(&answered, b""), Err(Fault::Unasked));
}

#[test]
fn a_reply_without_room_is_to_be_asked_for_again() {
    let mut body = [0; 64];
    let read = request::Read { hold: 1, offset: 0, length: 100, ahead: 0 };
    let length = encode(&read, &mut body).expect("room");
    let head = asked(Kind::Read);
    let came = HANDLERS.dispatch(&mut home(), &head, &body[..length], &mut [0; 3]);
    assert_eq!(came, Ok(Dispatched::Reply(head.answer(Some(Failure::Busy)))));
}

#[test]
fn messages_are_counted_by_kind_and_faults_by_reason() {
    let counts = Counts::new();
    counts.add(Kind::Walk as u16, Count::Sent);
    counts.add(Kind::Walk as u16, Count::Sent);
    counts.add(60_000, Count::Sent);
    counts.refuse(Fault::Name);
    assert_eq!(counts.of(Kind::Walk, Count::Sent), 2);
    assert_eq!(counts.of(Kind::Walk, Count::Received), 0);
    assert_eq!((counts.refused(Fault::Name), counts.refused(Fault::Short)), (1, 0));
}

#[test]
fn each_failure_has_a_number_of_its_own_and_is_read_back() {
    for (failure, text) in Failure::OWN {
        assert_eq!(Failure::of(failure.number()), Some(*failure));
        assert_eq!(failure.to_string(), *text);
    }
    assert_eq!(Failure::of(2), Some(Failure::Errno(Errno::ENOENT)));
    assert_eq!(Failure::Errno(Errno::ENOENT).to_string(), "ENOENT");
    assert_eq!((Failure::of(0), Failure::of(5_000)), (None, None));
}

//! Every message, made from its declared shape: encoded, decoded, cut, changed, of other versions.
#![forbid(unsafe_code)]

use husk_wire::field::Member;
use husk_wire::messages::{ALL, Declaration, Visitor, decode, decode_reply, encode, visit_all};
use husk_wire::record::{Object, Wants};
use husk_wire::text::{Bytes, List, Name};
use husk_wire::{
    BODY_BYTES_MAX, Fault, Field, HEADER_BYTES, Header, KINDS, Kind, Message, Role, Shape, Version,
    message, page, reply, request,
};

/// Numbers of one row, by a seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % bound
    }

    fn byte(&mut self) -> u8 {
        self.below(256) as u8
    }

    /// A body of these fields. Lists and texts are short mostly.
    fn body(&mut self, members: &[Member], out: &mut Vec<u8>) {
        members.iter().for_each(|member| self.field(&member.shape, out));
    }

    fn field(&mut self, shape: &Shape, out: &mut Vec<u8>) {
        match *shape {
            Shape::Number { bytes, .. } => out.extend((0..bytes).map(|_| self.byte())),
            Shape::Flag => out.push(self.below(2) as u8),
            Shape::Choice(_, cases) => out.push(self.below(cases.len() as u64) as u8),
            Shape::Flags(_, flags) => out.push(self.below(1 << flags.len()) as u8),
            Shape::Name => {
                let length = 1 + self.below(255);
                out.push(length as u8);
                out.extend((0..length).map(|_| b'a' + self.below(26) as u8));
            }
            Shape::Bytes(most) => {
                let length = self.below(40).min(most.into()) as u32;
                out.extend(length.to_le_bytes());
                out.extend((0..length).map(|_| self.byte()));
            }
            Shape::Maybe(inner) => {
                let there = self.below(2);
                out.push(there as u8);
                (0..there).for_each(|_| self.field(inner, out));
            }
            Shape::List(most, inner) => {
                let count = self.below(4).min(most.into()) as u16;
                out.extend(count.to_le_bytes());
                (0..count).for_each(|_| self.field(inner, out));
            }
            Shape::Record(_, members) => self.body(members, out),
        }
    }
}

fn header(kind: Kind, role: Role) -> Header {
    let request = u32::from(role != Role::Posted);
    Header { request, ..Header::new(kind, role) }
}

fn declaration(kind: Kind) -> &'static Declaration {
    ALL.iter().find(|one| one.kind == kind).expect("declared")
}

/// Decodes; what is accepted must be the same bytes again.
fn recode<'a, B: Field<'a>>(header: &Header, bytes: &'a [u8]) -> Result<(), Fault> {
    let body: B = decode(header, bytes)?;
    let mut room = vec![0; bytes.len() + 1];
    let length = encode(&body, &mut room).expect("no longer than it was");
    assert_eq!(room[..length], *bytes, "accepted, though not what it encodes to");
    Ok(())
}

/// The same of the request or the reply of a kind.
fn recode_side<M: Message>(is_reply: bool, bytes: &[u8]) -> Result<(), Fault> {
    let header = header(M::KIND, Role::Request);
    if is_reply {
        recode::<M::Reply<'_>>(&header, bytes)
    } else {
        recode::<M::Request<'_>>(&header, bytes)
    }
}

/// Each kind, both sides, with bodies of many seeds.
struct EachBody<F>(F);

trait Look {
    fn look<M: Message>(
        &mut self,
        is_reply: bool,
        members: &[Member],
        body: &[u8],
        dice: &mut Dice,
    );
}

impl<F: Look> Visitor for EachBody<F> {
    fn visit<M: Message>(&mut self) {
        let one = declaration(M::KIND);
        for (is_reply, members) in [(false, one.request), (true, one.reply)] {
            for seed in 0..20 {
                let mut dice = Dice(seed << 32 | u64::from(one.kind as u16));
                let mut body = Vec::new();
                dice.body(members, &mut body);
                self.0.look::<M>(is_reply, members, &body, &mut dice);
            }
        }
    }
}

#[test]
fn what_is_made_by_its_shape_is_decoded_and_encodes_to_the_same_bytes() {
    struct Same;
    impl Look for Same {
        fn look<M: Message>(&mut self, is_reply: bool, _: &[Member], body: &[u8], _: &mut Dice) {
            assert_eq!(recode_side::<M>(is_reply, body), Ok(()), "{:?}", M::KIND);
        }
    }
    visit_all(&mut EachBody(Same));
}

#[test]
fn a_body_cut_anywhere_is_short_and_one_byte_more_is_long() {
    struct Cut;
    impl Look for Cut {
        fn look<M: Message>(&mut self, is_reply: bool, _: &[Member], body: &[u8], _: &mut Dice) {
            for length in 0..body.len() {
                let cut = recode_side::<M>(is_reply, &body[..length]);
                assert_eq!(cut, Err(Fault::Short), "{:?} at {length}", M::KIND);
            }
            let longer = [body, &[0]].concat();
            assert_eq!(recode_side::<M>(is_reply, &longer), Err(Fault::Long), "{:?}", M::KIND);
        }
    }
    visit_all(&mut EachBody(Cut));
}

#[test]
fn a_body_with_any_bytes_changed_is_refused_or_means_what_it_says() {
    struct Change;
    impl Look for Change {
        fn look<M: Message>(&mut self, is_reply: bool, _: &[Member], body: &[u8], dice: &mut Dice) {
            for _ in 0..50 {
                let mut body = body.to_vec();
                for _ in 0..=dice.below(3) {
                    let at = dice.below(body.len().max(1) as u64) as usize;
                    if let Some(byte) = body.get_mut(at) {
                        *byte = dice.byte();
                    }
                }
                // Refused or not, it neither panics nor accepts what it does not encode to.
                let _ = recode_side::<M>(is_reply, &body);
            }
        }
    }
    visit_all(&mut EachBody(Change));
}

#[test]
fn what_a_newer_minor_version_adds_is_skipped() {
    struct Newer;
    impl Look for Newer {
        fn look<M: Message>(&mut self, is_reply: bool, _: &[Member], body: &[u8], _: &mut Dice) {
            let longer = [body, b"a field of tomorrow"].concat();
            let minor = Version::CURRENT.minor + 1;
            let version = Version { minor, ..Version::CURRENT };
            let newer = Header { version, ..header(M::KIND, Role::Request) };
            let understood = if is_reply {
                decode::<M::Reply<'_>>(&newer, &longer).is_ok()
            } else {
                decode::<M::Request<'_>>(&newer, &longer).is_ok()
            };
            assert!(understood, "{:?}", M::KIND);
        }
    }
    visit_all(&mut EachBody(Newer));
}

#[test]
fn a_header_has_these_bytes_and_is_read_back() {
    let header = Header {
        status: 0,
        source: 3,
        target: 1,
        length: 0x0102,
        epoch: 7,
        sequence: 8,
        request: 9,
        answered: 5,
        behalf: 0x0040_0001,
        ..Header::new(Kind::Walk, Role::Request)
    };
    let bytes = header.encode();
    let expected: [u8; HEADER_BYTES] = [
        b'H', b'K', 1, 3, 16, 0, 0, 0, 3, 0, 1, 0, 0, 0, 0, 0, 2, 1, 0, 0, 7, 0, 0, 0, 8, 0, 0, 0,
        9, 0, 0, 0, 5, 0, 0, 0, 1, 0, 0x40, 0,
    ];
    assert_eq!(bytes, expected);
    assert_eq!(Header::decode(&bytes), Ok(header));
}

#[test]
fn each_wrong_field_of_a_header_is_refused_for_what_it_is() {
    let good = header(Kind::Walk, Role::Request).encode();
    let wrong: &[(usize, u8, Fault)] = &[
        (0, b'X', Fault::Magic),
        (2, 2, Fault::Major),
        (6, 1, Fault::Status),
        (9, 0xff, Fault::Node),
        (11, 0xff, Fault::Node),
        (12, 3, Fault::Role),
        (12, 2, Fault::Role),
        (13, 2, Fault::Spare),
        (19, 1, Fault::Length),
        (28, 0, Fault::Role),
    ];
    for &(at, byte, fault) in wrong {
        let mut bytes = good;
        bytes[at] = byte;
        assert_eq!(Header::decode(&bytes), Err(fault), "byte {at}");
    }
    let mut reply = header(Kind::Walk, Role::Reply);
    reply.status = 0x7000;
    assert_eq!(Header::decode(&reply.encode()), Err(Fault::Status));
}

#[test]
fn any_bytes_at_all_are_a_header_of_the_same_bytes_or_a_fault() {
    let mut dice = Dice(5);
    let mut accepted = 0;
    for _ in 0..200_000 {
        let mut bytes = header(Kind::Read, Role::Request).encode();
        for _ in 0..=dice.below(3) {
            bytes[dice.below(HEADER_BYTES as u64) as usize] = dice.byte();
        }
        if let Ok(header) = Header::decode(&bytes) {
            accepted += 1;
            assert_eq!(header.encode(), bytes);
        }
    }
    assert!(accepted > 10_000, "{accepted}");
}

#[test]
fn a_message_whose_length_is_not_its_headers_is_refused() {
    let message = |length, body: &[u8]| {
        let header = Header { length, ..header(Kind::Read, Role::Request) };
        [&header.encode()[..], body].concat()
    };
    assert_eq!(Header::split(&message(4, b"12345")).err(), Some(Fault::Length));
    assert_eq!(Header::split(&message(6, b"12345")).err(), Some(Fault::Length));
    assert_eq!(Header::split(&message(5, b"12345")).expect("whole").1, b"12345");
    assert_eq!(Header::split(b"HK").err(), Some(Fault::Short));
    let long = Header { length: BODY_BYTES_MAX as u32 + 1, ..header(Kind::Read, Role::Request) };
    assert_eq!(Header::decode(&long.encode()), Err(Fault::Length));
}

#[test]
fn lists_texts_and_names_above_their_limits_are_refused() {
    let many = [Object { number: 1, generation: 1 }; 65];
    assert!(List::<Object, 64>::new(&many).is_err());
    assert!(Bytes::<4>::new(b"12345").is_err());
    let mut body = 65u16.to_le_bytes().to_vec();
    body.extend([0; 65 * 12]);
    let head = header(Kind::GetAttributes, Role::Request);
    let listed = decode::<request::GetAttributes<'_>>(&head, &body);
    assert_eq!(listed.err(), Some(Fault::Count));
    for name in ["", ".", "..", "a/b", "a\0b", &"x".repeat(256)] {
        assert_eq!(Name::new(name.as_bytes()).err(), Some(Fault::Name), "{name:?}");
    }
    for name in ["a", "...", ".a", &"x".repeat(255)] {
        assert!(Name::new(name.as_bytes()).is_ok(), "{name:?}");
    }
}

#[test]
fn flags_and_choices_that_do_not_exist_are_refused() {
    let asks = Wants::GRANT.and(Wants::TARGET);
    assert!(asks.has(Wants::TARGET) && !asks.has(Wants::LISTING));
    let head = header(Kind::Lock, Role::Request);
    // object 12, owner 8, range 16, then the mode.
    let mut lock = [0u8; 39];
    assert!(decode::<request::Lock>(&head, &lock).is_ok());
    lock[36] = 2;
    assert_eq!(decode::<request::Lock>(&head, &lock).err(), Some(Fault::Choice));
    lock[36] = 0;
    lock[37] = 2;
    assert_eq!(decode::<request::Lock>(&head, &lock).err(), Some(Fault::Choice));
}

#[test]
fn a_reply_to_something_else_or_with_a_body_behind_its_failure_is_refused() {
    let failed = Header { status: 2, ..header(Kind::Walk, Role::Reply) };
    let of = |header: &Header, body: &[u8]| {
        decode_reply::<message::Walk>(header, body).map(|reply| reply.is_ok())
    };
    assert_eq!(of(&failed, b""), Ok(false));
    assert_eq!(of(&failed, b"x"), Err(Fault::Long));
    assert_eq!(of(&header(Kind::Open, Role::Reply), b""), Err(Fault::Unasked));
    assert_eq!(of(&header(Kind::Walk, Role::Request), b""), Err(Fault::Unasked));
    let none: reply::Walk<'_> = reply::Walk { steps: List::new(&[]).expect("none") };
    let mut room = [0; 8];
    let length = encode(&none, &mut room).expect("two bytes");
    assert_eq!(of(&header(Kind::Walk, Role::Reply), &room[..length]), Ok(true));
}

#[test]
fn a_newer_minor_version_is_spoken_down_to_and_another_major_one_refused_in_one_line() {
    let ours = Version { major: 1, minor: 3 };
    let agreed = ours.agree(Version { major: 1, minor: 9 });
    assert_eq!(agreed, Ok(ours));
    assert_eq!(ours.agree(Version { major: 1, minor: 1 }), Ok(Version { major: 1, minor: 1 }));
    let refusal = ours.agree(Version { major: 2, minor: 0 }).expect_err("refused").to_string();
    assert!(refusal.contains("2.0") && refusal.contains("1.3"), "{refusal}");
    assert!(!refusal.contains('\n'));
    let mut bytes = header(Kind::Hello, Role::Request).encode();
    bytes[2..4].copy_from_slice(&[2, 5]);
    assert_eq!(Header::decode(&bytes), Err(Fault::Major));
    assert_eq!(Header::version_of(&bytes), Some(Version { major: 2, minor: 5 }));
    assert_eq!(Header::version_of(b"GET / HTTP/1.1"), None);
}

#[test]
fn kinds_have_their_numbers_and_names_once() {
    for number in 0..=u16::MAX {
        let kind = Kind::of(number);
        assert_eq!(kind.map(|kind| kind as u16).unwrap_or(number), number);
        assert!(kind.is_none() || usize::from(number) < KINDS);
    }
    for (at, one) in ALL.iter().enumerate() {
        assert_eq!((Kind::of(one.kind as u16), one.kind.name()), (Some(one.kind), one.name));
        assert!(ALL[..at].iter().all(|before| before.name != one.name), "{}", one.name);
    }
}

#[test]
fn the_page_is_what_is_declared() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/messages.md");
    let page = page::Page.to_string();
    let written = std::fs::read_to_string(path).expect("docs/messages.md");
    let how = "type: cargo run -q -p husk-wire --example messages > docs/messages.md";
    assert!(page == written, "docs/messages.md is not what is declared; {how}");
}

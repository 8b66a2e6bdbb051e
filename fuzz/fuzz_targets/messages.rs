//! Messages between nodes as a hostile peer may send them: decoding never panics, and what it
//! accepts is what it encodes to.
#![no_main]

use husk_wire::messages::{Visitor, decode, decode_reply, encode, visit_all};
use husk_wire::{Field, Header, Message, Role};

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    if let Ok((header, body)) = Header::split(input) {
        assert_eq!(header.encode(), input[..input.len() - body.len()]);
        visit_all(&mut Body { header, body });
    }
});

/// The body of a message whose header is sound.
struct Body<'a> {
    header: Header,
    body: &'a [u8],
}

impl Visitor for Body<'_> {
    fn visit<M: Message>(&mut self) {
        let Self { header, body } = self;
        if header.kind != M::KIND as u16 {
            return;
        }
        if header.role != Role::Reply {
            same(decode::<M::Request<'_>>(header, body), body);
        } else if let Ok(Ok(reply)) = decode_reply::<M>(header, body) {
            same(Ok::<_, ()>(reply), body);
        }
    }
}

/// Encodes what was accepted. Behind it there may be fields of a newer version.
fn same<'a, E>(decoded: Result<impl Field<'a>, E>, body: &[u8]) {
    let Ok(fields) = decoded else { return };
    let mut room = vec![0; body.len()];
    let length = encode(&fields, &mut room).expect("no longer than it was");
    assert_eq!(room[..length], body[..length]);
}

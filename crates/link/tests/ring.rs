//! Two sides of a ring: everything arrives whole and in order, replies always have room, and what
//! a hostile side writes is judged.

mod support;

use husk_link::{
    Body, Broken, Ending, INLINE_BYTES, Lane, Link, Memory, Mode, OUTSTANDING_MAX, Ring,
    SLAB_BYTES, Side, Status, Unsent, memory_bytes,
};
use husk_wire::counts::Count;
use husk_wire::messages::{decode_reply, encode};
use husk_wire::record::Data;
use husk_wire::{
    Answer, BODY_BYTES_MAX, Counts, Fault, Handlers, Header, Kind, Role, Serve, message, reply,
    request,
};
use support::{Dice, Pair, bytes_of, posted, replies, requests};

/// Takes one message that must be there; its header and body.
fn take(ring: &mut Ring<'_>) -> (Header, Vec<u8>) {
    let mut room = vec![0; BODY_BYTES_MAX];
    let message = ring.receive(&mut room).expect("sound").expect("a message");
    let Body::Here(body) = message.body else { panic!("there is room") };
    let taken = (message.header, body.to_vec());
    ring.done();
    taken
}

fn is_empty(ring: &mut Ring<'_>) -> bool {
    let mut room = vec![0; SLAB_BYTES];
    ring.receive(&mut room).expect("sound").is_none()
}

#[test]
fn bodies_of_every_size_arrive_whole_and_in_order() {
    let pair = Pair::new(1);
    let (mut one, mut other) = pair.both(Mode::Direct);
    let around = |n: usize| n - 1..=n + 1;
    let sizes = (0..=INLINE_BYTES + 1).chain(around(SLAB_BYTES)).chain([70_000, BODY_BYTES_MAX]);
    for size in sizes {
        let body = bytes_of(size as u64, size);
        one.send(Lane::Request(0), &posted(size as u32), &body).expect("sent");
        let (header, came) = take(&mut other);
        assert_eq!((header.sequence, header.length), (size as u32, size as u32));
        assert!(came == body, "{size}");
    }
    let long = vec![0; BODY_BYTES_MAX + 1];
    assert_eq!(one.send(Lane::Request(0), &posted(0), &long), Err(Unsent::TooLong));
    assert!(is_empty(&mut other));
}

#[test]
fn many_laps_of_mixed_sizes_lose_double_and_change_nothing() {
    for mode in [Mode::Direct, Mode::Buffered] {
        let pair = Pair::new(2);
        let (mut one, mut other) = pair.both(mode);
        let (mut dice, mut sent, mut came) = (Dice(3), [0u32; 3], [0u32; 3]);
        let lanes = [Lane::Request(0), Lane::Request(1), Lane::CallBack];
        for _ in 0..30_000 {
            let lane = dice.below(3) as usize;
            let size = match dice.below(40) {
                0 => SLAB_BYTES + dice.below(9_000) as usize,
                1..10 => dice.below(SLAB_BYTES as u64) as usize,
                _ => dice.below(INLINE_BYTES as u64) as usize,
            };
            let header = Header { behalf: lane as u32, ..posted(sent[lane]) };
            let body = bytes_of(u64::from(sent[lane]), size);
            match one.send(lanes[lane], &header, &body) {
                Ok(()) => sent[lane] += 1,
                full => assert_eq!(full, Err(Unsent::Full)),
            }
            while dice.below(2) == 0 && other.has_message() {
                let (header, body) = take(&mut other);
                let lane = header.behalf as usize;
                assert_eq!(header.sequence, came[lane]);
                assert!(body == bytes_of(u64::from(came[lane]), body.len()));
                came[lane] += 1;
            }
        }
        while other.has_message() {
            came[take(&mut other).0.behalf as usize] += 1;
        }
        assert_eq!(sent, came);
        assert!(sent.iter().all(|&sent| sent > 1_000), "{sent:?}");
    }
}

#[test]
fn a_peer_that_never_reads_makes_the_sender_stop_and_loses_nothing() {
    for size in [0, 100, INLINE_BYTES, SLAB_BYTES, SLAB_BYTES + 1] {
        let pair = Pair::new(1);
        let (mut one, mut other) = pair.both(Mode::Direct);
        let mut sent = 0;
        let full = loop {
            match one.send(Lane::Request(0), &posted(sent), &bytes_of(u64::from(sent), size)) {
                Ok(()) => sent += 1,
                Err(why) => break why,
            }
        };
        assert_eq!(full, Unsent::Full);
        assert!((4..=256).contains(&sent), "{sent} of {size} bytes");
        for n in 0..sent {
            let (header, body) = take(&mut other);
            assert!(header.sequence == n && body == bytes_of(u64::from(n), size));
        }
        assert!(is_empty(&mut other));
        assert_eq!(one.send(Lane::Request(0), &posted(0), b""), Ok(()));
    }
}

#[test]
fn replies_have_room_whatever_was_told_before() {
    for told in [0, INLINE_BYTES, SLAB_BYTES] {
        let pair = Pair::new(1);
        let (mut one, mut other) = pair.both(Mode::Direct);
        let mut sent = 0;
        while other.send(Lane::CallBack, &posted(0), &vec![0; told]).is_ok() {
            sent += 1;
        }
        assert!(sent > 0);
        for n in 1..=OUTSTANDING_MAX {
            one.send(Lane::Request(0), &requests(n), b"").expect("sent");
            take(&mut other);
        }
        assert_eq!(one.send(Lane::Request(0), &requests(65), b""), Err(Unsent::Full));
        for n in 1..=OUTSTANDING_MAX {
            let size = if n % 2 == 0 { SLAB_BYTES } else { INLINE_BYTES };
            other.send(Lane::Reply, &replies(n), &bytes_of(u64::from(n), size)).expect("room");
        }
        let one_more = other.send(Lane::Reply, &replies(1), b"");
        assert_eq!(one_more, Err(Unsent::Unasked));
        (0..sent).for_each(|_| assert_eq!(take(&mut one).0.role, Role::Posted));
        for n in 1..=OUTSTANDING_MAX {
            let (header, body) = take(&mut one);
            assert!(header.request == n && body == bytes_of(u64::from(n), body.len()));
        }
        assert_eq!(one.send(Lane::Request(0), &requests(65), b""), Ok(()));
    }
}

#[test]
fn channels_are_read_in_turn_and_each_keeps_its_order() {
    let pair = Pair::new(8);
    let (mut one, mut other) = pair.both(Mode::Direct);
    for n in 0..20 {
        for channel in 0..8 {
            let header = Header { behalf: channel, ..posted(n) };
            one.send(Lane::Request(channel as usize), &header, b"").expect("sent");
        }
    }
    assert_eq!(one.send(Lane::Request(8), &posted(0), b""), Err(Unsent::NoLane));
    let mut came = [0; 8];
    for n in 0..160 {
        let header = take(&mut other).0;
        let channel = header.behalf as usize;
        assert_eq!(header.sequence, came[channel]);
        came[channel] += 1;
        let least = came.iter().min().expect("eight");
        assert!(came.iter().all(|came| came - least <= 1), "{came:?} after {n}");
    }
}

#[test]
fn a_side_that_is_taken_over_goes_on_where_the_other_one_was() {
    let pair = Pair::new(1);
    let mut other = pair.both(Mode::Direct).1;
    let mut next = 0;
    for turn in 0..40u32 {
        // Whoever was the maker has gone, without a word.
        let mut one = pair.side(Side::Maker, Mode::Direct);
        for n in 0..turn % 7 {
            let size = [10, INLINE_BYTES, 3_000, SLAB_BYTES + 5][(n % 4) as usize];
            one.send(Lane::Request(0), &posted(turn * 7 + n), &bytes_of(7, size)).expect("sent");
        }
        if turn % 3 == 0 {
            while other.has_message() {
                let (header, body) = take(&mut other);
                assert!(header.sequence >= next && body == bytes_of(7, body.len()));
                next = header.sequence + 1;
            }
        }
        if turn % 5 == 0 {
            // A reader that dies before `done` has read nothing.
            let mut room = vec![0; BODY_BYTES_MAX];
            let seen = other.receive(&mut room).expect("sound").map(|came| came.header);
            other = pair.side(Side::Guest, Mode::Direct);
            let again = other.receive(&mut room).expect("sound").map(|came| came.header);
            assert_eq!(seen, again);
        }
    }
    assert!(next > 200);
}

#[test]
fn an_extent_that_is_filled_in_place_is_sent_without_a_copy_and_kept_until_it_is_given_back() {
    let pair = Pair::new(1);
    let (mut one, mut other) = pair.both(Mode::Direct);
    let mut room = vec![0; SLAB_BYTES];
    let mut kept = Vec::new();
    for n in 0..4u32 {
        let loan = one.lend(Lane::Request(0)).expect("free");
        one.fill(&loan, 0, &bytes_of(u64::from(n), 100_000));
        let header = Header { length: 100_000, ..posted(n) };
        one.send_lent(Lane::Request(0), &header, loan).expect("sent");
        let message = other.receive(&mut room).expect("sound").expect("there");
        let Body::Pool(view) = message.body else { panic!("longer than the room") };
        let mut bytes = vec![0; view.len()];
        view.copy(0, &mut bytes);
        assert!(bytes == bytes_of(u64::from(n), 100_000));
        kept.push(pair.view_again(view));
        other.done_keeping();
    }
    assert!(matches!(one.lend(Lane::Request(0)), Err(Unsent::Full)));
    assert_eq!(one.send(Lane::CallBack, &posted(0), &[1; 9_000]), Err(Unsent::Full));
    kept.pop().expect("four").give_back();
    assert_eq!(one.send(Lane::CallBack, &posted(0), &[1; 9_000]), Ok(()));
}

#[test]
fn in_buffered_mode_messages_are_there_at_once_and_room_is_told_late() {
    let pair = Pair::new(1);
    let (mut one, mut other) = pair.both(Mode::Buffered);
    let mut sent = 0;
    while one.send(Lane::Request(0), &posted(sent), b"").is_ok() {
        sent += 1;
    }
    assert_eq!(sent, 256);
    for _ in 0..63 {
        take(&mut other);
    }
    assert_eq!(one.send(Lane::Request(0), &posted(0), b""), Err(Unsent::Full));
    take(&mut other);
    assert_eq!(one.send(Lane::Request(0), &posted(0), b""), Ok(()));
    (0..193).for_each(|_| drop(take(&mut other)));
    assert!(is_empty(&mut other) && one.is_drained() == Ok(true));
}

#[test]
fn each_side_sees_how_the_other_one_stands() {
    let pair = Pair::new(1);
    let mut one = pair.side(Side::Maker, Mode::Direct);
    assert_eq!(one.status(), Status::Opening);
    let mut other = pair.side(Side::Guest, Mode::Direct);
    assert_eq!((one.status(), other.status()), (Status::Up, Status::Up));
    for why in [
        Broken::Credits,
        Broken::Flood,
        Broken::Form,
        Broken::Message(Fault::Name),
        Broken::Message(Fault::Unasked),
    ] {
        one.end(Ending::Broken(why));
        assert_eq!(other.status(), Status::PeerEnded(Ending::Broken(why)));
        assert_eq!(one.send(Lane::Request(0), &posted(0), b""), Err(Unsent::Broken(why)));
        assert!(!why.to_string().contains('\n'));
    }
    other.end(Ending::Left);
    one = pair.side(Side::Maker, Mode::Direct);
    assert_eq!(one.status(), Status::PeerEnded(Ending::Left));
    assert_eq!(other.status(), Status::Ended(Ending::Left));
}

/// A home of one file.
struct Home(Vec<u8>);

impl Serve<message::Read> for Home {
    fn serve<'a>(&'a mut self, _: &Header, asked: request::Read) -> Answer<reply::Read<'a>> {
        let bytes = self.0.get(..asked.length as usize).unwrap_or_default();
        Answer::Now(reply::Read { data: Data::new(bytes).expect("short"), change: 1 })
    }
}

#[test]
fn requests_reach_typed_handlers_and_their_replies_come_back_and_are_counted() {
    const HANDLERS: Handlers<Home> = Handlers::new().on::<message::Read>();
    let pair = Pair::new(1);
    let (mut one, mut other) = pair.both(Mode::Direct);
    let (mut home, counts) = (Home(bytes_of(1, 5_000)), Counts::new());
    let mut serve = |ring: &mut Ring<'_>, on_reply: &mut dyn FnMut(&Header, &[u8])| {
        let (mut incoming, mut outgoing) = (vec![0; 2 * SLAB_BYTES], vec![0; SLAB_BYTES]);
        let mut rooms = husk_link::Rooms { incoming: &mut incoming, outgoing: &mut outgoing };
        husk_link::serve(ring, (&HANDLERS, &mut home), &counts, &mut rooms, on_reply)
    };
    let mut body = [0; 64];
    let asked = request::Read { hold: 1, offset: 0, length: 4_000, ahead: 0 };
    let length = encode(&asked, &mut body).expect("room");
    one.send(Lane::Request(0), &requests(1), &body[..length]).expect("sent");
    serve(&mut other, &mut |_, _| panic!("a request")).expect("served");
    let mut came = None;
    serve(&mut one, &mut |header, body| {
        let said = decode_reply::<message::Read>(header, body).expect("sound").expect("done");
        came = Some(said.data.bytes().to_vec());
    })
    .expect("served");
    assert!(came.expect("a reply") == bytes_of(1, 4_000));
    // What breaks the rules is counted, answered, and ends the session.
    one.send(Lane::Request(0), &requests(2), b"short").expect("sent");
    let broken = serve(&mut other, &mut |_, _| ()).expect_err("refused");
    assert_eq!(broken, Broken::Message(Fault::Short));
    assert_eq!(take(&mut one).0.status, husk_wire::Failure::Protocol.number());
    assert_eq!(counts.of(Kind::Read, Count::Received), 3);
    assert_eq!((counts.of(Kind::Read, Count::Failed), counts.refused(Fault::Short)), (1, 1));
}

#[test]
fn memory_that_could_shrink_or_is_none_of_this_ring_is_refused() {
    let bytes = memory_bytes(1);
    let memory = Memory::create(c"ring", bytes).expect("memory");
    // SAFETY: numbers only.
    let (again, shrunk) = unsafe {
        let again = libc::dup(memory.descriptor() as i32);
        (again, libc::ftruncate(again, 4096))
    };
    assert_eq!(shrunk, -1);
    assert!(Memory::open(again as usize, bytes).is_ok());
    assert!(Memory::open(memory.descriptor(), bytes + 4096).is_err());
    // SAFETY: the name outlives the call.
    let loose = unsafe { libc::memfd_create(c"loose".as_ptr(), 0) };
    // SAFETY: numbers only.
    assert_eq!(unsafe { libc::ftruncate(loose, bytes as i64) }, 0);
    assert!(Memory::open(loose as usize, bytes).is_err());
    let pair = Pair::new(2);
    pair.side(Side::Maker, Mode::Direct);
    for (epoch, channels) in [(2, 2), (1, 1), (0, 2), (1, 0), (1, 9), (1 << 20, 2)] {
        let guest = (Side::Guest, epoch, channels);
        assert!(pair.begin(guest, Mode::Direct).is_err(), "{guest:?}");
    }
}

#[test]
fn a_pair_of_a_new_epoch_sees_nothing_of_the_old_one() {
    let pair = Pair::new(1);
    let mut one = pair.side(Side::Maker, Mode::Direct);
    for n in 0..5 {
        one.send(Lane::Request(0), &posted(n), b"of the old life").expect("sent");
    }
    let mut one = pair.begin((Side::Maker, 2, 1), Mode::Direct).expect("a new epoch");
    let mut other = pair.begin((Side::Guest, 2, 1), Mode::Direct).expect("the same");
    assert!(is_empty(&mut other));
    one.send(Lane::Request(0), &posted(9), b"new").expect("sent");
    assert_eq!(take(&mut other).1, b"new");
}

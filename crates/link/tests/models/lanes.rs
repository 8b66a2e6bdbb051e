//! One lane of four slots: delivery, and deaths at both ends.

use std::sync::{Arc, Mutex};

use husk_link::{Body, LaneAt, Pool, Reader, Room, Unsent, Writer};
use husk_wire::{Header, Kind, Role};

use crate::checker::{area, begin, dice, end, holds_and_sees, memory, task, wait_for, world};

const LANE: LaneAt = LaneAt::new(0, 4, 1);
const EPOCH: u32 = 1;
/// Bytes of the bodies, in turn: of one, two and three slots.
const SIZES: [usize; 4] = [0, 30, 10, 90];

fn body(n: u32) -> Vec<u8> {
    (0..SIZES[n as usize % SIZES.len()]).map(|at| (n as u8) << 4 | at as u8 & 15).collect()
}

fn pool() -> Pool<'static> {
    Pool::of(memory())
}

/// Sends messages `from..to`, each when there is room; `sent` hears of each.
fn send(writer: &mut Writer<'static>, messages: std::ops::Range<u32>, mut sent: impl FnMut(u32)) {
    for n in messages {
        let header = Header { sequence: n, ..Header::new(Kind::Return, Role::Posted) };
        let body = body(n);
        wait_for(|| match writer.send(&header, &body, Room::Shared, &mut pool()) {
            Ok(()) => Some(()),
            Err(Unsent::Full) => None,
            Err(why) => panic!("{why:?}"),
        });
        sent(n);
    }
}

/// Reads the next message, whole; its number.
fn receive(reader: &mut Reader<'static>) -> u32 {
    let mut room = [0; 200];
    wait_for(|| {
        let message = reader.receive(&mut room, &pool()).expect("sound")?;
        let n = message.header.sequence;
        let Body::Here(came) = message.body else { panic!("short") };
        assert_eq!(came, body(n), "message {n}");
        Some(n)
    })
}

fn writer() -> Writer<'static> {
    Writer::begin(area(), LANE, EPOCH)
}

fn reader() -> Reader<'static> {
    Reader::begin(area(), LANE, EPOCH, false)
}

fn delivery() {
    begin();
    let sends = task(0, || send(&mut writer(), 0..6, |_| ()));
    let reads = task(0, || {
        let mut reader = reader();
        for n in 0..6 {
            assert_eq!(receive(&mut reader), n);
            reader.done();
        }
    });
    sends.join();
    reads.join();
    end();
}

#[test]
fn messages_arrive_whole_and_in_order_over_many_laps() {
    let _world = world();
    holds_and_sees(1_000, &[1, 2, 6], delivery);
}

/// The writer dies at any access; another one takes over.
fn writers_death() {
    begin();
    let dies = 1 + dice(60);
    let sent = Arc::new(Mutex::new(0));
    let noted = sent.clone();
    let first = task(dies, move || {
        send(&mut writer(), 0..4, |n| *noted.lock().expect("one thread") = n + 1);
    });
    let reads = task(0, || {
        let mut reader = reader();
        let mut seen = Vec::new();
        while seen.last() != Some(&12) {
            seen.push(receive(&mut reader));
            reader.done();
        }
        seen
    });
    first.join();
    task(0, || send(&mut writer(), 10..13, |_| ())).join();
    let seen = reads.join().expect("lives");
    let of_first = seen.iter().take_while(|&&n| n < 10).count() as u32;
    let sent = *sent.lock().expect("one thread");
    // What `send` has returned for has arrived; one more may have.
    assert!(of_first == sent || of_first == sent + 1, "{seen:?} of {sent}");
    let expected: Vec<u32> = (0..of_first).chain(10..13).collect();
    assert_eq!(seen, expected);
    end();
}

#[test]
fn a_writer_that_dies_has_sent_a_message_or_not_and_another_one_goes_on() {
    let _world = world();
    holds_and_sees(1_000, &[4, 5], writers_death);
}

/// The reader dies at any access; another one takes over.
fn readers_death() {
    begin();
    let dies = 1 + dice(60);
    let handled = Arc::new(Mutex::new(Vec::new()));
    let sends = task(0, || send(&mut writer(), 0..6, |_| ()));
    let noted = handled.clone();
    let first = task(dies, move || {
        let mut reader = reader();
        for _ in 0..4 {
            let n = receive(&mut reader);
            noted.lock().expect("one thread").push(n);
            reader.done();
        }
    });
    first.join();
    let before = handled.lock().expect("one thread").clone();
    let second = task(0, || {
        let mut reader = reader();
        let mut seen = Vec::new();
        while seen.last() != Some(&5) {
            seen.push(receive(&mut reader));
            reader.done();
        }
        seen
    });
    let after = second.join().expect("lives");
    sends.join();
    assert_eq!(before, (0..before.len() as u32).collect::<Vec<_>>());
    let next = before.len() as u32;
    // The one that was handled and not told may come again.
    assert!(after[0] == next || after[0] + 1 == next, "{before:?} then {after:?}");
    assert_eq!(after, (after[0]..6).collect::<Vec<_>>());
    end();
}

#[test]
fn a_reader_that_dies_leaves_all_that_it_has_not_handled_to_another_one() {
    let _world = world();
    holds_and_sees(1_000, &[3], readers_death);
}

//! Doorbells: nobody sleeps while there is a message for him.

use husk_link::{Doorbell, LaneAt, Pool, Reader, Room, Wait, Writer};
use husk_wire::{Header, Kind, Role};

use crate::checker::{area, begin, end, holds_and_sees, memory, rest, task, world};

/// Behind the page of the doorbell.
const LANES: [LaneAt; 2] = [LaneAt::new(8192, 4, 1), LaneAt::new(24576, 4, 1)];
const EPOCH: u32 = 1;

fn send(peer: u16) {
    let lane = LANES[usize::from(peer)];
    let header = Header::new(Kind::Return, Role::Posted);
    let mut writer = Writer::begin(area(), lane, EPOCH);
    let mut pool = Pool::of(memory());
    for _ in 0..2 {
        writer.send(&header, b"", Room::Shared, &mut pool).expect("room");
        Doorbell::of(memory()).ring(peer);
    }
}

fn take(reader: &mut Reader<'static>) -> usize {
    let (mut room, mut count) = ([0; 8], 0);
    while reader.receive(&mut room, &Pool::of(memory())).expect("sound").is_some() {
        reader.done();
        count += 1;
    }
    count
}

fn sleeper() {
    begin();
    let sends = task(0, || send(0));
    let reads = task(0, || {
        let mut reader = Reader::begin(area(), LANES[0], EPOCH, false);
        let bell = Doorbell::of(memory());
        let mut count = 0;
        while count < 2 {
            let wait = Wait { spins: 1, ..Wait::SLEEP };
            bell.wait(wait, || reader.has_message());
            count += take(&mut reader);
        }
    });
    sends.join();
    reads.join();
    end();
}

#[test]
fn nobody_sleeps_beside_a_message() {
    let _world = world();
    holds_and_sees(1_500, &[7, 8], sleeper);
}

/// Two peers, whose lanes are looked at only when their bits are set.
fn ready_bits() {
    begin();
    Doorbell::of(memory()).count_peers();
    let sends = [0, 1].map(|peer| task(0, move || send(peer)));
    let reads = task(0, || {
        let mut readers = LANES.map(|lane| Reader::begin(area(), lane, EPOCH, false));
        let bell = Doorbell::of(memory());
        let mut left = 4;
        for _ in 0..2_000 {
            bell.each_ready(|peer| left -= take(&mut readers[usize::from(peer)]));
            if left == 0 {
                return;
            }
            rest();
        }
        panic!("a message without its bit");
    });
    for send in sends {
        send.join();
    }
    reads.join();
    end();
}

#[test]
fn a_message_of_a_counted_peer_has_its_bit() {
    let _world = world();
    holds_and_sees(1_000, &[9], ready_bits);
}

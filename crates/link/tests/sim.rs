//! The simulated network: a stream without faults, each fault when it is asked for, the same run
//! for the same seed; and the layer above does not see which link it has.

mod support;

use husk_link::sim::{Faults, Fired, Network, ON_THE_WAY_MAX, Sim};
use husk_link::{Body, Broken, Ending, Lane, Link, Rooms, SLAB_BYTES, Served, Status, Unsent};
use husk_wire::messages::{decode_reply, encode};
use husk_wire::record::Data;
use husk_wire::{Answer, Counts, Fault, Handlers, Header, Serve, message, reply, request};
use support::{bytes_of, posted, requests};

const NOISY: Faults =
    Faults { delay_us: (10, 500), lost: 100_000, doubled: 50_000, overtaking: true };

/// Everything that arrives at `link` until nothing is on its way: when, and which.
fn arrivals(network: &Network, link: &mut Sim) -> Vec<(u64, u32)> {
    let (mut came, mut room) = (Vec::new(), vec![0; SLAB_BYTES]);
    loop {
        while let Some(message) = link.receive(&mut room).expect("sound") {
            let (header, Body::Here(body)) = (message.header, message.body) else { panic!() };
            assert!(body == bytes_of(header.sequence.into(), body.len()));
            came.push((network.now_us(), header.sequence));
            link.done();
        }
        match network.next_us() {
            Some(us) => network.go_to(us),
            None => return came,
        }
    }
}

fn send_all(link: &mut Sim, count: u32) {
    for n in 0..count {
        let body = bytes_of(n.into(), n as usize % 300);
        link.send(Lane::Request(0), &posted(n), &body).expect("sent");
    }
}

fn run(seed: u64, faults: Faults) -> (Vec<(u64, u32)>, Fired) {
    let network = Network::new(seed, faults);
    let (mut one, mut other) = (network.link(1, 2), network.link(2, 1));
    send_all(&mut one, 1_000);
    (arrivals(&network, &mut other), network.fired())
}

#[test]
fn without_faults_a_wire_is_a_stream() {
    let (came, fired) = run(1, Faults::none(50));
    assert_eq!(came, (0..1_000).map(|n| (50, n)).collect::<Vec<_>>());
    assert_eq!(fired, Fired::default());
    let jittery = Faults { delay_us: (10, 500), ..Faults::none(0) };
    let numbers: Vec<u32> = run(1, jittery).0.into_iter().map(|came| came.1).collect();
    assert_eq!(numbers, (0..1_000).collect::<Vec<_>>());
}

#[test]
fn each_fault_fires_and_is_counted_and_a_seed_is_a_run() {
    let (came, fired) = run(7, NOISY);
    assert!(fired.lost > 50 && fired.doubled > 20 && fired.overtaken > 100, "{fired:?}");
    assert_eq!(came.len() as u64, 1_000 - fired.lost + fired.doubled);
    assert!(!came.is_sorted_by_key(|came| came.1));
    assert_eq!(run(7, NOISY), (came.clone(), fired));
    assert_ne!(run(8, NOISY).0, came);
}

#[test]
fn a_partition_swallows_until_it_is_mended_and_a_crash_loses_what_is_on_its_way() {
    let network = Network::new(3, Faults::none(10));
    let (mut one, mut other) = (network.link(1, 2), network.link(2, 1));
    send_all(&mut one, 3);
    network.cut(2, 1, true);
    send_all(&mut one, 5);
    assert_eq!(arrivals(&network, &mut other).len(), 3, "what was on its way");
    network.cut(1, 2, false);
    send_all(&mut one, 2);
    send_all(&mut other, 4);
    network.crash(2);
    assert_eq!(network.fired().cut, 5 + 6);
    assert!(arrivals(&network, &mut other).is_empty());
    send_all(&mut one, 2);
    assert_eq!(arrivals(&network, &mut other).len(), 2);
}

#[test]
fn a_wire_holds_so_many_and_an_end_is_seen() {
    let network = Network::new(3, Faults::none(10));
    let (mut one, mut other) = (network.link(1, 2), network.link(2, 1));
    send_all(&mut one, ON_THE_WAY_MAX as u32);
    assert_eq!(one.send(Lane::CallBack, &posted(0), b""), Err(Unsent::Full));
    assert_eq!(one.status(), Status::Up);
    let why = Broken::Message(Fault::Name);
    other.end(Ending::Broken(why));
    assert_eq!(one.status(), Status::PeerEnded(Ending::Broken(why)));
    assert_eq!(other.send(Lane::Reply, &posted(0), b""), Err(Unsent::Broken(why)));
}

#[test]
fn a_slow_node_is_late_and_a_short_queue_takes_no_more() {
    let network = Network::new(3, Faults::none(10));
    let (mut one, mut other) = (network.link(1, 2), network.link(2, 1));
    let mut third = network.link(3, 2);
    network.slow(1, 500);
    network.set_room(2, 3);
    send_all(&mut one, 2);
    send_all(&mut third, 1);
    for link in [&mut one, &mut third] {
        assert_eq!(link.send(Lane::CallBack, &posted(9), b""), Err(Unsent::Full));
    }
    network.go_to(509);
    assert!(!other.has_message(), "it is slow");
    assert!(network.link(2, 3).has_message(), "it is not");
    assert_eq!(arrivals(&network, &mut other).len(), 2);
    send_all(&mut third, 2);
    let fired = network.fired();
    assert_eq!((fired.full, fired.slowed), (2, 2));
}

/// A home that counts what it is asked.
struct Home(u32);

impl Serve<message::Read> for Home {
    fn serve<'a>(&'a mut self, _: &Header, asked: request::Read) -> Answer<reply::Read<'a>> {
        self.0 += 1;
        let data = Data::new(&[]).expect("none");
        Answer::Now(reply::Read { data, change: asked.offset })
    }
}

#[test]
fn who_asks_until_it_is_answered_is_answered_over_a_noisy_wire() {
    const HANDLERS: Handlers<Home> = Handlers::new().on::<message::Read>();
    let network = Network::new(11, NOISY);
    let (mut one, mut other) = (network.link(1, 2), network.link(2, 1));
    let (mut home, counts) = (Home(0), Counts::new());
    let (mut incoming, mut outgoing) = (vec![0; SLAB_BYTES], vec![0; SLAB_BYTES]);
    let (mut tries, mut body) = (0, [0; 64]);
    for n in 1..=200u32 {
        let asked = request::Read { hold: 1, offset: n.into(), length: 0, ahead: 0 };
        let length = encode(&asked, &mut body).expect("room");
        let mut answered = None;
        while answered.is_none() {
            tries += 1;
            assert!(tries < 2_000);
            one.send(Lane::Request(0), &requests(n), &body[..length]).expect("sent");
            network.go_to(network.now_us() + 1_100);
            for link in [&mut other, &mut one] {
                network.go_to(network.now_us() + 600);
                let mut rooms = Rooms { incoming: &mut incoming, outgoing: &mut outgoing };
                let mut on_reply = |header: &Header, body: &[u8]| {
                    let said = decode_reply::<message::Read>(header, body).expect("sound");
                    let change = said.expect("done").change;
                    answered = (header.request == n).then_some(change).or(answered);
                };
                loop {
                    let handlers = (&HANDLERS, &mut home);
                    let served =
                        husk_link::serve(link, handlers, &counts, &mut rooms, &mut on_reply);
                    if served.expect("sound") == Served::Nothing {
                        break;
                    }
                }
            }
        }
        assert_eq!(answered, Some(n.into()));
    }
    let fired = network.fired();
    assert!(tries > 210 && home.0 > 200 && fired.lost > 20 && fired.doubled > 5, "{fired:?}");
}

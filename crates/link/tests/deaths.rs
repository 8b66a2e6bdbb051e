//! Processes that are killed while they send, and sleepers that are woken.

mod support;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use husk_link::{Body, Doorbell, Lane, Link, Memory, Mode, Ring, SLAB_BYTES, Side, Wait};
use support::{Dice, Pair, bytes_of, kill, posted};

/// In a child: sends numbered messages of mixed sizes for ever, beginning at `first`.
fn send_for_ever(pair: &Pair, first: u32) -> ! {
    let mut ring = pair.side(Side::Maker, Mode::Direct);
    let body = bytes_of(5, 9_000);
    let mut n = first;
    loop {
        let size = [0, 40, 150, 700, 9_000][n as usize % 5];
        if ring.send(Lane::Request(0), &posted(n), &body[..size]).is_ok() {
            n += 1;
        }
    }
}

#[test]
fn a_sender_killed_at_any_moment_has_sent_whole_messages_and_another_one_goes_on() {
    let pair = Pair::new(1);
    let mut other = pair.both(Mode::Direct).1;
    let (mut dice, body) = (Dice(9), bytes_of(5, 9_000));
    let (mut next, mut killed) = (0, 0);
    let mut room = vec![0; 2 * SLAB_BYTES];
    while killed < 30 {
        // SAFETY: the child touches nothing but the ring, until it is killed.
        let child = unsafe { libc::fork() };
        if child == 0 {
            send_for_ever(&pair, next);
        }
        let wanted = next + 1 + dice.below(3_000) as u32;
        let mut take = |ring: &mut Ring<'_>| {
            let message = ring.receive(&mut room).expect("sound")?;
            let Body::Here(came) = message.body else { panic!("there is room") };
            let n = message.header.sequence;
            assert!(came == &body[..[0, 40, 150, 700, 9_000][n as usize % 5]], "message {n}");
            ring.done();
            Some(n)
        };
        while next < wanted {
            if let Some(n) = take(&mut other) {
                assert_eq!(n, next);
                next += 1;
            }
        }
        kill(child);
        killed += 1;
        while let Some(n) = take(&mut other) {
            assert_eq!(n, next);
            next += 1;
        }
    }
}

#[test]
fn a_sleeper_is_woken_by_whoever_sends_and_a_wait_for_nothing_ends() {
    let pair = Pair::new(1);
    let (mut one, other) = pair.both(Mode::Direct);
    let bell = Doorbell::of(&pair.bells[1]);
    assert!(!bell.wait(Wait { spins: 10, sleep_ms: 1 }, || other.has_message()));
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let (mut other, mut room) = (other, vec![0; SLAB_BYTES]);
            for n in 0..2_000 {
                while !bell.wait([Wait::SLEEP, Wait::HYBRID][n % 2], || other.has_message()) {}
                other.receive(&mut room).expect("sound").expect("there");
                other.done();
            }
            is_over.store(true, Ordering::Release);
        });
        while !is_over.load(Ordering::Acquire) {
            let _ = one.send(Lane::Request(0), &posted(0), b"");
        }
    });
}

#[test]
fn bits_name_the_peers_that_have_sent_once() {
    let memory = Memory::create(c"bell", Doorbell::BYTES).expect("memory");
    let bell = Doorbell::of(&memory);
    let ready = || {
        let mut ready = Vec::new();
        bell.each_ready(|peer| ready.push(peer));
        ready
    };
    bell.ring(3);
    assert!(ready().is_empty(), "few peers are polled");
    bell.count_peers();
    [700, 3, 64, 1023, 3].iter().for_each(|&peer| bell.ring(peer));
    assert_eq!(ready(), [3, 64, 700, 1023]);
    assert!(ready().is_empty());
}

//! A peer that writes whatever it likes into the shared memory: this side judges it, ends the
//! session or goes on, and never panics or reads outside.

mod support;

use husk_link::{
    Body, Broken, EXTENT_BYTES, Ending, Lane, Link, Mode, OUTSTANDING_MAX, Ring, SLAB_BYTES, Side,
    Status, Unsent, memory_bytes,
};
use husk_wire::Fault;
use support::{Dice, Pair, bytes_of, posted, replies, requests};

/// The same memory, as its other side has it.
struct Scribble(*mut u64, usize);

impl Scribble {
    fn on(pair: &Pair, channels: usize) -> Self {
        let bytes = memory_bytes(channels);
        let (prot, fd) = (libc::PROT_READ | libc::PROT_WRITE, pair.memory.descriptor() as i32);
        // SAFETY: a new mapping at an address that the host chooses.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), bytes, prot, libc::MAP_SHARED, fd, 0) };
        assert_ne!(at, libc::MAP_FAILED);
        Self(at.cast(), bytes / 8)
    }

    fn get(&self, word: usize) -> u64 {
        assert!(word < self.1);
        // SAFETY: inside the mapping.
        unsafe { self.0.add(word).read_volatile() }
    }

    fn set(&self, word: usize, value: u64) {
        assert!(word < self.1);
        // SAFETY: inside the mapping.
        unsafe { self.0.add(word).write_volatile(value) }
    }

    /// Words that are not zero: where something is.
    fn used(&self) -> Vec<usize> {
        (0..self.1).filter(|&word| self.get(word) != 0).collect()
    }
}

impl Drop for Scribble {
    fn drop(&mut self) {
        // SAFETY: the mapping of `on`.
        unsafe { libc::munmap(self.0.cast(), self.1 * 8) };
    }
}

/// Reads until there is nothing, or the session has ended.
fn drain(ring: &mut Ring<'_>) -> Result<u32, Broken> {
    let mut room = vec![0; SLAB_BYTES];
    for count in 0..100_000 {
        match ring.receive(&mut room)? {
            None => return Ok(count),
            Some(message) => match message.body {
                Body::Here(body) => assert_eq!(body.len(), message.header.length as usize),
                Body::Pool(view) => view.copy(0, &mut vec![0; view.len().min(EXTENT_BYTES)]),
            },
        }
        ring.done();
    }
    panic!("more messages than there is room for");
}

fn fill(one: &mut Ring<'_>) {
    for (n, size) in [0, 20, 100, 184, 3_000, SLAB_BYTES, 50_000].into_iter().enumerate() {
        // Long ones are zeros: `used` then names slots, mostly.
        let body = bytes_of(n as u64, if size > 200 { 0 } else { size });
        let body = [&body[..], &vec![0; size - body.len()]].concat();
        one.send(Lane::Request(0), &posted(n as u32), &body).expect("sent");
        one.send(Lane::CallBack, &posted(n as u32), &body[..size.min(200)]).expect("sent");
    }
}

#[test]
fn garbage_in_what_is_used_ends_the_session_or_is_a_message() {
    let (mut ended, mut dice) = (0, Dice(1));
    for _ in 0..300 {
        let pair = Pair::new(1);
        let (mut one, mut other) = pair.both(Mode::Direct);
        fill(&mut one);
        let scribble = Scribble::on(&pair, 1);
        let used = scribble.used();
        for _ in 0..=dice.below(4) {
            let word = used[dice.below(used.len() as u64) as usize];
            let value = match dice.below(4) {
                0 => dice.word(),
                1 => u64::MAX,
                2 => scribble.get(word) ^ 1 << dice.below(64),
                _ => scribble.get(used[dice.below(used.len() as u64) as usize]),
            };
            scribble.set(word, value);
        }
        if let Err(broken) = drain(&mut other) {
            ended += 1;
            assert_eq!(other.status(), Status::Ended(Ending::Broken(broken)));
            assert_eq!(one.status(), Status::PeerEnded(Ending::Broken(broken)));
            assert_eq!(drain(&mut other), Err(broken), "it stays ended");
        }
        // Sending on is refused or works, and so does beginning again.
        let _ = one.send(Lane::Request(0), &posted(0), &[0; 300]);
        drop(pair.begin((Side::Maker, 1, 1), Mode::Direct));
        drop(pair.begin((Side::Guest, 1, 1), Mode::Direct));
    }
    assert!(ended > 30, "{ended}");
}

#[test]
fn a_memory_of_nothing_but_noise_is_survived() {
    for seed in 0..6 {
        let pair = Pair::new(1);
        let (mut one, mut other) = pair.both(Mode::Direct);
        let (scribble, mut dice) = (Scribble::on(&pair, 1), Dice(seed));
        // The heads and slots of both directions, slabs and pools included here and there.
        for word in (16..scribble.1).step_by(1 + (seed as usize % 3) * 8) {
            scribble.set(word, dice.word());
        }
        for ring in [&mut one, &mut other] {
            let _ = drain(ring);
            let _ = ring.send(Lane::Request(0), &posted(0), &[0; 9_000]);
            let _ = ring.send(Lane::CallBack, &posted(0), &[0; 100]);
            let _ = (ring.is_drained(), ring.status());
        }
        if let Ok(mut again) = pair.begin((Side::Maker, 1, 1), Mode::Buffered) {
            let _ = drain(&mut again);
            let _ = again.send(Lane::Request(0), &posted(0), &[0; 200]);
        }
    }
}

/// Word of the reader's place in the lane for requests that the maker sends.
fn taken_word(scribble: &Scribble, one: &mut Ring<'_>, other: &mut Ring<'_>) -> usize {
    let before: Vec<u64> = (0..scribble.1).map(|word| scribble.get(word)).collect();
    one.send(Lane::Request(0), &posted(0), b"").expect("sent");
    assert_eq!(drain(other), Ok(1));
    let grown = |&word: &usize| before[word] == 0 && scribble.get(word) == 1;
    (0..scribble.1).find(grown).expect("a word counts")
}

#[test]
fn a_reader_that_lies_about_what_it_has_read_is_found_out() {
    for lie in [1 << 20, u64::MAX, 0] {
        let pair = Pair::new(1);
        let (mut one, mut other) = pair.both(Mode::Direct);
        let scribble = Scribble::on(&pair, 1);
        let taken = taken_word(&scribble, &mut one, &mut other);
        let mut sent = 1;
        while one.send(Lane::Request(0), &posted(0), b"").is_ok() {
            sent += 1;
            if sent % 200 == 0 {
                drain(&mut other).expect("sound");
            }
            assert!(sent < 2_000);
            if sent > 1_000 {
                scribble.set(taken, lie);
            }
        }
        let end = one.send(Lane::Request(0), &posted(0), b"");
        assert_eq!(end, Err(Unsent::Broken(Broken::Credits)), "{lie:#x}");
    }
}

#[test]
fn a_reply_to_nothing_and_more_requests_than_may_be_out_end_the_session() {
    let pair = Pair::new(1);
    let (mut one, mut other) = pair.both(Mode::Direct);
    let scribble = Scribble::on(&pair, 1);
    // A hostile side does not count what it has out: it begins again as if nothing were.
    let lines = [(128 + 8) / 8, (256 + 8) / 8, (128 + 16) / 8, (256 + 16) / 8];
    let mut broken = None;
    for n in 1..=OUTSTANDING_MAX + 1 {
        if one.send(Lane::Request(0), &requests(n), b"").is_err() {
            scribble.set(lines[0], 0);
            one = pair.side(Side::Maker, Mode::Direct);
            one.send(Lane::Request(0), &requests(n), b"").expect("sent");
        }
        broken = drain(&mut other).err();
    }
    assert_eq!(broken, Some(Broken::Flood));

    let pair = Pair::new(1);
    let (mut one, mut other) = pair.both(Mode::Direct);
    let scribble = Scribble::on(&pair, 1);
    assert_eq!(one.send(Lane::Reply, &replies(1), b""), Err(Unsent::Unasked));
    scribble.set(lines[2], 1);
    one = pair.side(Side::Maker, Mode::Direct);
    one.send(Lane::Reply, &replies(1), b"").expect("it lies to itself");
    assert_eq!(drain(&mut other), Err(Broken::Message(Fault::Unasked)));
}

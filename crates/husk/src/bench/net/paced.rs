//! Requests at a constant rate, each over a connection of its own, by one thread.
//!
//! A client that waits for an answer asks nothing meanwhile: a slow server is asked less, and the
//! requests that would have been slow are missing from its figures (coordinated omission: Tene,
//! wrk2). So:
//!
//! Invariants
//! 1. When a request is due depends on no answer.
//! 2. Its time counts from when it was due, also if it was sent later.
//! 3. One without an answer after `PATIENCE` has failed, so that no more are under way than come
//!    in that time.

use std::collections::BTreeMap;
use std::io::{Error, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use husk_net::sim::Random;
use rustix::event::{Timespec, epoll};
use rustix::net::SocketFlags;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::clients::{Ask, PATIENCE, REQUEST, SETTLE, Seen, WINDOW, begin, is_taken, worker};

/// Ports that are tried for one request.
const TRIES: usize = 64;
/// Events taken at once.
const EVENTS: usize = 64;

/// One that is under way.
struct Request {
    stream: TcpStream,
    due: Duration,
    is_sent: bool,
    answer: Vec<u8>,
}

impl Request {
    /// As far as it gets now; whether the whole answer is there.
    fn go_on(&mut self) -> std::io::Result<bool> {
        if !self.is_sent {
            // Shorter than any send buffer.
            self.stream.write_all(REQUEST)?;
            self.is_sent = true;
        }
        match self.stream.read_to_end(&mut self.answer) {
            Ok(_) => Ok(true),
            Err(why) if why.kind() == ErrorKind::WouldBlock => Ok(false),
            Err(why) => Err(why),
        }
    }
}

struct Loader<'a> {
    source: Ipv4Addr,
    target: SocketAddr,
    ask: &'a Ask,
    random: Random,
    began: Instant,
    events: OwnedFd,
    /// By their numbers, the one that was due first is the first.
    under_way: BTreeMap<u64, Request>,
    seen: Seen,
}

/// Asks at this rate until the end of the window, from there to there, and takes in all answers.
pub fn play(
    (source, target): (Ipv4Addr, SocketAddr),
    random: Random,
    ask: &Ask,
    per_s: f64,
    began: Instant,
) -> std::io::Result<Seen> {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit })?;
    let events = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let (under_way, seen) = (BTreeMap::new(), Seen::default());
    let mut loader = Loader { source, target, ask, random, began, events, under_way, seen };
    let due = |number: u64| Duration::from_secs_f64(number as f64 / per_s);
    let mut next = 0;
    loop {
        let now = began.elapsed();
        while due(next) <= now && due(next) < SETTLE + WINDOW {
            loader.begin(next, due(next));
            next += 1;
        }
        loader.give_up(now);
        let first = loader.under_way.values().next().map(|one| one.due + PATIENCE);
        let is_over = due(next) >= SETTLE + WINDOW;
        match (is_over, first) {
            (true, None) => return Ok(loader.seen),
            (true, Some(end)) => loader.wait(end)?,
            (false, _) => loader.wait(due(next))?,
        }
    }
}

impl Loader<'_> {
    fn begin(&mut self, number: u64, due: Duration) {
        let late = self.began.elapsed() - due;
        self.seen.late_ms.push(late.as_secs_f64() * 1e3);
        match self.connect(number) {
            Ok(stream) => {
                let request = Request { stream, due, is_sent: false, answer: Vec::new() };
                self.under_way.insert(number, request);
            }
            Err(why) => self.seen.take(due, due, Err(why)),
        }
    }

    fn connect(&mut self, number: u64) -> std::io::Result<TcpStream> {
        let mut tried = Err(Error::from(ErrorKind::AddrInUse));
        for _ in 0..TRIES {
            let port = self.ask.load.port(self.ask.kernels, &mut self.random);
            let source = SocketAddr::from((self.source, port));
            tried = begin(source, self.target, SocketFlags::NONBLOCK);
            if !tried.as_ref().is_err_and(is_taken) {
                break;
            }
        }
        let socket = tried?;
        let flags = epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::ET;
        epoll::add(&self.events, &socket, epoll::EventData::new_u64(number), flags)?;
        Ok(TcpStream::from(socket))
    }

    /// Takes in what comes until then; less than that is enough.
    fn wait(&mut self, end: Duration) -> std::io::Result<()> {
        let rest = end.saturating_sub(self.began.elapsed());
        let rest = Timespec { tv_sec: rest.as_secs() as i64, tv_nsec: rest.subsec_nanos().into() };
        let mut events = Vec::with_capacity(EVENTS);
        let room = rustix::buffer::spare_capacity(&mut events);
        match epoll::wait(&self.events, room, Some(&rest)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(why) => return Err(why.into()),
        }
        for event in events {
            self.go_on(event.data.u64());
        }
        Ok(())
    }

    fn go_on(&mut self, number: u64) {
        let Some(request) = self.under_way.get_mut(&number) else { return };
        let answer = match request.go_on() {
            Ok(false) => return,
            Ok(true) => worker(&request.answer),
            Err(why) => Err(why),
        };
        self.seen.take(request.due, self.began.elapsed(), answer);
        self.under_way.remove(&number);
    }

    fn give_up(&mut self, now: Duration) {
        while let Some(first) = self.under_way.first_entry() {
            if first.get().due + PATIENCE > now {
                return;
            }
            first.remove();
            self.seen.failed += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::net::clients::{LOADS, Pace};
    use std::net::TcpListener;

    const PER_S: f64 = 40.0;
    const ANSWER: &[u8] = b"HTTP/1.0 200 OK\r\nX-Worker: 7\r\n\r\n\x1f\x8b";

    /// The server answers nobody before it has been asked by all.
    #[test]
    fn requests_are_sent_whoever_waits_and_their_times_count_from_when_they_were_due() {
        let all = ((SETTLE + WINDOW).as_secs_f64() * PER_S) as usize;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a listener");
        let target = listener.local_addr().expect("its address");
        std::thread::spawn(move || {
            let mut asked: Vec<TcpStream> = Vec::new();
            for _ in 0..all {
                let (mut stream, _) = listener.accept().expect("a connection");
                stream.read_exact(&mut vec![0; REQUEST.len()]).expect("a request");
                asked.push(stream);
            }
            asked.iter_mut().for_each(|stream| stream.write_all(ANSWER).expect("it reads"));
        });
        let pace = Pace::Constant { per_s: PER_S };
        let ask = Ask { load: LOADS[0], kernels: 1, pace, seed: 1 };
        let way = (Ipv4Addr::LOCALHOST, target);
        let seen = play(way, Random::new(1), &ask, PER_S, Instant::now()).expect("it can ask");
        assert_eq!((seen.course.len() as u64 + seen.failed, seen.late_ms.len()), (all as u64, all));
        let last = Duration::from_secs_f64((all - 1) as f64 / PER_S);
        let waited = |&(due, took_ms): &(Duration, f64)| {
            took_ms >= last.saturating_sub(due).as_secs_f64() * 1e3
        };
        assert!(!seen.course.is_empty() && seen.course.iter().all(waited), "{:?}", seen.course);
    }

    #[test]
    fn one_that_nobody_can_ask_has_failed() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a listener");
        let target = listener.local_addr().expect("its address");
        drop(listener);
        let ask = Ask { load: LOADS[0], kernels: 1, pace: Pace::Constant { per_s: 4.0 }, seed: 1 };
        let way = (Ipv4Addr::LOCALHOST, target);
        let seen = play(way, Random::new(1), &ask, 4.0, Instant::now()).expect("it can ask");
        assert_eq!((seen.failed, seen.course.len()), (10, 0));
    }
}

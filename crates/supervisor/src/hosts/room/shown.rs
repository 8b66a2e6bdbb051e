//! What a starter does for the room at its host: answers questions, and tells of changes.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread;

use super::asks::{Answer, Ask};
use super::home::Home;
use crate::hosts::session::guest::lock;
use crate::hosts::session::ssh::Link;
use crate::hosts::session::stream::{Frame, Kind, put, take};
use crate::output::say;

/// Questions that may wait: each thread of a room has some, and some it has given up.
const QUEUED_MAX: usize = 256;
/// Threads that answer.
const THREADS: usize = 2;

/// Most letters of what a guest says for people.
const WHY_MAX: usize = 100;

/// Sends a frame to the room.
type Tell = Arc<dyn Fn(Kind, u32, &[u8]) + Send + Sync>;

/// Files here, as the room at another host shows them.
pub struct Shown {
    home: Arc<Home>,
    ask: SyncSender<(u32, Ask)>,
    asked: Arc<Mutex<Receiver<(u32, Ask)>>>,
    bytes: Arc<AtomicU64>,
}

impl Shown {
    /// Begins to watch.
    pub fn begin() -> Shown {
        let (ask, asked) = sync_channel(QUEUED_MAX);
        let home = Home::begin();
        Shown { home, ask, asked: Arc::new(Mutex::new(asked)), bytes: Arc::default() }
    }

    /// Bytes of files that were sent.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Answers the room until the guest says anything else: nothing else goes on yet.
    pub fn begin_room(&self, host: &str, link: &mut Link) -> io::Result<Option<Frame>> {
        loop {
            match take(&mut link.from)? {
                Some(Frame { kind: Kind::Ask, channel, payload }) => {
                    let ask = Ask::decode(&payload).ok_or(io::ErrorKind::InvalidData)?;
                    put(&mut link.to, Kind::Told, channel, &self.home.answer(&ask).encode())?;
                }
                Some(Frame { kind: Kind::Note, payload, .. }) => {
                    Shown::say_not_kept(host, &payload);
                }
                Some(Frame { kind: Kind::Alive, .. }) => {}
                other => return Ok(other),
            }
        }
    }

    /// Says why the room at `host` keeps nothing.
    pub fn say_not_kept(host: &str, why: &[u8]) {
        let why = String::from_utf8_lossy(why);
        let why: String = why.chars().filter(|one| !one.is_control()).take(WHY_MAX).collect();
        say(&format!("{host} keeps no files of this host for later: {why}"));
    }

    /// A question has come. `None`: it is none, or there are too many.
    pub fn ask(&self, channel: u32, payload: &[u8]) -> Option<()> {
        self.ask.try_send((channel, Ask::decode(payload)?)).ok()
    }

    /// Starts what answers and what tells of changes, by way of `put`, until nobody asks any more.
    pub fn serve(&self, put: &Tell) {
        for _ in 0..THREADS {
            let (home, asked, put) = (self.home.clone(), self.asked.clone(), put.clone());
            let sent = self.bytes.clone();
            thread::spawn(move || {
                loop {
                    let next = lock(&asked).recv();
                    let Ok((channel, ask)) = next else { return };
                    let told = home.answer(&ask);
                    if let Answer::Bytes(bytes) | Answer::Digest(_, Some(bytes)) = &told {
                        sent.fetch_add(bytes.len() as u64, Ordering::Relaxed);
                    }
                    put(Kind::Told, channel, &told.encode());
                }
            });
        }
        let (home, put) = (self.home.clone(), put.clone());
        thread::spawn(move || {
            home.watch(&|path| put(Kind::Stale, 0, path.as_os_str().as_bytes()));
        });
    }

    /// Whether every user may run the program at `path`.
    pub fn is_shown(&self, path: &Path) -> bool {
        self.home.is_shown(path)
    }
}

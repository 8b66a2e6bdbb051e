//! A room's questions to home, as frames by way of the guest, which passes them on.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use rustix::io::{Errno, Result};

use super::asks::{Answer, Ask};
use crate::hosts::session::guest::lock;
use crate::hosts::session::stream::{Frame, Kind, put, take};

/// How long an answer may take.
const ANSWER_MAX: Duration = Duration::from_secs(60);

/// A question that is on its way.
pub struct Asked<'a> {
    link: &'a Link,
    channel: u32,
    told: Receiver<Vec<u8>>,
}

impl Asked<'_> {
    /// The answer.
    pub fn wait(self) -> Result<Answer> {
        let answer = self.told.recv_timeout(ANSWER_MAX).ok();
        match answer.and_then(|answer| Answer::decode(&answer)) {
            Some(Answer::Failed(errno)) => Err(Errno::from_raw_os_error(errno)),
            Some(told) => Ok(told),
            None => Err(Errno::IO),
        }
    }
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        lock(&self.link.waiting).remove(&self.channel);
    }
}

/// Home, as far as a room sees it.
pub struct Link {
    to: Mutex<File>,
    waiting: Mutex<HashMap<u32, SyncSender<Vec<u8>>>>,
    next: AtomicU32,
    over: (Mutex<bool>, Condvar),
}

impl Link {
    /// What is asked goes to `to`.
    pub fn new(to: File) -> Arc<Link> {
        Arc::new(Link {
            to: Mutex::new(to),
            waiting: Mutex::default(),
            next: AtomicU32::new(1),
            over: Default::default(),
        })
    }

    /// Says something.
    pub fn say(&self, kind: Kind, payload: &[u8]) -> io::Result<()> {
        put(&mut *lock(&self.to), kind, 0, payload)
    }

    /// The answer to a question. `EIO`: there is none.
    pub fn ask(&self, ask: &Ask) -> Result<Answer> {
        self.begin(ask).wait()
    }

    /// Asks, and does not wait yet.
    pub fn begin(&self, ask: &Ask) -> Asked<'_> {
        let channel = self.next.fetch_add(1, Ordering::Relaxed);
        let (tell, told) = sync_channel(1);
        lock(&self.waiting).insert(channel, tell);
        if put(&mut *lock(&self.to), Kind::Ask, channel, &ask.encode()).is_err() {
            lock(&self.waiting).remove(&channel);
        }
        Asked { link: self, channel, told }
    }

    /// The session is over: nobody waits any more.
    pub fn end(&self) {
        *lock(&self.over.0) = true;
        self.over.1.notify_all();
        lock(&self.waiting).clear();
    }

    /// Waits for the end, so long.
    pub fn is_over(&self, patience: Duration) -> bool {
        let over = lock(&self.over.0);
        let waited = self.over.1.wait_timeout_while(over, patience, |over| !*over);
        waited.is_ok_and(|(over, _)| *over)
    }

    /// Takes what comes until the session ends; `changed` hears of directories.
    pub fn hear(&self, from: &mut impl io::Read, changed: &dyn Fn(&Path)) {
        use std::os::unix::ffi::OsStringExt;
        while let Ok(Some(Frame { kind, channel, payload })) = take(from) {
            match kind {
                Kind::Told => {
                    // Who has given up waits no more.
                    if let Some(waiting) = lock(&self.waiting).get(&channel) {
                        let _ = waiting.try_send(payload);
                    }
                }
                Kind::Stale => {
                    changed(&PathBuf::from(std::ffi::OsString::from_vec(payload)));
                }
                // The guest wants to know whether files are still shown.
                Kind::Alive if self.say(Kind::Alive, &[]).is_ok() => {}
                _ => return,
            }
        }
    }
}

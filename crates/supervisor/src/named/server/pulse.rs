//! A heartbeat during a write-back or the end of an image, however long that takes: over the
//! connection, or by the modification time of the file `ending`. Silence means that the supervisor
//! is stopped or dead. Whoever has asked may send `STOP`: the work ends where it can be gone on
//! with.

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use rustix::net::{RecvFlags, recv};

use crate::named::message::{Answer, STOP, answer};
use crate::named::place::Place;
use crate::output::progress::{Onlooker, Over, Progress};

/// Between two looks for `STOP`.
const LOOK: Duration = Duration::from_millis(50);
/// Looks between two signs of life.
const LOOKS_PER_BEAT: u32 = 5;

/// Tells how far the work is, `asker` if there is one, as long as the result is kept.
pub fn tell(
    asker: Option<&UnixStream>,
    place: &Place,
    progress: &Arc<Progress>,
) -> Option<Onlooker> {
    // Whoever cannot be told waits until its patience ends.
    let asker = asker.and_then(|asker| asker.try_clone().ok());
    let place = place.again().ok()?;
    let progress = Arc::clone(progress);
    Some(Onlooker::begin(move |over: &Over| {
        for look in (0..LOOKS_PER_BEAT).cycle() {
            if look == 0 {
                beat(asker.as_ref(), &place, &progress);
            }
            if asker.as_ref().is_some_and(wants_a_stop) {
                progress.stop();
            }
            if over.within(LOOK) {
                return;
            }
        }
    }))
}

fn beat(asker: Option<&UnixStream>, place: &Place, progress: &Progress) {
    place.touch_ending();
    let (done, total) = progress.get();
    // A short message goes as a whole, or not at all where there is no room for it.
    let told = Answer::Progress { done, total, bytes: progress.bytes() };
    let _ = asker.map(|asker| answer(asker, &told, &[]));
}

fn wants_a_stop(asker: &UnixStream) -> bool {
    let mut bytes = [0; STOP.len()];
    recv(asker.as_fd(), &mut bytes, RecvFlags::DONTWAIT).is_ok_and(|(_, got)| got > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    #[test]
    fn only_who_sends_something_wants_a_stop() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        assert!(!wants_a_stop(&ours));
        theirs.write_all(STOP).unwrap();
        assert!(wants_a_stop(&ours) && !wants_a_stop(&ours));
        // Who has gone has not changed its mind.
        drop(theirs);
        assert!(!wants_a_stop(&ours));
    }
}

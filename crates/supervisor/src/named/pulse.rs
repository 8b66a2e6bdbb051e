//! Whoever waits for an end, however long it takes, hears all the time that somebody works at it:
//! silence means that the supervisor is stopped, or worse.

use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use crate::named::message::{Answer, answer};
use crate::onlooker::{Onlooker, Over, Tally};

/// Between two signs of life.
const BEAT: Duration = Duration::from_millis(500);

/// Tells `asker` how far the work is, as long as the result is kept.
pub fn tell(asker: &UnixStream, tally: &Arc<Tally>) -> Option<Onlooker> {
    // Whoever cannot be told waits until its patience ends.
    let asker = asker.try_clone().ok()?;
    let tally = Arc::clone(tally);
    Some(Onlooker::begin(move |over: &Over| {
        loop {
            let (done, total) = tally.get();
            // A short message goes as a whole, or not at all where there is no room for it.
            let _ = answer(&asker, &Answer::Progress { done, total }, &[]);
            if over.within(BEAT) {
                return;
            }
        }
    }))
}

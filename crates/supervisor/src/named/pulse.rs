//! A heartbeat during the end of an image, however long that takes: over the connection, or by the
//! modification time of the file `ending`. Silence means that the supervisor is stopped or dead.

use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use crate::named::message::{Answer, answer};
use crate::named::place::Place;
use crate::onlooker::{Onlooker, Over, Progress};

/// Between two signs of life.
const BEAT: Duration = Duration::from_millis(500);

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
        loop {
            place.touch_ending();
            let (done, total) = progress.get();
            // A short message goes as a whole, or not at all where there is no room for it.
            let told = Answer::Progress { done, total };
            let _ = asker.as_ref().map(|asker| answer(asker, &told, &[]));
            if over.within(BEAT) {
                return;
            }
        }
    }))
}

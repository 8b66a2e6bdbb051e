//! Reports which resource of an image has run out.
//!
//! A program's call fails with an errno (ENOSPC, EAGAIN, ENFILE) that fits many causes. The
//! supervisor names the resource and the remedy once each time (on standard error of `husk run`, in
//! the log of an image with a name); `husk ls`, `stat` and `top` do as long as it lasts. These read
//! the present state; the supervisor considers a shortage over only at `SOME_FROM`.

use std::time::{Duration, Instant};

use husk_carrier::Direct;
use husk_region::{INODE, LINE, NODE, RECORD};

use crate::output::say_aside;
use crate::volumes;

/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Fewer objects (or blocks) than one operation may need are none.
const NONE_BELOW: u64 = 12;
/// So many again end what was said: those who wait for some take and return a few all the time.
const SOME_FROM: u64 = 64;

const _: () = assert!(SOME_FROM > 2 * NONE_BELOW);
/// Kinds of room: what there is no more of, and what gives some back.
const KINDS: [(&str, &str); 3] = [
    ("more files", "remove some"),
    ("more processes and open files", "end some"),
    ("more bytes", "remove files"),
];

/// The kind of room that a file takes.
const BYTES: usize = 2;

/// How many there are of each kind, about; of blocks at most `SOME_FROM`.
fn spare(direct: &Direct) -> [u64; KINDS.len()] {
    let session = &direct.kernel().session;
    let tables = [LINE, NODE, RECORD].map(|class| session.spare_count(class));
    let tables = tables.into_iter().min().expect("three of them");
    [session.spare_count(INODE), tables, session.spare_blocks(SOME_FROM)]
}

fn line((missing, remedy): (&str, &str)) -> String {
    format!("the image is full: no room for {missing}; {remedy}, or make it with more --memory")
}

/// Lines about what there is no room for now, and which volumes have stopped.
pub fn lines(direct: &Direct) -> Vec<String> {
    let short = KINDS.into_iter().zip(spare(direct)).filter(|(_, spare)| *spare < NONE_BELOW);
    short.map(|(kind, _)| line(kind)).chain(volumes::lines(direct)).collect()
}

/// Whether there is none of what there are `spare`, if that was `told` already or not.
fn is_short(spare: u64, told: bool) -> bool {
    spare < if told { SOME_FROM } else { NONE_BELOW }
}

/// Who looks now and then, and says what is new.
#[derive(Default)]
pub struct Full {
    next: Option<Instant>,
    told: [bool; KINDS.len()],
    /// Files that found no room and gave back what they had.
    too_long: u64,
}

impl Full {
    /// Looks, if it is time to.
    pub fn tick(&mut self, direct: &Direct) {
        let now = Instant::now();
        if self.next.is_some_and(|next| now < next) {
            return;
        }
        self.next = Some(now + LOOK_EVERY);
        self.look(direct);
    }

    /// Looks at once: a program may have ended of what it found no room for.
    pub fn look(&mut self, direct: &Direct) {
        for ((kind, spare), told) in KINDS.into_iter().zip(spare(direct)).zip(&mut self.told) {
            let short = is_short(spare, *told);
            if short && !*told {
                say_aside(line(kind));
            }
            *told = short;
        }
        let too_long = husk_kernel::image::too_long(direct.kernel());
        let [_, _, told] = self.told;
        if too_long != self.too_long && !told {
            say_aside(line(KINDS[BYTES]));
        }
        self.too_long = too_long;
    }
}

#[cfg(test)]
mod tests {
    use super::{NONE_BELOW, SOME_FROM, is_short};

    #[test]
    fn what_has_run_out_is_over_only_when_there_are_some_again() {
        for (spare, told, short) in [
            (NONE_BELOW - 1, false, true),
            (NONE_BELOW, false, false),
            (NONE_BELOW, true, true),
            (SOME_FROM - 1, true, true),
            (SOME_FROM, true, false),
        ] {
            assert_eq!(is_short(spare, told), short, "{spare} {told}");
        }
    }
}

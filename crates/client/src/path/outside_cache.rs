//! A cache of absolute paths outside every tree: the next call on one goes to the host after a
//! comparison, without a look at mounts, links of `/proc` or hashes.
//!
//! Invariants
//! 1. Here stands only what `known_outside` knew of a whole text, which is so for everybody: no
//!    descriptor and no directory of a process changes it.
//! 2. It holds as long as what the whole image knows of such texts: `outside_age` is compared.
//! 3. All bytes were put here by a client of this image, or are zero, which is no text; the length
//!    is the last that is written.
//!
//! Also here: the short ways of `open` and `close` for such texts and for numbers of the host's.

use crate::buffers::Walk;
use crate::path::Aim;
use crate::{Call, Client, Host, Memory};
use core::sync::atomic::{Ordering, compiler_fence};
use husk_abi::sys::general::{
    O_ACCMODE, O_APPEND, O_CLOEXEC, O_DIRECTORY, O_LARGEFILE, O_NOATIME, O_NOCTTY, O_NONBLOCK, W_OK,
};
use husk_abi::{PATH_MAX, nr};
use husk_proto::Services;
use husk_proto::descriptor::Shown;

/// Texts kept at a time, a power of two.
pub(crate) const LATELY_MAX: usize = 32;
/// Words of the longest of them, a power of two.
const WORDS_MAX: usize = 16;
/// Bytes of a word, and of the shortest text.
const WORD: usize = 8;

/// Flags of an open that makes and changes nothing, and follows the last name.
const PLAIN_FLAGS: u32 = O_ACCMODE
    | O_APPEND
    | O_CLOEXEC
    | O_DIRECTORY
    | O_LARGEFILE
    | O_NOATIME
    | O_NOCTTY
    | O_NONBLOCK;

/// What becomes of a call on a text that is here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shortcut {
    /// It is the host's.
    Passes,
    /// The same, and what it opens is to be noted (`Client::note_opened_outside`).
    Opens,
    /// It opens this number.
    Lent(u32),
}

/// The path's address in a call that may have such a text, and whether it opens it.
#[inline(always)]
fn path_of(call: &Call) -> Option<(usize, bool)> {
    let a = &call.args;
    let plain = |flags: usize| flags as u32 & !PLAIN_FLAGS == 0;
    match call.number {
        nr::open if plain(a[1]) => Some((a[0], true)),
        nr::openat if plain(a[2]) => Some((a[1], true)),
        nr::stat | nr::access => Some((a[0], false)),
        nr::newfstatat if a[3] as u32 == 0 => Some((a[1], false)),
        _ => None,
    }
}

/// A text that lately led outside every tree.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lately {
    length: usize,
    /// `outside_age` when it was seen.
    age: u64,
    /// Its whole words; what is behind them is in `tail`.
    text: [u64; WORDS_MAX],
    /// Its last eight bytes.
    tail: u64,
}

impl Lately {
    /// No text.
    pub const NONE: Lately = Lately { length: 0, age: 0, text: [0; WORDS_MAX], tail: 0 };

    /// Tells texts apart, as a rule.
    #[inline]
    pub fn tag(&self) -> u64 {
        self.tail.rotate_left(17) ^ self.text[0] ^ self.length as u64
    }

    #[inline(always)]
    fn is_of(&self, walk: &Walk, tail: u64, age: u64) -> bool {
        let same = |n: usize| self.text[n % WORDS_MAX] == walk.word(WORD * n);
        self.length == walk.length
            && self.tail == tail
            && self.age == age
            && (0..walk.length / WORD).all(same)
    }
}

/// Where a text with this tail is kept.
#[inline(always)]
fn place_of(tail: u64) -> usize {
    (tail.wrapping_mul(husk_abi::SPREAD) >> 56) as usize % LATELY_MAX
}

/// Whether a text of this length may be kept, of a path with this aim.
#[inline(always)]
fn has_room(length: usize, aim: Aim) -> bool {
    // Where the last name is not followed, that of a mount is one.
    aim.follow && !aim.parent && (WORD..=WORD * WORDS_MAX).contains(&length)
}

impl<S: Services, H: Host, M: Memory> Client<S, H, M> {
    /// Whether the absolute text in walk `w` is the host's, as it was lately.
    #[inline(always)]
    pub(crate) fn lately_outside(&self, w: usize, aim: Aim) -> bool {
        let walk = &self.buffers.walks[w];
        if !has_room(walk.length, aim) {
            return false;
        }
        let tail = walk.word(walk.length - WORD);
        self.buffers.lately[place_of(tail)].is_of(walk, tail, self.services.outside_age())
    }

    /// What becomes of `call`, if its text is here, and the last one that was looked for was.
    #[inline(always)]
    pub fn outside(&mut self, call: &Call) -> Option<Shortcut> {
        let (path, opens) = path_of(call).filter(|_| self.paths.last_was_outside)?;
        if self.numbers.is_lending() {
            // The host would open another file under that number, and might find it by a path.
            self.give_number();
        }
        let walk = &mut self.buffers.walks[0];
        let length = self.memory.read_string(path, &mut walk.text[..PATH_MAX]);
        (walk.at, walk.length) = (0, length.unwrap_or(0));
        self.paths.last_was_outside = self.lately_outside(0, Aim::FOLLOW);
        match (self.paths.last_was_outside, opens) {
            (true, false) if call.number == nr::access && self.may_be_sealed(call.args[1]) => None,
            (true, false) => Some(Shortcut::Passes),
            (true, true) => self.open_outside(call),
            _ => None,
        }
    }

    /// Whether the host may not be the one who says if a file may be written to.
    #[inline]
    fn may_be_sealed(&self, wanted: usize) -> bool {
        wanted & W_OK as usize != 0 && self.services.outside_is_sealed()
    }

    /// The same of the text in walk 0, which is here.
    #[inline]
    fn open_outside(&mut self, call: &Call) -> Option<Shortcut> {
        let flags = if call.number == nr::open { call.args[1] } else { call.args[2] };
        if flags as u32 & O_ACCMODE != 0 && self.services.outside_is_sealed() {
            return None;
        }
        if let Some(fd) = self.lend_outside(flags as u32) {
            return Some(Shortcut::Lent(fd));
        }
        if self.has_spares() && self.is_near_spares() {
            self.give_back_spares();
        }
        self.has_number().then_some(Shortcut::Opens)
    }

    /// What is here of the text in walk 0, which is.
    pub(crate) fn lately_of(&self) -> Option<&Lately> {
        let walk = &self.buffers.walks[0];
        let tail = walk.word(walk.length.checked_sub(WORD)?);
        Some(&self.buffers.lately[place_of(tail)])
    }

    /// Whether a number is free, as far as one can say without the host.
    #[inline(always)]
    pub(crate) fn has_number(&mut self) -> bool {
        let (files, limit) = (self.services.files(), self.numbers.known_limit());
        let free = self.services.lowest_free(files, 0, limit);
        free.is_ok_and(|free| !self.is_kept(free))
    }

    /// The host has opened `fd` for such a call: the number it has from now on, or an error.
    #[inline(always)]
    pub fn note_opened_outside(&mut self, fd: u32, close_on_exec: bool) -> i64 {
        let noted = self.note_opened(fd, close_on_exec, Shown::Nothing);
        if let Ok(fd) = u32::try_from(noted) {
            self.services.pass_host(fd);
        }
        self.tell();
        noted
    }

    /// Before the host closes `fd`: whether that is all there is to it.
    #[inline(always)]
    pub fn closes_host(&mut self, fd: u32) -> bool {
        let done = self.try_host_closed(fd);
        self.tell();
        done
    }

    #[inline(always)]
    pub(crate) fn try_host_closed(&mut self, fd: u32) -> bool {
        !self.is_kept(fd) && self.services.try_host_closed(fd)
    }

    /// The absolute text in walk `w`, which is as the application gave it, turned out to be the
    /// host's: remembers it, if that is so for everybody and until something changes.
    #[inline(never)]
    pub(crate) fn note_lately(&mut self, w: usize, aim: Aim) {
        let walk = &self.buffers.walks[w];
        let text = walk.whole();
        if !has_room(walk.length, aim) || text.starts_with(b"/proc/") || text.starts_with(b"/dev/")
        {
            return;
        }
        // The age first: what is known later may be of a younger one, and is forgotten then.
        let age = self.services.outside_age();
        if !self.services.known_outside(text) {
            return;
        }
        let tail = walk.word(walk.length - WORD);
        let lately = &mut self.buffers.lately[place_of(tail)];
        lately.length = 0;
        compiler_fence(Ordering::SeqCst);
        (lately.age, lately.tail) = (age, tail);
        for (n, word) in lately.text.iter_mut().enumerate().take(walk.length / WORD) {
            *word = walk.word(WORD * n);
        }
        // Who is killed before has left nothing: a child of vfork, whose parent goes on with it.
        compiler_fence(Ordering::SeqCst);
        lately.length = walk.length;
    }
}

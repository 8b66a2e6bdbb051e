//! Host paths that may lead into a Husk tree after all: through links, `..`, or a relative start.
//!
//! A text that does not begin with a mount can only get into one through a symbolic link of the
//! host (or of the host's working directory). That is checked once a path and remembered for the
//! whole image (`Image::known_outside`); afterwards such a path costs one hash lookup.
//!
//! Invariant: what a relative path leads to is asked from the directory itself. Its name, that the
//! text begins with then, may be old or none at all: removed, renamed meanwhile, of another root.
//!
//! Limit: a name that was seen to lead outside and later becomes a link into a tree is missed.

use crate::path::{Aim, Base, Start};
use crate::walk::{flatten, lies_below};
use crate::{Client, Host, Memory};
use husk_abi::sys::general::{AT_FDCWD, O_CLOEXEC, O_PATH};
use husk_abi::{PATH_MAX, nr};
use husk_proto::{Errno, Result, Services};

/// Ancestors tried for one path that does not exist.
const ANCESTORS_MAX: usize = 64;

impl<S: Services, H: Host, M: Memory> Client<S, H, M> {
    /// Puts the path of the host's working directory, or of descriptor `fd`, before the text.
    pub(crate) fn join_host_directory(&mut self, w: usize, fd: Option<i32>) -> Result<Start> {
        if self.services.mounts() == 0 {
            return Ok(Start::Outside);
        }
        let base = self.buffers.base.as_mut_ptr() as usize;
        let length = match fd {
            None => self.working_path(base),
            Some(fd) => self.descriptor_path(fd as u32, base),
        };
        let length = usize::try_from(length).unwrap_or(0).min(PATH_MAX);
        if length == 0 || self.buffers.base[0] != b'/' {
            return Ok(Start::Outside);
        }
        let walk = &mut self.buffers.walks[w];
        let relative = walk.length;
        walk.join(&self.buffers.base[..length])?;
        let joined = walk.length - relative;
        Ok(Start::Joined(Base { directory: fd.unwrap_or(AT_FDCWD), joined }))
    }

    /// The host's name of its working directory at `out` (`PATH_MAX` bytes), be it only what the
    /// directory was called before it was removed; its length or an error.
    fn working_path(&self, out: usize) -> i64 {
        match self.host.call(nr::getcwd, [out, PATH_MAX, 0, 0, 0, 0]) {
            length @ 1.. => length - 1,
            _ => self.link_text(b"/proc/thread-self/cwd\0", out),
        }
    }

    fn link_text(&self, name: &[u8], out: usize) -> i64 {
        let args = [AT_FDCWD as usize, name.as_ptr() as usize, out, PATH_MAX, 0, 0];
        self.host.call(nr::readlinkat, args)
    }

    /// The host's name of descriptor `fd` at `out` (`PATH_MAX` bytes); its length or an error.
    pub(crate) fn descriptor_path(&self, fd: u32, out: usize) -> i64 {
        self.link_text(&husk_abi::proc::descriptor(fd), out)
    }

    /// Decides whether an absolute host text leads into a mount; rewrites it if so. `ENOENT`: it
    /// leads nowhere, and the caller takes that for an answer (`Aim::absent`).
    pub(crate) fn leads_into_mount(&mut self, w: usize, aim: Aim, base: Base) -> Result<Start> {
        let walk = &self.buffers.walks[w];
        let follow = aim.follow && !aim.parent;
        let end = if follow { walk.length } else { walk.directory_length() };
        if self.services.mounts() == 0 || self.services.known_outside(&walk.text[..end]) {
            return Ok(Start::Outside);
        }
        if walk.is_odd() && self.flattens_into_mount(w)? {
            return Ok(Start::Absolute);
        }
        // That a name of the directory is missing says nothing.
        let absent = aim.absent && end > base.joined;
        if absent && !self.buffers.walks[w].whole().starts_with(b"/proc/") {
            let directory = self.buffers.walks[w].directory_length();
            let between = base.joined < directory && directory < end;
            let text = &self.buffers.walks[w].text[..directory];
            if between && !self.services.known_outside(text) {
                // A directory that is missing says all there is to say, at half the price.
                match self.trace(w, directory, base)? {
                    (Start::Outside, true) => return Err(Errno::ENOENT),
                    (Start::Outside, false) => {}
                    (start, _) => return Ok(start),
                }
            }
        }
        match self.trace(w, end, base)? {
            (Start::Outside, true) if absent => Err(Errno::ENOENT),
            (start, _) => Ok(start),
        }
    }

    /// Where `text[..end]`, or the nearest ancestor that is there, leads; whether it is missing.
    fn trace(&mut self, w: usize, mut end: usize, base: Base) -> Result<(Start, bool)> {
        let mut missing = None;
        for _ in 0..ANCESTORS_MAX {
            match self.real_path(w, end, base) {
                Ok(length) => return Ok((self.judge(w, end, length)?, missing == Some(true))),
                Err(errno) => missing = missing.or(Some(errno == Errno::ENOENT)),
            }
            let walk = &mut self.buffers.walks[w];
            let whole = core::mem::replace(&mut walk.length, end);
            let shorter = walk.directory_length();
            walk.length = whole;
            if shorter >= end || self.services.known_outside(&walk.text[..shorter]) {
                break;
            }
            end = shorter;
        }
        Ok((Start::Outside, missing == Some(true)))
    }

    /// The real path of `text[..end]` in `base`; its length.
    fn real_path(&mut self, w: usize, end: usize, base: Base) -> Result<usize> {
        let inner = end > base.joined;
        let (directory, at) = if inner { (base.directory, base.joined) } else { (AT_FDCWD, 0) };
        let text = &mut self.buffers.walks[w].text;
        let kept = core::mem::replace(&mut text[end], 0);
        let flags = (O_PATH | O_CLOEXEC) as usize;
        let args = [directory as usize, text[at..].as_ptr() as usize, flags, 0, 0, 0];
        let fd = self.host.call(nr::openat, args);
        self.buffers.walks[w].text[end] = kept;
        let fd = Errno::check(fd)? as usize;
        let base = self.buffers.base.as_mut_ptr() as usize;
        let length = self.descriptor_path(fd as u32, base);
        self.host.call(nr::close, [fd, 0, 0, 0, 0, 0]);
        usize::try_from(length).map(|l| l.min(PATH_MAX)).map_err(|_| Errno::EIO)
    }

    /// `base[..length]` is where `text[..end]` really is: into a mount, or to be remembered.
    fn judge(&mut self, w: usize, end: usize, length: usize) -> Result<Start> {
        let real = &self.buffers.base[..length];
        let inside = (0..self.services.mounts())
            .any(|index| lies_below(real, self.services.mount(index).path));
        if inside {
            self.buffers.walks[w].replace_front(end, real)?;
            return Ok(Start::Absolute);
        }
        let text = &self.buffers.walks[w].text[..end];
        if !is_fleeting(text) {
            self.services.note_outside(text);
        }
        Ok(Start::Outside)
    }

    /// Whether the text without its `.` and `..` lies in a mount; if so it becomes that text.
    fn flattens_into_mount(&mut self, w: usize) -> Result<bool> {
        let walk = &mut self.buffers.walks[w];
        let length = flatten(walk.whole(), &mut self.buffers.base[..PATH_MAX]);
        let flat = &self.buffers.base[..length];
        let inside = (0..self.services.mounts())
            .any(|index| lies_below(flat, self.services.mount(index).path));
        if !inside {
            return Ok(false);
        }
        let slash = walk.whole().ends_with(b"/");
        walk.replace_front(walk.length, flat)?;
        if slash && walk.length < PATH_MAX {
            walk.text[walk.length] = b'/';
            walk.length += 1;
        }
        Ok(true)
    }

    /// Refuses a Husk object for a call that does not serve it, counted.
    #[cold]
    pub(crate) fn refuse<T>(&mut self, number: usize, errno: Errno) -> Result<T> {
        self.services.count_unsupported(number);
        Err(errno)
    }
}

/// Whether a name leads to whatever a process has there at the moment.
fn is_fleeting(text: &[u8]) -> bool {
    const LINKS: [&[u8]; 5] = [b"fd", b"cwd", b"root", b"exe", b"map_files"];
    let link = |name: &[u8]| LINKS.contains(&name) || name.starts_with(b"std");
    (text.starts_with(b"/proc/") || text.starts_with(b"/dev/"))
        && text.split(|&byte| byte == b'/').any(link)
}

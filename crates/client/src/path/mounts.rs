//! The mount table: which mount a path is below, and mounts inside other mounts.
//!
//! Mounts are fixed before the first program starts, so each client looks at them once. An
//! absolute path is then compared with the first eight bytes of each mount's path before anything
//! else is: most paths are done with a mount after one comparison.

use crate::buffers::Walk;
use crate::layout::{STATX_BYTES, STATX_MOUNT_AT, get32, get64};
use crate::path::text::lies_below;
use crate::{Client, Host, Memory};
use husk_abi::capability::{DAC_OVERRIDE, DAC_READ_SEARCH};
use husk_abi::nr;
use husk_abi::sys::general::{AT_EACCESS, AT_FDCWD, X_OK};
use husk_proto::fs::{Kind, Step};
use husk_proto::image::MOUNTS_MAX;
use husk_proto::{Errno, Inode, Result, Services, Shortcuts};

/// The mounts have not been looked at.
const PREFIXES_UNKNOWN: usize = usize::MAX;

/// How the path of a mount begins: its first bytes, at most eight, and which they are.
#[derive(Clone, Copy)]
struct Prefix {
    head: u64,
    mask: u64,
}

impl Prefix {
    /// Of the empty path.
    const EMPTY: Prefix = Prefix { head: 0, mask: 0 };

    /// Of this path.
    fn of(path: &[u8]) -> Prefix {
        let (mut head, mut mask) = ([0; 8], [0; 8]);
        for (n, &byte) in path.iter().take(8).enumerate() {
            (head[n], mask[n]) = (byte, u8::MAX);
        }
        Prefix { head: u64::from_le_bytes(head), mask: u64::from_le_bytes(mask) }
    }

    /// Whether a text with these first bytes may begin with the path.
    #[inline]
    fn may_match(self, head: u64) -> bool {
        (self.head ^ head) & self.mask == 0
    }
}

/// What a thread knows of the mounts.
pub(crate) struct Mounts {
    /// Nested mounts have been looked for.
    are_known: bool,
    /// A bit for each number, modulo 64, of a directory that another mount covers.
    covered: u64,
    /// A bit for each mount in no other one that cannot be reached by name: a directory above it is
    /// closed.
    barred: u64,
    /// How the mounts' paths begin, `count` of them.
    prefixes: [Prefix; MOUNTS_MAX],
    count: usize,
}

impl Default for Mounts {
    fn default() -> Mounts {
        let prefixes = [Prefix::EMPTY; MOUNTS_MAX];
        Mounts { are_known: false, covered: 0, barred: 0, prefixes, count: PREFIXES_UNKNOWN }
    }
}

impl Mounts {
    /// Whether nested mounts have been looked for.
    #[inline(always)]
    pub fn are_known(&self) -> bool {
        self.are_known
    }

    /// Whether a mount may cover a directory with this number.
    #[inline(always)]
    fn may_cover(&self, number: u32) -> bool {
        self.covered >> (number % 64) & 1 == 1
    }

    /// Whether some mount cannot be reached by name.
    #[inline(always)]
    pub fn bars_some(&self) -> bool {
        self.barred != 0
    }

    /// Learns how the mounts' paths begin.
    #[cold]
    fn learn_prefixes(&mut self, services: &impl Shortcuts) {
        self.count = services.mounts().min(MOUNTS_MAX);
        for index in 0..self.count {
            self.prefixes[index] = Prefix::of(services.mount(index).path);
        }
    }

    /// The mount with the longest path that the text of `walk` lies below: that length, and its
    /// root.
    #[inline(always)]
    fn find(&mut self, services: &impl Shortcuts, walk: &Walk) -> Option<(usize, Inode)> {
        if self.count == PREFIXES_UNKNOWN {
            self.learn_prefixes(services);
        }
        let head = walk.word(0);
        let mut best = None;
        for index in 0..self.count.min(MOUNTS_MAX) {
            if self.prefixes[index].may_match(head) {
                best = longer(services, walk, index, best);
            }
        }
        best
    }
}

/// Mount `index` if the text lies below it and its path is longer than the best one's.
fn longer(
    services: &impl Shortcuts,
    walk: &Walk,
    index: usize,
    best: Option<(usize, Inode)>,
) -> Option<(usize, Inode)> {
    let mount = services.mount(index);
    let longer = best.is_none_or(|(length, _)| mount.path.len() > length);
    let inside = longer && lies_below(walk.whole(), mount.path);
    if inside { Some((mount.path.len(), mount.root)) } else { best }
}

/// Whether mount `index` lies in no other one.
fn is_outermost(services: &impl Shortcuts, index: usize) -> bool {
    let path = services.mount(index).path;
    let all = (0..services.mounts()).map(|index| services.mount(index).path);
    all.filter(|other| lies_below(path, other)).count() == 1
}

impl<S: Services, H: Host, M: Memory> Client<S, H, M> {
    /// Finds out which mounts the host lets nobody of this identity reach by name: a path into a
    /// tree begins at its root, and the directories above are the host's to judge, but for those in
    /// another tree.
    #[cold]
    pub(crate) fn learn_bars(&mut self) {
        self.paths.mounts.barred = 0;
        let everywhere = 1 << DAC_OVERRIDE | 1 << DAC_READ_SEARCH;
        if !self.identity.foreign && self.identity.capabilities & everywhere != 0 {
            return;
        }
        for index in 0..self.services.mounts().min(MOUNTS_MAX) {
            let path = self.services.mount(index).path;
            let parent = path.iter().rposition(|&byte| byte == b'/').unwrap_or(0);
            let Some(place) = self.buffers.base.get_mut(..parent) else { continue };
            if parent == 0 || !is_outermost(&self.services, index) {
                continue;
            }
            place.copy_from_slice(&path[..parent]);
            self.buffers.base[parent] = 0;
            let (here, path) = (AT_FDCWD as usize, self.buffers.base.as_ptr() as usize);
            let args = [here, path, X_OK as usize, AT_EACCESS as usize, 0, 0];
            let mut answer = Errno::check(self.host.call(nr::faccessat2, args));
            if answer == Err(Errno::ENOSYS) {
                answer = Errno::check(self.host.call(nr::faccessat, args));
            }
            if answer == Err(Errno::EACCES) {
                self.paths.mounts.barred |= 1 << index;
            }
        }
    }

    /// `EACCES` if the mount that the text of walk `w` leads to cannot be reached by name. The host
    /// is asked once more before that: a directory may have been opened to us meanwhile.
    #[cold]
    pub(crate) fn pass_parents(&mut self, w: usize) -> Result<()> {
        if self.is_barred(w) {
            self.learn_bars();
        }
        if self.is_barred(w) { Err(Errno::EACCES) } else { Ok(()) }
    }

    fn is_barred(&self, w: usize) -> bool {
        let text = self.buffers.walks[w].whole();
        let mut mounts = 0..self.services.mounts().min(MOUNTS_MAX);
        mounts.any(|index| {
            let barred = self.paths.mounts.barred >> index & 1 == 1;
            barred && lies_below(text, self.services.mount(index).path)
        })
    }

    /// If the text lies below a mount: that mount's root, the text left to walk from there.
    #[inline]
    pub(crate) fn enter_mount(&mut self, w: usize) -> Option<Inode> {
        let (length, root) = self.paths.mounts.find(&self.services, &self.buffers.walks[w])?;
        self.buffers.walks[w].at = length;
        Some(root)
    }

    /// The root of the mount that covers a directory, if one does.
    #[inline]
    pub(crate) fn covering_root(&self, directory: Inode) -> Option<Inode> {
        if !self.paths.mounts.may_cover(directory.number) {
            return None;
        }
        self.buffers.nested_root(directory)
    }

    /// The mount of the host that the directory of an object's tree is in, as `statx` tells it:
    /// which id was asked for (`STATX_MNT_ID` or `STATX_MNT_ID_UNIQUE`), and the id.
    #[cold]
    pub(crate) fn mount_id(&mut self, inode: Inode, wanted: u32) -> Option<(u32, u64)> {
        // What has no name any more counts to the first tree.
        let length = self.path_of(inode).unwrap_or(0);
        let (mut best, mut root) = (None, 0);
        for index in 0..self.services.mounts() {
            let mount = self.services.mount(index);
            let inside = lies_below(&self.buffers.link[..length], mount.path);
            if best.is_none() || inside && mount.path.len() >= root {
                (best, root) = (Some(index), if inside { mount.path.len() } else { 0 });
            }
        }
        let path = self.services.mount(best?).path;
        self.buffers.base.get_mut(..path.len())?.copy_from_slice(path);
        self.buffers.base[path.len()] = 0;
        if path.is_empty() {
            self.buffers.base[..2].copy_from_slice(b"/\0");
        }
        let mut out = [0u8; STATX_BYTES];
        let (here, path) = (AT_FDCWD as usize, self.buffers.base.as_ptr() as usize);
        let args = [here, path, 0, wanted as usize, out.as_mut_ptr() as usize, 0];
        Errno::check(self.host.call(nr::statx, args)).ok()?;
        let out = core::hint::black_box(out);
        Some((get32(&out, 0) & wanted, get64(&out, STATX_MOUNT_AT)))
    }

    /// Finds out which directories of Husk trees are covered by other mounts.
    #[cold]
    pub(crate) fn learn_mounts(&mut self) {
        self.paths.mounts.are_known = true;
        self.buffers.nested_count = 0;
        let count = self.services.mounts();
        for index in 0..if count > 1 { count } else { 0 } {
            if let Some((covered, root)) = self.covered_directory(index) {
                let place = self.buffers.nested_count;
                self.buffers.nested[place] =
                    [covered.number, covered.generation, root.number, root.generation];
                self.buffers.nested_count += 1;
                self.paths.mounts.covered |= 1 << (covered.number % 64);
            }
        }
    }

    /// The directory of another tree under mount `index`, if it lies in one.
    fn covered_directory(&mut self, index: usize) -> Option<(Inode, Inode)> {
        let mount = self.services.mount(index);
        let (root, mut length, mut below) = (mount.root, 0, None);
        let path = self.buffers.base.get_mut(..mount.path.len())?;
        path.copy_from_slice(mount.path);
        for other in (0..self.services.mounts()).filter(|&o| o != index) {
            let other = self.services.mount(other);
            let inside = lies_below(path, other.path);
            if inside && other.path.len() > length {
                (length, below) = (other.path.len(), Some(other.root));
            }
        }
        let end = path.len();
        let covered = self.directory_below(below?, length, end).ok()?;
        Some((covered.inode, root))
    }

    /// What the names in `base[at..end]`, each behind a slash, lead to from a directory: the first
    /// portal, if there is one on the way.
    pub(crate) fn directory_below(&mut self, from: Inode, at: usize, end: usize) -> Result<Step> {
        let (mut step, mut at) = (self.services.step(from)?, at);
        while at < end && step.kind != Kind::Portal {
            let start = at + 1;
            let rest = &self.buffers.base[start..end];
            at = start + rest.iter().position(|&b| b == b'/').unwrap_or(rest.len());
            if step.unlisted {
                self.import(step.inode)?;
            }
            step = self.services.lookup(step.inode, &self.buffers.base[start..at])?;
        }
        Ok(step)
    }
}

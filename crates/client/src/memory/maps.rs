//! `/proc/self/maps` and `smaps`: the rows name the files that a program has mapped. And `fdinfo`
//! of descriptors of the image.
//!
//! ```text
//!   host's row                                   shown
//!   /memfd:husk-region, a file of the image  ─►  its path, offset, device and inode number
//!   a rewritten copy of a host file          ─►  the host file, whose inode its name has
//!   the memory of Husk itself                ─►  nothing
//!   anything else                            ─►  as it is
//! ```
//!
//! Debuggers, profilers and crash handlers find symbols by these names, Rust's standard library its
//! own file. What is opened is a file of the moment, as the host's is for each read.
//!
//! Not here: the maps of other processes, which are the host's.

use crate::buffers::BOUNCE_BYTES;
use crate::fd::table::shown_flags;
use crate::file::attributes::STATX_MNT_ID;
use crate::layout::{STAT_INODE_AT, get64, major, minor};
use crate::path::magic_links::Proc;
use crate::{Answer, Client, Host, Memory, Verdict};
use core::ops::Range;
use husk_abi::nr;
use husk_abi::sys::general::{AT_FDCWD, MFD_CLOEXEC, O_ACCMODE, O_CLOEXEC, O_DIRECTORY, O_PATH};
use husk_proto::descriptor::Shown;
use husk_proto::watch::Instance;
use husk_proto::{Errno, Result, Services};

/// Where the host's rows have their path.
const PATH_COLUMN: usize = 73;
/// What the memory of the image is called there.
const REGION: &[u8] = b"/memfd:husk-region";
/// The directory of rewritten copies, and how the names in it begin.
const COPIES: &[u8] = b"/copies/v1-";
/// Interpreters that a copy may stand for whose own file no row names.
const INTERPRETERS: [&[u8]; 2] = [b"/lib64/ld-linux-x86-64.so.2\0", b"/lib/ld-musl-x86_64.so.1\0"];
/// How `fdinfo` of an instance of inotify begins a row about a watch.
const WATCH: &[u8] = b"inotify wd:";
const IN_ALL_EVENTS: u32 = 0xfff;
/// Most rows, a bound: Linux has at most 65,530 mappings.
const LINES_MAX: usize = 4 << 20;

/// A row: `start-end rights offset major:minor inode   path`.
struct Row<'a> {
    start: usize,
    /// All up to the rights.
    head: &'a [u8],
    offset: u64,
    inode: u64,
    path: &'a [u8],
}

/// What stands in the place of a row's file.
struct Named {
    offset: u64,
    device: u64,
    inode: u64,
    /// Bytes of the path in `link`.
    length: usize,
}

impl<S: Services, H: Host, M: Memory> Client<S, H, M> {
    /// Which such file of this process the text of walk 0 is, opened to be read.
    pub(crate) fn reads_shown(&mut self, flags: u32) -> Option<Proc> {
        if flags & (O_ACCMODE | O_PATH | O_DIRECTORY) != 0 {
            return None;
        }
        let (what, end) = self.magic_name(0)?;
        let shown = end == self.buffers.walks[0].length
            && match what {
                Proc::Maps => true,
                Proc::FdInfo(fd) => {
                    self.described(fd as usize).is_ok_and(|found| found.is_some())
                        || self.marked(fd).is_some()
                }
                _ => false,
            };
        shown.then_some(what)
    }

    /// Opens the maps.
    #[cold]
    pub(crate) fn open_maps(&mut self, flags: u32) -> Answer {
        self.open_shown(flags, |client, into| {
            let path = client.buffers.walks[0].for_host();
            let from = client.host_open(path, O_CLOEXEC)?;
            let copied = client.copy_maps(from, into);
            client.host_close(from as u32);
            copied
        })
    }

    /// Opens what is to be known of a descriptor of the image.
    #[cold]
    pub(crate) fn open_fd_info(&mut self, fd: u32, flags: u32) -> Answer {
        if let Some(instance) = self.marked(fd) {
            return self.open_shown(flags, |client, into| client.tell_watches(fd, instance, into));
        }
        let description = self.described(fd as usize)?.ok_or(Errno::ENOENT)?;
        let open = self.services.description(description)?;
        let offset = self.services.offset(description).unwrap_or(0);
        let files = self.services.files();
        let closes = self.services.close_on_exec(files, fd)?;
        let shown = shown_flags(open.flags) | if closes { O_CLOEXEC } else { 0 };
        let number = self.services.attributes(open.inode)?.shown_number;
        let mount = self.mount_id(open.inode, STATX_MNT_ID).map_or(0, |(_, id)| id);
        self.open_shown(flags, |client, into| {
            let (mut position, mut mode, mut inode) = ([0; 20], [0; 22], [0; 20]);
            let mut id = [0; 20];
            let parts: [&[u8]; 8] = [
                b"pos:\t",
                decimal(offset, &mut position),
                b"\nflags:\t0",
                digits(shown.into(), 3, 1, &mut mode),
                b"\nmnt_id:\t",
                decimal(mount, &mut id),
                b"\nino:\t",
                decimal(number, &mut inode),
            ];
            for part in parts.into_iter().chain([&b"\n"[..]]) {
                client.write_all(
                    into,
                    core::hint::black_box(part).as_ptr() as usize,
                    part.len(),
                )?;
            }
            Ok(())
        })
    }

    /// The instance of inotify that `fd` is, if the image can have watches in it.
    fn marked(&mut self, fd: u32) -> Option<Instance> {
        let instance = self.watcher(fd as usize)?;
        (self.services.watch_marker(instance) != 0).then_some(instance)
    }

    /// The host's rows of an instance by the program's descriptors, then those of the image.
    fn tell_watches(&mut self, fd: u32, instance: Instance, into: usize) -> Result<()> {
        let path = husk_abi::proc::descriptor_facts(fd);
        let from = self.host_open(core::hint::black_box(&path).as_ptr() as usize, O_CLOEXEC)?;
        let (mut start, mut end) = (0, 0);
        let mut result = Ok(());
        while result.is_ok() {
            let rest = &self.buffers.bounce[start..end];
            let Some(length) = rest.iter().position(|&byte| byte == b'\n').map(|at| at + 1) else {
                self.buffers.bounce.copy_within(start..end, 0);
                (start, end) = (0, end - start);
                match self.read_rows(from, end) {
                    Ok(0) => break,
                    Ok(more) => end += more,
                    Err(errno) => result = Err(errno),
                }
                continue;
            };
            result = self.tell_host_watch(start..start + length, instance, into);
            start += length;
        }
        self.host_close(from as u32);
        result?;
        self.tell_image_watches(instance, into)
    }

    /// A row about a watch begins with the descriptor that the host has given it; that of the
    /// marker is not shown.
    fn tell_host_watch(
        &mut self,
        place: Range<usize>,
        instance: Instance,
        into: usize,
    ) -> Result<()> {
        let row = &self.buffers.bounce[place.clone()];
        let Some(rest) = row.strip_prefix(WATCH) else { return self.write_bounce(place, into) };
        let digits_end = rest.iter().position(|&byte| byte == b' ').unwrap_or(0);
        let Some(host) = number(&rest[..digits_end], 16) else { return Ok(()) };
        let Some(wd) = self.services.watch_of_host(instance, host as u32, false) else {
            return Ok(());
        };
        let mut room = [0; 22];
        for part in [WATCH, digits(wd.into(), 4, 1, &mut room)] {
            self.write_all(into, core::hint::black_box(part).as_ptr() as usize, part.len())?;
        }
        self.write_bounce(place.start + WATCH.len() + digits_end..place.end, into)
    }

    fn tell_image_watches(&mut self, instance: Instance, into: usize) -> Result<()> {
        let mut from = 0;
        while let Some((wd, inode, mask)) = self.services.watch_next(instance, from) {
            from = wd + 1;
            let Ok(facts) = self.services.attributes(inode) else { continue };
            // As the host's kernel numbers devices inside.
            let device = major(facts.shown_device) << 20 | minor(facts.shown_device);
            let mut rooms = [[0; 22]; 4];
            let [number, node, on, of] = &mut rooms;
            let parts: [&[u8]; 9] = [
                WATCH,
                digits(wd.into(), 4, 1, number),
                b" ino:",
                digits(facts.shown_number, 4, 1, node),
                b" sdev:",
                digits(device, 4, 1, on),
                b" mask:",
                digits(u64::from(mask & IN_ALL_EVENTS), 4, 1, of),
                b" ignored_mask:0 \n",
            ];
            for part in parts {
                self.write_all(into, core::hint::black_box(part).as_ptr() as usize, part.len())?;
            }
        }
        Ok(())
    }

    /// Opens a file of the moment, which `write` fills.
    fn open_shown(
        &mut self,
        flags: u32,
        write: impl FnOnce(&mut Self, usize) -> Result<()>,
    ) -> Answer {
        self.need_numbers(1)?;
        let on_exec = flags & O_CLOEXEC != 0;
        let closes = if on_exec { MFD_CLOEXEC as usize } else { 0 };
        let name = c"proc".as_ptr() as usize;
        let into = self.host.call(nr::memfd_create, [name, closes, 0, 0, 0, 0]);
        let into = Errno::check(into)? as usize;
        if let Err(errno) = write(self, into) {
            self.host_close(into as u32);
            return Err(errno);
        }
        self.host.call(nr::lseek, [into, 0, 0, 0, 0, 0]);
        Ok(Verdict::Return(self.note_opened(into as u32, on_exec, Shown::Nothing)))
    }

    fn copy_maps(&mut self, from: usize, into: usize) -> Result<()> {
        // What has been read and not copied is `bounce[start..end]`.
        let (mut start, mut end, mut known, mut hidden) = (0, 0, 0, false);
        for _ in 0..LINES_MAX {
            let rest = &self.buffers.bounce[start..end];
            let length = match rest.iter().position(|&byte| byte == b'\n') {
                Some(at) => at + 1,
                None => {
                    self.buffers.bounce.copy_within(start..end, 0);
                    (start, end) = (0, end - start);
                    match self.read_rows(from, end)? {
                        0 if end == 0 => return Ok(()),
                        0 => end,
                        more => {
                            end += more;
                            continue;
                        }
                    }
                }
            };
            if let Some(address) = start_of(&self.buffers.bounce[start..start + length]) {
                hidden = self.host.keeps(address);
            }
            if !hidden {
                self.copy_line(start..start + length, into, &mut known)?;
            }
            start += length;
        }
        Err(Errno::EIO)
    }

    /// Reads on behind `length` bytes; how many came.
    fn read_rows(&mut self, from: usize, length: usize) -> Result<usize> {
        let room = self.buffers.bounce.as_mut_ptr() as usize + length;
        let left = BOUNCE_BYTES - length;
        if left == 0 {
            // No line of the host is as long.
            return Err(Errno::EIO);
        }
        Ok(Errno::check(self.host.call(nr::read, [from, room, left, 0, 0, 0]))? as usize)
    }

    /// Writes the line in `bounce[place]` as it is shown. `known` is the inode number of the file
    /// whose path stands in `value`: the last that a row has named.
    fn copy_line(&mut self, place: Range<usize>, into: usize, known: &mut u64) -> Result<()> {
        let mut line = [0u8; 512];
        let Some(line) = line.get_mut(..place.len()) else {
            return self.write_bounce(place, into);
        };
        line.copy_from_slice(&self.buffers.bounce[place.clone()]);
        let Some(row) = Row::of(line) else { return self.write_bounce(place, into) };
        let named = if row.path.starts_with(REGION) {
            self.named_of_image(&row)
        } else if let Some((device, inode)) = copied_from(row.path) {
            self.named_of_copy(&row, device, inode, *known)
        } else {
            if row.path.starts_with(b"/") && row.path.len() < self.buffers.value.len() {
                self.buffers.value[..row.path.len()].copy_from_slice(row.path);
                self.buffers.value[row.path.len()] = 0;
                *known = row.inode;
            }
            None
        };
        match named {
            Some(named) => self.write_row(&row, &named, into),
            None => self.write_bounce(place, into),
        }
    }

    fn named_of_image(&mut self, row: &Row<'_>) -> Option<Named> {
        let (inode, offset) = self.host.mapped(row.start)?;
        let length = match self.path_of(inode) {
            Err(Errno::ENOENT) => self.path_of_nameless(inode),
            other => other.ok()?,
        };
        let facts = self.services.attributes(inode).ok()?;
        let (device, inode) = (facts.shown_device, facts.shown_number);
        Some(Named { offset, device, inode, length })
    }

    /// The file that a copy stands for: the last that was named, the program, its interpreter.
    fn named_of_copy(
        &mut self,
        row: &Row<'_>,
        device: u64,
        inode: u64,
        known: u64,
    ) -> Option<Named> {
        let named = |length| Some(Named { offset: row.offset, device, inode, length });
        if known == inode {
            let length = self.buffers.value.iter().position(|&byte| byte == 0)?;
            let link = self.buffers.link.get_mut(..length)?;
            link.copy_from_slice(&self.buffers.value[..length]);
            return named(length);
        }
        let room = self.buffers.link.len() - 1;
        let length = self.host.program_path(&mut self.buffers.link[..room]);
        self.buffers.link[length.min(room)] = 0;
        if length > 0 && self.real_path_of_link(inode).is_some() {
            return named(length);
        }
        for path in INTERPRETERS {
            self.buffers.link[..path.len()].copy_from_slice(path);
            if let Some(length) = self.real_path_of_link(inode) {
                self.buffers.link[..length].copy_from_slice(&self.buffers.base[..length]);
                return named(length);
            }
        }
        None
    }

    /// Where the path in `link` leads without links, into `base`, if that is the host's file with
    /// this number; its length.
    fn real_path_of_link(&mut self, inode: u64) -> Option<usize> {
        let path = self.buffers.link.as_ptr() as usize;
        let fd = self.open_place(AT_FDCWD as usize, path, 0, 0).ok()?;
        let same = self.host_stat(fd).is_ok_and(|stat| get64(&stat, STAT_INODE_AT) == inode);
        let base = self.buffers.base.as_mut_ptr() as usize;
        let length = self.descriptor_path(fd as u32, base);
        self.host_close(fd as u32);
        Errno::check(length).ok().filter(|_| same).map(|length| length as usize)
    }

    fn write_bounce(&mut self, place: Range<usize>, into: usize) -> Result<()> {
        let from = self.buffers.bounce[place.start..].as_ptr() as usize;
        self.write_all(into, from, place.len())
    }

    fn write_row(&mut self, row: &Row<'_>, named: &Named, into: usize) -> Result<()> {
        let mut line = [b' '; 160];
        let mut at = row.head.len();
        line[..at].copy_from_slice(row.head);
        let mut put = |text: &[u8]| {
            line[at..at + text.len()].copy_from_slice(text);
            at += text.len();
        };
        put(digits(named.offset, 4, 8, &mut [0; 22]));
        put(b" ");
        put(digits(major(named.device), 4, 2, &mut [0; 22]));
        put(b":");
        put(digits(minor(named.device), 4, 2, &mut [0; 22]));
        put(b" ");
        put(decimal(named.inode, &mut [0; 20]));
        put(b" ");
        let at = at.max(PATH_COLUMN);
        self.write_all(into, core::hint::black_box(&line).as_ptr() as usize, at)?;
        self.write_all(into, self.buffers.link.as_ptr() as usize, named.length)?;
        self.write_all(into, b"\n".as_ptr() as usize, 1)
    }

    fn write_all(&mut self, into: usize, from: usize, length: usize) -> Result<()> {
        let written = Errno::check(self.host.call(nr::write, [into, from, length, 0, 0, 0]))?;
        if written as usize == length { Ok(()) } else { Err(Errno::EIO) }
    }
}

impl<'a> Row<'a> {
    fn of(line: &'a [u8]) -> Option<Row<'a>> {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let start = start_of(line)?;
        // Rights, offset, device, inode, each behind one space.
        let mut ends = [0; 4];
        let mut spaces = line.iter().enumerate().filter(|(_, byte)| **byte == b' ');
        for end in &mut ends {
            *end = spaces.next()?.0;
        }
        let fifth = ends[3] + 1 + line[ends[3] + 1..].iter().position(|&byte| byte == b' ')?;
        let path = line[fifth..].iter().position(|&byte| byte != b' ').map(|n| fifth + n)?;
        Some(Row {
            start,
            head: &line[..=ends[1]],
            offset: number(&line[ends[1] + 1..ends[2]], 16)?,
            inode: number(&line[ends[3] + 1..fifth], 10)?,
            path: &line[path..],
        })
    }
}

/// Where the mapping begins whose row this is. `None`: a line of `smaps` about the row before.
fn start_of(line: &[u8]) -> Option<usize> {
    let dash = line.iter().position(|&byte| byte == b'-')?;
    number(&line[..dash], 16).map(|start| start as usize)
}

/// Device and inode of the file that the copy at `path` was made of: its name has them.
fn copied_from(path: &[u8]) -> Option<(u64, u64)> {
    let name = path.iter().rposition(|&byte| byte == b'/')? + 1;
    if !path.windows(COPIES.len()).any(|part| part == COPIES) {
        return None;
    }
    let mut parts = path[name..].split(|&byte| byte == b'-');
    Some((number(parts.next()?, 16)?, number(parts.next()?, 16)?))
}

fn number(digits: &[u8], base: u32) -> Option<u64> {
    if digits.is_empty() || digits.len() > 20 {
        return None;
    }
    digits.iter().try_fold(0u64, |sum, &digit| {
        let digit = char::from(digit).to_digit(base)?;
        sum.checked_mul(u64::from(base))?.checked_add(u64::from(digit))
    })
}

/// `value` in digits of so many bits (3: octal, 4: hexadecimal), `least` digits at least.
fn digits(value: u64, bits: usize, least: usize, out: &mut [u8; 22]) -> &[u8] {
    for (n, place) in out.iter_mut().rev().enumerate() {
        let digit = value.checked_shr((bits * n) as u32).unwrap_or(0) & ((1 << bits) - 1);
        *place = b"0123456789abcdef"[digit as usize];
    }
    let count = (64 - value.leading_zeros() as usize).div_ceil(bits).max(least);
    &out[22 - count..]
}

fn decimal(value: u64, out: &mut [u8; 20]) -> &[u8] {
    let (mut rest, mut at) = (value, out.len());
    loop {
        at -= 1;
        out[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            return &out[at..];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_its_parts() {
        let line =
            b"7fe85aff6000-7fe85affb000 r-xp 9c602000 00:01 1273      /memfd:husk-region (d)\n";
        let row = Row::of(line).expect("a row");
        assert_eq!((row.start, row.offset, row.inode), (0x7fe8_5aff_6000, 0x9c60_2000, 1273));
        assert_eq!((row.head, row.path), (&line[..31], &b"/memfd:husk-region (d)"[..]));
        for other in [&b"Size:      4 kB\n"[..], b"VmFlags: rd mr mw me ac\n", b"\n", b"7f00-"] {
            assert!(Row::of(other).is_none());
        }
        assert_eq!(
            start_of(b"54400a539000-54400a55a000 rw-p 00000000 00:00 0 \n"),
            Some(0x5440_0a53_9000)
        );
        for attribute in [&b"VmFlags: rd mr mw me ac\n"[..], b"Anonymous:      4 kB\n"] {
            assert_eq!(start_of(attribute), None);
        }
    }

    #[test]
    fn a_copy_is_known_by_its_name() {
        let name = b"/c/husk/copies/v1-a98-2d8/fe00-4fa7d-18aa4fead70d5a";
        assert_eq!(copied_from(name), Some((0xfe00, 0x4_fa7d)));
        assert_eq!(copied_from(b"/usr/lib/fe00-4fa7d-18"), None);
        assert_eq!(digits(0, 4, 8, &mut [0; 22]), b"00000000");
        assert_eq!(digits(0x1_2345_6789, 4, 8, &mut [0; 22]), b"123456789");
        assert_eq!(decimal(1273, &mut [0; 20]), b"1273");
        assert_eq!(digits(0o2100002, 3, 1, &mut [0; 22]), b"2100002");
        assert_eq!(digits(u32::MAX.into(), 3, 1, &mut [0; 22]), b"37777777777");
        assert_eq!(digits(u64::MAX, 3, 1, &mut [0; 22]), b"1777777777777777777777");
    }
}

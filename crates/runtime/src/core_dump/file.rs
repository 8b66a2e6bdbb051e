//! What a core file consists of, as bytes: its name, which memory is in it, its head and its notes.
//!
//! ```text
//!   ELF header │ program headers: notes, one for each mapping │ notes │ memory, page by page
//!   notes: PRSTATUS of the thread that ends, PRPSINFO, SIGINFO, AUXV, FILE, FPREGSET,
//!          then PRSTATUS and FPREGSET of each other thread                (core(5), elf(5))
//! ```
//!
//! Invariant: what finds no room makes the head `None`, and nothing is written.

/// Bytes of an ELF header, and of a program header.
pub const HEADER_BYTES: usize = 64;
/// See there.
pub const PROGRAM_HEADER_BYTES: usize = 56;
/// Mappings more than these are left out.
pub const ROWS_MAX: usize = 4000;
/// Longest name of a core, with its NUL.
pub const NAME_BYTES_MAX: usize = 512;
/// General registers of a thread, in the order of `user_regs_struct`.
pub const REGISTERS: usize = 27;
/// Bytes of the state that FXSAVE writes.
pub const FLOATS_BYTES: usize = 512;
const PAGE: u64 = 4096;

/// A line of `/proc/self/maps`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row<'a> {
    /// Its first address.
    pub start: u64,
    /// The first address behind it.
    pub end: u64,
    /// Of `rwx`, as the bits of a program header (4, 2, 1).
    pub rights: u32,
    /// Whether stores are its own.
    pub private: bool,
    /// Whether the program has stored there, though it may not now (`OWN`).
    pub own: bool,
    /// Where in the file it begins.
    pub offset: u64,
    /// Whether a file is behind it.
    pub of_file: bool,
    /// The file's name, or in brackets what it is.
    pub name: &'a [u8],
}

/// What of a mapping is in the core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Nothing: the file has it, or nobody may read it.
    Nothing,
    /// The first page: it tells a debugger which build of a file that is.
    Head,
    /// What has been touched.
    Touched,
    /// All.
    All,
}

impl<'a> Row<'a> {
    /// Takes a line apart.
    pub fn parse(line: &'a [u8]) -> Option<Row<'a>> {
        let mut words = line.splitn(6, |byte| *byte == b' ');
        let mut range = words.next()?.split(|byte| *byte == b'-');
        let (start, end) = (hex(range.next()?)?, hex(range.next()?)?);
        let rights: &[u8; 4] = words.next()?.try_into().ok()?;
        let bit = |at: usize, letter: u8, bit: u32| if rights[at] == letter { bit } else { 0 };
        let offset = hex(words.next()?)?;
        words.next()?;
        let of_file = words.next()? != b"0";
        let name = words.next().unwrap_or(b"").trim_ascii_start();
        let (private, own) = (rights[3] != b's', rights[3] == OWN);
        let rights = bit(0, b'r', 4) | bit(1, b'w', 2) | bit(2, b'x', 1);
        Some(Row { start, end, rights, private, own, offset, of_file, name })
    }

    /// What of it is dumped, as with Linux's filter (`coredump_filter`, 0x33): what is private.
    pub fn part(&self) -> Part {
        let (readable, writable) = (self.rights & 4 != 0, self.rights & 2 != 0);
        let hosts_clock = self.name.starts_with(b"[vv") || self.name == b"[vsyscall]";
        match (self.private && readable && !hosts_clock, self.of_file, writable) {
            (false, ..) => Part::Nothing,
            // The host's code in every program: a debugger reads its tables.
            (true, false, _) if self.name == b"[vdso]" => Part::All,
            (true, false, _) => Part::Touched,
            (true, true, true) => Part::All,
            (true, true, false) if self.own => Part::All,
            (true, true, false) if self.offset == 0 => Part::Head,
            (true, true, false) => Part::Nothing,
        }
    }

    /// Bytes that the file has of it.
    pub fn bytes(&self) -> u64 {
        match self.part() {
            Part::Nothing => 0,
            Part::Head => PAGE.min(self.end - self.start),
            Part::Touched | Part::All => self.end - self.start,
        }
    }
}

/// Stands in a line in the place of `p`, where the program has stored: tables that the loader has
/// filled and then protected.
const OWN: u8 = b'o';

/// Asks `has_own` of each private mapping of a file that cannot be written to, and notes it in
/// `text`.
pub fn mark(text: &mut [u8], mut has_own: impl FnMut(&Row<'_>) -> bool) {
    for line in text.split_mut(|byte| *byte == b'\n') {
        let asked = Row::parse(line)
            .filter(|row| row.private && row.of_file && row.rights & 6 == 4)
            .is_some_and(|row| has_own(&row));
        let space = line.iter().position(|byte| *byte == b' ').filter(|_| asked);
        if let Some(letter) = space.and_then(|space| line.get_mut(space + 4)) {
            *letter = OWN;
        }
    }
}

fn hex(text: &[u8]) -> Option<u64> {
    u64::from_str_radix(core::str::from_utf8(text).ok()?, 16).ok()
}

/// All mappings in the text of `/proc/self/maps`, those between `out` left out.
pub fn rows<'a>(text: &'a [u8], out: [u64; 2]) -> impl Iterator<Item = Row<'a>> + Clone {
    let lines = text.split(|byte| *byte == b'\n').filter_map(Row::parse);
    lines.filter(move |row| row.end <= out[0] || row.start >= out[1]).take(ROWS_MAX)
}

/// What a name of a core can say.
#[derive(Clone, Copy, Default)]
pub struct Named<'a> {
    /// The process.
    pub pid: u32,
    /// The thread that ends.
    pub tid: u32,
    /// Its signal.
    pub signal: u32,
    /// Its user, and its group.
    pub ids: [u32; 2],
    /// Seconds since the epoch.
    pub time: u64,
    /// `comm`.
    pub program: &'a [u8],
    /// The number is added if the pattern has none.
    pub with_pid: bool,
}

/// The path that `pattern` (`core_pattern`) says, and whether there is room for it.
pub fn path<'a>(pattern: &[u8], named: &Named<'_>, room: &'a mut [u8]) -> Option<&'a [u8]> {
    let mut sheet = Sheet::new(room);
    let (mut has_pid, mut at) = (false, 0);
    while let Some(&byte) = pattern.get(at) {
        let code = pattern.get(at + 1).copied().filter(|_| byte == b'%');
        at += if code.is_some() { 2 } else { 1 };
        match code {
            None if byte == b'%' => {}
            None => sheet.put(&[byte]),
            Some(b'%') => sheet.put(b"%"),
            Some(b'p' | b'P') => {
                sheet.decimal(named.pid.into());
                has_pid = true;
            }
            Some(b'i' | b'I') => sheet.decimal(named.tid.into()),
            Some(b's') => sheet.decimal(named.signal.into()),
            Some(b'u') => sheet.decimal(named.ids[0].into()),
            Some(b'g') => sheet.decimal(named.ids[1].into()),
            Some(b't') => sheet.decimal(named.time),
            Some(b'e' | b'f') => sheet.name(named.program),
            // Linux drops what it does not know, too.
            Some(_) => {}
        }
    }
    if named.with_pid && !has_pid {
        sheet.put(b".");
        sheet.decimal(named.pid.into());
    }
    let empty = sheet.at == 0;
    sheet.put(b"\0");
    sheet.whole().filter(|_| !empty)
}

/// A thread as the core shows it.
#[derive(Clone, Copy)]
pub struct Thread {
    /// Its number.
    pub tid: u32,
    /// As `user_regs_struct` has them.
    pub registers: [u64; REGISTERS],
    /// What its signals are blocked by.
    pub mask: u64,
    /// As FXSAVE writes them.
    pub floats: [u8; FLOATS_BYTES],
}

/// What is said of the process.
pub struct Process<'a> {
    /// Its number, that of its parent, of its group and of its session.
    pub numbers: [u32; 4],
    /// Its user and its group.
    pub ids: [u32; 2],
    /// What ends it, as the handler found it.
    pub siginfo: &'a [u8; 128],
    /// `comm`.
    pub program: &'a [u8],
    /// Its arguments, a NUL behind each.
    pub arguments: &'a [u8],
    /// Its auxiliary vector.
    pub auxiliary: &'a [u8],
}

/// The head of the file, all that comes before memory.
pub struct Head<'a> {
    sheet: Sheet<'a>,
    notes: usize,
}

impl<'a> Head<'a> {
    /// A head in `room`, of a core with `count` mappings.
    pub fn new(room: &'a mut [u8], count: usize) -> Head<'a> {
        let notes = HEADER_BYTES + PROGRAM_HEADER_BYTES * (count + 1);
        let mut sheet = Sheet::new(room);
        sheet.skip(notes);
        Head { sheet, notes }
    }

    /// The thread that ends is said first, the process behind it, then the others.
    pub fn thread(&mut self, thread: &Thread, process: &Process<'_>) {
        let signal = u32::from_le_bytes([0, 1, 2, 3].map(|at| process.siginfo[at]));
        self.note(1, |sheet| {
            sheet.words([signal, 0, 0, signal & 0xffff]);
            sheet.longs([0, thread.mask]);
            let [_, parent, group, session] = process.numbers;
            sheet.words([thread.tid, parent, group, session]);
            sheet.longs([0; 8]);
            sheet.longs(thread.registers);
            sheet.words([1, 0]);
        });
        self.note(2, |sheet| sheet.put(&thread.floats));
    }

    /// What belongs to the process as a whole.
    pub fn process<'t>(
        &mut self,
        process: &Process<'_>,
        rows: impl Iterator<Item = Row<'t>> + Clone,
    ) {
        self.note(3, |sheet| {
            sheet.words([u32::from_le_bytes([0, b'R', 0, 0]), 0]);
            sheet.longs([0]);
            sheet.words(process.ids);
            sheet.words(process.numbers);
            sheet.field(process.program, 16);
            let shown = process.arguments.strip_suffix(b"\0").unwrap_or(process.arguments);
            let from = sheet.at;
            sheet.field(shown, 80);
            sheet.replace(from..from + shown.len().min(80), 0, b' ');
        });
        self.note(u32::from_be_bytes(*b"SIGI"), |sheet| sheet.put(process.siginfo));
        self.note(6, |sheet| sheet.put(process.auxiliary));
        let files = rows.filter(|row| row.of_file);
        self.note(u32::from_be_bytes(*b"FILE"), |sheet| {
            sheet.longs([files.clone().count() as u64, PAGE]);
            for row in files.clone() {
                sheet.longs([row.start, row.end, row.offset / PAGE]);
            }
            for row in files.clone() {
                sheet.put(row.name);
                sheet.put(b"\0");
            }
        });
    }

    fn note(&mut self, kind: u32, fill: impl FnOnce(&mut Sheet<'a>)) {
        let sheet = &mut self.sheet;
        let at = sheet.at;
        sheet.words([5, 0, kind]);
        sheet.put(b"CORE\0\0\0\0");
        let from = sheet.at;
        fill(sheet);
        let length = (sheet.at - from) as u32;
        sheet.align(4);
        sheet.put_at(at + 4, &length.to_le_bytes());
    }

    /// All of it; memory begins behind it, at the next page.
    pub fn finish<'t>(mut self, rows: impl Iterator<Item = Row<'t>> + Clone) -> Option<&'a [u8]> {
        let end = self.sheet.at;
        self.sheet.align(PAGE as usize);
        let whole = self.sheet.at;
        let count = rows.clone().count();
        self.sheet.at = 0;
        self.sheet.put(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x04\0\x3e\0\x01\0\0\0");
        self.sheet.longs([0, HEADER_BYTES as u64, 0]);
        let halves = [HEADER_BYTES, PROGRAM_HEADER_BYTES, count + 1, 0, 0, 0];
        self.sheet.put(&[0; 4]);
        for half in halves {
            self.sheet.put(&(half as u16).to_le_bytes());
        }
        self.sheet.words([4, 0]);
        self.sheet.longs([self.notes as u64, 0, 0, (end - self.notes) as u64, 0, 4]);
        let mut offset = whole as u64;
        for row in rows {
            self.sheet.words([1, row.rights]);
            self.sheet.longs([offset, row.start, 0, row.bytes(), row.end - row.start, PAGE]);
            offset += row.bytes();
        }
        self.sheet.at = self.sheet.at.max(whole);
        self.sheet.whole()
    }
}

/// A room that is filled from its beginning; what finds no place is counted, not written.
struct Sheet<'a> {
    room: &'a mut [u8],
    at: usize,
}

impl<'a> Sheet<'a> {
    fn new(room: &'a mut [u8]) -> Sheet<'a> {
        Sheet { room, at: 0 }
    }

    fn put_at(&mut self, at: usize, bytes: &[u8]) {
        if let Some(place) = self.room.get_mut(at..at + bytes.len()) {
            place.copy_from_slice(bytes);
        }
    }

    fn put(&mut self, bytes: &[u8]) {
        self.put_at(self.at, bytes);
        self.at += bytes.len();
    }

    fn words<const N: usize>(&mut self, words: [u32; N]) {
        for word in words {
            self.put(&word.to_le_bytes());
        }
    }

    fn longs<const N: usize>(&mut self, longs: [u64; N]) {
        for long in longs {
            self.put(&long.to_le_bytes());
        }
    }

    fn decimal(&mut self, value: u64) {
        let (mut digits, mut rest, mut at) = ([0; 20], value, 20);
        while at > 0 && (rest > 0 || at == 20) {
            at -= 1;
            digits[at] = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        self.put(&digits[at..]);
    }

    /// A part of a path: a slash in it would lead elsewhere.
    fn name(&mut self, name: &[u8]) {
        for byte in name {
            self.put(&[if *byte == b'/' { b'!' } else { *byte }]);
        }
    }

    /// The first bytes of `text`, in a field of `length`.
    fn field(&mut self, text: &[u8], length: usize) {
        let from = self.at;
        self.put(&text[..text.len().min(length)]);
        self.skip(from + length - self.at);
    }

    fn replace(&mut self, range: core::ops::Range<usize>, old: u8, new: u8) {
        let found = self.room.get_mut(range).into_iter().flatten();
        found.filter(|byte| **byte == old).for_each(|byte| *byte = new);
    }

    /// The room is zeroed.
    fn skip(&mut self, bytes: usize) {
        self.at += bytes;
    }

    fn align(&mut self, unit: usize) {
        self.at = self.at.next_multiple_of(unit);
    }

    fn whole(self) -> Option<&'a [u8]> {
        let Sheet { room, at } = self;
        room.get(..at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &[u8] = b"\
55d0c0000000-55d0c0001000 r--p 00000000 fe:00 316526                     /usr/bin/a b
55d0c0001000-55d0c0002000 r-xp 00001000 fe:00 316526                     /usr/bin/a b
55d0c0002000-55d0c0004000 rw-p 00002000 fe:00 316526                     /usr/bin/a b
5440100cc000-5440100ed000 rw-p 00000000 00:00 0                          [heap]
7f0000000000-7f0000001000 rw-s 00000000 00:01 5                          /dev/zero (deleted)
7f0000001000-7f0000002000 ---p 00000000 00:00 0
7ffd00000000-7ffd00002000 r--p 00000000 00:00 0                          [vvar]
";

    #[test]
    fn what_is_the_programs_own_is_dumped() {
        let parts: Vec<_> = rows(MAPS, [0; 2]).map(|row| row.part()).collect();
        use Part::{All, Head, Nothing, Touched};
        assert_eq!(parts, [Head, Nothing, All, Touched, Nothing, Nothing, Nothing]);
        assert_eq!(rows(MAPS, [0x5440_100c_c000, 0x5440_100c_d000]).count(), 6);
        let mut marked = MAPS.to_vec();
        mark(&mut marked, |row| row.offset == 4096);
        let parts: Vec<_> = rows(&marked, [0; 2]).map(|row| row.part()).take(3).collect();
        assert_eq!(parts, [Head, All, All]);
        let first = rows(MAPS, [0; 2]).next().expect("a row");
        assert_eq!((first.name, first.rights, first.bytes()), (&b"/usr/bin/a b"[..], 4, 4096));
    }

    #[test]
    fn a_name_says_what_its_pattern_asks_for() {
        let named = Named {
            pid: 70,
            tid: 71,
            signal: 6,
            ids: [1, 2],
            time: 9,
            program: b"a/b",
            with_pid: true,
        };
        let said = |pattern: &str| {
            let mut room = [0; 40];
            path(pattern.as_bytes(), &named, &mut room).map(|path| path.to_vec())
        };
        assert_eq!(said("core").as_deref(), Some(&b"core.70\0"[..]));
        assert_eq!(said("c.%p.%i-%e%%%s%z%").as_deref(), Some(&b"c.70.71-a!b%6\0"[..]));
        assert_eq!(said("/v/%u.%g.%t").as_deref(), Some(&b"/v/1.2.9.70\0"[..]));
        assert_eq!(said(&"x".repeat(40)), None);
    }

    #[test]
    fn a_head_that_finds_no_room_is_none_and_else_its_memory_begins_at_a_page() {
        let made = |bytes: usize| {
            let mut room = vec![0; bytes];
            let all = rows(MAPS, [0; 2]);
            let mut head = Head::new(&mut room, all.clone().count());
            let process = Process {
                numbers: [1, 2, 3, 4],
                ids: [5, 6],
                siginfo: &[6; 128],
                program: b"name",
                arguments: b"one\0two\0",
                auxiliary: &[0; 16],
            };
            let thread = Thread { tid: 1, registers: [7; 27], mask: 0, floats: [0; 512] };
            head.thread(&thread, &process);
            head.process(&process, all.clone());
            head.finish(all).map(<[u8]>::to_vec)
        };
        assert_eq!(made(4095), None);
        let head = made(4096).expect("there is room");
        assert_eq!(head.len(), 4096);
        let long = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().expect("8 bytes"));
        let notes = HEADER_BYTES + 8 * PROGRAM_HEADER_BYTES;
        assert_eq!([long(32), long(64 + 8)], [64, notes as u64]);
        assert_eq!([long(120 + 8), long(120 + 56 + 8)], [4096, 8192]);
        // The note of the first thread: 12 bytes, its name, 336 bytes.
        assert_eq!(u32::from_le_bytes(head[notes + 4..notes + 8].try_into().expect("4")), 336);
        let text = head.windows(8).any(|bytes| bytes == b"one two\0");
        assert!(text && head.windows(12).any(|bytes| bytes == b"/usr/bin/a b"));
    }
}

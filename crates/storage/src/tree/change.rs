//! One change of a tree as bytes: what a redo record and a snapshot are made of.
//!
//! ```text
//!   batch   | flags: 1 | change | change | ...          at most `BATCH_BYTES_MAX` bytes
//!   change  | kind: 1 | fields of that kind, little-endian; texts and bytes with their length |
//! ```
//!
//! 1. A change says what is there afterwards, never what to add: applied again, it changes nothing.
//! 2. A batch with `MORE` counts only together with the next one.

/// Longest batch: it fits a record of the log.
pub const BATCH_BYTES_MAX: usize = 1 << 20;
/// Room for what one sync of a small write brings.
const BATCH_BYTES_FIRST: usize = 8 << 10;
/// Most bytes of a file in one change.
pub const DATA_BYTES_MAX: usize = 256 << 10;
/// Flag of a batch: it counts only with the one behind it.
const MORE: u8 = 1;

/// Number of an object, as long as it lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Id(pub u64);

/// What an object is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Regular file.
    File = 1,
    /// Directory.
    Directory = 2,
    /// Symbolic link.
    Symlink = 3,
    /// FIFO.
    Fifo = 4,
    /// Character device.
    CharacterDevice = 5,
    /// Block device.
    BlockDevice = 6,
}

impl Kind {
    fn of(byte: u8) -> Option<Kind> {
        use Kind::*;
        let all = [File, Directory, Symlink, Fifo, CharacterDevice, BlockDevice];
        all.into_iter().find(|kind| *kind as u8 == byte)
    }
}

/// What `stat` shows of an object, but for its length and its links.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attributes {
    /// What it is.
    pub kind: Kind,
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Number of a device.
    pub device: u32,
    /// Last access, modification, status change and creation, ns since the epoch.
    pub times_ns: [i64; 4],
}

/// A change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change<'a> {
    /// The object is like this.
    Node(Id, Attributes),
    /// The object is the root.
    Root(Id),
    /// A symbolic link leads there.
    Target(Id, &'a [u8]),
    /// A directory has this name, which leads to the second object.
    Name(Id, &'a [u8], Id),
    /// A directory does not have this name.
    Gone(Id, &'a [u8]),
    /// A file is at most this long.
    Cut(Id, u64),
    /// A file is this long.
    Size(Id, u64),
    /// A file has these bytes there, and is at least that long.
    Data(Id, u64, &'a [u8]),
    /// A file has so many zeros there; it does not become longer.
    Zeros(Id, u64, u64),
    /// An object has no extended attributes but those that follow.
    Bare(Id),
    /// An object has this extended attribute.
    Extended(Id, &'a [u8], &'a [u8]),
}

/// Bytes that are no batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed;

impl std::fmt::Display for Malformed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a record is not one of a tree")
    }
}

impl std::error::Error for Malformed {}

/// Writes changes into batches.
#[derive(Debug, Default)]
pub struct Writer {
    full: Vec<Vec<u8>>,
    batch: Vec<u8>,
}

impl Writer {
    /// Adds a change; those between two `seal`s count together or not at all.
    pub fn push(&mut self, change: &Change<'_>) {
        if self.batch.len() + bytes_of(change) > BATCH_BYTES_MAX {
            let mut batch = std::mem::take(&mut self.batch);
            batch[0] |= MORE;
            self.full.push(batch);
        }
        if self.batch.is_empty() {
            self.batch.reserve(BATCH_BYTES_FIRST);
            self.batch.push(0);
        }
        encode(change, &mut self.batch);
    }

    /// What was added so far counts without what follows. A batch may hold both.
    pub fn seal(&mut self) {
        if self.batch.len() > BATCH_BYTES_MAX - DATA_BYTES_MAX - HEAD_BYTES_MAX {
            self.full.push(std::mem::take(&mut self.batch));
        }
    }

    /// The batches, in order.
    pub fn finish(mut self) -> Vec<Vec<u8>> {
        self.full.extend(Some(self.batch).filter(|batch| !batch.is_empty()));
        self.full
    }

    /// The batches that are full, in order; the others come later.
    pub fn take_full(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.full)
    }

    /// How many bytes there are.
    pub fn bytes(&self) -> usize {
        self.full.iter().map(Vec::len).sum::<usize>() + self.batch.len()
    }
}

/// What a change takes beside its texts and bytes, at most.
const HEAD_BYTES_MAX: usize = 64;

fn bytes_of(change: &Change<'_>) -> usize {
    let texts = match change {
        Change::Target(_, text) | Change::Gone(_, text) | Change::Name(_, text, _) => text.len(),
        Change::Data(_, _, bytes) => bytes.len(),
        Change::Extended(_, name, value) => name.len() + value.len(),
        _ => 0,
    };
    HEAD_BYTES_MAX + texts + 1
}

fn encode(change: &Change<'_>, to: &mut Vec<u8>) {
    let mut put = Put(to);
    match *change {
        Change::Node(id, a) => {
            put.head(1, id);
            put.0.push(a.kind as u8);
            [a.mode, a.uid, a.gid, a.device].into_iter().for_each(|n| put.four(n));
            a.times_ns.into_iter().for_each(|time| put.eight(time.cast_unsigned()));
        }
        Change::Root(id) => put.head(2, id),
        Change::Target(id, text) => {
            put.head(3, id);
            put.text(text);
        }
        Change::Name(dir, name, id) => {
            put.head(4, dir);
            put.eight(id.0);
            put.text(name);
        }
        Change::Gone(dir, name) => {
            put.head(5, dir);
            put.text(name);
        }
        Change::Cut(id, size) => {
            put.head(6, id);
            put.eight(size);
        }
        Change::Size(id, size) => {
            put.head(7, id);
            put.eight(size);
        }
        Change::Data(id, at, bytes) => {
            put.head(8, id);
            put.eight(at);
            put.text(bytes);
        }
        Change::Zeros(id, at, length) => {
            put.head(9, id);
            put.eight(at);
            put.eight(length);
        }
        Change::Bare(id) => put.head(10, id),
        Change::Extended(id, name, value) => {
            put.head(11, id);
            put.text(name);
            put.text(value);
        }
    }
}

struct Put<'a>(&'a mut Vec<u8>);

impl Put<'_> {
    fn head(&mut self, kind: u8, id: Id) {
        self.0.push(kind);
        self.eight(id.0);
    }

    fn four(&mut self, value: u32) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    fn eight(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    fn text(&mut self, text: &[u8]) {
        self.four(text.len() as u32);
        self.0.extend_from_slice(text);
    }
}

/// Takes a batch apart: each change goes to `emit`. Whether it counts only with the next one.
pub fn decode<'a>(
    batch: &'a [u8],
    mut emit: impl FnMut(Change<'a>) -> Result<(), Malformed>,
) -> Result<bool, Malformed> {
    let (&flags, rest) = batch.split_first().ok_or(Malformed)?;
    if flags & !MORE != 0 {
        return Err(Malformed);
    }
    let mut take = Take(rest);
    while !take.0.is_empty() {
        emit(take.change()?)?;
    }
    Ok(flags & MORE != 0)
}

struct Take<'a>(&'a [u8]);

impl<'a> Take<'a> {
    fn bytes(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(Malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    fn one(&mut self) -> Result<u8, Malformed> {
        Ok(self.bytes(1)?[0])
    }

    fn four(&mut self) -> Result<u32, Malformed> {
        let bytes = self.bytes(4)?;
        Ok(u32::from_le_bytes(bytes.try_into().map_err(|_| Malformed)?))
    }

    fn eight(&mut self) -> Result<u64, Malformed> {
        let bytes = self.bytes(8)?;
        Ok(u64::from_le_bytes(bytes.try_into().map_err(|_| Malformed)?))
    }

    fn text(&mut self) -> Result<&'a [u8], Malformed> {
        let length = self.four()? as usize;
        self.bytes(length)
    }

    fn change(&mut self) -> Result<Change<'a>, Malformed> {
        let (kind, id) = (self.one()?, Id(self.eight()?));
        Ok(match kind {
            1 => Change::Node(id, self.attributes()?),
            2 => Change::Root(id),
            3 => Change::Target(id, self.text()?),
            4 => {
                let target = Id(self.eight()?);
                Change::Name(id, self.text()?, target)
            }
            5 => Change::Gone(id, self.text()?),
            6 => Change::Cut(id, self.eight()?),
            7 => Change::Size(id, self.eight()?),
            8 => Change::Data(id, self.eight()?, self.text()?),
            9 => Change::Zeros(id, self.eight()?, self.eight()?),
            10 => Change::Bare(id),
            11 => Change::Extended(id, self.text()?, self.text()?),
            _ => return Err(Malformed),
        })
    }

    fn attributes(&mut self) -> Result<Attributes, Malformed> {
        let kind = Kind::of(self.one()?).ok_or(Malformed)?;
        let (mode, uid, gid, device) = (self.four()?, self.four()?, self.four()?, self.four()?);
        let mut times_ns = [0; 4];
        for time in &mut times_ns {
            *time = self.eight()?.cast_signed();
        }
        Ok(Attributes { kind, mode, uid, gid, device, times_ns })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some() -> Vec<Change<'static>> {
        let times_ns = [1, -2, 3, i64::MAX];
        let (kind, mode, uid, gid, device) = (Kind::CharacterDevice, 0o4755, 1, u32::MAX, 0x103);
        vec![
            Change::Node(Id(u64::MAX), Attributes { kind, mode, uid, gid, device, times_ns }),
            Change::Root(Id(1)),
            Change::Target(Id(2), b"../x"),
            Change::Name(Id(1), b"name", Id(2)),
            Change::Gone(Id(1), b""),
            Change::Cut(Id(3), 9),
            Change::Size(Id(3), 1 << 40),
            Change::Data(Id(3), 4096, b"bytes"),
            Change::Zeros(Id(3), 1, 2),
            Change::Bare(Id(3)),
            Change::Extended(Id(3), b"user.a", b"\0v"),
        ]
    }

    fn read(batch: &[u8]) -> Result<(Vec<Change<'_>>, bool), Malformed> {
        let mut found = Vec::new();
        let more = decode(batch, |change| {
            found.push(change);
            Ok(())
        })?;
        Ok((found, more))
    }

    #[test]
    fn what_is_written_is_read_back() {
        let mut writer = Writer::default();
        some().iter().for_each(|change| writer.push(change));
        let batches = writer.finish();
        assert_eq!(batches.len(), 1);
        assert_eq!(read(&batches[0]), Ok((some(), false)));
    }

    #[test]
    fn cut_short_or_foreign_it_is_refused() {
        let mut writer = Writer::default();
        some().iter().for_each(|change| writer.push(change));
        let batch = &writer.finish()[0];
        let whole: Vec<usize> =
            (1..batch.len()).filter(|&end| read(&batch[..end]).is_ok()).collect();
        assert_eq!(whole.len(), some().len(), "only between two changes: {whole:?}");
        assert_eq!(read(b""), Err(Malformed));
        assert_eq!(read(&[2]), Err(Malformed), "an unknown flag");
        assert_eq!(read(&[0, 99, 0, 0, 0, 0, 0, 0, 0, 0]), Err(Malformed), "an unknown kind");
    }

    #[test]
    fn what_outgrows_a_batch_counts_together_unless_it_was_sealed() {
        let bytes = vec![7; DATA_BYTES_MAX];
        let data = |at: u64| Change::Data(Id(1), at, &bytes);
        let (mut together, mut apart) = (Writer::default(), Writer::default());
        for at in 0..8 {
            together.push(&data(at));
            apart.push(&data(at));
            apart.seal();
        }
        let more = |writer: Writer| -> Vec<bool> {
            let batches = writer.finish();
            assert!(batches.iter().all(|batch| batch.len() <= BATCH_BYTES_MAX));
            batches.iter().map(|batch| read(batch).unwrap().1).collect()
        };
        assert_eq!(more(together), [true, true, false]);
        assert!(more(apart).iter().all(|more| !more));
    }
}

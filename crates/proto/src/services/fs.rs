//! Service `fs`: inodes, names and bytes.
//!
//! Reads (`lookup`, `attributes`, `read_link`, `list`, `read`) take no token. Everything else is
//! one transaction. The caller copies file bytes itself, from and to `Span`s of the buffer cache,
//! and holds no token while it does.
//!
//! The content of a file is in the image (`Backing::Image`) or still on the host, unread
//! (`Backing::Host`). A directory is `unlisted` until its host directory has been read: the first
//! caller that needs a name lists the host directory and adds the names with `import`.

pub use crate::imported::{HostIdentity, Imported, Origin};
use crate::namespace::Namespace;
use crate::{Errno, Files, Result};

/// An inode: its place and the generation that makes a stale reference an `ESTALE`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Inode {
    /// Its place in the image; 0 is never an inode.
    pub number: u32,
    /// Bumped whenever the number is freed.
    pub generation: u32,
}

/// What an inode is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Regular file.
    File,
    /// Directory.
    Directory,
    /// Symbolic link; its target lies in the image.
    Symlink,
    /// A host object shown at this name that Husk does not serve itself (an object of another host
    /// file system): calls on it go to the host by its origin's path.
    Portal,
    /// FIFO. One with an origin is the host's: its names and attributes are the image's, and who
    /// opens it opens the host's. So are the kinds below.
    Fifo,
    /// Unix socket.
    Socket,
    /// Character device. One made in the image is a name with a number, nothing behind it.
    CharacterDevice,
    /// Block device, likewise.
    BlockDevice,
}

impl Kind {
    /// A node that has neither bytes nor names in the image.
    pub fn is_special(self) -> bool {
        self == Kind::Fifo || self == Kind::Socket || self.is_device()
    }

    /// A device.
    pub fn is_device(self) -> bool {
        matches!(self, Kind::CharacterDevice | Kind::BlockDevice)
    }
}

/// Where the bytes of a file lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Backing {
    /// In the buffer cache.
    Image,
    /// On the host, unmodified; read through the origin's path.
    Host,
}

/// One step of a path walk: what the walk needs, read in one consistent look.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// Where the name leads.
    pub inode: Inode,
    /// What is there.
    pub kind: Kind,
    /// Permission bits (07777).
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// A directory whose host listing has not been imported.
    pub unlisted: bool,
    /// It has an access control list, which says what others than its owner may (`crate::acl`).
    pub acl: bool,
}

/// What one step of a walk rests on, for `Fs::holds`: opaque, and any bits are harmless.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Witness {
    /// Where the name leads, and where it was found.
    pub place: u64,
    /// What stood there.
    pub seen: [u64; 2],
}

/// All that `stat` shows, as one consistent snapshot.
#[derive(Clone, Copy, Debug)]
pub struct Attributes {
    /// Identity, kind, mode and owner.
    pub step: Step,
    /// `st_dev`: of an overlay that of the host's directory.
    pub shown_device: u64,
    /// `st_ino`: of what came from the host the host's, also once it was changed.
    pub shown_number: u64,
    /// Hard links; of a directory 2 + its subdirectories.
    pub links: u32,
    /// Length in bytes; of a symlink its target's.
    pub size: u64,
    /// Space held, in units of 512 bytes.
    pub blocks_512: u64,
    /// Number of a device (`st_rdev`), else 0.
    pub device: u32,
    /// Last access, ns since the epoch.
    pub accessed_ns: i64,
    /// Last modification.
    pub modified_ns: i64,
    /// Last status change.
    pub changed_ns: i64,
    /// Creation.
    pub born_ns: i64,
    /// Where the bytes are.
    pub backing: Backing,
    /// Where the extended attributes are.
    pub extended: Backing,
    /// What it was imported from, if it was.
    pub origin: Option<Origin>,
    /// The host has put another object in its place since it was imported. Who had opened it then
    /// has the old one.
    pub replaced: bool,
}

/// What `Credentials::permit` may be asked for, any of them together.
pub mod want {
    /// To run a file, or to search a directory.
    pub const EXECUTE: u32 = 1;
    /// To write a file, or to change a directory's names.
    pub const WRITE: u32 = 2;
    /// To read a file, or to list a directory.
    pub const READ: u32 = 4;
}

/// Who asks.
#[derive(Clone, Copy, Debug)]
pub struct Credentials<'a> {
    /// File-system user.
    pub uid: u32,
    /// File-system group.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: &'a [u32],
    /// Effective capabilities, one bit each (`husk_abi::capability`).
    pub capabilities: u64,
    /// The user namespace they are held in, if it is not the image's.
    pub within: Option<&'a Namespace>,
}

impl Credentials<'_> {
    /// Holds capability number `bit` over the whole image.
    pub fn can(&self, bit: u32) -> bool {
        self.capabilities >> bit & 1 == 1 && self.within.is_none()
    }

    /// Holds it over what these ids own.
    pub fn can_over(&self, uid: u32, gid: u32, bit: u32) -> bool {
        let held = self.capabilities >> bit & 1 == 1;
        held && self.within.is_none_or(|namespace| namespace.has(uid, gid))
    }

    /// May keep the times of what `step` is from changing (`O_NOATIME`).
    pub fn permit_no_times(&self, step: &Step) -> Result<()> {
        let may = self.uid == step.uid || self.owns_over(step);
        if may { Ok(()) } else { Err(Errno::EPERM) }
    }

    fn owns_over(&self, step: &Step) -> bool {
        self.can_over(step.uid, step.gid, husk_abi::capability::FOWNER)
    }

    /// Belongs to `gid`.
    pub fn in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }

    /// Checks bits of `want` against an inode as Linux's `generic_permission` does.
    pub fn permit(&self, step: &Step, want: u32) -> Result<()> {
        let class = if self.uid == step.uid {
            step.mode >> 6
        } else if self.in_group(step.gid) {
            step.mode >> 3
        } else {
            step.mode
        };
        if class & want == want { Ok(()) } else { self.permit_by_capability(step, want) }
    }

    #[inline(never)]
    pub(crate) fn permit_by_capability(&self, step: &Step, want: u32) -> Result<()> {
        use husk_abi::capability::{DAC_OVERRIDE, DAC_READ_SEARCH};
        let directory = step.kind == Kind::Directory;
        let executable = directory || want & want::EXECUTE == 0 || step.mode & 0o111 != 0;
        let can = |bit| self.can_over(step.uid, step.gid, bit);
        if can(DAC_OVERRIDE) && executable {
            return Ok(());
        }
        let search = want == want::READ || (directory && want & want::WRITE == 0);
        if can(DAC_READ_SEARCH) && search { Ok(()) } else { Err(Errno::EACCES) }
    }
}

/// The mode to ask for where the umask counts only in directories without a default list: the
/// permission bits, and the umask in the upper half.
pub const fn masked(mode: u32, umask: u32) -> u32 {
    mode & 0xffff | umask << 16
}

/// The mode without what the umask takes, if no default list counts.
pub const fn unmasked(mode: u32) -> u32 {
    mode & 0xffff & !(mode >> 16)
}

/// What to make. Modes are permission bits, with an umask to apply as `masked` has it.
#[derive(Clone, Copy, Debug)]
pub enum Node<'a> {
    /// A regular file.
    File(u32),
    /// A directory.
    Directory(u32),
    /// A symbolic link to this target.
    Symlink(&'a [u8]),
    /// The name of a unix socket with these permission bits; `text` is the address as it was
    /// given, kept to be read with `read_link`.
    Socket {
        /// Permission bits.
        mode: u32,
        /// The address.
        text: &'a [u8],
    },
    /// A special node (`Kind::is_special`) with these permission bits; `device` is the number of a
    /// device, else 0. A device needs `CAP_MKNOD`, unless it is the character device 0 (`EPERM`).
    Special {
        /// What.
        kind: Kind,
        /// Permission bits.
        mode: u32,
        /// `st_rdev`.
        device: u32,
    },
}

impl Node<'_> {
    /// The mode asked for, without an umask.
    pub fn mode(&self) -> u32 {
        match *self {
            Node::File(mode) | Node::Directory(mode) => mode & 0o7777,
            Node::Socket { mode, .. } | Node::Special { mode, .. } => mode & 0o7777,
            Node::Symlink(_) => 0o777,
        }
    }
}

/// Changes to attributes; `None` leaves a field alone. One of nothing is one of the owner who stays
/// (`chown` to -1, -1), which takes set-id bits away all the same.
#[derive(Clone, Copy, Debug, Default)]
pub struct Change {
    /// New permission bits.
    pub mode: Option<u32>,
    /// New owner.
    pub uid: Option<u32>,
    /// New group.
    pub gid: Option<u32>,
    /// New access time, ns; `Time::Now` needs only write permission.
    pub accessed: Option<Time>,
    /// New modification time.
    pub modified: Option<Time>,
}

impl Change {
    /// Whether it is one of owner or group.
    pub fn is_of_owner(&self) -> bool {
        let others = self.mode.is_some() || self.accessed.is_some() || self.modified.is_some();
        self.uid.is_some() || self.gid.is_some() || !others
    }
}

/// Which attribute `set_extended` is to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetExtended {
    /// None or one.
    Any,
    /// None (`EEXIST`).
    Create,
    /// One (`ENODATA`).
    Replace,
    /// None and one at once: an error whatever there is.
    Both,
    /// None or one, and it is the host's object's: nothing of the inode changes.
    Imported,
}

/// A hash of an extended attribute's value, never 0 (FNV-1a, of 64 bits).
pub fn value_hash(value: &[u8]) -> u64 {
    let mix = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    value.iter().fold(0xcbf2_9ce4_8422_2325, mix).max(1)
}

/// What a change of a file's content leaves of its set-user and set-group bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SetBits {
    /// The set-group bit where it marks locking: what a member of the file's group leaves.
    #[default]
    Marks,
    /// Nothing: what a stranger leaves.
    Nothing,
    /// All, as Linux grants to who has `CAP_FSETID`.
    All,
    /// Nobody has judged who writes: where that matters, or where the file has capabilities, the
    /// change is refused with `WHO_WRITES`.
    Ask,
}

/// A change of content waits for who writes to be judged (`SetBits::Ask`): nothing has happened.
pub const WHO_WRITES: Errno = Errno(4003);

/// The extended attribute that holds a program's capabilities, which a change of content takes.
pub const CAPABILITY: &[u8] = b"security.capability";

/// A time to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Time {
    /// The kernel's clock.
    Now,
    /// ns since the epoch.
    At(i64),
}

/// Bytes of the buffer cache, mapped in this process at `address`. A hole reads as a span of the
/// zero page.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// Where in this process.
    pub address: usize,
    /// Bytes.
    pub length: usize,
    /// What is special about it. One byte: a second would be stored by itself, and who copies a
    /// span by words waits for both stores.
    pub kind: SpanKind,
}

/// What whoever copies a span may want to know of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanKind {
    /// Nothing.
    Plain,
    /// The span before this one lay in blocks that were taken away while it was copied: this one
    /// starts at the same byte of the file and takes its place.
    Again,
    /// It is to be filled and lies in blocks that are nobody's yet and that this process has not
    /// mapped: whoever can write them without mapping them saves a page fault each.
    Unmapped,
}

impl Span {
    /// One with nothing special about it.
    #[inline(always)]
    pub const fn new(address: usize, length: usize) -> Self {
        Self { address, length, kind: SpanKind::Plain }
    }
}

/// Bytes of a file that lie in one piece, and the state of its block map that says so.
#[derive(Clone, Copy, Debug)]
pub struct Piece {
    /// Where.
    pub span: Span,
    /// For `Fs::has_read`.
    pub sequence: u64,
}

/// A run of a file as it lies in the buffer cache's memfd, for `mmap`.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// Offset in the buffer cache's memfd, page aligned; `None` is a hole.
    pub cache_offset: Option<u64>,
    /// Bytes, a multiple of the page.
    pub length: u64,
}

/// One entry of a directory listing; `.` and `..` are the client's to add.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// The name.
    pub name: &'a [u8],
    /// Where it leads.
    pub inode: Inode,
    /// Its `st_ino`.
    pub shown_number: u64,
    /// What is there.
    pub kind: Kind,
    /// The host's own name of it, unchanged.
    pub from_host: bool,
    /// Cookie that continues behind this entry.
    pub next: u64,
}

/// How a host listing or a copied file was taken: somebody else was first, or it is done.
pub const RENAME_NOREPLACE: u32 = 1;
/// Exchange both names.
pub const RENAME_EXCHANGE: u32 = 2;

operations! { ($) fs_operations

/// The file service.
Fs in fs, operations {
    // ---- reads: no token --------------------------------------------------------------------
    /// The entry `name` of `dir`. `ENOENT`, `ENOTDIR`; `ESTALE` when `dir` is gone.
    /// On an unlisted directory the answer says nothing: import first.
    lookup = Walk of dir { dir: Inode, name: &[u8] } -> Result<Step>,
        by fs::walk::lookup;

    /// The same facts for an inode already held.
    step = Walk of inode { inode: Inode } -> Result<Step>,
        by fs::walk::step;

    /// `lookup`, and what the answer rests on.
    lookup_witnessed = Walk of dir {
        dir: Inode, name: &[u8], witness: &mut Witness,
    } -> Result<Step>,
        by fs::walk::lookup_witnessed;

    /// `step`, and what the answer rests on.
    step_witnessed = Walk of inode { inode: Inode, witness: &mut Witness } -> Result<Step>,
        by fs::walk::step_witnessed;

    /// All that `stat` shows.
    attributes = Stat of inode { inode: Inode } -> Result<Attributes>,
        by fs::walk::attributes;

    /// Copies a symlink's target, or a socket's address, into `out`, returns its whole length.
    read_link = Walk of inode { inode: Inode, out: &mut [u8] } -> Result<usize>,
        by fs::walk::read_link;

    /// Calls `emit` for each entry from `cookie` (0 = start) until it returns false; each stable
    /// name exactly once over a whole listing, whatever happens meanwhile.
    list = List of dir {
        dir: Inode, cookie: u64, emit: &mut dyn FnMut(Entry<'_>) -> bool,
    } -> Result<()>,
        by carrier;

    /// The same; of the inodes only the numbers are right: a generation costs a look at each.
    list_numbers = List of dir {
        dir: Inode, cookie: u64, emit: &mut dyn FnMut(Entry<'_>) -> bool,
    } -> Result<()>,
        by carrier;

    /// The parent of a directory, itself for a root; of a removed one the last, `ENOENT` when that
    /// is gone, too. Of anything else the directory of the name it got last, `ENOENT` when that
    /// name is gone.
    parent = Walk of dir { dir: Inode } -> Result<Inode>,
        by fs::walk::parent;

    /// Copies the name of `dir` in its `parent` into `out`; `ENOENT` when it was removed.
    name_of = Walk of dir { dir: Inode, out: &mut [u8; 255] } -> Result<usize>,
        by fs::walk::name_of;

    /// `ETXTBSY` while a description may write to a file that is to be run.
    may_run = - of inode { inode: Inode } -> Result<()>,
        by carrier;

    /// `ETXTBSY` while a process runs a file that is to be written to.
    may_write = - of inode { inode: Inode } -> Result<()>,
        by carrier;

    // ---- names ------------------------------------------------------------------------------
    /// Makes a new entry. Setgid directories hand down group (and bit to directories). `EEXIST`.
    create = Create of dir {
        who: &Credentials<'_>, dir: Inode, name: &[u8], node: Node<'_>,
    } -> Result<Inode>,
        by fs::directory::names::create naming dir;

    /// A file without a name (`O_TMPFILE`), with one pin of the calling process on it. Only a
    /// `linkable` one can be given a name (`link`).
    create_nameless = Create of like {
        who: &Credentials<'_>, like: Inode, mode: u32, linkable: bool,
    } -> Result<Inode>,
        by carrier;

    /// Another name for what is no directory. `ENOENT` when its last name is gone.
    link = Link of dir {
        who: &Credentials<'_>, inode: Inode, dir: Inode, name: &[u8],
    } -> Result<()>,
        by fs::directory::names::link naming dir;

    /// Removes a name that is no directory (`EISDIR`); the inode lives on while open or pinned.
    unlink = Remove of dir { who: &Credentials<'_>, dir: Inode, name: &[u8] } -> Result<()>,
        by fs::directory::names::unlink naming dir;

    /// Removes an empty directory.
    rmdir = Remove of dir { who: &Credentials<'_>, dir: Inode, name: &[u8] } -> Result<()>,
        by fs::directory::names::rmdir naming dir;

    /// Renames as `renameat2` does with `flags` 0, `RENAME_NOREPLACE` or `RENAME_EXCHANGE`.
    /// Refuses to move a directory below itself (`EINVAL`).
    rename = Rename of source_dir {
        who: &Credentials<'_>, source_dir: Inode, source: &[u8], target_dir: Inode, target: &[u8],
        flags: u32,
    } -> Result<()>,
        by fs::directory::rename::rename naming source_dir target_dir;

    // ---- attributes and bytes ---------------------------------------------------------------
    /// Changes attributes with Linux's rules about who may.
    change = Change of inode { who: &Credentials<'_>, inode: Inode, change: Change } -> Result<()>,
        by carrier;

    /// The length of extended attribute `name` in the image, and its value in `out` if it fits.
    /// `ENODATA`. Here and below the caller judges who may, and where they are
    /// (`Attributes::extended`).
    extended = Stat of inode { inode: Inode, name: &[u8], out: &mut [u8] } -> Result<usize>,
        by carrier;

    /// The length of all names behind `after` (empty: all there are), each with a NUL, and those
    /// in `out` that fit, zeros behind them; those of the administrator with `trusted` only.
    list_extended = Stat of inode {
        inode: Inode, trusted: bool, after: &[u8], out: &mut [u8],
    } -> Result<usize>,
        by fs::extended::list;

    /// Sets one, or removes it (`None`). Values are of any length that Linux has.
    set_extended = Change of inode {
        inode: Inode, name: &[u8], value: Option<&[u8]>, how: SetExtended,
    } -> Result<()>,
        by carrier;

    /// From now on what the image has counts, not what the host's object has.
    take_extended_over = Change of inode { inode: Inode } -> Result<()>,
        by fs::extended::take_over;

    /// What changes of content by this thread leave of set-id bits from now on.
    leave_set_bits = - { what: SetBits } -> () = (),
        by carrier;

    /// Whether reads of this thread leave access times alone (`O_NOATIME`). Not until it is said.
    leave_access_times = - { leave: bool } -> () = (),
        by carrier;

    /// Sets the length. The caller has checked write permission (open for writing, or `permit`).
    truncate = Resize of inode { inode: Inode, size: u64 } -> Result<()>,
        by fs::bytes::truncate with clock;

    /// Reads up to `length` bytes at `offset`: calls `copy` for each span in order; a short or
    /// zero result is the end of the file. `copy` failing after some bytes gives a short count.
    /// `EIO` on a file whose backing is the host.
    read = Read of inode {
        inode: Inode, offset: u64, length: usize, copy: &mut dyn FnMut(Span) -> Result<()>,
    } -> Result<usize>,
        by fs::bytes::read with clock;

    /// Writes at `place`, allocating as needed, and returns (offset, count). Holds the inode's own
    /// lock while `copy` fills the spans. `ENOSPC` only when nothing fitted.
    write = Write of inode {
        inode: Inode, place: Place, length: usize, copy: &mut dyn FnMut(Span) -> Result<()>,
    } -> Result<(u64, usize)>,
        by fs::bytes::write with clock;

    /// Writes at `offset` what `take` gets hold of, which cannot be put back: once there is room
    /// for the bytes whatever happens, `take` is asked once for at most so many and says how many
    /// it has; then `copy` fills their spans. Returns their count. `ENOSPC` only when none fits.
    receive = Write of inode {
        inode: Inode, offset: u64, most: usize, take: &mut dyn FnMut(usize) -> Result<usize>,
        copy: &mut dyn FnMut(Span) -> Result<()>,
    } -> Result<usize>,
        by carrier;

    /// Allocates zeroed space for `offset..offset+length` (`fallocate` mode 0; `keep_size`).
    allocate = Resize of inode {
        inode: Inode, offset: u64, length: u64, keep_size: bool,
    } -> Result<()>,
        by fs::bytes::allocate with clock;

    /// Makes a hole (`FALLOC_FL_PUNCH_HOLE`).
    punch = Resize of inode { inode: Inode, offset: u64, length: u64 } -> Result<()>,
        by fs::bytes::punch with clock;

    /// The next data (`true`) or hole (`false`) at or after `offset`; `ENXIO` past the end.
    seek_data = Read of inode { inode: Inode, offset: u64, data: bool } -> Result<u64>,
        by fs::bytes::seek_data;

    /// Runs of the buffer cache behind the pages of `offset..offset+length`, for `mmap`, up to the
    /// end of the file. With `fill` its holes are filled first. The caller has pinned the inode.
    runs = Map of inode {
        inode: Inode, offset: u64, length: u64, fill: bool,
        emit: &mut dyn FnMut(Run) -> Result<()>,
    } -> Result<()>,
        by fs::bytes::runs;

    /// What memory maps of an inode: itself; where another node is its home a copy of these bytes,
    /// at their place, with a pin of the calling process. `ENODEV` there for a mapping that writes
    /// to the file while another program has one.
    mappable = - {
        inode: Inode, offset: u64, length: u64, writes: bool,
    } -> Result<Inode> = Ok(inode),
        by carrier;

    /// What programs of this node have stored in a mapping of a file that another node is the home
    /// of is written there; `inode` is what is mapped.
    save_mapped = - { inode: Inode } -> Result<()> = Ok(()),
        by carrier;

    /// Has its home make the first `keep` bytes of a host-backed file its own.
    own_elsewhere = - { inode: Inode, keep: u64 } -> Result<()> = Err(Errno::EIO),
        by carrier;

    // ---- the host's side of an overlay --------------------------------------------------------
    /// Adds host entries to an unlisted directory; names already there are left alone. `Ok(false)`
    /// when somebody else has completed the listing meanwhile: stop.
    import = Import of dir { dir: Inode, entries: &[Imported<'_>] } -> Result<bool>,
        by fs::overlay::import with clock;

    /// Marks the listing complete.
    import_done = - of dir { dir: Inode } -> Result<()>,
        by fs::overlay::import_done;

    /// What the host has `found` where `inode` came from: taken in, as far as the image has not
    /// changed it. `number`: with the number that it shows. `Ok(false)`: nothing of it is the
    /// host's any more, or it is of another kind.
    renew = Import of inode {
        inode: Inode, found: &Imported<'_>, number: bool,
    } -> Result<bool> = Ok(false),
        by fs::refresh::renew;

    /// Adds names to a listed directory that came on the host since; those that are there stay.
    /// That one was removed in the image is forgotten.
    import_late = Import { dir: Inode, entries: &[Imported<'_>] } -> Result<()> = Ok(()),
        by fs::refresh::import_late with clock;

    /// Takes away a name that has gone on the host; `Ok(false)` where the image has changed it.
    /// Directories must be empty (`ENOTEMPTY`).
    forget = Import { dir: Inode, name: &[u8], inode: Inode } -> Result<bool> = Ok(false),
        by fs::refresh::forget with clock;

    /// A listed directory that a write-back has put into the host's `dir` is the host's `found`
    /// from now on. It keeps its number and its extended attributes. `Ok(false)`: it cannot be.
    settle = Import { dir: Inode, inode: Inode, found: &Imported<'_> } -> Result<bool> = Ok(false),
        by fs::refresh::settle;

    /// A mark of what a file is now; `ETXTBSY` while somebody may write to it. It moves with every
    /// change of its bytes and attributes, and with every open.
    unmoved = - { inode: Inode } -> Result<[u64; 2]> = Err(Errno::ENOSYS),
        by fs::refresh::unmoved;

    /// Takes a name away that is no directory's, for the host's object of that name (`found`, which
    /// has no other) or for none. The image keeps no record of it, and who has it open keeps it.
    /// `Ok(false)`: it has moved since its mark was `seen`.
    give_back = Import {
        dir: Inode, name: &[u8], inode: Inode, seen: [u64; 2], found: Option<&Imported<'_>>,
    } -> Result<bool> = Ok(false),
        by fs::refresh::give_back with clock;

    /// Writes the host path an inode was imported from into `out`, returns its length.
    host_path = - { origin: Origin, out: &mut [u8] } -> Result<usize>,
        by carrier;

    /// What the host object was like when it was imported.
    host_identity = - { origin: Origin } -> Result<HostIdentity>,
        by carrier;

    /// Gives `inode` (backing host) the bytes of `donor` (a nameless file) and makes it
    /// `Backing::Image`; times stay. `Ok(false)` when it was the image's already.
    adopt = Import of inode { inode: Inode, donor: Inode } -> Result<bool>,
        by fs::overlay::adopt;

    /// Calls `emit(name, origin)` for each name of `dir` that came from the host and was removed
    /// or replaced since (whiteouts), for write-back. Removed directories keep theirs: a whiteout
    /// of a directory names everything below it.
    whiteouts = List {
        dir: Inode, emit: &mut dyn FnMut(&[u8], Origin) -> Result<()>,
    } -> Result<()>,
        by fs::directory::list::whiteouts;

    /// Total, free blocks (4 KiB) and total, free inodes.
    usage = - {} -> Usage,
        by carrier;

    /// Opens `inode` in `files` at the lowest free number >= `minimum` (< `limit`, `EMFILE`), with
    /// permission checked from `flags` (`O_ACCMODE`, `O_TRUNC`, `O_PATH`); returns the number.
    /// `ETXTBSY` for writing what a process runs. Open descriptions of a host-backed file are
    /// refused with `EIO`: such files are opened on the host and noted with
    /// `Descriptors::host_opened`.
    open = Open of inode {
        who: &Credentials<'_>, files: Files, inode: Inode, flags: u32, minimum: u32, limit: u32,
    } -> Result<u32>,
        by carrier;

    /// `create` and `open` in one transaction; `mode` as in `Node`. `EEXIST` when the
    /// name is there (the caller decides whether to open it).
    create_open = Create of dir {
        who: &Credentials<'_>, files: Files, dir: Inode, name: &[u8], mode: u32, flags: u32,
        limit: u32,
    } -> Result<u32>,
        by descriptor::open::create_open naming dir;
}}

/// Mode, owner and group.
pub type Rights = (u32, u32, u32);

/// Where to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// At this offset.
    At(u64),
    /// At the end, atomically (`O_APPEND`).
    End,
}

/// What `statfs` shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Blocks of 4 KiB in the image.
    pub blocks: u64,
    /// Of these, free.
    pub blocks_free: u64,
    /// Inodes in the image.
    pub inodes: u64,
    /// Of these, free.
    pub inodes_free: u64,
}

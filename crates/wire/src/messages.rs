//! The messages: kind, number, name, way, retry, request, reply, errors. The one declaration.

use husk_abi::Errno;

use crate::field::{Member as Part, NoRoom, Reader, Writer, choices, most};
use crate::record::*;
use crate::text::{List, Name};
use crate::version::Version;
use crate::{BODY_BYTES_MAX, Failure, Fault, Field, Header};

choices! {
    /// Who sends a message to whom.
    Way {
        /// Who uses an object to its home.
        AskerToHome = "asker to home",
        /// The home to who uses or holds.
        HomeToAsker = "home to asker",
        /// One home to another.
        HomeToHome = "home to home",
        /// Any node to any other.
        NodeToNode = "node to node",
        /// A node to all.
        NodeToAll = "node to all",
    }
    /// What a sender does that hears nothing.
    Retry {
        /// Sends it again under the same number; the reply comes from the home's cache.
        Cached = "same number, answered from the cache: once",
        /// Sends it again; doing it twice does no harm.
        Idempotent = "again, harmless",
        /// Nothing: it is told in order, and not answered.
        Posted = "none, not answered",
        /// Sends it until it is acknowledged by its number.
        Numbered = "until acknowledged by number",
    }
}

impl Retry {
    /// Whether it must not be done twice.
    pub const fn is_once(self) -> bool {
        matches!(self, Retry::Cached)
    }

    /// Whether nobody answers.
    pub const fn is_posted(self) -> bool {
        matches!(self, Retry::Posted)
    }
}

/// One kind of message: a type that stands for it, never a value.
pub trait Message {
    /// Its kind.
    const KIND: Kind;
    /// What its sender does that hears nothing.
    const RETRY: Retry;
    /// The body of what is asked or told.
    type Request<'a>: Field<'a>;
    /// The body of the answer.
    type Reply<'a>: Field<'a>;
}

/// Does something with the type of each kind.
pub trait Visitor {
    /// One kind.
    fn visit<M: Message>(&mut self);
}

/// Everything that is declared of a kind.
#[derive(Clone, Copy, Debug)]
pub struct Declaration {
    /// It.
    pub kind: Kind,
    /// What people call it: in traces, counts and on the page.
    pub name: &'static str,
    /// What it does, as documentation.
    pub text: &'static str,
    /// Who sends it.
    pub way: Way,
    /// What its sender does that hears nothing.
    pub retry: Retry,
    /// Fields of the request.
    pub request: &'static [Part],
    /// Fields of the reply.
    pub reply: &'static [Part],
    /// Errors of its own; those between nodes come on top.
    pub errors: &'static [Errno],
    /// Failures between nodes that mean something particular here.
    pub failures: &'static [Failure],
}

/// Encodes a body; how many bytes.
pub fn encode<'a>(body: &impl Field<'a>, room: &mut [u8]) -> Result<usize, NoRoom> {
    let mut to = Writer::new(room);
    body.put(&mut to);
    to.finish()
}

/// Decodes a body whole. What a newer minor version has added behind the fields is skipped.
pub fn decode<'a, B: Field<'a>>(header: &Header, body: &'a [u8]) -> Result<B, Fault> {
    let mut from = Reader::new(body);
    let fields = B::take(&mut from)?;
    let longer = !from.rest().is_empty() && !header.version.is_newer();
    if longer { Err(Fault::Long) } else { Ok(fields) }
}

/// Decodes the reply to a request of kind `M`: what was answered, or why it failed.
pub fn decode_reply<'a, M: Message>(
    header: &Header,
    body: &'a [u8],
) -> Result<Result<M::Reply<'a>, Failure>, Fault> {
    if header.kind != M::KIND as u16 || header.role != crate::Role::Reply {
        return Err(Fault::Unasked);
    }
    match Failure::of(header.status) {
        Some(_) if !body.is_empty() && !header.version.is_newer() => Err(Fault::Long),
        Some(failure) => Ok(Err(failure)),
        None => decode(header, body).map(Ok),
    }
}

macro_rules! fields {
    ($name:ident $(<$life:lifetime>)? { $($(#[$doc:meta])* $field:ident: $type:ty),* $(,)? }) => {
        crate::field::records! {
            #[allow(missing_docs)]
            $name $(<$life>)? { $($(#[$doc])* $field: $type),* }
        }
    };
}

const fn members(shape: &crate::Shape) -> &'static [Part] {
    match shape {
        crate::Shape::Record(_, members) => members,
        _ => &[],
    }
}

macro_rules! messages {
    ($($(#[doc = $doc:literal])+
    $kind:ident = $number:literal, $name:literal, $way:ident, $retry:ident {
        $(<$a:lifetime>)? $($asked:ident: $asked_type:ty),* $(,)?
    } -> {
        $(<$b:lifetime>)? $($said:ident: $said_type:ty),* $(,)?
    } $([$($error:ident)+])? $(fails $($failure:ident)+)? ;)*) => {
        /// The kinds of messages, by their numbers.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(u16)]
        pub enum Kind { $($(#[doc = $doc])+ $kind = $number),* }

        /// A type for each kind.
        pub mod message {
            $($(#[doc = $doc])+ #[derive(Clone, Copy, Debug)] pub enum $kind {})*
        }

        /// What is asked or told.
        pub mod request {
            use super::*;
            $(fields! { $kind $(<$a>)? { $($asked: $asked_type),* } })*
        }

        /// What is answered.
        pub mod reply {
            use super::*;
            $(fields! { $kind $(<$b>)? { $($said: $said_type),* } })*
        }

        $(impl Message for message::$kind {
            const KIND: Kind = Kind::$kind;
            const RETRY: Retry = Retry::$retry;
            type Request<'a> = request::$kind $(<$a>)?;
            type Reply<'a> = reply::$kind $(<$b>)?;
        })*

        /// All kinds, in the order of their numbers.
        pub const ALL: &[Declaration] = &[$(Declaration {
            kind: Kind::$kind,
            name: $name,
            text: concat!($($doc),+),
            way: Way::$way,
            retry: Retry::$retry,
            request: members(&<request::$kind as Field>::SHAPE),
            reply: members(&<reply::$kind as Field>::SHAPE),
            errors: &[$($(Errno::$error),+)?],
            failures: &[$($(Failure::$failure),+)?],
        }),*];

        /// Shows the type of each kind to `visitor`, in the order of their numbers.
        pub fn visit_all(visitor: &mut impl Visitor) {
            $(visitor.visit::<message::$kind>();)*
        }

        impl Kind {
            /// The kind of this number; `None`: retired, or of a newer version.
            pub const fn of(number: u16) -> Option<Kind> {
                match number {
                    $($number => Some(Kind::$kind),)*
                    _ => None,
                }
            }

            /// What people call it.
            pub const fn name(self) -> &'static str {
                match self { $(Kind::$kind => $name),* }
            }
        }

        // A body that does not fit a message, or a number that is used twice, does not compile.
        $(const _: () = {
            assert!(most(members(&<request::$kind as Field>::SHAPE)) <= BODY_BYTES_MAX);
            assert!(most(members(&<reply::$kind as Field>::SHAPE)) <= BODY_BYTES_MAX);
        };)*
    };
}

/// Numbers that messages had once; none is used again.
pub const RETIRED: &[u16] = &[];
/// One more than the highest number.
pub const KINDS: usize = {
    let (mut at, mut last) = (0, 0);
    while at < ALL.len() {
        let number = ALL[at].kind as usize;
        assert!(number > last, "messages stand in the order of their numbers");
        let mut retired = 0;
        while retired < RETIRED.len() {
            assert!(RETIRED[retired] as usize != number, "a retired number");
            retired += 1;
        }
        last = number;
        at += 1;
    }
    last + 1
};

messages! {
    // ---- membership
    /// Introduces a node, and asks for its place.
    Hello = 1, "hello", NodeToAll, Idempotent { <'a>
        version: Version, features: u64, member: Member, processor: u64, clock: Moment,
        epoch: u32, name: Name<'a>,
    } -> { <'a>
        version: Version, features: u64, epoch: u32, node: u16, root: Place, clock: Moment,
        term_ms: u32, members: List<'a, Member, 1024>,
    };
    /// Tells of a new epoch: what the dead had is void.
    Epoch = 2, "epoch", NodeToAll, Numbered { <'a>
        epoch: u32, members: List<'a, Member, 1024>, dead: List<'a, u16, 1024>,
    } -> { epoch: u32 };
    /// Tells how a node is doing.
    Load = 3, "load", NodeToAll, Posted {
        running: u32, cores: u32, memory_bytes: u64, clock: Moment, lanes: u32,
    } -> {};
    /// Goes away in order: who takes what is homed here?
    Leave = 4, "leave", NodeToNode, Cached { objects: u64 } -> { taken: u64 } [EBUSY];
    /// Takes over what was homed at a node that goes.
    Adopt = 5, "adopt", NodeToNode, Cached { <'a>
        objects: List<'a, Moved, 4096>,
    } -> { <'a> places: List<'a, Place, 4096> } [EBUSY];

    /// Asks for the home's memory, to be read, and that in which its agent takes short requests:
    /// their descriptors go along with the answer.
    Memory = 6, "memory", AskerToHome, Idempotent {} -> {
        kernels: u32, memory_bytes: u64,
    } [EOPNOTSUPP];

    // ---- the tree
    /// Steps down from a directory by up to eight names.
    Walk = 16, "walk", AskerToHome, Idempotent { <'a>
        directory: Object, names: List<'a, Name<'a>, 8>, wants: Wants, caller: Credentials<'a>,
    } -> { <'a> steps: List<'a, Step<'a>, 8> } [ENOENT ENOTDIR EACCES ELOOP];
    /// Lists a directory, a page at a time.
    ListNames = 17, "list", AskerToHome, Idempotent {
        directory: Object, cookie: u64, change: u64,
    } -> { <'a>
        entries: List<'a, Entry<'a>, 512>, cookie: u64, change: u64,
        grant: Option<Grant>,
    } fails Changed;
    /// Attributes of up to 64 inodes.
    GetAttributes = 18, "attributes", AskerToHome, Idempotent { <'a>
        objects: List<'a, Object, 64>,
    } -> { <'a> attributes: List<'a, Attributes, 64>, grant: Option<Grant> };
    /// Makes a file, and may open it.
    Create = 19, "create", AskerToHome, Cached { <'a>
        spot: Spot<'a>, mode: u32, device: u64, target: Option<Path<'a>>, flags: u32,
        open: Option<Access>, own: Option<Place>, caller: Credentials<'a>,
    } -> {
        attributes: Attributes, directory: Changed, copy_stands: bool,
        hold: Option<u64>, grant: Option<Grant>,
    } [EEXIST ENOENT ENOTDIR EACCES ENOSPC EDQUOT];
    /// Makes a directory.
    MakeDirectory = 20, "mkdir", AskerToHome, Cached { <'a>
        spot: Spot<'a>, mode: u32, caller: Credentials<'a>,
    } -> {
        attributes: Attributes, directory: Changed, copy_stands: bool,
        grant: Option<Grant>,
    } [EEXIST ENOENT ENOTDIR EACCES ENOSPC EMLINK];
    /// Gives an inode one more name.
    Link = 21, "link", AskerToHome, Cached { <'a>
        object: Object, spot: Spot<'a>, caller: Credentials<'a>,
    } -> {
        attributes: Attributes, directory: Changed, copy_stands: bool,
    } [EEXIST EMLINK EXDEV EACCES ENOENT];
    /// Removes a name.
    Remove = 22, "remove", AskerToHome, Cached { <'a>
        spot: Spot<'a>, what: What, caller: Credentials<'a>,
    } -> {
        object: Changed, directory: Changed, copy_stands: bool, is_last: bool, is_held: bool,
    } [EISDIR ENOTEMPTY EBUSY ENOENT ENOTDIR EACCES EPERM];
    /// Moves a name.
    Rename = 23, "rename", AskerToHome, Cached { <'a>
        source: Spot<'a>, target: Spot<'a>, flags: u32, caller: Credentials<'a>,
    } -> {
        source: Changed, target: Changed, copies_stand: bool, displaced: Option<Changed>,
    } [EEXIST EINVAL ENOTEMPTY ENOENT ENOTDIR EISDIR EACCES EXDEV];
    /// Sets attributes; a size cuts or extends.
    SetAttributes = 24, "setattr", AskerToHome, Cached { <'a>
        object: Object, settings: Settings, leaves: Leaves, caller: Credentials<'a>,
    } -> { attributes: Attributes } [EPERM EACCES EFBIG ETXTBSY];
    /// Extended attributes.
    Extended = 25, "xattr", AskerToHome, Cached { <'a>
        object: Object, call: AttributeCall, name: Value<'a>, value: Value<'a>, flags: u32,
        caller: Credentials<'a>,
    } -> { <'a> value: Value<'a>, change: u64 } [ENODATA ERANGE ENOSPC EPERM EEXIST];
    /// Tells a holder what changed, before it becomes visible at home.
    Revise = 26, "revise", HomeToAsker, Numbered { <'a>
        object: Object, grant: u64, from: u64, to: u64, name: Option<Name<'a>>,
        entry: Option<Attributes>, attributes: Option<Attributes>,
        bytes_void: bool, grant_void: bool,
    } -> { to: u64 };
    /// Gives promises back. Of what was closed without a word some time ago nobody is told now.
    Return = 27, "return", AskerToHome, Idempotent { <'a>
        grants: List<'a, u64, 256>, quiet: bool,
    } -> {};
    /// Renews all promises of the pair.
    Renew = 28, "renew", AskerToHome, Idempotent { highest: u64 } -> { term_ms: u32 };

    /// The directory that has a name of an object, and that name.
    Above = 29, "above", AskerToHome, Idempotent { object: Object } -> { <'a>
        directory: Object, name: Option<Name<'a>>,
    } [ENOENT];
    /// Where the host has what an inode was imported from.
    HostFile = 30, "host-file", AskerToHome, Idempotent { origin: u32 } -> { <'a>
        path: Path<'a>, identity: Identity,
    } [ENOENT];
    /// Space and inodes of the home, in all and free.
    Room = 31, "room", AskerToHome, Idempotent {} -> {
        blocks: u64, blocks_free: u64, inodes: u64, inodes_free: u64,
    };

    // ---- bytes
    /// Opens an inode: a hold on it, and its bytes where they are few.
    Open = 32, "open", AskerToHome, Cached { <'a>
        object: Object, flags: u32, access: Access, leaves: Leaves, caller: Credentials<'a>,
    } -> { <'a>
        hold: u64, attributes: Attributes, grant: Option<Grant>,
        data: Option<Data<'a>>,
    } [ETXTBSY EACCES EPERM EISDIR];
    /// Bytes of a file, and some behind them.
    Read = 33, "read", AskerToHome, Idempotent {
        hold: u64, offset: u64, length: u32, ahead: u32,
    } -> { <'a> data: Data<'a>, change: u64 };
    /// Brings bytes home; the last one of a hold closes it.
    WriteHome = 34, "write-home", AskerToHome, Cached { <'a>
        hold: u64, grant: u64, run: Run<'a>, size: Option<u64>, modified: Option<Moment>,
        close: bool, leaves: Leaves,
    } -> {
        attributes: Attributes, offset: u64, count: u64,
    } [ENOSPC EDQUOT EFBIG] fails Revoked;
    /// Blocks and holes.
    Space = 35, "space", AskerToHome, Cached {
        hold: u64, call: SpaceCall, offset: u64, length: u64, keep_size: bool, leaves: Leaves,
    } -> { offset: u64, change: u64 } [ENOSPC ENXIO EFBIG];
    /// Locks a range. Where it is not granted, `change` is the word that its waiters sleep on.
    Lock = 36, "lock", AskerToHome, Cached {
        object: Object, owner: u64, range: Range, mode: LockMode, waits: bool, by: LockBy,
    } -> { is_granted: bool, change: u64 } [EAGAIN EDEADLK ENOLCK];
    /// Lets a range go.
    Unlock = 37, "unlock", AskerToHome, Cached {
        object: Object, owner: u64, range: Range, by: LockBy,
    } -> {} [ENOLCK];
    /// The lock that was waited for is had.
    Locked = 38, "locked", HomeToAsker, Numbered { waiting: u32, change: u64 } -> { waiting: u32 };
    /// Gives up on a request that waits.
    Cancel = 39, "cancel", AskerToHome, Cached { waiting: u32 } -> { was_done: bool };

    /// Makes the first bytes of an unmodified host file the image's own, or takes in how it is now.
    Own = 40, "own", AskerToHome, Idempotent { object: Object, keep: Option<u64> } -> {
        attributes: Attributes,
    } [ENOENT ENOSPC EIO];

    // ---- plans over two homes and spread directories
    /// Keeps a name for a plan.
    Reserve = 48, "reserve", HomeToHome, Cached { <'a>
        intent: Intent, spot: Spot<'a>, caller: Credentials<'a>,
    } -> { displaced: Option<Changed> } [ENOENT EACCES] fails Busy;
    /// Ends a plan's reservation: it failed, or it may be forgotten.
    Release = 49, "release", HomeToHome, Cached { intent: Intent, has_failed: bool } -> {};
    /// Maps a name to an inode of another home.
    AddMap = 50, "add-map", HomeToHome, Cached { <'a>
        intent: Intent, spot: Spot<'a>, inode: Place, replace: bool,
    } -> { displaced: Option<Place> } [EEXIST ENOTEMPTY ENOSPC] fails Busy;
    /// A name elsewhere came or went.
    Count = 51, "count", HomeToHome, Cached {
        object: Object, is_one_more: bool,
    } -> { links: u32 } fails Gone;
    /// Takes or gives the one turn to move directories between parents.
    TreeTurn = 52, "tree-turn", AskerToHome, Cached { take: bool, directory: Place } -> { <'a>
        parents: List<'a, Place, 1024>,
    } fails Busy;
    /// Marks a shard of a directory that is to be removed, if it is empty.
    Mark = 53, "mark", HomeToHome, Cached { directory: Place, attempt: u64 } -> {
        attempt: u64, is_empty: bool,
    };
    /// Ends an attempt to remove a directory.
    End = 54, "end", HomeToHome, Cached {
        directory: Place, attempt: u64, verdict: Verdict,
    } -> { attempt: u64 };
    /// Lists the shards of a spread directory.
    SpreadList = 55, "spread-list", AskerToHome, Idempotent { <'a>
        directory: Place, shard: Shard, changes: List<'a, u64, 64>,
    } -> { <'a>
        entries: List<'a, Entry<'a>, 512>, shard: Shard, change: u64,
    };

    // ---- open-file descriptions
    /// Takes over a descriptor of a program that goes on at another node.
    PassDescription = 64, "d-pass", AskerToHome, Cached { process: u32, number: u32 } -> {
        what: Passing, passed: Passed, grant: Option<Grant>,
    } [EBADF ESRCH EMFILE];
    /// Asks the owner of an offset to bring it home: the description is shared from now on.
    RecallDescription = 65, "d-recall", HomeToAsker, Numbered {
        description: Object, grant: u64,
    } -> { grant: u64, offset: u64, are_bytes_home: bool };
    /// Reads, writes, seeks at the shared offset: which bytes are the reader's is all it is told.
    DescriptionIo = 66, "d-io", AskerToHome, Cached { <'a>
        description: Object, call: Transfer, count: u64, from: u64, flags: u32, leaves: Leaves,
        data: Data<'a>,
    } -> { count: u64, offset: u64, yours: Option<u64> } [EBADF ENOSPC EDQUOT EFBIG];
    /// One user of a description more or fewer.
    DescriptionUsers = 67, "d-users", AskerToHome, Cached {
        description: Object, is_one_more: bool,
    } -> { users: u32 };

    // ---- streams, terminals, devices of another node
    /// Reads; the bytes are kept until the next request acknowledges them.
    StreamRead = 80, "s-read", AskerToHome, Cached {
        handle: u64, most: u32, waits: bool, peeks: bool, acknowledged: u32,
    } -> { <'a> data: Data<'a> } [EAGAIN EINTR];
    /// Writes; whole up to PIPE_BUF.
    StreamWrite = 81, "s-write", AskerToHome, Cached { <'a>
        handle: u64, data: Data<'a>, waits: bool,
    } -> { count: u32 } [EPIPE EAGAIN EINTR];
    /// What a handle is ready for, now.
    StreamReady = 82, "s-ready", HomeToAsker, Posted { handle: u64, ready: Ready } -> {};
    /// Calls of a closed list.
    StreamControl = 83, "s-control", AskerToHome, Cached { <'a>
        handle: u64, call: ControlCall, number: u32, value: Small<'a>,
    } -> { <'a> result: i64, value: Small<'a> } [ENOTTY ENOSYS EINVAL EAGAIN];

    // ---- processes
    /// Runs a program on another node.
    Spawn = 96, "spawn", AskerToHome, Cached { <'a>
        number: u32, program: Place, directory: Place, arguments: Arguments<'a>,
        environment: Arguments<'a>, umask: u32, group: u32, signals_seen: u64, blocked: u64,
        ignored: u64, limits: List<'a, Limit, 16>, passed: List<'a, Passed, 1024>,
        caller: Credentials<'a>,
    } -> { runs: bool } [ENOEXEC E2BIG EAGAIN EACCES ENOMEM];
    /// A new process joins its group, before its first instruction.
    Join = 97, "join", NodeToNode, Cached { number: u32, group: u32, seen: u64 } -> {
        count: u64, missed: u64,
    } [ESRCH];
    /// A signal for a process or a group.
    Signal = 98, "signal", NodeToNode, Cached {
        number: i32, signal: u32, code: i32, value: u64, count: u64,
    } -> { reached: u32 } [ESRCH EPERM];
    /// What became of a process, for the one that stands for it.
    Status = 99, "status", NodeToNode, Numbered {
        number: u32, fate: Fate, code: i32, usage: Usage,
    } -> { number: u32, is_reaped: bool };
    /// A parent ended: its children elsewhere get another.
    ParentDead = 100, "parent-dead", NodeToNode, Numbered { <'a>
        numbers: List<'a, u32, 1024>, parent: u32,
    } -> { <'a> ended: List<'a, u32, 1024> };
    /// Groups, sessions, priorities, limits, by number.
    Family = 101, "family", AskerToHome, Cached {
        call: FamilyCall, number: u32, value: i64, limit: Option<Limit>,
    } -> { value: i64, limit: Option<Limit> } [EPERM ESRCH EACCES EINVAL];
    /// A file of /proc of a process elsewhere.
    ProcRead = 102, "proc-read", AskerToHome, Idempotent { <'a>
        number: u32, file: Name<'a>, offset: u64,
    } -> { <'a> data: Value<'a> } [ENOENT EACCES ESRCH];
}

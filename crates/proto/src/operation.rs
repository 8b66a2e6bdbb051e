//! Types of operations, as they are counted and shown to people.
//!
//! Questions that are answered at a glance (which descriptor is this?) are no operations.

/// A type of operation. Its number is its place among a thread's counters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Operation {
    /// A step of a path, the target of a link.
    Walk,
    /// Attributes are asked for.
    Stat,
    /// Bytes, or where some are.
    Read,
    /// Names of a directory.
    List,
    /// Bytes pass through a pipe of the image, outside what is guarded.
    Pipe,
    /// A file is opened.
    Open,
    /// A descriptor is closed.
    Close,
    /// Bytes are written.
    Write,
    /// A file or directory is made, and maybe opened.
    Create,
    /// A name is added to a file.
    Link,
    /// A name is removed.
    Remove,
    /// A name is moved.
    Rename,
    /// Attributes are set.
    Change,
    /// A file is made longer or shorter, gets blocks or holes.
    Resize,
    /// Blocks are asked for, to be mapped.
    Map,
    /// An overlay takes over what the host has.
    Import,
    /// A descriptor of the host is noted or forgotten.
    Host,
    /// An offset is set.
    Seek,
    /// A descriptor is duplicated.
    Duplicate,
    /// A lock of a file.
    Lock,
    /// A process is made.
    Fork,
    /// A process runs another program.
    Exec,
    /// The end of a process is completed, by itself or by who buries it.
    Exit,
    /// Watches are set, and read.
    Watch,
    /// A descriptor travels in a message.
    Message,
    /// A directory becomes one that any kernel changes.
    Widen,
    /// A directory is one kernel's again.
    Narrow,
}

/// Number of types.
pub const OPERATIONS: usize = 27;
/// The first of them change nothing: they take no lock, and are counted apart.
pub const LOOKS: usize = 5;

const _: () = assert!(Operation::Narrow as usize + 1 == OPERATIONS);
const _: () = assert!(Operation::Pipe as usize + 1 == LOOKS);

/// What each is called, by number.
pub const NAMES: [&str; OPERATIONS] = [
    "walk",
    "stat",
    "read",
    "list",
    "pipe",
    "open",
    "close",
    "write",
    "create",
    "link",
    "remove",
    "rename",
    "change",
    "resize",
    "map",
    "import",
    "host",
    "seek",
    "duplicate",
    "lock",
    "fork",
    "exec",
    "exit",
    "watch",
    "message",
    "widen",
    "narrow",
];

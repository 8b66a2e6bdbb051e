//! Types of operations, as they are counted and shown to people.
//!
//! Shortcuts (which descriptor is this?) are not counted.

macro_rules! types {
    ($($(#[doc = $doc:literal])+ $type:ident = $name:literal,)*) => {
        /// A type of operation. Its number is its place among a thread's counters.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(u32)]
        pub enum Operation { $($(#[doc = $doc])+ $type),* }

        /// What each is called, by number.
        pub const NAMES: [&str; OPERATIONS] = [$($name),*];

        /// Number of types.
        pub const OPERATIONS: usize = [$($name),*].len();
    };
}

types! {
    /// A step of a path, the target of a link.
    Walk = "walk",
    /// Attributes are asked for.
    Stat = "stat",
    /// Bytes, or where some are.
    Read = "read",
    /// Names of a directory.
    List = "list",
    /// Bytes pass through a pipe of the image, outside what is guarded.
    Pipe = "pipe",
    /// A file is opened.
    Open = "open",
    /// A descriptor is closed.
    Close = "close",
    /// Bytes are written.
    Write = "write",
    /// A file or directory is made, and maybe opened.
    Create = "create",
    /// A name is added to a file.
    Link = "link",
    /// A name is removed.
    Remove = "remove",
    /// A name is moved.
    Rename = "rename",
    /// Attributes are set.
    Change = "change",
    /// A file is made longer or shorter, gets blocks or holes.
    Resize = "resize",
    /// Blocks are asked for, to be mapped.
    Map = "map",
    /// An overlay takes over what the host has.
    Import = "import",
    /// A descriptor of the host is noted or forgotten.
    Host = "host",
    /// An offset is set.
    Seek = "seek",
    /// A descriptor is duplicated.
    Duplicate = "duplicate",
    /// A lock of a file.
    Lock = "lock",
    /// A process is made.
    Fork = "fork",
    /// A process runs another program.
    Exec = "exec",
    /// The end of a process is completed, by itself or by who buries it.
    Exit = "exit",
    /// Watches are set, and read.
    Watch = "watch",
    /// A descriptor travels in a message.
    Message = "message",
    /// A directory becomes one that any kernel changes.
    Widen = "widen",
    /// A directory is one kernel's again.
    Narrow = "narrow",
}

/// The first of them change nothing: they take no lock, and are counted apart.
pub const LOOKS: usize = Operation::Pipe as usize + 1;

//! Records that several messages share.

use crate::field::{choices, flags, records};
use crate::text::{Bytes, List, Name};

/// Longest target of a symbolic link, and longest path, without the NUL.
pub const PATH_BYTES_MAX: u32 = husk_abi::PATH_MAX as u32 - 1;
/// Most bytes of a file that travel inside a message instead of a run of their own.
pub const BYTES_MAX: u32 = 400 * husk_abi::PAGE as u32;
/// Most bytes of a list of arguments or an environment: what Linux allows a quarter of a stack.
pub const ARGUMENTS_BYTES_MAX: u32 = 128 << 10;

/// A path, or the target of a link.
pub type Path<'a> = Bytes<'a, PATH_BYTES_MAX>;
/// Arguments or variables, a NUL behind each.
pub type Arguments<'a> = Bytes<'a, ARGUMENTS_BYTES_MAX>;
/// Bytes of a file, pipe or socket.
pub type Data<'a> = Bytes<'a, BYTES_MAX>;
/// What a call that only passes through is given or gives: an ioctl, an option, a file of /proc.
pub type Small<'a> = Bytes<'a, 4096>;
/// Name or value of an extended attribute.
pub type Value<'a> = Bytes<'a, 65536>;

records! {
    /// An inode or open-file description of the home that the message goes to or comes from.
    #[derive(Eq)]
    Object {
        /// Its number there.
        number: u64,
        /// Which of those that had this number.
        generation: u32,
    }
    /// An object, wherever its home is.
    #[derive(Eq)]
    Place {
        /// Its home's node.
        home: u16,
        /// It.
        object: Object,
    }
    /// A time, by the clock of the object's home.
    #[derive(Eq)]
    Moment {
        /// Since 1970.
        seconds: i64,
        /// Below a thousand million.
        nanoseconds: u32,
    }
    /// What stat tells of an inode, and the number of its last change.
    #[derive(Eq)]
    Attributes {
        /// Which inode.
        place: Place,
        /// File type and permissions, as Linux has them.
        mode: u32,
        /// How many names.
        links: u32,
        /// Owner.
        uid: u32,
        /// Group.
        gid: u32,
        /// Of a device.
        device: u64,
        /// In bytes.
        size: u64,
        /// In 512 bytes.
        blocks: u64,
        /// Times.
        accessed: Moment,
        /// Times.
        modified: Moment,
        /// Times.
        changed: Moment,
        /// Times.
        born: Moment,
        /// Counts changes of names, attributes or bytes.
        change: u64,
        /// `st_dev` and `st_ino` as programs see them.
        shown_device: u64,
        /// The number that programs see.
        shown_number: u64,
        /// What it is; the mode has permissions only.
        sort: Sort,
        /// Its bytes are the host's, unmodified.
        on_host: bool,
        /// Its extended attributes are the host's.
        extended_on_host: bool,
        /// The home's record of the host object it was imported from.
        origin: Option<u32>,
    }
    /// What identified a host object when it was imported.
    #[derive(Eq)]
    Identity {
        /// `st_dev`.
        device: u64,
        /// `st_ino`.
        inode: u64,
        /// In bytes.
        size: u64,
        /// Since 1970, in ns.
        modified_ns: i64,
        /// Since 1970, in ns.
        changed_ns: i64,
    }
    /// A promise to call back before something changes.
    #[derive(Eq)]
    Grant {
        /// Its number; a later one for the same object is higher.
        number: u64,
        /// Of what.
        kinds: Promises,
        /// From the first sending of the request, by the holder's clock; 0: as long as the link.
        term_ms: u32,
    }
    /// Who asks: rights are judged at the home.
    Credentials<'a> {
        /// File-system user.
        uid: u32,
        /// File-system group.
        gid: u32,
        /// Effective capabilities, one bit each.
        capabilities: u64,
        /// Supplementary groups.
        groups: List<'a, u32, 1024>,
    }
    /// An entry of a directory.
    Entry<'a> {
        /// Its name.
        name: Name<'a>,
        /// Where the listing goes on behind it.
        cookie: u64,
        /// What it leads to.
        attributes: Attributes,
    }
    /// One step of a walk.
    Step<'a> {
        /// Where it leads.
        attributes: Attributes,
        /// A promise on it.
        grant: Option<Grant>,
        /// Of a small directory, all of it under the same promise.
        listing: Option<List<'a, Entry<'a>, 64>>,
        /// Of a symbolic link.
        target: Option<Path<'a>>,
    }
    /// Bytes at their place in a file.
    Run<'a> {
        /// Where they begin.
        offset: u64,
        /// They.
        data: Data<'a>,
    }
    /// A name in a directory.
    Spot<'a> {
        /// The directory.
        directory: Object,
        /// The name.
        name: Name<'a>,
    }
    /// What is set of an inode's attributes; absent: stays.
    Settings {
        /// Permissions.
        mode: Option<u32>,
        /// Owner.
        uid: Option<u32>,
        /// Group.
        gid: Option<u32>,
        /// Times.
        accessed: Option<Moment>,
        /// Times.
        modified: Option<Moment>,
        /// Cuts or extends the file.
        size: Option<u64>,
    }
    /// An object with the number of its last change.
    #[derive(Eq)]
    Changed {
        /// Which.
        object: Object,
        /// Its change number now.
        change: u64,
    }
    /// A numbered step of a plan over two homes, which recovery completes or undoes.
    #[derive(Eq)]
    Intent {
        /// The node that coordinates.
        coordinator: u16,
        /// Its number there.
        number: u64,
    }
    /// A cookie of one shard of a spread directory.
    #[derive(Eq)]
    Shard {
        /// The node that has it.
        node: u16,
        /// Where its listing goes on.
        cookie: u64,
    }
    /// A range of bytes that is locked, as fcntl has it.
    #[derive(Eq)]
    Range {
        /// The first byte.
        start: u64,
        /// 0: to the end, however far that is.
        length: u64,
    }
    /// A descriptor that a program starts with, or gets in a message.
    #[derive(Eq)]
    Passed {
        /// Its number in the process.
        number: u32,
        /// The open-file description, and the node that owns its offset.
        description: Place,
        /// Whose bytes they are.
        inode: Place,
        /// Where it stands; void while the description is shared.
        offset: u64,
        /// Flags of open.
        flags: u32,
        /// The hold on the inode that comes with it.
        hold: u64,
        /// Whose the offset is.
        state: Owning,
        /// Closed by exec.
        close_on_exec: bool,
    }
    /// A resource limit, by Linux's number.
    #[derive(Eq)]
    Limit {
        /// Which.
        resource: u32,
        /// Soft.
        soft: u64,
        /// Hard.
        hard: u64,
    }
    /// What a process has used.
    #[derive(Eq)]
    Usage {
        /// In programs.
        user_us: u64,
        /// In the host's kernel.
        system_us: u64,
        /// Most memory at once.
        memory_kib: u64,
    }
    /// A node as the others know it.
    #[derive(Eq)]
    Member {
        /// Its number.
        node: u16,
        /// Its host's number.
        host: u16,
        /// Which life of it.
        life: u32,
    }
    /// Something of a home that another node takes over.
    #[derive(Eq)]
    Moved {
        /// What.
        object: Object,
        /// Open-file description, not inode.
        is_description: bool,
    }
}

choices! {
    /// What an inode is.
    Sort {
        /// Regular file.
        File = "file",
        /// Directory.
        Directory = "directory",
        /// Symbolic link.
        Symlink = "symlink",
        /// What only the host can serve, at the path of its origin.
        Portal = "portal",
        /// FIFO of the image.
        Fifo = "fifo",
        /// Socket of the image.
        Socket = "socket",
        /// Character device of the image.
        CharacterDevice = "character device",
        /// Block device of the image.
        BlockDevice = "block device",
    }
    /// What bytes are opened for.
    Access {
        /// To read.
        Read = "read",
        /// To write.
        Write = "write",
        /// Both.
        Both = "both",
        /// To be run as a program.
        Run = "run",
    }
    /// What a change of content leaves of set-user and set-group bits.
    Leaves {
        /// The set-group bit where it marks locking.
        Marks = "marks",
        /// Nothing.
        Nothing = "nothing",
        /// All.
        All = "all",
        /// The sender has not judged: refused where it matters.
        Ask = "ask",
    }
    /// Where the offset of an open-file description is while it moves.
    Owning {
        /// Just opened: the user's alone.
        JustOpened = "JUST_OPENED",
        /// The owner hands it over.
        Migrating = "OWNER_MIGRATING",
        /// It has come.
        Done = "OWNER_MIGRATION_DONE",
        /// The home's, for several use it.
        UpdateNeeded = "UPDATE_NEEDED",
    }
    /// What of a descriptor goes to another node.
    Passing {
        /// An open-file description of the image.
        Description = "description",
        /// The host's descriptor of a file that the image shows.
        File = "file",
        /// The host's descriptor of what has a name in the image: a FIFO.
        Node = "node",
    }
    /// What is done with bytes at a shared offset.
    Transfer {
        /// Reads: the offset moves by what there is of the count.
        Read = "read",
        /// Writes; with `O_APPEND` at the end.
        Write = "write",
        /// Tells the offset.
        Tell = "tell",
        /// Sets the offset to the count.
        Seek = "seek",
        /// The same, if it still is what the asker was given.
        Return = "return",
        /// Lists entries.
        List = "list",
        /// Sets the flags that fcntl can set.
        Flags = "flags",
    }
    /// How a record lock is held.
    LockMode {
        /// With others.
        Shared = "shared",
        /// Alone.
        Exclusive = "exclusive",
    }
    /// Whose a lock is.
    LockBy {
        /// A process's: of its descriptor table, by number.
        Process = "process",
        /// An open-file description's, by the hold on it.
        Description = "description",
        /// The same, by `flock`: apart from the other two.
        Flock = "flock",
        /// A mapping's that is written through, by the hold on its file: in the way of others such,
        /// and of nothing else.
        Mapping = "mapping",
    }
    /// What is done with extended attributes.
    AttributeCall {
        /// Value of a name.
        Get = "get",
        /// All names.
        List = "list",
        /// Sets one.
        Set = "set",
        /// Removes one.
        Remove = "remove",
    }
    /// What is done with the blocks of a file.
    SpaceCall {
        /// Gives it blocks.
        Allocate = "allocate",
        /// Makes a hole.
        Punch = "punch",
        /// The next data.
        Data = "data",
        /// The next hole.
        Hole = "hole",
    }
    /// How an attempt to remove a spread directory ends.
    Verdict {
        /// It is removed.
        Commit = "commit",
        /// It stays.
        Abort = "abort",
    }
    /// What became of a process.
    Fate {
        /// It ended.
        Exited = "exited",
        /// A signal ended it.
        Killed = "killed",
        /// It stopped.
        Stopped = "stopped",
        /// It goes on.
        Continued = "continued",
    }
    /// What is asked of a process or its family.
    FamilyCall {
        /// setpgid.
        SetGroup = "setpgid",
        /// getpgid.
        Group = "getpgid",
        /// setsid.
        SetSession = "setsid",
        /// getsid.
        Session = "getsid",
        /// tcsetpgrp.
        Foreground = "tcsetpgrp",
        /// setpriority.
        SetPriority = "setpriority",
        /// getpriority.
        Priority = "getpriority",
        /// prlimit.
        Limits = "prlimit",
    }
    /// What is done with a host object from elsewhere, by a closed list.
    ControlCall {
        /// ioctl.
        Ioctl = "ioctl",
        /// tcgetattr.
        GetTerminal = "tcgetattr",
        /// tcsetattr.
        SetTerminal = "tcsetattr",
        /// getsockopt.
        GetOption = "getsockopt",
        /// setsockopt.
        SetOption = "setsockopt",
        /// accept.
        Accept = "accept",
        /// shutdown.
        Shutdown = "shutdown",
        /// getsockname.
        Name = "getsockname",
        /// getpeername.
        Peer = "getpeername",
    }
    /// What is removed or made where a file or a directory can be.
    What {
        /// Anything but a directory.
        File = "file",
        /// A directory.
        Directory = "directory",
    }
}

flags! {
    /// What a promise is about.
    Promises {
        NAMES = 0, "names";
        ATTRIBUTES = 1, "attributes";
        BYTES_READ = 2, "bytes, to read";
        BYTES_WRITE = 3, "bytes, to write";
    }
    /// What a walk brings besides attributes.
    Wants {
        GRANT = 0, "grant";
        LISTING = 1, "listing";
        TARGET = 2, "target";
        FOLLOW = 3, "follow the last link";
    }
    /// What a host object is ready for.
    Ready {
        INPUT = 0, "input";
        OUTPUT = 1, "output";
        URGENT = 2, "urgent";
        HANGUP = 3, "hangup";
        ERROR = 4, "error";
    }
}

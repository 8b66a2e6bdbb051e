//! Shortcuts: looks that a caller on the same shared memory may take instead of an operation.
//!
//! A shortcut takes no lock and changes nothing that other threads see. Its default answer is
//! "unknown", and the caller then uses the operation. A shortcut without a default returns what
//! never changes while a thread runs, or what only this thread changes.

use crate::Result;
use crate::descriptor::{Description, Files, Glance};
use crate::epoll::{Member, Set, Sight};
use crate::flight::Flight;
use crate::fs::{HostIdentity, Inode, Piece, Span, Witness};
use crate::image::{Mount, Rewritten, Udp};
use crate::pipe::{Addresses, Delays, End, Event, LookOut, Pipe, Posted};
use crate::process::Process;
use crate::watch::Instance;

operations! { ($) shortcuts

/// What a caller on the same shared memory may look at.
Shortcuts in shortcuts, looks {
    // ---- fs

    /// Whether one look tells that the bytes of an inode are the host's.
    has_host_bytes = - of inode { inode: Inode } -> bool = false,
        by descriptor::hosts::has_host_bytes;

    /// Whether all these steps would still be answered as they were, times and owners aside. Who
    /// cannot tell says no.
    holds = - { witnesses: &[Witness] } -> bool = false,
        by carrier;

    /// Where all that a read of `length` bytes at `offset` gives lies, if it is one piece and there
    /// is some. Who has copied it asks `has_read`. `None`: `read` knows.
    piece = - of inode { inode: Inode, offset: u64, length: usize } -> Option<Piece> = None,
        by fs::bytes::piece;

    /// Whether what was copied from a piece are the file's bytes; notes the access if so. If not,
    /// nothing has been read.
    has_read = - { inode: Inode, piece: Piece } -> bool = false,
        by carrier;

    // ---- inodes that another node is the home of -----------------------------------------------
    /// Whether another node is the home of an inode.
    is_elsewhere = - { inode: Inode } -> bool = false,
        by carrier;

    // ---- descriptor

    /// The Husk descriptor `fd` of the calling process's own table. `None`: one look does not tell.
    glance = - { fd: u32 } -> Option<Glance> = None,
        by descriptor::table::glance;

    /// Whether one look tells that `fd` there is the host's to answer for: nothing of Husk's stands
    /// behind it.
    is_hosts = - { fd: u32 } -> bool = false,
        by descriptor::hosts::is_hosts;

    /// Calls on `fd` may go to the host without asking again, if it is the host's and only the
    /// calling thread can change that; ends with the next change of the number. A hint: may do
    /// nothing.
    pass_host = - { fd: u32 } -> () = (),
        by descriptor::hosts::pass;

    /// Number `fd` is a directory of the host with no tree of the image at or below it, as was so
    /// when `Image::outside_age` was `age`, in a table that this thread alone has; ends with the
    /// next change of the number. A hint: may do nothing.
    note_outlying = - { fd: u32, age: u64 } -> () = (),
        by carrier;

    /// Whether that is known, and holds.
    is_outlying = - { fd: u32 } -> bool = false,
        by carrier;

    /// Whether one look tells that the host reads what is behind `fd`: a file of the image whose
    /// bytes are the host's, opened there.
    reads_host = - { fd: u32 } -> bool = false,
        by carrier;

    /// Only the flags of `description`.
    flags = - { description: Description } -> Result<u32>,
        by descriptor::open::flags;

    /// The first number in use at or after `from`, for who changes the table between two.
    next_number = - { files: Files, from: u32 } -> Option<u32>,
        by carrier;

    /// `host_opened` of a descriptor that shows nothing, in the process's own table, at once or not
    /// at all. False: nothing was noted; call `host_opened`.
    try_host_opened = - { fd: u32, close_on_exec: bool } -> bool = false,
        by carrier;

    /// `host_closed` in the process's own table, at once or not at all: of a number that shows
    /// nothing, or a shadow whose file has no locks. False: nothing changed; call `host_closed`.
    try_host_closed = - { fd: u32 } -> bool = false,
        by carrier;

    // ---- flight

    /// The flight in slot `index`, if there is one; `None` behind the last slot.
    flight = - { index: u32 } -> Option<Option<Flight>> = None,
        by carrier;

    // ---- process

    /// The record of the calling thread's process.
    current = - {} -> Process,
        by carrier;

    /// Whether the calling thread is known to be the only one of its process.
    is_alone = - {} -> bool,
        by carrier;

    /// Whether no other thread makes descriptors in the table of the calling one.
    has_table_alone = - {} -> bool,
        by carrier;

    /// The descriptor table of the calling thread.
    files = - {} -> Files,
        by process::files;

    /// The descriptor table of the process of the image with host process id `pid`, to look into.
    files_of = - { pid: u32 } -> Option<Files> = None,
        by carrier;

    // ---- pipe

    /// Whether new pipes get a ring.
    pipes_wanted = - {} -> bool = false,
        by pipe::wanted;

    /// The end that host number `fd` is, without a token.
    pipe_end = - { files: Files, fd: u32 } -> Option<End> = None,
        by pipe::end;

    /// The end that `fd` of the first numbers of the own table is, and whether this thread alone
    /// can have the pipe, as long as nobody comes in from outside (`pipe_show`).
    pipe_sight = - { fd: u32 } -> Option<(End, bool)> = None,
        by pipe::sight;

    /// The eventfd that host number `fd` is, if its count is, or was, the image's.
    event = - { files: Files, fd: u32 } -> Option<Event> = None,
        by readiness::eventfd::event;

    /// Whether new unix sockets get rings.
    lanes_wanted = - {} -> bool = false,
        by pipe::lanes_wanted;

    /// Whether the image has a lender, from whom programs of different users get sockets.
    lends_sockets = - {} -> bool = false,
        by pipe::lends;

    /// Whether any lane waits.
    any_lane_awaits = - {} -> bool = false,
        by pipe::lanes::any_awaits;

    /// Whether the mate of this lane does.
    lane_mate_awaits = - { lane: Pipe } -> bool = false,
        by pipe::lanes::mate_awaits;

    /// Whether a lane and its mate are the host's for good.
    lane_is_hosts = - { lane: Pipe } -> bool = true,
        by pipe::lanes::is_hosts without kernel;

    /// Who has said so of these, whose other end is awaited.
    lane_posted = - { addresses: &Addresses } -> Posted = Posted::Nobody,
        by pipe::tcp::posted;

    /// Whether a lane is of TCP, as far as that has been said.
    lane_is_tcp = - { lane: Pipe } -> bool = false,
        by pipe::tcp::is_tcp without kernel;

    /// Whether both ends of a lane are known.
    lane_is_claimed = - { lane: Pipe } -> bool = false,
        by pipe::tcp::is_claimed without kernel;

    /// What the program at the end that reads from a lane lets the host hold back.
    lane_delay = - { lane: Pipe } -> Delays = Delays::default(),
        by pipe::tcp::delay without kernel;

    /// Whether one number alone names a lane: no other process has that socket.
    lane_is_last = - { lane: Pipe } -> bool = true,
        by pipe::tcp::is_last;

    /// Whether anything came out of its ring.
    lane_was_used = - { lane: Pipe } -> bool = false,
        by pipe::tcp::was_used without kernel;

    /// Bytes of the pipe that the host has been given, and nobody has taken.
    pipe_at_host = - { pipe: Pipe } -> u64 = 0,
        by pipe::flow::at_host;

    /// Whether a lane stays the host's.
    lane_is_pinned = - { lane: Pipe } -> bool = true,
        by pipe::lanes::is_pinned without kernel;

    /// Whether that is so, and nothing is left in its ring.
    lane_is_left = - { lane: Pipe } -> bool = false,
        by pipe::lanes::is_left without kernel;

    /// Locks are held (`Withdrawal::Bytes`): whether the host has no bytes of the pipe.
    pipe_is_even = - { pipe: Pipe } -> bool = false,
        by pipe::flow::is_even;

    /// The sleep of the set that waits for bytes of this lane, whose ring is in use; 0: none.
    lane_asleep = - { lane: Pipe } -> u64 = 0,
        by pipe::hooks::asleep without kernel;

    /// The bell of the set that waits for bytes of this lane (`epoll_bell`).
    lane_bell = - { lane: Pipe } -> u64 = 0,
        by pipe::hooks::bell without kernel;

    /// This thread is about to sleep, by a bell, until there are bytes in a lane, for which `bell`
    /// is to be rung. False: that cannot be.
    lane_poll = - { lane: Pipe, bell: u64 } -> bool = false,
        by pipe::hooks::poll without kernel;

    /// It does not sleep any more.
    lane_unpoll = - { lane: Pipe, bell: u64 } -> () = (),
        by pipe::hooks::unpoll without kernel;

    /// The bell that is to be rung for bytes in a lane; 0: nobody sleeps.
    lane_polled = - { lane: Pipe } -> u64 = 0,
        by pipe::hooks::polled without kernel;

    /// The processor's time stamp.
    ticks = - {} -> u64 = 0,
        by pipe::hooks::ticks without kernel;

    /// Who is about to sleep for bytes of a lane looks on for some.
    lane_look_out = - { lane: Pipe } -> LookOut = LookOut::Nothing,
        by pipe::hooks::look_out without kernel;

    /// The reader of a pipe whose writer was last seen on this core takes the ring again, if the
    /// host has no bytes: it need not sleep for the next ones.
    pipe_join_writer = - { pipe: Pipe } -> () = (),
        by pipe::flow::join_writer;

    /// Whether the ring of a lane is in use and has room for so many bytes.
    lane_has_room = - { lane: Pipe, bytes: u64 } -> bool = false,
        by pipe::hooks::has_room without kernel;

    /// Whether the host has just been asked about the socket that reads from a lane, by its set.
    lane_host_is_quiet = - { lane: Pipe } -> bool = false,
        by pipe::hooks::host_is_quiet without kernel;

    /// The lane that goes the other way.
    lane_mate = - { lane: Pipe } -> Option<Pipe> = None,
        by pipe::lanes::mate;

    /// `pipe_take` where nobody is in the way and the bytes lie in one piece: how many; 0: ask it.
    /// `alone`: what `pipe_sight` has just said.
    pipe_take_swiftly = - {
        pipe: Pipe, alone: bool, length: usize, copy: impl FnOnce(Span) -> Result<()>,
    } -> usize = 0,
        by carrier;

    /// The same of `pipe_put` for all of at most `PIPE_BUF` bytes.
    pipe_put_swiftly = - {
        pipe: Pipe, alone: bool, length: usize, copy: impl FnOnce(Span) -> Result<()>,
    } -> bool = false,
        by carrier;

    /// Whether the ring's bytes come first, and the host may have more.
    pipe_is_leaving = - { pipe: Pipe } -> bool = false,
        by pipe::flow::is_leaving;

    /// Bytes in the ring.
    pipe_waiting = - { pipe: Pipe } -> u64 = 0,
        by pipe::flow::waiting;

    /// Bytes that were ever written into the ring, or read from it.
    pipe_moved = - { pipe: Pipe, writes: bool } -> u64 = 0,
        by pipe::seen::moved without kernel;

    // ---- epoll

    /// What a look at number `fd` of this process shows, without a token.
    epoll_look = - { fd: u32 } -> Sight = Sight::Other,
        by readiness::epoll::look;

    /// Whether that is `Sight::Quiet`. Looks at less: false also of a number above 4,095.
    epoll_is_quiet = - { fd: u32 } -> bool = false,
        by readiness::epoll::is_quiet;

    /// The set that host number `fd` is.
    epoll_set = - { files: Files, fd: u32 } -> Option<Set> = None,
        by readiness::epoll::set;

    /// The set that a pipe is in.
    epoll_of = - { pipe: Pipe } -> Option<Set> = None,
        by readiness::epoll::of;

    /// The set that the socket which reads from `lane` is in, as one that has a ring.
    lane_set = - { lane: Pipe } -> Option<Set> = None,
        by readiness::members::set_of without kernel;

    /// Whether a member is a one-shot that has been told, and not asked anew.
    epoll_is_spent = - { set: Set, number: u32 } -> bool = false,
        by readiness::members::is_spent without kernel;

    /// Whether a set has had sockets with rings in it.
    epoll_has_members = - { set: Set } -> bool = false,
        by readiness::members::has_any without kernel;

    /// Whether others may put such sockets into a set while this thread sleeps there.
    epoll_may_gain_members = - { set: Set } -> bool = false,
        by readiness::members::may_gain;

    /// Under the lock: what the set last asked of lane number `number`, and whether it does.
    epoll_member = - { set: Set, number: u32 } -> Option<(Member, bool)> = None,
        by readiness::members::member without kernel;

    /// Under the lock: the events that the host has registered lane number `number` for.
    epoll_registered = - { set: Set, number: u32 } -> Option<u32> = None,
        by readiness::members::registered without kernel;

    /// The first number from `from` on of which the host has something else.
    epoll_next_dirty = - { set: Set, from: u32 } -> Option<u32> = None,
        by readiness::members::next_dirty without kernel;

    /// Whether that keeps the host from telling what only it knows.
    epoll_lacks = - { set: Set, number: u32 } -> bool = true,
        by readiness::members::lacks without kernel;

    /// The number of a set in the process that changed it last.
    epoll_number = - { set: Set } -> u32 = 0,
        by readiness::members::number without kernel;

    /// Whether a thread sleeps in a set, or is about to.
    epoll_has_sleeper = - { set: Set } -> bool = true,
        by readiness::members::has_sleeper without kernel;

    /// Whether a set has other numbers, in this process or others.
    epoll_is_shared = - { set: Set } -> bool = true,
        by readiness::members::is_shared;

    /// Shows the members of which rings may have something.
    epoll_each_ready = - { set: Set, show: &mut dyn FnMut(u32) } -> () = (),
        by readiness::members::each_ready without kernel;

    /// Whether a thread in the set has been told, by the host, and has not come yet.
    epoll_is_waking = - { set: Set } -> bool = false,
        by readiness::members::is_waking;

    /// Whether that is so.
    epoll_is_hosts = - { set: Set } -> bool = true,
        by readiness::members::is_hosts without kernel;

    // ---- watch

    /// The instance that host number `fd` names, without a token.
    watch_instance = - { files: Files, fd: u32 } -> Option<Instance> = None,
        by watch::instance;

    /// The host's watch descriptor of the marker, 0 = there is none.
    watch_marker = - { instance: Instance } -> u32 = 0,
        by watch::marker;

    /// Whether there are instances at all.
    watch_any = - {} -> bool = false,
        by carrier;

    /// The first watch on a file of the image with a descriptor from `from` on: descriptor, file,
    /// and what it tells of.
    watch_next = - { instance: Instance, from: u32 } -> Option<(u32, Inode, u32)> = None,
        by watch::list::next;

    /// Whether an operation of this thread has left somebody to be told.
    watch_owes = - {} -> bool = false,
        by watch::owes;

    // ---- image

    /// Number of mounts.
    mounts = - {} -> usize,
        by image::mounts;

    /// Mount `index`.
    mount = - { index: usize } -> Mount<'_>,
        by carrier;

    /// `st_dev` shown for all inodes of the image's memory trees.
    device = - {} -> u64,
        by image::device;

    /// Whether this host path (or directory) is known not to lead into a mount through symlinks;
    /// a cache shared by the image (`note_outside`), keyed by hash, 128 bits.
    known_outside = - { path: &[u8] } -> bool,
        by image::known_outside;

    /// How often that was forgotten.
    outside_age = - {} -> u64,
        by image::outside_age;

    /// A call that only looked so far is about to change state.
    unguard = - {} -> () = (),
        by carrier;

    /// Whether what lies outside the trees is read-only for programs (`--read-only-outside`).
    outside_is_sealed = - {} -> bool = false,
        by image::outside_is_sealed;

    /// How datagram sockets are set up.
    udp = - {} -> Udp = Udp::of_word(0),
        by image::udp;

    /// The core that the next of them gets.
    udp_core = - {} -> Option<u32> = None,
        by process::placement::next_core;

    /// Whether a socket has been bound to a name in a tree.
    sockets = - {} -> bool,
        by image::sockets;

    /// Number of the image's user namespace once a process has made another one, else 0.
    home_namespace = - {} -> u64 = 0,
        by image::home_namespace;

    /// Whose rights the fetcher has; `None`: there is none.
    fetcher = - {} -> Option<u32> = None,
        by image::fetcher;

    /// Host directory where the host's objects behind FIFOs and sockets stand, absolute and with a
    /// slash at its end; nobody outside the image can enter it. Empty: there is none.
    private_path = - {} -> &[u8],
        by image::private_path;

    /// Host directory of the rewritten copies, absolute.
    copies_path = - {} -> &[u8],
        by image::copies_path;

    /// State of the copy of a host file (`changed_ns` is not part of the key).
    rewritten = - { file: &HostIdentity } -> Rewritten,
        by image::copies::rewritten;

    /// Supervisor: where the next gathered program goes in the region's file, and how many bytes
    /// are left there.
    room_to_gather = - {} -> (u64, u64),
        by image::copies::room_to_gather;

    // ---- volume

    /// Whether the image has volumes.
    has_volumes = - {} -> bool = false,
        by image::volume::any;

    /// Whether an operation of this thread has left somebody to be told (`watch_owes`), or changed
    /// something that is to be durable before its call returns (`commit_changes`).
    owes_anything = - {} -> bool = false,
        by fs::unsaved::owes_anything;
}}

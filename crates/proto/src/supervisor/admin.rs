//! Service `admin`: what the supervisor asks of the kernels of its image, and programs do not.
//!
//! Before the first program starts, the supervisor sets the trees and rules of the image. While the
//! image runs, it cleans up after processes that died and serves write-back.

use crate::fs::{Imported, Origin, Rights};
use crate::image::{Cover, Udp};
use crate::place::Rule;
use crate::{Inode, Process, Result};

operations! { ($) admin_operations

/// The service of the supervisor.
Admin in admin, operations {
    // ---- before the first program

    /// The host directory where the host's objects behind FIFOs and unix sockets are, with a slash
    /// at its end. `ENAMETOOLONG`.
    set_private_path = - { path: &[u8] } -> Result<()>,
        by image::set_private_path;

    /// When the image was made, ns since the epoch.
    set_made_ns = - { ns: i64 } -> (),
        by image::set_made_ns;

    /// Adds a tree over host directory `path`. `root` describes that directory (its `name` is the
    /// path, kind `Directory`, mode and owner as shown).
    add_mount = - { path: &[u8], cover: Cover, root: &Imported<'_> } -> Result<Inode>,
        by carrier;

    /// Makes what is outside the trees read-only for programs.
    seal_outside = - {} -> (),
        by image::seal_outside;

    /// Whether pipes and sockets made from now on get rings.
    allow_pipes = - { pipes: bool, sockets: bool } -> (),
        by pipe::set_wanted;

    /// Whether there is a lender of sockets.
    lend_sockets = - { lends: bool } -> (),
        by pipe::set_lends;

    /// There is a fetcher, with the rights of this user.
    set_fetcher = - { uid: u32 } -> (),
        by image::set_fetcher;

    /// How datagram sockets are set up.
    set_udp = - { udp: Udp } -> (),
        by image::set_udp;

    /// What holds in the image where a program says nothing of its placement, and the core of each
    /// kernel.
    set_place_rule = - { rule: Rule, cores: &[u32] } -> (),
        by carrier;

    /// Makes the tree of `root`, which has no names yet, a volume; its number.
    make_volume = - { root: Inode } -> Result<u32>,
        by image::volume::make;

    /// Makes the record of the first program, host process `pid`, with these host numbers open.
    first_process = - { pid: u32, host_fds: &[u32] } -> Result<Process>,
        by process::first with clock;

    // ---- the dead, and what they leave

    /// Host process `pid` is dead. Recovers its threads' journals and locks, and releases all it
    /// held; how many records that were. Again is harmless.
    reap = - { pid: u32 } -> Result<u32>,
        by carrier;

    /// Recovers whatever dead threads and processes have left; how many.
    scan_dead = - {} -> Result<u32>,
        by carrier;

    /// Forgets which copies were asked for of a supervisor that has died.
    forget_requests = - {} -> (),
        by image::copies::forget_requests;

    // ---- trees, for who writes them back

    /// Sets all times of an inode: access, modification, status change, creation.
    set_times = - { inode: Inode, times_ns: [i64; 4] } -> Result<()>,
        by fs::attributes::set_all_times;

    /// Keeps writers out of a file until `let_writers_in`: for a moment only, who writes waits.
    keep_writers_out = - { inode: Inode } -> Result<()>,
        by fs::bytes::keep_writers_out;

    /// Ends what `keep_writers_out` has begun.
    let_writers_in = - { inode: Inode } -> (),
        by fs::bytes::let_writers_in;

    /// Shows each inode that needs the host object it was imported from.
    each_on_host = - { emit: &mut dyn FnMut(Inode, Origin) } -> (),
        by fs::overlay::each_on_host;

    /// Shows the record of each host object that was ever imported, also of those that have gone.
    each_origin = - { emit: &mut dyn FnMut(Origin) } -> (),
        by fs::overlay::each_origin;

    /// Shows each inode that has names on the host for which the image has none, and how many.
    each_elsewhere = - { emit: &mut dyn FnMut(Inode, u32) } -> (),
        by fs::shared::each_elsewhere;

    /// Shows each inode that was imported, and the record of what it was imported from.
    each_imported = - { emit: &mut dyn FnMut(Inode, Origin) } -> (),
        by fs::overlay::each_imported;

    /// An inode of a host object that had one name is found by the names that the object has got
    /// since (`found.links`), once these are imported. `Ok(false)`: it has none, or another inode
    /// is found so.
    note_links = - { inode: Inode, found: &Imported<'_> } -> Result<bool>,
        by fs::shared::note_links;

    /// A host object that is no directory has no longer the name that it was imported by, but this
    /// one; `found` says what it was when it was last looked at. `Ok(false)`: that name leads
    /// elsewhere, or its directory is not the host's.
    move_origin = - { dir: Inode, inode: Inode, found: &Imported<'_> } -> Result<bool>,
        by fs::refresh::move_origin;

    /// Mode, owner and group that a host object had when it was last looked at.
    origin_rights = - { origin: Origin } -> Result<Rights>,
        by fs::overlay::origin_rights;

    /// Gives an object what the host alone has changed of mode, owner and group since they were
    /// `before`: `found`. `Ok(false)`: the image has changed some of it, too, and keeps that.
    take_rights = - { inode: Inode, before: Rights, found: Rights } -> Result<bool>,
        by fs::refresh::take_rights with clock;

    /// A hash of the value (`value_hash`) that the host's object had of an extended attribute when
    /// that was taken over or settled; 0: none.
    extended_base = - { inode: Inode, name: &[u8] } -> Result<u64>,
        by fs::extended::base;

    /// An extended attribute whose value has the hash `seen` (0: there is none) is what the host
    /// has `found` from now on. `Ok(false)`: it is another one, or too long.
    settle_extended = - {
        inode: Inode, name: &[u8], seen: u64, found: Option<&[u8]>,
    } -> Result<bool>,
        by fs::extended::settle with clock;

    // ---- placement

    /// The core of a kernel had so much to do lately (`LOAD_ONE`).
    fold_load = - { kernel: u32, sample: u32 } -> (),
        by carrier;
}}

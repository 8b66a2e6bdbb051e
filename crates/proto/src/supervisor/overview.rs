//! Service `overview`: what the supervisor and commands such as `husk ps` read of an image.

use crate::epoll::Sleeper;
use crate::fs::Origin;
use crate::place::Placement;
use crate::volume::{Counter, NAME_BYTES_MAX, Policy, State, TOOK_CLASSES, Unsaved};
use crate::watch::{Instance, MarkerName};
use crate::{Inode, Result};

operations! { ($) overview_looks

/// What the supervisor looks at.
Overview in overview, looks {
    /// When the image was made, ns since the epoch; 0: nobody has said.
    made_ns = - {} -> i64,
        by image::made_ns;

    /// Shows the host processes that have a record, the dead that nobody has buried included.
    each_pid = - { emit: &mut dyn FnMut(u32) } -> (),
        by process::each_pid;

    /// The record of host process `pid`, if it has one.
    record_of = - { pid: u32 } -> Option<u32>,
        by process::record_of;

    /// How often system call `number` was refused (`Image::count_unsupported`).
    unsupported = - { number: usize } -> u64,
        by image::unsupported;

    /// Mode of a host object when it was imported, and the origin of its directory (`None` for a
    /// mount's root).
    origin_facts = - { origin: Origin } -> Result<(u32, Option<Origin>)>,
        by fs::overlay::origin_facts;

    /// How many open-file descriptions there are.
    open_descriptions = - {} -> u64,
        by descriptor::open::count;

    /// How host process `pid` was placed, also of one that has ended.
    placement_of = - { pid: u32 } -> Option<Placement>,
        by carrier;

    /// How the processes that there are were placed, those that were.
    each_placed = - { emit: &mut dyn FnMut(Placement) } -> (),
        by carrier;

    /// Whether loads are to be looked after.
    are_loads_wanted = - {} -> bool,
        by carrier;

    /// What a kernel's core has to do.
    load_of = - { kernel: u32 } -> u32,
        by carrier;

    /// Shows who sleeps in a set, or in `poll`, beside bytes of a ring. After a while it is the
    /// same sleep only where a writer died before it woke the sleeper.
    each_beside_bytes = - { show: &mut dyn FnMut(Sleeper) } -> (),
        by readiness::members::each_beside_bytes;

    /// Shows the number of each instance of inotify that has something to read, its turn (another
    /// one whenever that changes), and the name of its marker in the private directory.
    each_watcher = - { emit: &mut dyn FnMut(u32, u64, MarkerName) } -> (),
        by watch::each_waiting;

    /// Whether an instance of inotify lives.
    watcher_lives = - { instance: Instance } -> bool,
        by watch::lives;

    /// Whether an inode is still there.
    is_live = - { inode: Inode } -> bool,
        by carrier;

    // ---- volumes

    /// The volume that an inode is in.
    volume_of = - { inode: Inode } -> Result<Option<u32>>,
        by image::volume::of;

    /// Whether volume `tree` is served.
    volume_state = - { tree: u32 } -> State,
        by image::volume::state;

    /// When what is changed in volume `tree` is durable.
    volume_policy = - { tree: u32 } -> Policy,
        by image::volume::policy;

    /// What a volume is called, filled up with zeros, and since when it is served.
    volume_name = - { tree: u32 } -> ([u8; NAME_BYTES_MAX], i64),
        by image::volume::name;

    /// Changes of names that have begun, and that have ended.
    volume_names = - { tree: u32 } -> (u64, u64),
        by image::volume::names;

    /// Whether somebody who lives is in the middle of a change of names.
    volume_is_any_naming = - {} -> bool,
        by image::volume::is_any_naming;

    /// The state of the bell, for `volume_await_wishes`, before one looks for wishes.
    volume_bell = - { tree: u32 } -> u32,
        by image::volume::bell;

    /// A counter.
    volume_counted = - { tree: u32, counter: Counter } -> u64,
        by image::volume::counted;

    /// How often it took how long to serve a group of wishes.
    volume_took = - { tree: u32 } -> [u64; TOOK_CLASSES],
        by image::volume::took;

    /// What is noted of a file that is not in the log.
    unsaved_look = - { inode: Inode } -> Unsaved,
        by fs::unsaved::look;
}}

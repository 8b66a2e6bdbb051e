//! Service `volume_log`: what the process that writes the log of a volume asks of the kernels.
//!
//! Programs wait in `Volumes::commit` until this process has granted their wishes. It finds what
//! has changed in the notes that the handlers leave (`husk_kernel::fs::unsaved`).

use crate::volume::{Asked, Counter, Policy, State, Unsaved, Wish};
use crate::{Inode, Result};

operations! { ($) volume_log_operations

/// The service of the process that writes the log of a volume.
VolumeLog in volume_log, operations {
    /// The log of volume `tree`, called `name`, is written since that time.
    volume_begin = - { tree: u32, name: &[u8], since_ns: i64 } -> (),
        by image::volume::begin;

    /// A volume is served, stopped, or neither.
    volume_set_state = - { tree: u32, state: State } -> (),
        by image::volume::set_state;

    /// Says when what is changed in volume `tree` is durable.
    volume_set_policy = - { tree: u32, policy: Policy } -> (),
        by image::volume::set_policy;

    /// Another process follows when this one dies: programs that wait go on waiting.
    volume_set_followed = - { tree: u32 } -> (),
        by image::volume::set_followed;

    /// Sleeps while no wish has come since `bell`, at most `most_ns`.
    volume_await_wishes = - { tree: u32, bell: u32, most_ns: u64 } -> bool,
        by image::volume::await_wishes;

    /// Shows each wish that waits, and what it is about.
    volume_each_wish = - { tree: u32, emit: &mut dyn FnMut(Wish, Asked) } -> (),
        by image::volume::each_wish;

    /// Answers wishes of a volume, all of them at once.
    volume_grant = - { tree: u32, wishes: &[Wish], result: Result<()> } -> (),
        by image::volume::grant;

    /// Asks from outside of the image that volume `tree` gets larger, and waits until it has.
    /// `told`: how many bytes of how many are written. `EINVAL`: it has more; `ENODEV`: it is on a
    /// device; `EOVERFLOW`: what it holds does not fit; `EIO`: nobody serves it any more.
    volume_resize = - { tree: u32, size_bytes: u64, told: &mut dyn FnMut(u64, u64) } -> Result<()>,
        by carrier;

    /// Frees the places of programs that died while they waited.
    volume_sweep = - { tree: u32, is_dead: &dyn Fn(u32, u32) -> bool } -> (),
        by image::volume::sweep;

    /// While no transaction runs: counts changes of names that the dead have begun as ended. How
    /// many have begun; `None`: somebody who lives is in the middle of one.
    volume_settle_names = - { tree: u32 } -> Option<u64>,
        by image::volume::settle_names;

    /// Counts, for people.
    volume_count = - { tree: u32, counter: Counter, by: u64 } -> (),
        by image::volume::count;

    /// Sets a counter.
    volume_set_count = - { tree: u32, counter: Counter, to: u64 } -> (),
        by image::volume::set_count;

    /// Counts a group of wishes that took so long.
    volume_count_group = - { tree: u32, took_ns: u64 } -> (),
        by image::volume::count_group;

    /// Takes what is noted of a file: it is not noted any more.
    unsaved_take = - { inode: Inode } -> Result<Unsaved>,
        by fs::unsaved::take;

    /// Takes what is noted of an object that is no file, but for its names.
    unsaved_take_extended = - { inode: Inode } -> Unsaved,
        by fs::unsaved::take_extended;

    /// Whether names in a directory are noted as changed; they are not any more.
    unsaved_take_names = - { dir: Inode } -> bool,
        by fs::unsaved::take_names;
}}

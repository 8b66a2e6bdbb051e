//! What is shown of an image and takes more than one handler.

use husk_kernel::process::placement;
use husk_proto::Inode;
use husk_proto::place::Placement;

use crate::Direct;

pub(crate) fn placement_of(me: &Direct, pid: u32) -> Option<Placement> {
    placement::placement_of(&me.kernel.session.region, pid)
}

pub(crate) fn each_placed(me: &Direct, emit: &mut dyn FnMut(Placement)) {
    let region = &me.kernel.session.region;
    husk_kernel::process::each(&me.kernel, &mut |process, pid| {
        placement::placement(region, process, pid).into_iter().for_each(&mut *emit);
    });
}

pub(crate) fn are_loads_wanted(me: &Direct) -> bool {
    placement::are_loads_wanted(&me.kernel.session.region)
}

pub(crate) fn load_of(me: &Direct, kernel: u32) -> u32 {
    placement::load(&me.kernel.session.region, kernel)
}

pub(crate) fn is_live(me: &Direct, inode: Inode) -> bool {
    husk_kernel::fs::walk::step(&me.kernel, inode).is_ok()
}

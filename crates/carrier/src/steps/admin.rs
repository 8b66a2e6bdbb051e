//! Operations of the supervisor that take more than one handler: the dead are buried.

use husk_kernel::process::placement;
use husk_proto::fs::Imported;
use husk_proto::image::Cover;
use husk_proto::place::Rule;
use husk_proto::{Inode, Result};
use husk_region::Life;

use crate::Direct;

/// Naps of somebody who waits until another has released the dead.
const BURIAL_NAPS_MAX: u32 = 2000;

pub(crate) fn add_mount(
    me: &mut Direct,
    path: &[u8],
    cover: Cover,
    root: &Imported<'_>,
) -> Result<Inode> {
    let overlay = cover == Cover::Overlay;
    let root = Imported { name: path, ..*root };
    let inode = husk_kernel::fs::overlay::make_root(&me.kernel, &root, overlay, me.now())?;
    husk_kernel::image::add_mount(&me.kernel, path, inode, cover, root.identity.device)?;
    Ok(inode)
}

pub(crate) fn set_place_rule(me: &mut Direct, rule: Rule, cores: &[u32]) {
    placement::set_rule(&me.kernel.session.region, rule, cores);
}

pub(crate) fn reap(me: &mut Direct, pid: u32) -> Result<u32> {
    if me.is_away {
        let burying = |me: &mut Direct| me.burying(|me| me.release_dead(pid));
        return me.far_reap(pid, burying).unwrap_or(Ok(0));
    }
    me.burying(|me| me.release_dead(pid))
}

pub(crate) fn scan_dead(me: &mut Direct) -> Result<u32> {
    me.burying(Direct::release_all_dead)
}

pub(crate) fn fold_load(me: &mut Direct, kernel: u32, sample: u32) {
    placement::fold(&me.kernel.session.region, kernel, sample);
}

impl Direct {
    fn release_dead(&mut self, pid: u32) -> Result<u32> {
        let gone = |pid, tid| husk_region::judge(pid, tid) == Life::Dead;
        husk_kernel::process::reap(&self.kernel, pid, self.now(), &gone)
    }

    /// One at a time releases the dead. Who had to wait for another counts that as one found: what
    /// was in the way may be gone.
    fn burying(&mut self, step: impl FnOnce(&mut Self) -> Result<u32>) -> Result<u32> {
        let (word, region) =
            (husk_kernel::process::burial_word(&self.kernel), self.kernel.session.region);
        let me = u64::from(self.kernel.session.pid()) << 32 | u64::from(self.kernel.session.tid());
        let mut waited = 0;
        for _ in 0..BURIAL_NAPS_MAX {
            let owner = region.load(word);
            let gone = || husk_region::judge((owner >> 32) as u32, owner as u32) == Life::Dead;
            let free =
                owner == 0 || owner == me || gone() || husk_region::observe::kill::mutant() == 46;
            if free && region.swap_if(word, owner, me) {
                let found = step(self);
                region.store(word, 0);
                return found.map(|found| found + waited);
            }
            waited = 1;
            husk_region::nap();
        }
        Ok(waited)
    }

    fn release_all_dead(&mut self) -> Result<u32> {
        let mut found = self.kernel.session.recover_dead()?;
        let mut dead = [0u32; 64];
        let mut count = 0;
        husk_kernel::process::each_pid(&self.kernel, &mut |pid| {
            if count < dead.len() && husk_region::ended(pid) {
                dead[count] = pid;
                count += 1;
            }
        });
        for &pid in &dead[..count] {
            found += match self.is_away {
                true => self.far_reap(pid, |me| me.release_dead(pid)).unwrap_or(Ok(0))?,
                false => self.release_dead(pid)?,
            };
        }
        Ok(found + self.release_dead(0)?)
    }
}

//! Placement, for exec and fork, and for `husk explain`.

use husk_kernel::process::placement::{self, Choice};
use husk_proto::place::{LOADS_SHOWN, Placement, Policy, Rule};

use crate::Direct;

impl Direct {
    /// What holds in the image where a program says nothing.
    #[inline]
    pub fn place_rule(&self) -> Rule {
        placement::rule(&self.kernel.session.region)
    }

    /// The core of a kernel.
    pub fn core_of(&self, kernel: u32) -> Option<u32> {
        placement::core(&self.kernel.session.region, kernel)
    }

    /// How the process of record `process` was placed, host process `pid`, if it was.
    #[inline]
    pub fn placement(&self, process: u32, pid: u32) -> Option<Placement> {
        placement::placement(&self.kernel.session.region, process, pid)
    }

    /// Notes how the process of record `process` was placed.
    pub fn note_placement(&mut self, process: u32, placement: &Placement) {
        placement::note(&self.kernel.session.region, process, placement);
    }

    /// Forgets it.
    pub fn forget_placement(&mut self, process: u32) {
        placement::forget(&self.kernel.session.region, process);
    }

    /// The calling thread takes a seat of that kernel, when it takes one; `None`: any.
    pub fn prefer_kernel(&mut self, kernel: Option<u32>) {
        self.kernel.session.prefer_kernel(kernel);
    }

    /// Chooses a kernel, one of `allowed` (not none), for a process that one of `current` started,
    /// and the loads that were seen. `here`: it is a load of `current` itself so far.
    pub fn choose_kernel(
        &mut self,
        policy: Policy,
        allowed: u64,
        current: u32,
        here: bool,
        seed: u64,
    ) -> (u32, [u8; LOADS_SHOWN]) {
        let region = &self.kernel.session.region;
        let kernels = region.kernels().min(husk_region::KERNELS_MAX) as usize;
        let mut loads = [0; husk_region::KERNELS_MAX as usize];
        if policy == Policy::LeastLoaded {
            placement::want_loads(region);
        }
        for (kernel, load) in (0..).zip(&mut loads[..kernels]) {
            *load = placement::load(region, kernel);
        }
        let shown = placement::shown(&loads[..kernels]);
        if here && let Some(own) = loads.get_mut(current as usize) {
            *own = own.saturating_sub(husk_proto::place::LOAD_ONE);
        }
        let number = match policy {
            Policy::RoundRobin => placement::turn(region),
            Policy::Random => {
                let mixed = (seed ^ placement::turn(region) << 16).wrapping_mul(husk_abi::SPREAD);
                mixed >> 33
            }
            _ => 0,
        };
        let loads = &loads[..kernels];
        let kernel = placement::choose(&Choice { policy, allowed, current, number, loads });
        if policy == Policy::LeastLoaded {
            placement::arrive(region, kernel);
        }
        (kernel, shown)
    }

    /// A process that was placed by load ends, or is placed anew.
    pub fn leave_kernel(&mut self, placement: &Placement) {
        if placement.policy == Policy::LeastLoaded {
            placement::depart(&self.kernel.session.region, placement.kernel);
        }
    }
}

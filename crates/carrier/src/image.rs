//! `Image`, by calling the handlers.

use husk_proto::fs::HostIdentity;
use husk_proto::image::{Image, Mount, Rewritten, Wish};

use crate::Direct;

impl Direct {
    /// Makes what lies outside the trees read-only for programs, before the first one starts.
    pub fn seal_outside(&mut self) {
        husk_kernel::image::seal_outside(&self.kernel);
    }
}

#[allow(clippy::too_many_arguments)]
impl Image for Direct {
    #[inline]
    fn mounts(&self) -> usize {
        husk_kernel::image::mounts(&self.kernel)
    }
    #[inline]
    fn mount(&self, index: usize) -> Mount<'_> {
        let mount = husk_kernel::image::mount(&self.kernel, index);
        if self.is_away {
            return Mount { root: self.home_of(mount.root).unwrap_or(mount.root), ..mount };
        }
        mount
    }
    #[inline]
    fn device(&self) -> u64 {
        husk_kernel::image::device(&self.kernel)
    }
    #[inline]
    fn known_outside(&self, path: &[u8]) -> bool {
        husk_kernel::image::known_outside(&self.kernel, path)
    }
    #[inline]
    fn outside_age(&self) -> u64 {
        husk_kernel::image::outside_age(&self.kernel)
    }
    #[inline]
    fn note_outside(&mut self, path: &[u8], age: u64) {
        husk_kernel::image::note_outside(&self.kernel, path, age)
    }
    fn forget_outside(&mut self) {
        husk_kernel::image::forget_outside(&self.kernel)
    }
    #[inline]
    fn outside_is_sealed(&self) -> bool {
        husk_kernel::image::outside_is_sealed(&self.kernel)
    }
    #[inline]
    fn unguard(&self) {
        self.kernel.session.unguard();
    }
    #[inline]
    fn count_unsupported(&mut self, number: usize) {
        husk_kernel::image::count_unsupported(&self.kernel, number)
    }
    fn note_too_long(&mut self) {
        husk_kernel::image::note_too_long(&self.kernel);
    }
    fn sockets(&self) -> bool {
        husk_kernel::image::sockets(&self.kernel)
    }

    fn note_sockets(&mut self) {
        husk_kernel::image::note_sockets(&self.kernel);
    }

    fn home_namespace(&self) -> u64 {
        husk_kernel::image::home_namespace(&self.kernel)
    }

    fn note_home_namespace(&mut self, number: u64) {
        husk_kernel::image::note_home_namespace(&self.kernel, number);
    }

    fn private_path(&self) -> &[u8] {
        husk_kernel::image::private_path(&self.kernel)
    }

    fn copies_path(&self) -> &[u8] {
        husk_kernel::image::copies_path(&self.kernel)
    }
    #[inline]
    fn rewritten(&self, file: &HostIdentity) -> Rewritten {
        husk_kernel::image::copies::rewritten(&self.kernel, file)
    }
    #[inline]
    fn request_rewrite(&mut self, file: &HostIdentity, path: &[u8]) {
        husk_kernel::image::copies::request_rewrite(&self.kernel, file, path)
    }
    #[inline]
    fn next_wish(&mut self, path: &mut [u8]) -> Option<(Wish, HostIdentity, usize)> {
        husk_kernel::image::copies::next_wish(&self.kernel, path)
    }
    #[inline]
    fn set_rewritten(&mut self, file: &HostIdentity, state: Rewritten) {
        husk_kernel::image::copies::set_rewritten(&self.kernel, file, state)
    }
    #[inline]
    fn count_start(&mut self, file: &HostIdentity) -> bool {
        husk_kernel::image::copies::count_start(&self.kernel, file)
    }
    fn request_gathered(&mut self, file: &HostIdentity, path: &[u8]) {
        husk_kernel::image::copies::request_gathered(&self.kernel, file, path)
    }
    fn request_recorded(&mut self, file: &HostIdentity, path: &[u8]) {
        husk_kernel::image::copies::request_recorded(&self.kernel, file, path)
    }
    fn request_remembered(&mut self, file: &HostIdentity, path: &[u8]) {
        husk_kernel::image::copies::request_remembered(&self.kernel, file, path)
    }
    fn room_to_gather(&self) -> (u64, u64) {
        husk_kernel::image::copies::room_to_gather(&self.kernel)
    }
    fn set_gathered(&mut self, file: &HostIdentity, bytes: u64) {
        husk_kernel::image::copies::set_gathered(&self.kernel, file, bytes)
    }
    fn refuse_to_gather(&mut self, file: &HostIdentity) {
        husk_kernel::image::copies::refuse_to_gather(&self.kernel, file)
    }
}

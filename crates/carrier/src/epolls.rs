//! `Epolls`, by calling the handlers.

use husk_kernel::readiness::{epoll, members};
use husk_proto::epoll::{Epolls, Member, Set, Sight, Sleep, Sleeper};
use husk_proto::pipe::Pipe;
use husk_proto::{Files, Operation, Result};

use crate::Direct;

impl Direct {
    /// Supervisor: shows who sleeps in a set beside bytes of a ring. After a while it is the same
    /// sleep only where a writer died before it woke the set.
    pub fn each_beside_bytes(&self, show: &mut dyn FnMut(Sleeper)) {
        members::each_beside_bytes(&self.kernel, show);
    }
}

impl Epolls for Direct {
    #[inline(always)]
    fn epoll_look(&self, fd: u32) -> Sight {
        epoll::look(&self.kernel, fd)
    }
    #[inline(always)]
    fn epoll_is_quiet(&self, fd: u32) -> bool {
        epoll::is_quiet(&self.kernel, fd)
    }
    #[inline]
    fn epoll_set(&self, files: Files, fd: u32) -> Option<Set> {
        epoll::set(&self.kernel, files, fd)
    }
    fn epoll_make(&mut self, files: Files, fd: u32) -> Result<Set> {
        self.kernel.count(Operation::Pipe);
        epoll::make(&self.kernel, files, fd)
    }
    fn epoll_join(&mut self, files: Files, fd: u32, set: Set) -> Result<()> {
        epoll::join(&self.kernel, files, fd, set)
    }
    fn epoll_enter(&mut self, set: Set, pipe: Pipe) -> bool {
        epoll::enter(&self.kernel, set, pipe)
    }
    fn epoll_exit(&mut self, set: Set, pipe: Pipe) {
        epoll::exit(&self.kernel, set, pipe);
    }
    fn epoll_of(&self, pipe: Pipe) -> Option<Set> {
        epoll::of(&self.kernel, pipe)
    }
    fn epoll_changed(&mut self, set: Set) {
        epoll::changed(set);
    }
    fn epoll_stranger(&mut self, set: Set) {
        epoll::stranger(set);
    }
    fn epoll_show(&mut self, set: Option<Set>) {
        epoll::show(&self.kernel, set);
    }
    fn epoll_ask(&mut self, set: Set) -> Option<u64> {
        epoll::ask(set)
    }
    fn epoll_remember(&mut self, set: Set, asked: u64, bytes: &[u8]) {
        epoll::remember(set, asked, bytes);
    }
    fn lane_set(&self, lane: Pipe) -> Option<Set> {
        members::set_of(lane)
    }
    fn epoll_has_members(&self, set: Set) -> bool {
        members::has_any(set)
    }
    fn epoll_may_gain_members(&self, set: Set) -> bool {
        members::may_gain(&self.kernel, set)
    }
    fn epoll_lock(&mut self, set: Set) -> core::result::Result<(), (usize, u32)> {
        members::lock(&self.kernel, set)
    }
    fn epoll_unlock(&mut self, set: Set) {
        members::unlock(set);
    }
    fn epoll_member(&self, set: Set, number: u32) -> Option<(Member, bool)> {
        members::member(set, number)
    }
    fn epoll_put_member(&mut self, set: Set, member: &Member) -> bool {
        members::put(set, member)
    }
    fn epoll_drop_member(&mut self, set: Set, lane: Pipe) {
        members::drop(set, lane);
    }
    fn epoll_registered(&self, set: Set, number: u32) -> Option<u32> {
        members::registered(set, number)
    }
    fn epoll_register(&mut self, set: Set, number: u32, mask: Option<u32>, dirty: bool) {
        members::register(set, number, mask, dirty);
    }
    fn epoll_next_dirty(&self, set: Set, from: u32) -> Option<u32> {
        members::next_dirty(set, from)
    }
    fn epoll_lacks(&self, set: Set, number: u32) -> bool {
        members::lacks(set, number)
    }
    fn epoll_number(&self, set: Set) -> u32 {
        members::number(set)
    }
    fn epoll_set_number(&mut self, set: Set, fd: u32) {
        members::set_number(set, fd);
    }
    fn epoll_has_sleeper(&self, set: Set) -> bool {
        members::has_sleeper(set)
    }
    fn epoll_is_shared(&self, set: Set) -> bool {
        members::is_shared(&self.kernel, set)
    }
    fn epoll_stir(&mut self, set: Set, lane: Pipe) {
        members::stir(set, lane);
    }
    fn epoll_collect(
        &mut self,
        set: Set,
        most: usize,
        found: &mut dyn FnMut(u32, u32, u64),
    ) -> bool {
        members::collect(set, most, found)
    }
    fn epoll_add_ring(&mut self, set: Set, number: u32) -> u32 {
        members::add_ring(set, number)
    }
    fn epoll_is_host_due(&mut self, set: Set) -> bool {
        members::is_host_due(set)
    }
    fn epoll_polled(&mut self, set: Set) {
        members::polled(set);
    }
    fn epoll_look_on(&mut self, set: Set) -> bool {
        members::look_on(set)
    }
    fn epoll_sleep(&mut self, set: Set) -> Sleep {
        members::sleep(&self.kernel, set)
    }
    fn epoll_wake(&mut self, set: Set) {
        members::wake(&self.kernel, set);
    }
    fn epoll_use(&mut self, set: Set) {
        members::use_set(&self.kernel, set);
    }
    fn epoll_each_ready(&self, set: Set, show: &mut dyn FnMut(u32)) {
        members::each_ready(set, show);
    }
    fn epoll_is_waking(&self, set: Set) -> bool {
        members::is_waking(&self.kernel, set)
    }
    fn epoll_leave_to_host(&mut self, set: Set) {
        members::leave_to_host(set);
    }
    fn epoll_is_hosts(&self, set: Set) -> bool {
        members::is_hosts(set)
    }
}

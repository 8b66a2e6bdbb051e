//! `Epolls`, by calling the handlers.

use husk_kernel::readiness::epoll;
use husk_proto::epoll::{Epolls, Set, Sight};
use husk_proto::pipe::Pipe;
use husk_proto::{Files, Operation, Result};

use crate::Direct;

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
}

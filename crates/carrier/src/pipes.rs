//! `Pipes`, by calling the handlers.

use husk_proto::fs::Span;
use husk_proto::pipe::{Addresses, Emptiness, End, Flow, Pipe, Pipes, Posted, Withdrawal};
use husk_proto::{Files, Operation, Result};

use crate::Direct;

impl Direct {
    /// Whether pipes and sockets made from now on get rings.
    pub fn allow_pipes(&mut self, pipes: bool, sockets: bool) {
        husk_kernel::pipe::set_wanted(&self.kernel, pipes, sockets);
    }

    /// Every read end of this process is about to be closed by the host.
    pub fn leave_pipes(&mut self) {
        husk_kernel::pipe::leave_all(&self.kernel);
    }
}

impl Pipes for Direct {
    fn pipes_wanted(&self) -> bool {
        husk_kernel::pipe::wanted(&self.kernel)
    }
    #[inline]
    fn pipe_end(&self, files: Files, fd: u32) -> Option<End> {
        husk_kernel::pipe::end(&self.kernel, files, fd)
    }
    #[inline(always)]
    fn pipe_sight(&self, fd: u32) -> Option<(End, bool)> {
        husk_kernel::pipe::sight(&self.kernel, fd)
    }
    fn pipe_make(&mut self, files: Files, read: u32, write: u32, host: u64) -> Result<()> {
        self.kernel.count(Operation::Pipe);
        husk_kernel::pipe::make(&self.kernel, files, read, write, host)
    }
    fn lanes_wanted(&self) -> bool {
        husk_kernel::pipe::lanes_wanted(&self.kernel)
    }
    fn lanes_make(&mut self, files: Files, pair: [u32; 2], hosts: [u64; 2]) -> Result<()> {
        self.kernel.count(Operation::Pipe);
        husk_kernel::pipe::lanes::make(&self.kernel, files, pair, hosts)
    }
    fn lane_make_one(&mut self, files: Files, fd: u32, host: u64) -> Result<()> {
        husk_kernel::pipe::lanes::make_one(&self.kernel, files, fd, host)
    }
    #[inline(always)]
    fn any_lane_awaits(&self) -> bool {
        husk_kernel::pipe::lanes::any_awaits(&self.kernel)
    }
    fn lane_mate_awaits(&self, lane: Pipe) -> bool {
        husk_kernel::pipe::lanes::mate_awaits(&self.kernel, lane)
    }
    fn lane_introduce(&mut self, lane: Pipe) {
        husk_kernel::pipe::lanes::introduce(&self.kernel, lane);
    }
    fn lane_claim(&mut self, files: Files, fd: u32, host: u64, lane: Pipe, pid: u32) -> Result<()> {
        husk_kernel::pipe::lanes::claim(&self.kernel, files, fd, host, (lane, pid))
    }
    fn lane_reset(&mut self, lane: Pipe, told: bool) -> bool {
        husk_kernel::pipe::lanes::reset(lane, told)
    }
    fn lane_take_reset(&mut self, lane: Pipe) -> bool {
        husk_kernel::pipe::lanes::take_reset(lane)
    }
    fn lane_is_hosts(&self, lane: Pipe) -> bool {
        husk_kernel::pipe::lanes::is_hosts(lane)
    }
    fn lane_post(&mut self, lane: Pipe, addresses: Option<&Addresses>, whole: bool) {
        husk_kernel::pipe::tcp::post(lane, addresses, whole);
    }
    fn lane_posted(&self, addresses: &Addresses) -> Posted {
        husk_kernel::pipe::tcp::posted(&self.kernel, addresses)
    }
    fn lane_is_tcp(&self, lane: Pipe) -> bool {
        husk_kernel::pipe::tcp::is_tcp(lane)
    }
    fn lane_is_claimed(&self, lane: Pipe) -> bool {
        husk_kernel::pipe::tcp::is_claimed(lane)
    }
    fn lane_does_delay(&self, lane: Pipe) -> bool {
        husk_kernel::pipe::tcp::does_delay(lane)
    }
    fn lane_delays(&mut self, lane: Pipe, delays: bool) {
        husk_kernel::pipe::tcp::delays(lane, delays);
    }
    fn lane_was_used(&self, lane: Pipe) -> bool {
        husk_kernel::pipe::tcp::was_used(lane)
    }
    fn pipe_at_host(&self, pipe: Pipe) -> u64 {
        husk_kernel::pipe::flow::at_host(&self.kernel, pipe)
    }
    fn lane_is_pinned(&self, lane: Pipe) -> bool {
        husk_kernel::pipe::lanes::is_pinned(lane)
    }
    fn pipe_is_even(&self, pipe: Pipe) -> bool {
        husk_kernel::pipe::flow::is_even(&self.kernel, pipe)
    }
    #[inline(always)]
    fn lane_tell(&mut self, lane: Pipe) -> bool {
        husk_kernel::pipe::hooks::tell(lane)
    }
    #[inline(always)]
    fn lane_asleep(&self, lane: Pipe) -> u64 {
        husk_kernel::pipe::hooks::asleep(lane)
    }
    fn lane_told(&mut self, lane: Pipe, sleep: u64) -> bool {
        husk_kernel::pipe::hooks::told(lane, sleep)
    }
    fn lane_host_told(&mut self, lane: Pipe, told: bool) {
        husk_kernel::pipe::hooks::host_told(lane, told);
    }
    fn lane_host_is_quiet(&self, lane: Pipe) -> bool {
        husk_kernel::pipe::hooks::host_is_quiet(lane)
    }
    fn lane_forget(&mut self, files: Files, fd: u32) {
        // Somebody else has a number of it, or the other end has come.
        let _ = husk_kernel::pipe::lanes::forget(&self.kernel, files, fd);
    }
    #[inline(always)]
    fn lane_mate(&self, lane: Pipe) -> Option<Pipe> {
        husk_kernel::pipe::lanes::mate(&self.kernel, lane)
    }
    fn lane_reader(&mut self, lane: Pipe, skipped: usize) -> Option<(u32, u32)> {
        husk_kernel::pipe::lanes::reader(&self.kernel, lane, skipped)
    }
    fn lane_find(&mut self, host: u64) -> Option<Pipe> {
        husk_kernel::pipe::lanes::find_lane(&self.kernel, host)
    }
    fn pipe_find(&mut self, host: u64) -> Option<Pipe> {
        husk_kernel::pipe::find(&self.kernel, host)
    }
    fn pipe_join(&mut self, files: Files, fd: u32, end: End) -> Result<()> {
        husk_kernel::pipe::join(&self.kernel, files, fd, end)
    }
    #[inline]
    fn pipe_take(
        &mut self,
        pipe: Pipe,
        length: usize,
        copy: &mut dyn FnMut(Span) -> Result<()>,
    ) -> Result<Flow> {
        self.kernel.count(Operation::Pipe);
        husk_kernel::pipe::flow::take(&self.kernel, pipe, length, copy)
    }
    #[inline]
    fn pipe_put(
        &mut self,
        pipe: Pipe,
        length: usize,
        whole: bool,
        copy: &mut dyn FnMut(Span) -> Result<()>,
    ) -> Result<Flow> {
        self.kernel.count(Operation::Pipe);
        husk_kernel::pipe::flow::put(&self.kernel, pipe, length, whole, copy)
    }
    #[inline(always)]
    fn pipe_take_swiftly(
        &mut self,
        pipe: Pipe,
        alone: bool,
        length: usize,
        copy: impl FnOnce(Span) -> Result<()>,
    ) -> usize {
        let taken = husk_kernel::pipe::flow::take_swiftly(&self.kernel, pipe, alone, length, copy);
        if taken != 0 {
            self.kernel.count(Operation::Pipe);
        }
        taken
    }
    #[inline(always)]
    fn pipe_put_swiftly(
        &mut self,
        pipe: Pipe,
        alone: bool,
        length: usize,
        copy: impl FnOnce(Span) -> Result<()>,
    ) -> bool {
        let put = husk_kernel::pipe::flow::put_swiftly(&self.kernel, pipe, alone, length, copy);
        if put {
            self.kernel.count(Operation::Pipe);
        }
        put
    }
    fn pipe_landed(&mut self, pipe: Pipe, writes: bool, bytes: u64) {
        husk_kernel::pipe::flow::landed(&self.kernel, pipe, writes, bytes);
    }
    fn pipe_fetched(&mut self, pipe: Pipe, bytes: u64) {
        husk_kernel::pipe::flow::fetched(&self.kernel, pipe, bytes);
    }
    fn pipe_settled(&mut self, pipe: Pipe, bytes: u64) {
        husk_kernel::pipe::flow::settled(&self.kernel, pipe, bytes);
    }
    fn pipe_peek(
        &mut self,
        pipe: Pipe,
        length: usize,
        copy: &mut dyn FnMut(Span) -> Result<()>,
        behind: &mut dyn FnMut(usize) -> usize,
    ) -> Result<Flow> {
        husk_kernel::pipe::flow::peek(&self.kernel, pipe, length, copy, behind)
    }
    fn pipe_watch(&mut self, pipe: Pipe) -> Result<Flow> {
        husk_kernel::pipe::flow::watch(&self.kernel, pipe)
    }
    fn pipe_waiting(&self, pipe: Pipe) -> u64 {
        husk_kernel::pipe::flow::waiting(&self.kernel, pipe)
    }
    fn pipe_show(&mut self, pipe: Pipe) {
        husk_kernel::pipe::flow::show(&self.kernel, pipe);
    }
    fn pipe_pin(&mut self, pipe: Pipe) {
        husk_kernel::pipe::flow::pin(&self.kernel, pipe);
    }
    fn pipe_has_reader(&mut self, pipe: Pipe) {
        husk_kernel::pipe::flow::has_reader(&self.kernel, pipe);
    }
    fn pipe_leave(&mut self, pipe: Pipe) {
        husk_kernel::pipe::flow::leave(&self.kernel, pipe);
    }
    fn pipe_leave_if_full(&mut self, pipe: Pipe) {
        husk_kernel::pipe::flow::leave_if_full(&self.kernel, pipe);
    }
    fn pipe_empty(&mut self, pipe: Pipe) -> Emptiness {
        husk_kernel::pipe::flow::empty(&self.kernel, pipe)
    }
    fn pipe_withdraw(&mut self, pipe: Pipe, stuck: bool) -> Result<Withdrawal> {
        husk_kernel::pipe::flow::withdraw(&self.kernel, pipe, stuck)
    }
    fn pipe_withdrawing(&mut self, pipe: Pipe, behind: u64) {
        husk_kernel::pipe::flow::withdrawing(&self.kernel, pipe, behind);
    }
    fn pipe_unsettled(&mut self, pipe: Pipe) {
        husk_kernel::pipe::flow::unsettled(&self.kernel, pipe);
    }
    fn pipe_is_leaving(&self, pipe: Pipe) -> bool {
        husk_kernel::pipe::flow::is_leaving(&self.kernel, pipe)
    }
    fn pipe_withdrawn(&mut self, pipe: Pipe, bytes: u64) {
        husk_kernel::pipe::flow::withdrawn(&self.kernel, pipe, bytes);
    }
}

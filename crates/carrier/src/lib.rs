//! How an operation reaches its kernel. (Skeleton: every method answers ENOSYS until the handlers land.)
#![no_std]
#![allow(unused_variables)]
mod home;

pub use home::Home;
use husk_proto::{descriptor::*, fs::*, image::*, lock::*, process::*, *};

/// The direct carrier: the caller runs the handlers itself.
#[derive(Debug)]
pub struct Direct {
    process: Process,
}

/// Writes a new image into the mapped, zeroed region.
///
/// # Safety
/// A region of `layout` is mapped at `STATE_ADDRESS` and `CACHE_ADDRESS`, shared and writable, for good.
pub unsafe fn format(layout: husk_region::Layout, device: u64, copies_path: &[u8]) {}

impl Direct {
    /// Attaches a thread of `process`.
    ///
    /// # Safety
    /// The region is mapped at its addresses for good and formatted.
    pub unsafe fn attach(clock: fn() -> i64, process: Process, pid: u32, tid: u32) -> Direct {
        Direct { process }
    }
    /// Gives the journal slot back (taken again at the next operation).
    pub fn detach(&mut self) {}
    /// Adds a tree at host path `path`; host identity of the directory for overlays.
    pub fn add_mount(&mut self, path: &[u8], cover: Cover, root: &Imported<'_>) -> Result<Inode> {
        Err(Errno::ENOSYS)
    }
    /// Makes the record of the first program: `host_fds` are its open host numbers.
    pub fn first_process(&mut self, pid: u32, host_fds: &[u32]) -> Result<Process> {
        Err(Errno::ENOSYS)
    }
    /// In the parent after the host's fork: notes which host process an embryo became.
    pub fn note_child(&mut self, child: Process, pid: u32) {}
    /// Supervisor: host process `pid` is dead: recovers its threads and releases all it held.
    pub fn reap(&mut self, pid: u32) {}
    /// Supervisor: recovers whatever dead threads and processes have left; how many were found.
    pub fn scan_dead(&mut self) -> Result<u32> {
        Err(Errno::ENOSYS)
    }
    /// Calls refused by number (`Image::count_unsupported`).
    pub fn unsupported(&self, number: usize) -> u64 {
        0
    }
    /// The directory record an origin lies in, `None` for a mount's root.
    pub fn origin_parent(&self, origin: Origin) -> Option<Origin> {
        None
    }
}
impl Fs for Direct {
    fn lookup(&mut self, dir: Inode, name: &[u8]) -> Result<Step> {
        Err(Errno::ENOSYS)
    }
    fn step(&mut self, inode: Inode) -> Result<Step> {
        Err(Errno::ENOSYS)
    }
    fn attributes(&mut self, inode: Inode) -> Result<Attributes> {
        Err(Errno::ENOSYS)
    }
    fn read_link(&mut self, inode: Inode, out: &mut [u8]) -> Result<usize> {
        Err(Errno::ENOSYS)
    }
    fn list(
        &mut self,
        dir: Inode,
        cookie: u64,
        emit: &mut dyn FnMut(Entry<'_>) -> bool,
    ) -> Result<()> {
        Err(Errno::ENOSYS)
    }
    fn parent(&mut self, dir: Inode) -> Result<Inode> {
        Err(Errno::ENOSYS)
    }
    fn name_of(&mut self, dir: Inode, out: &mut [u8; 255]) -> Result<usize> {
        Err(Errno::ENOSYS)
    }
    fn create(
        &mut self,
        who: &Credentials<'_>,
        dir: Inode,
        name: &[u8],
        node: Node<'_>,
    ) -> Result<Inode> {
        Err(Errno::ENOSYS)
    }
    fn create_nameless(&mut self, who: &Credentials<'_>, like: Inode, mode: u32) -> Result<Inode> {
        Err(Errno::ENOSYS)
    }
    fn link(&mut self, who: &Credentials<'_>, inode: Inode, dir: Inode, name: &[u8]) -> Result<()> {
        Err(Errno::ENOSYS)
    }
    fn unlink(&mut self, who: &Credentials<'_>, dir: Inode, name: &[u8]) -> Result<()> {
        Err(Errno::ENOSYS)
    }
    fn rmdir(&mut self, who: &Credentials<'_>, dir: Inode, name: &[u8]) -> Result<()> {
        Err(Errno::ENOSYS)
    }
    fn rename(
        &mut self,
        who: &Credentials<'_>,
        source_dir: Inode,
        source: &[u8],
        target_dir: Inode,
        target: &[u8],
        flags: u32,
    ) -> Result<()> {
        Err(Errno::ENOSYS)
    }
    fn change(&mut self, who: &Credentials<'_>, inode: Inode, change: Change) -> Result<()> {
        Err(Errno::ENOSYS)
    }
    fn truncate(&mut self, inode: Inode, size: u64) -> Result<()> {
        Err(Errno::ENOSYS)
    }
    fn read(
        &mut self,
        inode: Inode,
        offset: u64,
        length: usize,
        copy: &mut dyn FnMut(Span) -> Result<()>,
    ) -> Result<usize> {
        Err(Errno::ENOSYS)
    }
    fn write(
        &mut self,
        inode: Inode,
        place: Place,
        length: usize,
        copy: &mut dyn FnMut(Span) -> Result<()>,
    ) -> Result<(u64, usize)> {
        Err(Errno::ENOSYS)
    }
    fn allocate(&mut self, inode: Inode, offset: u64, length: u64, keep_size: bool) -> Result<()> {
        Err(Errno::ENOSYS)
    }
    fn punch(&mut self, inode: Inode, offset: u64, length: u64) -> Result<()> {
        Err(Errno::ENOSYS)
    }
    fn seek_data(&mut self, inode: Inode, offset: u64, data: bool) -> Result<u64> {
        Err(Errno::ENOSYS)
    }
    fn runs(
        &mut self,
        inode: Inode,
        offset: u64,
        length: u64,
        emit: &mut dyn FnMut(Run) -> Result<()>,
    ) -> Result<()> {
        Err(Errno::ENOSYS)
    }
    fn import(&mut self, dir: Inode, entries: &[Imported<'_>]) -> Result<bool> {
        Err(Errno::ENOSYS)
    }
    fn import_done(&mut self, dir: Inode) -> Result<()> {
        Err(Errno::ENOSYS)
    }
    fn host_path(&mut self, origin: Origin, out: &mut [u8]) -> Result<usize> {
        Err(Errno::ENOSYS)
    }
    fn host_identity(&mut self, origin: Origin) -> Result<HostIdentity> {
        Err(Errno::ENOSYS)
    }
    fn adopt(&mut self, inode: Inode, donor: Inode) -> Result<bool> {
        Err(Errno::ENOSYS)
    }
    fn whiteouts(
        &mut self,
        dir: Inode,
        emit: &mut dyn FnMut(&[u8], Origin) -> Result<()>,
    ) -> Result<()> {
        Err(Errno::ENOSYS)
    }
    fn usage(&mut self) -> Usage {
        Usage { blocks: 0, blocks_free: 0, inodes: 0, inodes_free: 0 }
    }
    fn open(
        &mut self,
        who: &Credentials<'_>,
        files: Files,
        inode: Inode,
        flags: u32,
        minimum: u32,
        limit: u32,
    ) -> Result<u32> {
        Err(Errno::ENOSYS)
    }
    fn create_open(
        &mut self,
        who: &Credentials<'_>,
        files: Files,
        dir: Inode,
        name: &[u8],
        mode: u32,
        flags: u32,
        limit: u32,
    ) -> Result<u32> {
        Err(Errno::ENOSYS)
    }
}
impl Descriptors for Direct {
    fn slot(&mut self, files: Files, fd: u32) -> Slot {
        Slot::Free
    }
    fn description(&mut self, description: Description) -> Result<Open> {
        Err(Errno::ENOSYS)
    }
    fn close_on_exec(&mut self, files: Files, fd: u32) -> Result<bool> {
        Err(Errno::ENOSYS)
    }
    fn set_close_on_exec(&mut self, files: Files, fd: u32, on: bool) -> Result<()> {
        Err(Errno::ENOSYS)
    }
    fn lowest_free(&mut self, files: Files, minimum: u32, limit: u32) -> Result<u32> {
        Err(Errno::ENOSYS)
    }
    fn duplicate(
        &mut self,
        files: Files,
        fd: u32,
        minimum: u32,
        limit: u32,
        close_on_exec: bool,
    ) -> Result<u32> {
        Err(Errno::ENOSYS)
    }
    fn duplicate_to(
        &mut self,
        files: Files,
        fd: u32,
        target: u32,
        close_on_exec: bool,
    ) -> Result<()> {
        Err(Errno::ENOSYS)
    }
    fn close(&mut self, files: Files, fd: u32) -> Result<bool> {
        Err(Errno::ENOSYS)
    }
    fn for_each(&mut self, files: Files, first: u32, last: u32, emit: &mut dyn FnMut(u32, Slot)) {
        {}
    }
    fn host_opened(
        &mut self,
        files: Files,
        fd: u32,
        close_on_exec: bool,
        shows: Option<Inode>,
    ) -> Result<bool> {
        Err(Errno::ENOSYS)
    }
    fn host_closed(&mut self, files: Files, fd: u32) {
        {}
    }
    fn plug(&mut self, files: Files, fd: u32) {
        {}
    }
    fn offset(&mut self, description: Description) -> Result<u64> {
        Err(Errno::ENOSYS)
    }
    fn set_offset(&mut self, description: Description, offset: u64) -> Result<()> {
        Err(Errno::ENOSYS)
    }
    fn advance(
        &mut self,
        description: Description,
        step: &mut dyn FnMut(&mut Self, u64) -> Result<(u64, usize)>,
    ) -> Result<usize> {
        Err(Errno::ENOSYS)
    }
    fn set_flags(&mut self, description: Description, flags: u32) -> Result<()> {
        Err(Errno::ENOSYS)
    }
}
impl Processes for Direct {
    fn current(&self) -> Process {
        Process(0)
    }
    fn files(&self) -> Files {
        Files(0)
    }
    fn prepare_fork(&mut self, sharing: Sharing) -> Result<Process> {
        Err(Errno::ENOSYS)
    }
    fn cancel_fork(&mut self, child: Process) {
        {}
    }
    fn enter_child(&mut self, child: Process, pid: u32) {
        {}
    }
    fn unshare(&mut self, sharing: Sharing) -> Result<()> {
        Err(Errno::ENOSYS)
    }
    fn finish_exec(&mut self) -> Result<()> {
        Err(Errno::ENOSYS)
    }
    fn exit(&mut self) {
        {}
    }
    fn working_directory(&mut self) -> WorkingDirectory {
        WorkingDirectory::Host
    }
    fn set_working_directory(&mut self, place: WorkingDirectory) -> Result<()> {
        Err(Errno::ENOSYS)
    }
    fn umask(&mut self) -> u32 {
        0
    }
    fn set_umask(&mut self, mask: u32) -> u32 {
        0
    }
    fn pin(&mut self, inode: Inode) -> Result<()> {
        Err(Errno::ENOSYS)
    }
    fn unpin(&mut self, inode: Inode) {
        {}
    }
}
impl Locks for Direct {
    fn lock(
        &mut self,
        owner: Owner,
        inode: Inode,
        range: Range,
        mode: Mode,
        wait: bool,
    ) -> Result<Outcome> {
        Err(Errno::ENOSYS)
    }
    fn test(
        &mut self,
        owner: Owner,
        inode: Inode,
        range: Range,
        mode: Mode,
    ) -> Result<Option<Held>> {
        Err(Errno::ENOSYS)
    }
}
impl Image for Direct {
    fn mounts(&self) -> usize {
        0
    }
    fn mount(&self, index: usize) -> Mount<'_> {
        unreachable!()
    }
    fn device(&self) -> u64 {
        0
    }
    fn known_outside(&self, path: &[u8]) -> bool {
        false
    }
    fn note_outside(&mut self, path: &[u8]) {
        {}
    }
    fn count_unsupported(&mut self, number: usize) {
        {}
    }
    fn copies_path(&self) -> &[u8] {
        b"/"
    }
    fn rewritten(&self, file: &HostIdentity) -> Rewritten {
        Rewritten::Unknown
    }
    fn request_rewrite(&mut self, file: &HostIdentity, path: &[u8]) {
        {}
    }
    fn next_rewrite(&mut self, path: &mut [u8]) -> Option<(HostIdentity, usize)> {
        None
    }
    fn set_rewritten(&mut self, file: &HostIdentity, state: Rewritten) {
        {}
    }
}

//! Service `process`: records, contexts, pins, and the release of all three when a process ends.
//!
//! ```text
//!   process  see `state::process`
//!   context  0 lock   1 generation:32 tag:32   2 references   3 directory (inode)
//!            4 its generation   5 umask
//! ```
//!
//! 1. A record names its table until the table is empty: if a cleaner dies, the next one goes
//!    on.
//! 2. An embryo whose parent died is kept while its child may be on its way (`embryo`).
//! 3. Several may release one record at once, or one after another has died at it: each step is
//!    repeatable, and the record is free only when it names nothing any more.
//! 4. A clean-up after a dead process recovers its journals first: it may have changed its own
//!    table without a lock (`descriptor`).

pub mod embryo;
pub mod pins;
pub mod placement;

use husk_proto::descriptor::Shown;
use husk_proto::fs::unmasked;
use husk_proto::process::{Sharing, WorkingDirectory};
use husk_proto::{Errno, Files, Inode, Operation, Process, Result};
use husk_region::observe::kill;
use husk_region::{Cell, INODE, LINE, RECORD, Region, Txn};

use crate::descriptor::{table, whole};
use crate::fs::directory::entries;
use crate::fs::directory::names;
use crate::fs::inodes::{self, Birth};
use crate::fs::{named, rights};
use crate::process::embryo::Expected;
use crate::state::fd_table;
use crate::state::hold;
use crate::state::process::{
    BORN, DYING, EMBRYO, FREE, NEXT, PARENT, PARTS, PINS, PROCESS_FREE, PROCESS_HIGH, PROCESS_LOCK,
    PROCESSES_MAX, PROGRAM, RUNNING, STATE, TOLD, files_of, record,
};
pub use crate::state::process::{each, files};
use crate::state::{high, ino, live, low, pair, tag};
use crate::{Kernel, no_room};

const TAG: u32 = 1;
const REFERENCES: u32 = 2;
const DIRECTORY: u32 = 3;
const GENERATION: u32 = 4;
const UMASK: u32 = 5;

/// Rounds of releasing one record: each after the first undoes somebody who died at it.
const RELEASES_MAX: u32 = 1000;

/// `Processes::files_of`.
pub fn table_of(kernel: &Kernel, pid: u32) -> Option<Files> {
    let process = record_of(kernel, pid)?;
    Some(files_of(kernel, Process(process))).filter(|files| files.0 != 0)
}

fn context(kernel: &Kernel) -> Cell {
    context_of(&kernel.session.region, kernel.process)
}

/// The same of the process with this record.
fn context_of(region: &Region, process: u32) -> Cell {
    region.map.object(RECORD, low(region.load(record(region, process).word(PARTS))))
}

/// Takes a free record.
fn take(txn: &mut Txn<'_>, state: u32, pid: u32, parent: u64, now_ns: i64) -> Result<u32> {
    if kill::refuses() {
        return Err(Errno::EAGAIN);
    }
    let map = txn.region.map;
    txn.lock(map.fixed(PROCESS_LOCK))?;
    let free = txn.get(map.fixed(PROCESS_FREE)) as u32;
    let number = if free != 0 {
        let next = txn.get(record(txn.region, free).word(NEXT));
        txn.set(map.fixed(PROCESS_FREE), next);
        free
    } else {
        let high = txn.get(map.fixed(PROCESS_HIGH)) as u32 + 1;
        if high >= PROCESSES_MAX {
            return Err(Errno::EAGAIN);
        }
        txn.set(map.fixed(PROCESS_HIGH), high as u64);
        high
    };
    let cell = record(txn.region, number);
    txn.set(cell.word(STATE), pair(state, pid));
    txn.set(cell.word(PARTS), 0);
    txn.set(cell.word(PARENT), parent);
    txn.set(cell.word(PINS), 0);
    txn.set(cell.word(PROGRAM), 0);
    txn.set(cell.word(BORN), now_ns as u64);
    Ok(number)
}

fn make_context(txn: &mut Txn<'_>, directory: Option<Inode>, umask: u32) -> Result<u32> {
    let number = txn.allocate(RECORD)?;
    let cell = txn.region.map.object(RECORD, number);
    txn.init(cell.word(REFERENCES), 1);
    txn.init(cell.word(DIRECTORY), directory.map_or(0, |dir| dir.number) as u64);
    txn.init(cell.word(GENERATION), directory.map_or(0, |dir| dir.generation) as u64);
    txn.init(cell.word(UMASK), umask as u64);
    let generation = high(txn.get(cell.word(TAG)));
    txn.init(cell.word(TAG), pair(generation, tag::CONTEXT));
    if let Some(dir) = directory {
        let inode = live(txn.region, dir)?;
        txn.lock(inode)?;
        hold::add_users(txn, inode, 1, 0);
    }
    Ok(number)
}

/// The record of the first program of an image.
pub fn first(kernel: &Kernel, pid: u32, host_fds: &[u32], now_ns: i64) -> Result<Process> {
    let number = kernel.run(|txn| {
        let number = take(txn, RUNNING, pid, 0, now_ns)?;
        let parts = pair(whole::make(txn)?, make_context(txn, None, 0o022)?);
        txn.set(record(txn.region, number).word(PARTS), parts);
        Ok(number)
    })?;
    let region = &kernel.session.region;
    let files = Files(high(region.load(record(region, number).word(PARTS))));
    for &fd in host_fds {
        table::host_opened(kernel, files, fd, false, Shown::Nothing)?;
    }
    Ok(Process(number))
}

/// `Processes::prepare_fork`. `EAGAIN` when there is no room.
pub fn prepare_fork(kernel: &Kernel, sharing: Sharing, now_ns: i64) -> Result<Process> {
    embryo(kernel, sharing, now_ns).map_err(no_room(Errno::EAGAIN))
}

fn embryo(kernel: &Kernel, sharing: Sharing, now_ns: i64) -> Result<Process> {
    let child = kernel.run_reserved(|txn| {
        let number = take(txn, EMBRYO, 0, creator(kernel), now_ns)?;
        let told = pair(kernel.session.pid(), embryo::AWAITED);
        txn.set(record(txn.region, number).word(TOLD), told);
        let shared = files(kernel);
        let child_files = if sharing.files {
            let table = fd_table::lock(txn, shared)?;
            let sharers = txn.get(table.word(fd_table::SHARERS));
            txn.set(table.word(fd_table::SHARERS), sharers + 1);
            kernel.session.clear_passes();
            shared.0
        } else {
            whole::make(txn)?
        };
        let child_context = context_for_child(txn, kernel, sharing.context)?;
        let parts = pair(child_files, child_context);
        txn.set(record(txn.region, number).word(PARTS), parts);
        run_by(txn, number, program_of(txn.region, kernel.process))?;
        Ok(Process(number))
    })?;
    if !sharing.files
        && let Err(error) = copy_table(kernel, files(kernel), files_of(kernel, child))
    {
        cancel_fork(kernel, child)?;
        return Err(error);
    }
    Ok(child)
}

fn context_for_child(txn: &mut Txn<'_>, kernel: &Kernel, shared: bool) -> Result<u32> {
    let own = context(kernel);
    txn.lock(own)?;
    if shared {
        let references = txn.get(own.word(REFERENCES));
        txn.set(own.word(REFERENCES), references + 1);
        return Ok(low(txn.get(record(txn.region, kernel.process).word(PARTS))));
    }
    let directory = directory_of(txn.region, own);
    let umask = txn.get(own.word(UMASK)) as u32;
    make_context(txn, directory, umask)
}

fn directory_of(region: &Region, context: Cell) -> Option<Inode> {
    let number = region.load(context.word(DIRECTORY)) as u32;
    let generation = region.load(context.word(GENERATION)) as u32;
    (number != 0).then_some(Inode { number, generation })
}

fn copy_table(kernel: &Kernel, source: Files, target: Files) -> Result<()> {
    let mut from = 0;
    while let Some((fd, _)) = fd_table::next_used(&kernel.session.region, source, from) {
        whole::copy_one(kernel, source, target, fd)?;
        from = fd + 1;
    }
    Ok(())
}

/// `Processes::cancel_fork`.
pub fn cancel_fork(kernel: &Kernel, child: Process) -> Result<()> {
    release(kernel, child.0)
}

/// Who makes an embryo: process and thread. A process is not enough: the record of a child that has
/// come and gone may by now be the embryo of another thread of the same process.
pub(crate) fn creator(kernel: &Kernel) -> u64 {
    pair(kernel.session.tid(), kernel.process)
}

/// Notes which host process a child became: by itself (`enters`), or by its creator while it is
/// still that thread's embryo (the child may be through, and its record another one's).
pub fn set_pid(kernel: &Kernel, child: Process, pid: u32, enters: bool) -> Result<()> {
    let state = kernel.session.region.load(record(&kernel.session.region, child.0).word(STATE));
    if !enters && high(state) != EMBRYO {
        return Ok(());
    }
    kernel.run(|txn| {
        let cell = record(txn.region, child.0);
        txn.lock(cell)?;
        let state = high(txn.get(cell.word(STATE)));
        let mine = txn.get(cell.word(PARENT)) == creator(kernel);
        if enters && matches!(state, EMBRYO | RUNNING) || state == EMBRYO && mine {
            txn.set(cell.word(STATE), pair(RUNNING, pid));
        }
        Ok(())
    })
}

/// Whether no other process has this one's table.
pub fn has_own_table(kernel: &Kernel) -> bool {
    let region = &kernel.session.region;
    region.load(fd_table::cell(region, files(kernel)).word(fd_table::SHARERS)) == 1
}

/// `Processes::unshare`: an embryo gets the private copies, then both records swap what they name,
/// and the embryo ends with the shared parts. A death in between leaves an embryo, nothing else.
pub fn unshare(kernel: &Kernel, sharing: Sharing, now_ns: impl FnOnce() -> i64) -> Result<()> {
    let region = &kernel.session.region;
    let table = fd_table::cell(region, files(kernel));
    let wanted = Sharing {
        files: sharing.files && region.load(table.word(fd_table::SHARERS)) > 1,
        context: sharing.context && region.load(context(kernel).word(REFERENCES)) > 1,
    };
    if !wanted.files && !wanted.context {
        return Ok(());
    }
    let kept = Sharing { files: !wanted.files, context: !wanted.context };
    let embryo = embryo(kernel, kept, now_ns()).map_err(no_room(Errno::ENOMEM))?;
    kernel.run(|txn| {
        let (one, two) = (kernel.process.min(embryo.0), kernel.process.max(embryo.0));
        let (one, two) = (record(txn.region, one), record(txn.region, two));
        txn.lock(one)?;
        txn.lock(two)?;
        let (first, second) = (txn.get(one.word(PARTS)), txn.get(two.word(PARTS)));
        txn.set(one.word(PARTS), second);
        txn.set(two.word(PARTS), first);
        Ok(())
    })?;
    release(kernel, embryo.0)
}

fn set_files(txn: &mut Txn<'_>, process: u32, files: u32) {
    let cell = record(txn.region, process);
    let parts = txn.get(cell.word(PARTS));
    txn.set(cell.word(PARTS), pair(files, low(parts)));
}

/// `Processes::finish_exec`. Usually nothing has to change, and then no slot is taken and no clock
/// asked.
pub fn finish_exec(kernel: &Kernel, now_ns: impl FnOnce() -> i64) -> Result<()> {
    let pid = kernel.session.pid();
    kernel.session.recover_where(|owner, _| owner == pid)?;
    unshare(kernel, Sharing { files: true, context: true }, now_ns)?;
    let files = files(kernel);
    let mut from = 0;
    while let Some((fd, entry)) = fd_table::next_used(&kernel.session.region, files, from) {
        if entry & fd_table::CLOSE_ON_EXEC != 0 {
            table::close_any(kernel, files, fd)?;
        } else if entry & fd_table::PLUG != 0 {
            table::forget_plug(kernel, files, fd)?;
        }
        from = fd + 1;
    }
    pins::drop_all(kernel, kernel.process)
}

/// The inode a process runs, 0 = none of the image.
fn program_of(region: &Region, process: u32) -> u32 {
    region.load(record(region, process).word(PROGRAM)) as u32
}

/// `Processes::program`.
pub fn program(kernel: &Kernel) -> Option<Inode> {
    let region = &kernel.session.region;
    let number = program_of(region, kernel.process);
    // It has a user more while it runs: this is its generation.
    let cell = region.map.object(INODE, number);
    (number != 0).then(|| Inode { number, generation: high(region.load(cell.word(ino::IDENT))) })
}

/// Process record `process`, which runs nothing yet, runs inode `number` from now on (0 = nothing).
fn run_by(txn: &mut Txn<'_>, process: u32, number: u32) -> Result<()> {
    if number == 0 {
        return Ok(());
    }
    let cell = txn.region.map.object(INODE, number);
    txn.lock(cell)?;
    named::add_runners(txn, number, 1)?;
    hold::add_users(txn, cell, 0, 1);
    txn.set(record(txn.region, process).word(PROGRAM), number as u64);
    Ok(())
}

/// `Processes::set_program`.
pub fn set_program(kernel: &Kernel, inode: Option<Inode>) -> Result<Option<Inode>> {
    change_program(kernel, kernel.process, inode)
}

fn change_program(kernel: &Kernel, process: u32, new: Option<Inode>) -> Result<Option<Inode>> {
    let number = new.map_or(0, |inode| inode.number);
    if program_of(&kernel.session.region, process) == number {
        return Ok(new);
    }
    kernel.run(|txn| {
        let own = record(txn.region, process);
        txn.lock(own)?;
        let old = txn.get(own.word(PROGRAM)) as u32;
        let before = (old != 0 && old != number).then(|| inodes::name(txn, old));
        lock_inodes(txn, before, new)?;
        if let Some(inode) = new {
            hold::lock_to_hold(txn, inode)?;
        }
        txn.set(own.word(PROGRAM), 0);
        run_by(txn, process, number)?;
        if before.is_some() {
            let cell = txn.region.map.object(INODE, old);
            named::add_runners(txn, old, -1)?;
            hold::add_users(txn, cell, 0, -1);
            inodes::reap(txn, old)?;
        }
        Ok(before)
    })
}

/// Releases everything a process holds and its record; repeatable, and fine on a free record.
pub fn release(kernel: &Kernel, process: u32) -> Result<()> {
    // What a dead process had, several may be about to release.
    let alone = kernel.session.is_alone();
    kernel.session.set_alone(alone && process == kernel.process);
    let result = release_all(kernel, process);
    kernel.session.set_alone(alone);
    result
}

fn release_all(kernel: &Kernel, process: u32) -> Result<()> {
    let region = &kernel.session.region;
    let cell = record(region, process);
    if process == 0 || high(region.load(cell.word(STATE))) == FREE {
        return Ok(());
    }
    kernel.run(|txn| {
        txn.lock(cell)?;
        let state = txn.get(cell.word(STATE));
        txn.set(cell.word(STATE), pair(DYING, low(state)));
        Ok(())
    })?;
    for _ in 0..RELEASES_MAX {
        release_files(kernel, process)?;
        release_context(kernel, process)?;
        change_program(kernel, process, None)?;
        pins::drop_all(kernel, process)?;
        orphan_embryos(kernel, process)?;
        if give_record_back(kernel, process)? {
            kernel.count(Operation::Exit);
            return Ok(());
        }
    }
    Err(Errno::EIO)
}

/// Frees a record that names nothing any more. False: it does after all; somebody else who released
/// it has died, and what that one had done is undone.
fn give_record_back(kernel: &Kernel, process: u32) -> Result<bool> {
    kernel.run(|txn| {
        let cell = record(txn.region, process);
        txn.lock(cell)?;
        txn.lock(txn.region.map.fixed(PROCESS_LOCK))?;
        if high(txn.get(cell.word(STATE))) != DYING {
            return Ok(true);
        }
        if [PARTS, PINS, PROGRAM].into_iter().any(|part| txn.get(cell.word(part)) != 0) {
            return Ok(false);
        }
        let free = txn.get(txn.region.map.fixed(PROCESS_FREE));
        txn.set(cell.word(STATE), 0);
        txn.set(cell.word(NEXT), free);
        txn.set(txn.region.map.fixed(PROCESS_FREE), process as u64);
        Ok(true)
    })
}

fn release_files(kernel: &Kernel, process: u32) -> Result<()> {
    let region = &kernel.session.region;
    let files = files_of(kernel, Process(process));
    if files.0 == 0 {
        return Ok(());
    }
    let shared = kernel.run(|txn| {
        txn.lock(record(txn.region, process))?;
        let table = fd_table::lock(txn, files)?;
        let sharers = txn.get(table.word(fd_table::SHARERS));
        if sharers > 1 {
            txn.set(table.word(fd_table::SHARERS), sharers - 1);
            set_files(txn, process, 0);
        }
        Ok(sharers > 1)
    });
    match shared {
        Ok(false) => {}
        Ok(true) | Err(Errno::EBADF) => return Ok(()),
        Err(error) => return Err(error),
    }
    let mut from = 0;
    while let Some((fd, _)) = fd_table::next_used(region, files, from) {
        table::close_any(kernel, files, fd)?;
        from = fd + 1;
    }
    whole::dissolve(kernel, record(region, process), files, |txn| {
        set_files(txn, process, 0);
        Ok(())
    })
}

fn release_context(kernel: &Kernel, process: u32) -> Result<()> {
    kernel.run(|txn| {
        let cell = record(txn.region, process);
        txn.lock(cell)?;
        let parts = txn.get(cell.word(PARTS));
        if low(parts) == 0 {
            return Ok(());
        }
        let context = txn.region.map.object(RECORD, low(parts));
        txn.lock(context)?;
        txn.set(cell.word(PARTS), pair(high(parts), 0));
        let references = txn.get(context.word(REFERENCES));
        txn.set(context.word(REFERENCES), references - 1);
        if references > 1 {
            return Ok(());
        }
        let generation = high(txn.get(context.word(TAG))).wrapping_add(1);
        txn.set(context.word(TAG), pair(generation, 0));
        txn.free(RECORD, low(parts));
        match directory_of(txn.region, context) {
            Some(dir) => inodes::close(txn, dir.number),
            None => Ok(()),
        }
    })
}

/// Children that have not arrived yet have no parent from now on, only the thread that made them.
fn orphan_embryos(kernel: &Kernel, process: u32) -> Result<()> {
    let region = &kernel.session.region;
    for child in 1..=region.load(region.map.fixed(PROCESS_HIGH)) as u32 {
        let cell = record(region, child);
        let mine = low(region.load(cell.word(PARENT))) == process;
        let state = region.load(cell.word(STATE));
        let unborn = high(state) == EMBRYO || (high(state) == DYING && low(state) == 0);
        if mine && unborn {
            kernel.run(|txn| {
                txn.lock(cell)?;
                let thread = high(txn.get(cell.word(PARENT)));
                txn.set(cell.word(PARENT), pair(thread, 0));
                Ok(())
            })?;
        }
    }
    Ok(())
}

/// The word of whoever releases the dead: its host process and thread, 0 = nobody. Two at a time
/// could release a record that is another process's by then, so `reap` is called by its owner only.
pub fn burial_word(kernel: &Kernel) -> Cell {
    kernel.session.region.map.fixed(crate::image::BURIAL)
}

/// Releases the processes that ran as host process `pid`, and embryos that nobody will come of.
/// `gone` judges a thread of a host process.
pub fn reap(
    kernel: &Kernel,
    pid: u32,
    now_ns: i64,
    gone: &dyn Fn(u32, u32) -> bool,
) -> Result<u32> {
    kernel.session.recover_where(|owner, _| owner == pid)?;
    let region = &kernel.session.region;
    let mut found = 0;
    for process in 1..=region.load(region.map.fixed(PROCESS_HIGH)) as u32 {
        let cell = record(region, process);
        let state = region.load(cell.word(STATE));
        let over = match embryo::expected(kernel, cell, now_ns, gone)? {
            None => pid != 0 && low(state) == pid && high(state) > EMBRYO,
            Some(Expected::Nobody) => true,
            Some(Expected::Child(child)) if child == pid => true,
            Some(Expected::Child(child)) => {
                found += embryo::note_told(kernel, cell, child)?;
                false
            }
            Some(Expected::Unknown) => false,
        };
        if over && condemn(kernel, cell, state)? {
            release(kernel, process)?;
            found += 1;
        }
    }
    finish_left_over(kernel)?;
    Ok(found)
}

/// A record that was judged in this state is about to be released; false: it has another by now,
/// for its process has come.
fn condemn(kernel: &Kernel, cell: Cell, judged: u64) -> Result<bool> {
    kernel.run(|txn| {
        txn.lock(cell)?;
        let same = txn.get(cell.word(STATE)) == judged;
        if same {
            txn.set(cell.word(STATE), pair(DYING, low(judged)));
        }
        Ok(same)
    })
}

/// Finishes what dead threads have left in free slots.
pub fn finish_left_over(kernel: &Kernel) -> Result<()> {
    let own = &kernel.session;
    own.finish_left_behind(|slot| {
        let session = husk_region::Session::new(own.region, own.pid(), own.tid());
        session.work_as(own.works_as());
        if session.adopt_slot(slot) {
            let adopted = Kernel::new(session, 0);
            let result = crate::fs::orphan::finish(&adopted);
            adopted.session.detach();
            result?;
        }
        Ok(())
    })
}

/// The host processes of all live records, for the supervisor's scan.
pub fn each_pid(kernel: &Kernel, emit: &mut dyn FnMut(u32)) {
    each(kernel, &mut |_, pid| emit(pid));
}

/// `Processes::working_directory`.
#[inline]
pub fn working_directory(kernel: &Kernel) -> Result<WorkingDirectory> {
    directory_in(kernel, context(kernel))
}

/// `Processes::working_directory_of`.
pub fn working_directory_of(kernel: &Kernel, pid: u32) -> Option<WorkingDirectory> {
    let process = record_of(kernel, pid)?;
    directory_in(kernel, context_of(&kernel.session.region, process)).ok()
}

/// The working directory that a context holds.
#[inline]
fn directory_in(kernel: &Kernel, context: Cell) -> Result<WorkingDirectory> {
    let region = &kernel.session.region;
    let dir = kernel.session.read(context, || directory_of(region, context))?;
    Ok(dir.map_or(WorkingDirectory::Host, WorkingDirectory::Husk))
}

/// `Processes::set_working_directory`.
pub fn set_working_directory(kernel: &Kernel, place: WorkingDirectory) -> Result<()> {
    kernel.run(|txn| {
        let cell = context(kernel);
        txn.lock(cell)?;
        let old = directory_of(txn.region, cell);
        let new = match place {
            WorkingDirectory::Host => None,
            WorkingDirectory::Husk(dir) => Some(dir),
        };
        if old == new {
            return Ok(());
        }
        lock_inodes(txn, old, new)?;
        if let Some(dir) = new {
            let inode = hold::lock_to_hold(txn, dir)?;
            hold::add_users(txn, inode, 1, 0);
        }
        txn.set(cell.word(DIRECTORY), new.map_or(0, |dir| dir.number) as u64);
        txn.set(cell.word(GENERATION), new.map_or(0, |dir| dir.generation) as u64);
        match old {
            Some(dir) => inodes::close(txn, dir.number),
            None => Ok(()),
        }
    })
}

fn lock_inodes(txn: &mut Txn<'_>, one: Option<Inode>, two: Option<Inode>) -> Result<()> {
    let mut numbers = [one.map_or(0, |dir| dir.number), two.map_or(0, |dir| dir.number)];
    numbers.sort_unstable();
    for number in numbers {
        if number != 0 {
            txn.lock(txn.region.map.object(INODE, number))?;
        }
    }
    Ok(())
}

/// `Processes::umask`.
pub fn umask(kernel: &Kernel) -> u32 {
    kernel.session.region.load(context(kernel).word(UMASK)) as u32
}

/// `Processes::set_umask`.
pub fn set_umask(kernel: &Kernel, mask: u32) -> Result<u32> {
    kernel.run(|txn| {
        let cell = context(kernel);
        txn.lock(cell)?;
        let old = txn.get(cell.word(UMASK)) as u32;
        txn.set(cell.word(UMASK), (mask & 0o777) as u64);
        Ok(old)
    })
}

/// `Fs::create_nameless`.
pub fn create_nameless(
    kernel: &Kernel,
    who: &husk_proto::Credentials<'_>,
    like: Inode,
    mode: u32,
    linkable: bool,
    now_ns: i64,
) -> Result<Inode> {
    kernel.run(|txn| {
        let process = record(txn.region, kernel.process);
        txn.lock(process)?;
        let near = live(txn.region, like)?;
        let directory = names::step(txn, like.number).kind == husk_proto::fs::Kind::Directory;
        let (gid, given) = if directory {
            match entries::open_directory(txn, like) {
                // Who has a removed directory open still makes files without a name in it.
                Err(Errno::ENOENT) => {}
                opened => drop(opened?),
            }
            names::permit_change(txn, like.number, who)?;
            inodes::inherit(txn, near, who, unmasked(mode), false)
        } else {
            (who.gid, unmasked(mode))
        };
        let (uid, kind, links) = (who.uid, ino::FILE, 0);
        let linkable = if linkable { ino::LINKABLE } else { 0 };
        let flags = low(txn.get(near.word(ino::IDENT))) & ino::INHERITED | linkable;
        let birth = Birth { kind, mode: given, uid, gid, flags, links, now_ns };
        let (number, _) = match directory {
            true => rights::make_in(txn, near, &birth, mode & 0o7777)?,
            false => inodes::make(txn, &birth)?,
        };
        pins::add(txn, process, number)?;
        Ok(inodes::name(txn, number))
    })
}

/// A file without a name for a value that is longer than a transaction, with one pin of the calling
/// process on it.
pub fn create_value(kernel: &Kernel, now_ns: i64) -> Result<Inode> {
    kernel.run(|txn| {
        let process = record(txn.region, kernel.process);
        txn.lock(process)?;
        let (kind, mode, uid, gid, flags, links) = (ino::FILE, 0, 0, 0, 0, 0);
        let birth = Birth { kind, mode, uid, gid, flags, links, now_ns };
        let (number, _) = inodes::make(txn, &birth)?;
        pins::add(txn, process, number)?;
        Ok(inodes::name(txn, number))
    })
}

/// The record of host process `pid`, if it has one.
pub fn record_of(kernel: &Kernel, pid: u32) -> Option<u32> {
    let mut found = None;
    each(kernel, &mut |process, other| found = found.or((other == pid).then_some(process)));
    found
}

/// When a record was taken, ns since the epoch.
pub(crate) fn born_ns(region: &Region, process: u32) -> i64 {
    region.load(record(region, process).word(BORN)) as i64
}

/// Walks what live records hold, for the checker: tables, contexts, pins (inode, 1 a process).
pub(crate) fn each_held(region: &Region, emit: &mut dyn FnMut(Holding)) {
    for process in 1..=region.load(region.map.fixed(PROCESS_HIGH)) as u32 {
        let cell = record(region, process);
        if high(region.load(cell.word(STATE))) == FREE {
            continue;
        }
        let parts = region.load(cell.word(PARTS));
        emit(Holding::Table(high(parts)));
        emit(Holding::Context(low(parts)));
        emit(Holding::Program(program_of(region, process)));
        let mut line = low(region.load(cell.word(PINS)));
        while line != 0 {
            let pin = region.map.object(LINE, line);
            let inode = low(region.load(pin.word(2)));
            emit(Holding::Pin { line, inode, writes: pins::writes(region, line) });
            line = low(region.load(pin.word(1)));
        }
    }
}

/// Something a process record holds.
pub(crate) enum Holding {
    /// A descriptor table.
    Table(u32),
    /// A context.
    Context(u32),
    /// A pin: its line, its inode, and whether it counts as a writer.
    Pin { line: u32, inode: u32, writes: bool },
    /// The inode it runs, 0 = none.
    Program(u32),
}

/// References and directory of a context, for the checker.
pub(crate) fn context_facts(region: &Region, context: u32) -> (u64, Option<Inode>) {
    let cell = region.map.object(RECORD, context);
    (region.load(cell.word(REFERENCES)), directory_of(region, cell))
}

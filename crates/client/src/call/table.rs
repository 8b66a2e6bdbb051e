//! The table of system calls: which ones Husk handles, how far they are served, by which method.
//!
//! Every call that is not here goes to the host without the client (`wants`). The documentation's
//! list of calls is made from `CALLS`.

use crate::file::attributes::xattr::Asking;
use crate::file::attributes::{mode_change, owner_change};
use crate::overlay::read_only_outside;
use crate::path::{Aim, at, plain};
use crate::reason;
use crate::{Answer, Call, Client, Host, Memory, Verdict};
use husk_abi::{Errno, nr};
use husk_proto::Services;

/// How far a call is served on Husk objects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Support {
    /// As Linux does.
    Full,
    /// Mostly; the note says what is missing.
    Partial,
    /// Goes to the host; the client only takes notes.
    Passed,
    /// Refused on Husk objects with the error in the note.
    Refused,
}

/// One line of the table.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Its number.
    pub number: usize,
    /// How far.
    pub support: Support,
    /// What to know.
    pub note: &'static str,
}

/// Whether call `number` must be handed to the client.
#[inline]
pub const fn wants(number: usize) -> bool {
    number < nr::LIMIT && WANTED[number]
}

macro_rules! calls {
    (|$client:ident, $c:ident, $a:ident|
        $($name:ident $support:ident $note:literal => $body:expr;)*
    ) => {
        /// Every call the client handles.
        pub static CALLS: &[Entry] = &[
            $(Entry { number: nr::$name, support: Support::$support, note: $note },)*
        ];

        const WANTED: [bool; nr::LIMIT] = {
            let mut wanted = [false; nr::LIMIT];
            $(wanted[nr::$name] = true;)*
            wanted
        };

        impl<S: Services, H: Host, M: Memory> Client<S, H, M> {
            /// Finds the handler.
            pub(crate) fn dispatch(&mut self, $c: &Call) -> Answer {
                if self.has_spares() && let Some(answer) = self.before($c) {
                    return answer;
                }
                let $client = self;
                let $a = &$c.args;
                match $c.number {
                    $(nr::$name => {
                        let answer: Answer = $body;
                        if const { read_only_outside::changes(nr::$name) } {
                            $client.sealed($c, answer)
                        } else {
                            answer
                        }
                    })*
                    _ => Ok(Verdict::Pass),
                }
            }
        }
    };
}

/// `O_WRONLY | O_CREAT | O_TRUNC`.
const CREAT_FLAGS: usize = 0o1101;
/// `SOCK_CLOEXEC`, `O_CLOEXEC` and the like all have this value.
pub(crate) const CLOSE_ON_EXEC: usize = 0o2_000_000;
/// `MFD_CLOEXEC`.
const MEMFD_CLOSE_ON_EXEC: usize = 1;
/// `CLONE_FS` and what implies it: `CLONE_NEWNS`, `CLONE_NEWUSER`; `CLONE_FILES`.
const SHARE_CONTEXT: usize = 0x200 | 0x2_0000 | 0x1000_0000;
const SHARE_FILES: usize = 0x400;
/// `bpf` commands whose result is a descriptor.
const BPF_OPENERS: [usize; 10] = [0, 5, 7, 13, 14, 17, 18, 19, 28, 33];
/// `ioctl` requests whose result is a descriptor: terminals, name spaces, KVM.
const IOCTL_OPENERS: [usize; 5] = [0x5441, 0xb701, 0xb702, 0xae01, 0xae41];

calls! { |client, c, a|
    // ---- bytes
    read Full "" => client.read(c);
    write Full "" => client.write(c);
    pread64 Full "" => client.pread(c);
    pwrite64 Full "" => client.pwrite(c);
    readv Full "" => client.readv(c);
    writev Full "" => client.writev(c);
    preadv Full "" => client.preadv(c, 0);
    pwritev Full "" => client.pwritev(c, 0);
    preadv2 Full "RWF_NOWAIT is EOPNOTSUPP, as in a tmpfs"
        => client.preadv(c, a[5]);
    pwritev2 Full "as preadv2" => client.pwritev(c, a[5]);
    lseek Full "" => client.lseek(c);
    sendfile Full "at most 4 MiB a call" => client.sendfile(c);
    copy_file_range Full "at most 4 MiB a call" => client.copy_file_range(c);
    splice Full "at most 4 MiB a call" => client.splice(c);
    tee Full "" => client.tee(c);
    vmsplice Full "" => client.vmsplice(c);
    truncate Full "" => client.truncate(c);
    ftruncate Full "" => client.ftruncate(c);
    fallocate Full "modes of a tmpfs: 0, KEEP_SIZE, PUNCH_HOLE; others EOPNOTSUPP"
        => client.fallocate(c);
    fsync Full "durable in a volume; elsewhere there is nothing to flush"
        => client.flush(c);
    fdatasync Full "as fsync" => client.flush(c);
    syncfs Full "as fsync" => client.flush(c);
    sync Full "all volumes, then the host" => client.sync();
    msync Full "MS_SYNC: durable in a volume; the host's part is the host's" => client.msync(c);
    sync_file_range Full "as fsync" => client.sync_file_range(c);
    fadvise64 Full "" => client.fadvise(c);
    readahead Full "" => client.readahead(c);
    mmap Full "" => client.mmap(c);

    // ---- opening and numbers
    open Full "" => client.open(c, plain(0), a[1], a[2]);
    openat Full "" => client.open(c, at(0), a[2], a[3]);
    creat Full "" => client.open(c, plain(0), CREAT_FLAGS, a[1]);
    openat2 Full ""
        => client.openat2(c);
    close Full "" => client.close(c);
    close_range Full "" => client.close_range(c);
    dup Full "" => client.dup(c);
    dup2 Full "" => client.dup2(c);
    dup3 Full "" => client.dup3(c);
    fcntl Partial "no leases and no notifications (EINVAL); owners are taken note of nowhere"
        => client.fcntl(c);
    flock Full "" => client.flock(c);
    ioctl Partial "FIONREAD, FIOCLEX, FIONCLEX, FIONBIO, FIGETBSZ; others ENOTTY" => {
        match client.ioctl(c)? {
            Verdict::Pass if IOCTL_OPENERS.contains(&(a[1] as u32 as usize)) => {
                reason::then(c, reason::ASK)
            }
            other => Ok(other),
        }
    };

    // ---- attributes
    stat Full "" => client.stat_path(c, plain(0), Aim::FOLLOW, a[1]);
    lstat Full "" => client.stat_path(c, plain(0), Aim::STAY, a[1]);
    fstat Full "" => client.fstat(c);
    newfstatat Full "" => client.newfstatat(c);
    statx Partial "no file attributes, and says so in its mask" => client.statx(c);
    access Full "" => client.access(c, plain(0), a[1], 0);
    faccessat Full "" => client.access(c, at(0), a[2], 0);
    faccessat2 Full "" => client.access(c, at(0), a[2], a[3]);
    chmod Full "" => client.change_path(c, plain(0), Aim::FOLLOW, mode_change(a[1]));
    fchmod Full "" => client.change_open(a[0], Ok(mode_change(a[1])));
    fchmodat Full "" => client.change_path(c, at(0), Aim::FOLLOW, mode_change(a[2]));
    fchmodat2 Full "" => client.fchmodat2(c);
    chown Full "" => client.change_path(c, plain(0), Aim::FOLLOW, owner_change(a[1], a[2]));
    lchown Full "" => client.change_path(c, plain(0), Aim::STAY, owner_change(a[1], a[2]));
    fchown Full "" => client.change_open(a[0], Ok(owner_change(a[1], a[2])));
    fchownat Full "" => client.fchownat(c);
    utime Full "" => client.utime(c);
    utimes Full "" => client.utimes(c, plain(0), a[1]);
    futimesat Full "" => client.utimes(c, at(0), a[2]);
    utimensat Full "" => client.utimensat(c);
    file_getattr Full "no flags are set" => client.file_getattr(c);
    file_setattr Partial "no flags can be set (EOPNOTSUPP)" => client.file_setattr(c);
    statfs Full "shown as tmpfs" => client.statfs(c);
    fstatfs Full "shown as tmpfs" => client.fstatfs(c);

    // ---- extended attributes
    setxattr Partial "no ACLs"
        => client.extended_path(c, Aim::FOLLOW, Asking::Set);
    lsetxattr Partial "as setxattr" => client.extended_path(c, Aim::STAY, Asking::Set);
    fsetxattr Partial "as setxattr" => client.extended_open(c, Asking::Set);
    getxattr Full "" => client.extended_path(c, Aim::FOLLOW, Asking::Get);
    lgetxattr Full "" => client.extended_path(c, Aim::STAY, Asking::Get);
    fgetxattr Full "" => client.extended_open(c, Asking::Get);
    listxattr Full "" => client.extended_path(c, Aim::FOLLOW, Asking::List);
    llistxattr Full "" => client.extended_path(c, Aim::STAY, Asking::List);
    flistxattr Full "" => client.extended_open(c, Asking::List);
    removexattr Full "" => client.extended_path(c, Aim::FOLLOW, Asking::Remove);
    lremovexattr Full "" => client.extended_path(c, Aim::STAY, Asking::Remove);
    fremovexattr Full "" => client.extended_open(c, Asking::Remove);
    setxattrat Partial "as setxattr" => client.extended_at(c, Asking::Set);
    getxattrat Full "" => client.extended_at(c, Asking::Get);
    listxattrat Full "" => client.extended_at(c, Asking::List);
    removexattrat Full "" => client.extended_at(c, Asking::Remove);

    // ---- names
    mkdir Full "" => client.mkdir(c, plain(0), a[1]);
    mkdirat Full "" => client.mkdir(c, at(0), a[2]);
    rmdir Full "" => client.remove(c, plain(0), true);
    unlink Full "" => client.remove(c, plain(0), false);
    unlinkat Full "" => client.unlinkat(c);
    rename Full "" => client.rename(c, plain(0), plain(1), 0);
    renameat Full "" => client.rename(c, at(0), at(2), 0);
    renameat2 Partial "RENAME_WHITEOUT: EINVAL" => client.rename(c, at(0), at(2), a[4] as u32);
    link Full "" => client.link(c, plain(0), plain(1), 0);
    linkat Full "" => client.link(c, at(0), at(2), a[4]);
    symlink Full "" => client.symlink(c, 0, plain(1));
    symlinkat Full "" => client.symlink(c, 0, at(1));
    readlink Full "" => client.readlink(c, plain(0), a[1], a[2]);
    readlinkat Full "" => client.readlink(c, at(0), a[2], a[3]);
    mknod Partial "opening a device is EACCES, as on a file system mounted nodev"
        => client.mknod(c, plain(0), a[1], a[2]);
    mknodat Partial "as mknod" => client.mknod(c, at(0), a[2], a[3]);
    getdents Full "" => client.getdents(c, false);
    getdents64 Full "" => client.getdents(c, true);
    chdir Full "" => client.chdir(c);
    fchdir Full "" => client.fchdir(c);
    getcwd Full "" => client.getcwd(c);
    umask Full "" => client.umask(c);
    chroot Partial "EPERM into a tree; elsewhere names of trees still lead there"
        => client.chroot(c);

    // ---- waiting for descriptors
    poll Partial "a set with a Husk file never waits" => client.poll(c);
    ppoll Partial "as poll" => client.poll(c);
    select Partial "as poll" => client.select(c);
    pselect6 Partial "as poll" => client.select(c);
    epoll_ctl Full "EPERM, as for any regular file" => client.epoll_ctl(c);
    epoll_wait Full "" => client.epoll_wait(c);
    epoll_pwait Full "" => client.epoll_wait(c);
    epoll_pwait2 Full "" => client.epoll_wait(c);

    // ---- being told of changes
    inotify_init Full "" => client.then_opened(c, reason::WATCHER);
    inotify_init1 Full "" => client.then_opened(c, reason::WATCHER);
    inotify_add_watch Partial "reads of unmodified host files are not told" => client.add_watch(c);
    inotify_rm_watch Full "" => client.remove_watch(c);

    // ---- refused on Husk files
    name_to_handle_at Refused "EOPNOTSUPP"
        => client.name_to_handle(c);
    open_by_handle_at Refused "ESTALE: there are no handles of Husk files"
        => client.open_by_handle(c);
    fanotify_mark Refused "EOPNOTSUPP"
        => if client.described(a[0])?.is_some() { Err(Errno::EINVAL) }
           else if a[4] == 0 { client.refuse_open(c, 3, Errno::EOPNOTSUPP) }
           else { client.refuse_path(c, at(3), Aim::FOLLOW, Errno::EOPNOTSUPP) };
    mount Refused "EPERM" => client.refuse_path(c, plain(1), Aim::FOLLOW, Errno::EPERM);
    umount2 Refused "EPERM" => client.refuse_path(c, plain(0), Aim::FOLLOW, Errno::EPERM);
    pivot_root Refused "EPERM" => client.refuse_path(c, plain(0), Aim::FOLLOW, Errno::EPERM);
    open_tree Refused "EPERM" => match client.refuse_path(c, at(0), Aim::FOLLOW, Errno::EPERM)? {
        Verdict::Pass => reason::then(c, reason::ASK),
        other => Ok(other),
    };
    fspick Refused "EPERM" => match client.refuse_path(c, at(0), Aim::FOLLOW, Errno::EPERM)? {
        Verdict::Pass => reason::then(c, reason::ASK),
        other => Ok(other),
    };
    move_mount Refused "EPERM" => client.refuse_path(c, at(2), Aim::FOLLOW, Errno::EPERM);
    mount_setattr Refused "EPERM" => client.refuse_path(c, at(0), Aim::FOLLOW, Errno::EPERM);
    swapon Refused "EPERM" => client.refuse_path(c, plain(0), Aim::FOLLOW, Errno::EPERM);
    swapoff Refused "EPERM" => client.refuse_path(c, plain(0), Aim::FOLLOW, Errno::EPERM);
    acct Refused "EPERM" => if a[0] == 0 { Ok(Verdict::Pass) }
        else { client.refuse_path(c, plain(0), Aim::FOLLOW, Errno::EPERM) };
    quotactl Refused "EPERM" => if a[1] == 0 { Ok(Verdict::Pass) }
        else { client.refuse_path(c, plain(1), Aim::FOLLOW, Errno::EPERM) };
    quotactl_fd Refused "EPERM" => client.refuse_open(c, 0, Errno::EPERM);
    cachestat Refused "EOPNOTSUPP" => client.refuse_open(c, 0, Errno::EOPNOTSUPP);
    finit_module Refused "EPERM" => client.refuse_module(c);
    io_uring_setup Refused "ENOSYS, for all files" => client.not_here(c, Errno::ENOSYS);
    io_setup Refused "ENOSYS, for all files" => client.not_here(c, Errno::ENOSYS);


    // ---- sockets
    bind Full "a socket bound to a name in a tree is reached from within the image"
        => client.bind(c);
    connect Full "" => client.connect(c);
    sendmsg Full "" => client.sendmsg(c);
    sendmmsg Full "" => client.sendmmsg(c);
    recvmsg Passed "" => client.recvmsg(c);
    recvmmsg Passed "" => client.recvmmsg(c);
    sendto Passed "" => client.sendto(c);
    recvfrom Passed "" => client.recvfrom(c);
    shutdown Passed "" => client.shutdown(c);
    listen Passed "" => client.listen(c);
    getsockname Passed "" => client.name_shown(c);
    getpeername Passed "" => client.name_shown(c);
    getsockopt Passed "" => client.get_option(c);
    setsockopt Passed "" => client.set_option(c);
    accept Passed "" => client.accept(c, false);
    accept4 Passed "" => client.accept(c, a[3] & CLOSE_ON_EXEC != 0);

    // ---- new host descriptors
    socket Passed "" => reason::then(c, reason::SOCKET);
    socketpair Passed "" => client.then_pair(c, reason::SOCKET_PAIR);
    pipe Passed "" => client.then_pair(c, reason::PAIR);
    pipe2 Passed "" => client.then_pair(c, reason::PAIR);
    epoll_create Passed "" => reason::then(c, reason::EPOLL);
    epoll_create1 Passed "" => reason::then(c, reason::EPOLL);
    eventfd Passed "" => client.eventfd(c, 0);
    eventfd2 Passed "" => client.eventfd(c, a[1] as u32);
    signalfd Passed "" => client.signalfd(c);
    signalfd4 Passed "" => client.signalfd(c);
    timerfd_create Passed "" => {
        reason::then(c, reason::opened(a[1] & CLOSE_ON_EXEC != 0))
    };
    fanotify_init Passed "" => {
        // Its reads make descriptors that nobody tells of.
        client.forgo_spares();
        reason::then(c, reason::ASK)
    };
    memfd_create Passed "" => {
        reason::then(c, reason::opened(a[1] & MEMFD_CLOSE_ON_EXEC != 0))
    };
    memfd_secret Passed "" => reason::then(c, reason::ASK);
    userfaultfd Passed "" => {
        client.forgo_spares();
        reason::then(c, reason::ASK)
    };
    perf_event_open Passed "" => reason::then(c, reason::ASK);
    timerfd_settime Passed "" => client.other_kind(c, Errno::EINVAL);
    timerfd_gettime Passed "" => client.other_kind(c, Errno::EINVAL);
    kcmp Full "" => client.kcmp(c);
    pidfd_open Passed "" => reason::then(c, reason::opened(true));
    pidfd_getfd Partial "a file of the image comes with an offset of its own"
        => client.pidfd_getfd(c);
    mq_open Passed "" => client.then_opened(c, reason::ASK);
    fsopen Passed "" => reason::then(c, reason::ASK);
    fsmount Passed "" => reason::then(c, reason::ASK);
    bpf Passed "" => if BPF_OPENERS.contains(&a[0]) { reason::then(c, reason::ASK) }
        else { Ok(Verdict::Pass) };
    landlock_create_ruleset Refused "EOPNOTSUPP, as where it is switched off"
        => client.not_here(c, Errno::EOPNOTSUPP);
    landlock_add_rule Refused "EOPNOTSUPP" => client.not_here(c, Errno::EOPNOTSUPP);
    landlock_restrict_self Refused "EOPNOTSUPP" => client.not_here(c, Errno::EOPNOTSUPP);

    // ---- what the client remembers of the host
    setuid Passed "" => client.then_identity(c);
    setgid Passed "" => client.then_identity(c);
    setreuid Passed "" => client.then_identity(c);
    setregid Passed "" => client.then_identity(c);
    setresuid Passed "" => client.then_identity(c);
    setresgid Passed "" => client.then_identity(c);
    setfsuid Passed "" => client.then_identity(c);
    setfsgid Passed "" => client.then_identity(c);
    setgroups Passed "" => client.then_identity(c);
    capset Passed "" => client.then_identity(c);
    setns Passed "not into a PID namespace (EPERM)" => client.setns(c);
    unshare Passed "no PID namespace (EPERM)" =>
        client.unshare(c, a[0] & SHARE_FILES != 0, a[0] & SHARE_CONTEXT != 0);
    setrlimit Passed "" => reason::then(c, reason::LIMIT);
    prlimit64 Passed "" => reason::then(c, reason::LIMIT);
}

//! Files, names and trees.

use std::fs;
use std::path::Path;

use rustix::fs::{FlockOperation, fcntl_lock, flock};

use crate::{Difference, nothing, one_file};

#[test]
fn an_older_mapping_of_a_host_file_keeps_its_bytes() {
    let script = "
import mmap
with open('file', 'rb') as file:
    view = mmap.mmap(file.fileno(), 0, mmap.MAP_SHARED, mmap.PROT_READ)
with open('file', 'r+b') as file:
    file.write(b'new')
print(view[:4].decode())
";
    Difference { script, linux: Some("newm\n"), husk: "from\n" }.check("mapping", one_file);
}

#[test]
fn locks_taken_outside_do_not_hold_inside() {
    fn held(work: &Path) {
        one_file(work);
        let file = fs::File::options().write(true).open(work.join("file")).expect("a file");
        flock(&file, FlockOperation::LockExclusive).expect("nobody else has it");
        fcntl_lock(&file, FlockOperation::LockExclusive).expect("nobody else has it");
        // Until this process ends.
        std::mem::forget(file);
    }
    let script = "
import fcntl
with open('file', 'r+') as file:
    for lock in (fcntl.flock, fcntl.lockf):
        try:
            lock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            print('taken')
        except BlockingIOError:
            print('held')
";
    let (linux, husk) = ("held\nheld\n", "taken\ntaken\n");
    Difference { script, linux: Some(linux), husk }.check("locks-outside", held);
}

#[test]
fn a_descriptor_from_a_message_goes_its_own_way() {
    let script = "
import os, socket
here, there = socket.socketpair()
fd = os.open('file', os.O_RDONLY)
socket.send_fds(here, [b'x'], [fd])
came = socket.recv_fds(there, 1, 1)[1][0]
with open('file', 'a') as file:
    file.write('more')
print(os.read(fd, 5), os.read(came, 5))
";
    let (linux, husk) = ("b'from ' b'the h'\n", "b'from ' b'from '\n");
    Difference { script, linux: Some(linux), husk }.check("message", one_file);
}

#[test]
fn temporary_names_of_the_host_are_not_seen() {
    fn left(work: &Path) {
        one_file(work);
        fs::write(work.join(".husk-tmp-x"), "").expect("a file");
    }
    let script = "import os; print(sorted(os.listdir()))";
    let (linux, husk) = ("['.husk-tmp-x', 'file']\n", "['file']\n");
    Difference { script, linux: Some(linux), husk }.check("temporary", left);
}

#[test]
fn no_flags_are_set_on_an_inode() {
    let script = "
import ctypes, errno
libc = ctypes.CDLL(None, use_errno=True)
NODUMP = (0x80).to_bytes(24, 'little')
open('file', 'w').close()
libc.syscall(469, -100, b'file', NODUMP, 24, 0)
print(errno.errorcode[ctypes.get_errno()])
";
    // Natively it depends on the version of Linux, and on the file system.
    Difference { script, linux: None, husk: "ENOTSUP\n" }.check("inode-flags", nothing);
}

#[test]
fn hints_and_made_up_offsets_are_not_those_of_tmpfs() {
    let script = "
import ctypes, errno, fcntl, os
GET_HINT, SET_HINT, CREATED = 1035, 1036, 1028
def told(fd, call, of):
    try: return fcntl.fcntl(fd, call, of)[:1] if call != CREATED else fcntl.fcntl(fd, call, of)
    except OSError as error: return errno.errorcode[error.errno]
os.mkdir('/dev/shm/hints')
fd = os.open('/dev/shm/hints/file', os.O_RDWR | os.O_CREAT)
three = (3).to_bytes(8, 'little')
print(told(fd, SET_HINT, three), told(fd, GET_HINT, bytes(8)))
print(told(fd, CREATED, 0))
fd = os.open('/dev/shm/hints', os.O_RDONLY)
room = ctypes.create_string_buffer(4096)
print(os.lseek(fd, 1 << 20, os.SEEK_SET), ctypes.CDLL(None).syscall(217, fd, room, 4096) > 0)
os.unlink('/dev/shm/hints/file')
os.rmdir('/dev/shm/hints')
";
    // Natively it depends on the version of Linux.
    let husk = "EINVAL EINVAL\nEINVAL\n1048576 False\n";
    Difference { script, linux: None, husk }.check_with(&["--mount", "/dev/shm"], "hints", nothing);
}

#[test]
fn a_small_mapping_takes_its_blocks_at_once() {
    let script = "
import mmap, os
fd = os.open('/dev/shm/small', os.O_RDWR | os.O_CREAT)
os.unlink('/dev/shm/small')
os.ftruncate(fd, 1 << 20)
views = [mmap.mmap(fd, 16 * 4096)]
print(os.fstat(fd).st_blocks)
views += [mmap.mmap(fd, 17 * 4096, offset=1 << 17), mmap.mmap(fd, 4096, prot=1, offset=1 << 18)]
print(os.fstat(fd).st_blocks)
";
    Difference { script, linux: Some("0\n0\n"), husk: "128\n128\n" }.check_with(
        &["--mount", "/dev/shm"],
        "small",
        nothing,
    );
}

#[test]
fn a_look_from_outside_does_not_reach_untouched_pages() {
    let script = "
import ctypes, errno, os, signal
fd = os.open('holes', os.O_RDWR | os.O_CREAT)
os.ftruncate(fd, 1 << 20)
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
view = libc.mmap(None, ctypes.c_size_t(1 << 20), 3, 1, fd, ctypes.c_long(0))
READV = 310
here = ctypes.create_string_buffer(9)
near = (ctypes.c_size_t * 2)(ctypes.addressof(here), 9)
far = (ctypes.c_size_t * 2)(view, 9)
if (child := os.fork()) == 0: signal.pause()
for seen in [child, os.getpid()]:
    if seen != child: ctypes.memset(view, 0, 1)
    libc.syscall(READV, seen, near, ctypes.c_long(1), far, ctypes.c_long(1), ctypes.c_long(0))
    print(errno.errorcode.get(ctypes.get_errno(), 'no error'))
os.kill(child, 9)
";
    let linux = Some("no error\nno error\n");
    Difference { script, linux, husk: "EFAULT\nEFAULT\n" }.check("untouched", nothing);
}

/// The second buffer holds the list, and memory ends in its middle.
#[test]
fn a_list_of_buffers_is_read_as_they_are_filled() {
    let script = "
import ctypes, os
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
size = ctypes.c_size_t
fd = os.open('f', os.O_RDWR | os.O_CREAT)
os.write(fd, b'x' * 4096)
os.ftruncate(fd, 16384)
os.lseek(fd, 0, 0)
pages = libc.mmap(None, size(12288), 3, 0x22, -1, ctypes.c_long(0))
libc.munmap(ctypes.c_void_p(pages + 8192), size(4096))
table = (size * 4).from_address(pages + 7168)
table[:] = [pages, 4096, pages + 6144, 4096]
print(libc.readv(fd, ctypes.c_void_p(pages + 7168), 2), os.lseek(fd, 0, 1))
";
    let (linux, husk) = (Some("6144 6144\n"), "4096 4096\n");
    Difference { script, linux, husk }.check("list", nothing);
}

#[test]
fn a_page_stays_when_another_process_truncates_its_file() {
    let script = "
import mmap, os
fd = os.open('f', os.O_RDWR | os.O_CREAT)
os.write(fd, b'full' * 65536)
view = mmap.mmap(fd, 1 << 18)
view[:4], view[-4:]
def told(step):
    if (child := os.fork()) == 0:
        step()
        os._exit(0)
    return os.waitpid(child, 0)[1]
told(lambda: os.truncate('f', 4096))
print(told(lambda: view[8192]))
";
    Difference { script, linux: Some("7\n"), husk: "0\n" }.check("stays", nothing);
}

#[test]
fn an_access_control_list_has_at_most_128_entries() {
    let script = "
import os, struct
def attempt(users):
    named = [(2, 7, 5000 + n) for n in range(users)]
    entries = [(1, 6, -1), *named, (4, 4, -1), (16, 7, -1), (32, 4, -1)]
    acl = struct.pack('<I', 2) + b''.join(struct.pack('<HHi', *entry) for entry in entries)
    try:
        os.setxattr('new', 'system.posix_acl_access', acl)
        return 0
    except OSError as error:
        return error.errno
open('new', 'w').close()
print(attempt(124), attempt(125))
";
    Difference { script, linux: Some("0 0\n"), husk: "0 28\n" }.check("attributes", nothing);
}

#[test]
fn a_file_has_4096_attributes() {
    let script = "
import os
open('new', 'w').close()
count = 0
try:
    for count in range(5000):
        os.setxattr('new', 'user.%d' % count, b'')
except OSError as error:
    print(count, error.errno)
os.unlink('new')
";
    Difference { script, linux: None, husk: "4096 28\n" }.check("attribute-count", nothing);
}

#[test]
fn a_long_name_of_a_socket_is_not_shown_once_it_is_removed() {
    let script = "
import os, socket
bound = socket.socket(socket.AF_UNIX)
bound.bind('l' * 90)
print(len(bound.getsockname()))
os.unlink('l' * 90)
print(len(bound.getsockname()))
";
    Difference { script, linux: Some("90\n90\n"), husk: "90\n0\n" }.check("long-socket", nothing);
}

#[test]
fn devices_are_names_only() {
    // A device that anybody may make and nobody open leads nowhere on Linux, either.
    let script = "
import os, stat
kind = stat.S_IFCHR | 0o666
for number in [os.makedev(1, 3), 0]:
    try:
        os.mknod('null', kind, number)
        break
    except PermissionError:
        pass
try:
    os.open('null', os.O_RDWR)
    print(0)
except OSError as error:
    print(error.errno)
";
    Difference { script, linux: None, husk: "13\n" }.check("devices", nothing);
}

#[test]
fn bytes_leave_the_times_of_a_fifo_alone() {
    let script = "
import os, time
os.mkfifo('fifo')
os.utime('fifo', (1, 1))
fd = os.open('fifo', os.O_RDWR)
os.write(fd, b'x')
print(os.stat('fifo').st_mtime == 1.0)
";
    Difference { script, linux: Some("False\n"), husk: "True\n" }.check("fifos", nothing);
}

#[test]
fn a_socket_in_a_tree_is_the_images_alone() {
    let script = "
import socket
bound = socket.socket(socket.AF_UNIX)
bound.bind('other')
names = [line.split()[-1] for line in open('/proc/net/unix') if line.rstrip().endswith('other')]
print(['path' if name == 'other' else name.startswith('/proc/self/fd/') for name in names])
";
    Difference { script, linux: Some("['path']\n"), husk: "[True]\n" }.check("sockets", nothing);
}

/// What the scripts on inotify share.
const WATCHING: &str = "
import ctypes, os, struct, tempfile
libc = ctypes.CDLL(None, use_errno=True)
def watch(fd, path, mask):
    wd = libc.inotify_add_watch(fd, path.encode(), mask)
    return wd if wd >= 0 else -ctypes.get_errno()
def told(fd):
    data, at, found = os.read(fd, 4096), 0, []
    while at < len(data):
        wd, mask, _, length = struct.unpack_from('iIII', data, at)
        found.append((wd, mask, data[at + 16:at + 16 + length].rstrip(bytes(1)).decode()))
        at += 16 + length
    return found
fd = libc.inotify_init1(os.O_NONBLOCK)
";

#[test]
fn fanotify_does_not_watch_files() {
    // Natively it takes privileges.
    let script = "
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
watch = libc.fanotify_mark(libc.inotify_init(), 1, ctypes.c_ulonglong(2), -100, b'.')
print(ctypes.get_errno())
";
    Difference { script, linux: None, husk: "95\n" }.check("fanotify", nothing);
}

#[test]
fn a_directory_is_told_nothing_of_a_removed_file() {
    let rest = "
file = os.open('new', os.O_CREAT | os.O_WRONLY)
watch(fd, '.', 0x202)
watch(fd, 'new', 2)
os.unlink('new')
os.write(file, b'x')
print(told(fd))
";
    let linux = Some("[(1, 512, 'new'), (1, 2, 'new'), (2, 2, '')]\n");
    let script = &[WATCHING, rest].concat();
    Difference { script, linux, husk: "[(1, 512, 'new'), (2, 2, '')]\n" }
        .check("told-removed", nothing);
}

#[test]
fn events_of_host_and_image_come_in_two_orders() {
    let rest = "
host = tempfile.mkdtemp(dir='/var/tmp')
watch(fd, host, 0x100)
watch(fd, '.', 0x100)
for path in ('one', host + '/two', 'three'):
    open(path, 'w').close()
print([name for _, _, name in told(fd)])
os.unlink(host + '/two')
os.rmdir(host)
";
    let script = &[WATCHING, rest].concat();
    let linux = Some("['one', 'two', 'three']\n");
    Difference { script, linux, husk: "['one', 'three', 'two']\n" }.check("told-mixed", nothing);
}

#[test]
fn reading_an_unmodified_host_file_is_not_told() {
    let rest = "
watch(fd, '.', 0x31)
with open('file') as file:
    file.read()
print([hex(mask) for _, mask, _ in told(fd)])
";
    let script = &[WATCHING, rest].concat();
    let linux = Some("['0x20', '0x1', '0x10']\n");
    Difference { script, linux, husk: "['0x20', '0x10']\n" }.check("told-read", one_file);
}

#[test]
fn a_file_that_is_opened_again_and_again_is_told_of_at_first_only() {
    // In the directory above, which is the host's. What has just changed is not kept.
    let rest = "
import time
path = os.path.abspath('../watched')
open(path, 'w').close()
time.sleep(0.15)
watch(fd, path, 0x30)
for _ in range(40):
    os.close(os.open(path, os.O_RDONLY))
print(len(told(fd)) == 80)
os.unlink(path)
";
    let script = &[WATCHING, rest].concat();
    Difference { script, linux: Some("True\n"), husk: "False\n" }.check("told-first", one_file);
}

#[test]
fn a_number_that_is_lent_is_not_seen_by_other_processes() {
    let script = "
import os, time
path, (ask, asked), (tell, told) = os.path.abspath('file'), os.pipe(), os.pipe()
time.sleep(0.15)
if os.fork() == 0:
    os.read(ask, 1)
    print([os.path.lexists(f'/proc/{os.getppid()}/fd/{n}') for n in range(3, 8)], flush=True)
    os.write(told, b'.')
    os._exit(0)
for _ in range(12):
    os.close(os.open(path, os.O_RDONLY))
fd = os.open(path, os.O_RDONLY)
os.write(asked, b'.')
os.read(tell, 1)
print(fd, os.read(fd, 3), os.path.lexists(f'/proc/self/fd/{fd}'))
";
    let found = |lent| format!("[True, True, True, True, {lent}]\n7 b'fro' True\n");
    let (linux, husk) = (found("True"), found("False"));
    Difference { script, linux: Some(&linux), husk: &husk }.check("lent", one_file);
}

#[test]
fn sixteen_watch_one_directory() {
    let rest = "
fds = [libc.inotify_init() for _ in range(17)]
print([watch(fd, '.', 2) for fd in fds][15:])
";
    let script = &[WATCHING, rest].concat();
    Difference { script, linux: Some("[1, 1]\n"), husk: "[1, -28]\n" }.check("told-many", nothing);
}

#[test]
fn times_end_in_2262() {
    let script = "
import os
open('new', 'w').close()
os.utime('new', (1, 1 << 35))
print(os.stat('new').st_mtime_ns == (1 << 63) - 1)
";
    Difference { script, linux: None, husk: "True\n" }.check("times", nothing);
}

#[test]
fn only_reading_bytes_is_an_access() {
    let script = "
import mmap, os
os.mkdir('target')
os.symlink('target', 'link')
open('file', 'w').write('text')
for name in ['link', 'target', 'file']:
    os.utime(name, (1, 1), follow_symlinks=False)
os.stat('link'), os.readlink('link'), os.listdir('target')
with open('file') as file:
    mmap.mmap(file.fileno(), 0, mmap.MAP_SHARED, mmap.PROT_READ)[0]
print([os.lstat(name).st_atime == 1 for name in ['link', 'target', 'file']])
print(open('file').read(), os.stat('file').st_atime == 1)
";
    // Natively with relatime; where the host does not keep such times, nothing differs.
    let husk = "[True, True, True]\ntext False\n";
    Difference { script, linux: None, husk }.check("access-times", nothing);
}

#[test]
fn stores_through_a_mapping_change_no_times() {
    let script = "
import mmap, os
fd = os.open('/dev/shm/stored', os.O_RDWR | os.O_CREAT)
os.unlink('/dev/shm/stored')
os.write(fd, b'text')
os.utime(fd, (1, 1))
view = mmap.mmap(fd, 4)
view[0] = 65
view.flush()
print(os.pread(fd, 4, 0), os.fstat(fd).st_mtime == 1)
";
    let (linux, husk) = (Some("b'Aext' False\n"), "b'Aext' True\n");
    Difference { script, linux, husk }.check_with(&["--mount", "/dev/shm"], "stored", nothing);
}

#[test]
fn files_end_at_8_tib() {
    let script = "
import os
fd = os.open('/dev/shm/long', os.O_RDWR | os.O_CREAT)
os.unlink('/dev/shm/long')
for end in [1 << 43, (1 << 43) + 1, (1 << 63) - 1]:
    try:
        os.ftruncate(fd, end - 1)
        print(os.pwrite(fd, b'x', end - 1), os.fstat(fd).st_size == end)
    except OSError as error:
        print(error.errno)
";
    let (linux, husk) = (Some("1 True\n1 True\n1 True\n"), "1 True\n27\n27\n");
    Difference { script, linux, husk }.check_with(&["--mount", "/dev/shm"], "long", nothing);
}

#[test]
fn a_file_system_of_an_image_is_shown_as_tmpfs() {
    let script = "
import subprocess
open('new', 'w').close()
kind = subprocess.run(['stat', '-f', '-c', '%T', 'new'], capture_output=True, text=True).stdout
print(kind.strip() == 'tmpfs')
";
    Difference { script, linux: None, husk: "True\n" }.check("statfs", nothing);
}

#[test]
fn a_private_mapping_does_not_keep_a_file_from_being_run() {
    let script = "
import ctypes, errno, os, shutil, subprocess
shutil.copy('/bin/true', 'mapped')
with open('mapped', 'r+b') as file:
    ctypes.CDLL(None).mmap(None, ctypes.c_size_t(4096), 3, 2, file.fileno(), ctypes.c_long(0))
try:
    print(subprocess.run('./mapped').returncode)
except OSError as error:
    print(errno.errorcode[error.errno])
";
    Difference { script, linux: Some("ETXTBSY\n"), husk: "0\n" }.check("running", nothing);
}

#[test]
fn a_limit_on_the_size_of_files_set_from_outside_is_not_noticed() {
    let script = "
import os, resource, signal
signal.signal(signal.SIGXFSZ, lambda *told: print('told'))
fd = os.open('new', os.O_CREAT | os.O_WRONLY)
os.write(fd, b'x')
parent = os.getpid()
if os.fork() == 0:
    resource.prlimit(parent, resource.RLIMIT_FSIZE, (100, 100))
    os._exit(0)
os.wait()
print(os.pwrite(fd, b'x' * 200, 0))
print(os.pwrite(fd, b'x' * 200000, 0))
";
    Difference { script, linux: Some("100\n100\n"), husk: "200\n200000\n" }.check("limit", nothing);
}

#[test]
fn a_removed_directory_in_a_removed_one_has_no_parent() {
    let script = "
import os
os.makedirs('outer/inner')
inner = os.open('outer/inner', os.O_RDONLY)
os.removedirs('outer/inner')
os.fchdir(inner)
try:
    os.chdir('..')
    print('there')
except OSError as error:
    print(error.strerror)
";
    let (linux, husk) = ("there\n", "No such file or directory\n");
    Difference { script, linux: Some(linux), husk }.check("parent", nothing);
}

#[test]
fn after_chroot_names_of_an_overlay_lead_there_all_the_same() {
    if !rustix::process::getuid().is_root() {
        println!("NOT RUN: only root may change its root: chroot");
        return;
    }
    let script = "
import os, tempfile
work, root = os.getcwd(), tempfile.mkdtemp(dir='/var/tmp')
if os.fork() == 0:
    os.chroot(root)
    print(os.path.exists(work + '/file'), flush=True)
    os._exit(0)
os.wait()
os.rmdir(root)
";
    Difference { script, linux: Some("False\n"), husk: "True\n" }.check("chroot", one_file);
}

#[test]
fn an_overlay_is_a_file_system_of_its_own() {
    let script = "
import ctypes, errno, os, struct
try:
    os.rename('file', '../file')
    os.rename('../file', 'file')
    print('moved')
except OSError as error:
    print(errno.errorcode[error.errno])
how = struct.pack('<QQQ', 0, 0, 1)
libc = ctypes.CDLL(None, use_errno=True)
print(libc.syscall(437, -100, b'..', how, 24) >= 0, errno.errorcode.get(ctypes.get_errno()))
";
    let (linux, husk) = ("moved\nTrue None\n", "EXDEV\nFalse EXDEV\n");
    Difference { script, linux: Some(linux), husk }.check("system", one_file);
}

#[test]
fn a_directory_has_one_size_whatever_is_in_it() {
    let script = "
import os
os.mkdir('/dev/shm/sized')
sizes = [os.stat('/dev/shm/sized').st_size]
for n in range(3):
    open(f'/dev/shm/sized/{n}', 'w').close()
    sizes.append(os.stat('/dev/shm/sized').st_size)
for n in range(3):
    os.unlink(f'/dev/shm/sized/{n}')
os.rmdir('/dev/shm/sized')
print(sizes)
";
    let (linux, husk) = ("[40, 60, 80, 100]\n", "[4096, 4096, 4096, 4096]\n");
    let options = &["--mount", "/dev/shm"];
    Difference { script, linux: Some(linux), husk }.check_with(options, "sized", nothing);
}

#[test]
fn space_that_was_allocated_counts_as_data() {
    let script = "
import os
fd = os.open('/dev/shm/allocated', os.O_RDWR | os.O_CREAT)
os.unlink('/dev/shm/allocated')
os.posix_fallocate(fd, 0, 8192)
os.ftruncate(fd, 65536)
os.pwrite(fd, b'x', 40000)
print(os.lseek(fd, 0, os.SEEK_DATA), os.lseek(fd, 0, os.SEEK_HOLE), os.pread(fd, 2, 0))
";
    let (linux, husk) = ("36864 0 b'\\x00\\x00'\n", "0 8192 b'\\x00\\x00'\n");
    let options = &["--mount", "/dev/shm"];
    Difference { script, linux: Some(linux), husk }.check_with(options, "allocated", nothing);
}

#[test]
fn a_rename_leaves_no_whiteout() {
    let script = "
import ctypes, errno, os, shutil, stat, tempfile
place = tempfile.mkdtemp(dir='/dev/shm')
os.chdir(place)
open('old', 'w').close()
libc = ctypes.CDLL(None, use_errno=True)
moved = libc.syscall(316, -100, b'old', -100, b'new', 4)
print(moved, errno.errorcode.get(ctypes.get_errno()), stat.S_ISCHR(os.lstat('old').st_mode))
shutil.rmtree(place)
";
    let (linux, husk) = ("0 None True\n", "-1 EINVAL False\n");
    let options = &["--mount", "/dev/shm"];
    Difference { script, linux: Some(linux), husk }.check_with(options, "whiteout", nothing);
}

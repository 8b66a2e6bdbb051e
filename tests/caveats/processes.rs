//! Descriptors and processes.

use crate::{Difference, nothing, one_file};

#[test]
fn two_high_descriptor_numbers_are_taken() {
    let script = "
import os, resource
resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))
null = os.open('/dev/null', os.O_RDONLY)
def free(number):
    try:
        os.dup2(null, number)
        return True
    except OSError:
        return False
print([number for number in range(1000, 1024) if not free(number)])
";
    Difference { script, linux: Some("[]\n"), husk: "[1022, 1023]\n" }.check("numbers", nothing);
}

#[test]
fn others_find_nothing_to_write_to_under_a_number_of_the_image() {
    // The pipe gets the number of the file from the host, which then keeps a plug there.
    let script = "
import os, subprocess
fd = os.open('made', os.O_RDWR | os.O_CREAT)
os.write(fd, b'mine')
ends = os.pipe()
other = '''
import os, sys
for how in [os.O_RDWR, os.O_WRONLY | os.O_APPEND]:
    try:
        print(os.write(os.open(sys.argv[1], how), b'x'))
    except OSError:
        print('nothing')
'''
subprocess.run(['python3', '-c', other, f'/proc/{os.getpid()}/fd/{fd}'], check=True)
";
    let husk = "nothing\nnothing\n";
    Difference { script, linux: Some("1\n1\n"), husk }.check("plugs", nothing);
}

#[test]
fn the_link_of_a_removed_file_shows_its_number() {
    let script = "
import os
fd = os.open('file', os.O_RDWR)
os.unlink('file')
shown = os.readlink(f'/proc/self/fd/{fd}').removesuffix(' (deleted)')
print(os.path.basename(shown).rstrip('0123456789'))
";
    Difference { script, linux: Some("file\n"), husk: "#\n" }.check("fd-links", one_file);
}

#[test]
fn an_opened_link_of_a_descriptor_is_the_hosts() {
    let script = "
import os
os.dup2(os.open('made', os.O_RDWR | os.O_CREAT), 200)
for fd in (3, 200):
    link = os.open(f'/proc/self/fd/{fd}', os.O_PATH | os.O_NOFOLLOW)
    shown = os.path.basename(os.readlink('', dir_fd=link)) == 'made'
    print(oct(os.fstat(link).st_mode), shown, oct(os.lstat(f'/proc/self/fd/{fd}').st_mode))
";
    let (linux, husk) = ("0o120700 True 0o120700\n", "0o120000 False 0o120700\n");
    Difference { script, linux: Some(&linux.repeat(2)), husk: &husk.repeat(2) }
        .check("opened-links", nothing);
}

#[test]
fn a_program_that_was_moved_and_removed_shows_its_first_path() {
    let script = "
import os, shutil, subprocess, sys
shutil.copy(os.path.realpath(sys.executable), 'first')
code = '''
import os
os.rename('first', 'second')
os.unlink('second')
print(os.path.basename(os.readlink('/proc/self/exe')))
'''
variables = dict(os.environ, PYTHONHOME=sys.base_prefix)
subprocess.run(['./first', '-c', code], env=variables, check=True)
";
    let (linux, husk) = (Some("second (deleted)\n"), "first (deleted)\n");
    Difference { script, linux, husk }.check("first-path", nothing);
}

#[test]
fn signals_of_faults_are_not_blocked() {
    // In a thread that blocks everything (as many programs do in theirs): what the mask is said to
    // be, then calls that fault in Husk: the first of a thread, a name nobody asked for, EFAULT.
    let script = r"
import ctypes, os, signal, threading
libc = ctypes.CDLL(None, use_errno=True)
def thread():
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    faults = {signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGSYS}
    print(len(signal.pthread_sigmask(signal.SIG_BLOCK, []) & faults))
    for n in range(300):
        os.path.exists('/dev/none%d' % n)
        os.path.exists('none%d' % n)
    with open('file') as file:
        assert libc.read(file.fileno(), ctypes.c_void_p(16), 5) == -1
    assert ctypes.get_errno() == 14
    with open('new', 'w') as file:
        file.write('text')
both = [threading.Thread(target=thread)]
both[0].start()
both[0].join()
print(open('new').read())
";
    Difference { script, linux: Some("4\ntext\n"), husk: "0\ntext\n" }.check("masks", one_file);
}

#[test]
fn a_handler_that_blocks_sigsys_in_its_context_ends_the_program() {
    // The call after it is made from memory that is written at run time: it traps by SIGSYS.
    let script = r"
import ctypes, mmap, os
from ctypes import CFUNCTYPE, c_int, c_long, c_ulong, c_void_p
libc = ctypes.CDLL(None)
code = mmap.mmap(-1, 4096, prot=7)
code.write(bytes([0xb8, 39, 0, 0, 0, 0x0f, 0x05, 0xc3]))
getpid = CFUNCTYPE(c_long)(ctypes.addressof(ctypes.c_char.from_buffer(code)))
class Action(ctypes.Structure):
    _fields_ = [('handler', c_void_p), ('mask', c_ulong * 16), ('flags', c_int),
                ('restorer', c_void_p)]
@CFUNCTYPE(None, c_int, c_void_p, c_void_p)
def handler(number, info, context):
    ctypes.c_uint64.from_address(context + 296).value |= blocked
def ending(set):
    global blocked
    blocked = set
    child = os.fork()
    if child == 0:
        libc.sigaction(10, ctypes.byref(Action(ctypes.cast(handler, c_void_p), flags=4)), None)
        os.kill(os.getpid(), 10)
        os._exit(0 if getpid() == os.getpid() else 1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
print(ending(0), ending(1 << 30))
";
    Difference { script, linux: Some("0 0\n"), husk: "0 -31\n" }.check("sigsys", nothing);
}

#[test]
fn a_thread_does_not_part_from_its_process() {
    // The answers to CLONE_FS and CLONE_FILES, then where the main thread works after all.
    let script = r"
import ctypes, os, threading
libc = ctypes.CDLL(None, use_errno=True)
def part(flags):
    return 0 if libc.unshare(flags) == 0 else ctypes.get_errno()
answers = []
def thread():
    answers.extend([part(0x200), part(0x400)])
    if answers[0] == 0:
        os.chdir('sub')
os.mkdir('sub')
other = threading.Thread(target=thread)
other.start()
other.join()
open('made', 'w').close()
answers.append(os.listdir('sub'))
if os.fork() == 0:
    os._exit(part(0x600))
print(*answers, os.wait()[1])
";
    Difference { script, linux: Some("0 0 [] 0\n"), husk: "22 22 [] 0\n" }.check("part", nothing);
}

#[test]
fn a_thread_is_made_with_all_that_threads_share() {
    // CLONE_VM, CLONE_SIGHAND, CLONE_THREAD, without CLONE_FS and CLONE_FILES. Linux would do it.
    let script = "
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
print(libc.syscall(56, 0x10900, 0, 0, 0, 0), ctypes.get_errno())
";
    Difference { script, linux: None, husk: "-1 22\n" }.check("thread", nothing);
}

#[test]
fn there_is_one_numbering_of_processes() {
    // unshare(CLONE_NEWPID), and clone with it.
    let script = "
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
print(libc.unshare(0x20000000), ctypes.get_errno())
print(libc.syscall(56, 0x20000011, 0, 0, 0, 0), ctypes.get_errno())
";
    Difference { script, linux: None, husk: "-1 1\n-1 1\n" }.check("numbering", nothing);
}

#[test]
fn asynchronous_requests_are_refused_at_set_up() {
    // io_uring_setup, io_setup.
    let script = "
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
context = ctypes.c_ulong(0)
for number, argument in [(425, None), (206, ctypes.byref(context))]:
    refused = libc.syscall(number, 1, argument) < 0 and ctypes.get_errno() == 38
    print('not there' if refused else 'there')
";
    Difference { script, linux: None, husk: "not there\nnot there\n" }.check("aio", nothing);
}

#[test]
fn a_filter_judges_what_goes_to_the_host() {
    let script = "
import ctypes, os, struct
libc = ctypes.CDLL(None)
def step(code, value, no=0): return struct.pack('HBBI', code, 0, no, value)
MKDIR, GETPPID, REFUSED, ALLOWED = 83, 110, 0x50001, 0x7fff0000
steps = step(0x20, 0)
for number in [MKDIR, GETPPID]: steps += step(0x15, number, 1) + step(6, REFUSED)
steps = ctypes.create_string_buffer(steps + step(6, ALLOWED))
program = ctypes.create_string_buffer(struct.pack('HxxxxxxQ', 6, ctypes.addressof(steps)))
if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, ctypes.c_void_p(ctypes.addressof(program))):
    print('no filter')
print(os.getppid())
try: os.mkdir('made'); print('made')
except PermissionError: print('refused')
";
    let (linux, husk) = (Some("-1\nrefused\n"), "-1\nmade\n");
    Difference { script, linux, husk }.check("filter", nothing);
}

#[test]
fn proc_shows_what_the_host_sees_of_files_and_programs() {
    let script = "
import mmap, os, subprocess
made = open('made', 'w+b')
made.write(b'x' * 4096)
made.flush()
view = mmap.mmap(made.fileno(), 4096)
view[0]
def mapped(who): return any('/made' in line for line in open(f'/proc/{who}/maps'))
# It has begun when it writes.
other = subprocess.Popen(['sh', '-c', 'exec 5< made; echo; read line'], stdin=-1, stdout=-1)
other.stdout.read(1)
looks = subprocess.Popen(['grep', '-c', '/made', f'/proc/{os.getpid()}/maps'], stdout=-1)
print(mapped('self'), int(looks.communicate()[0]) > 0)
place = f'/proc/{other.pid}'
print(os.path.samefile(place + '/exe', '/bin/sh'), '5' in os.listdir(place + '/fd'))
print(os.path.samefile(place + '/cwd', '.'), open(place + '/comm').read().strip())
other.communicate()
";
    let linux = Some("True True\nTrue True\nTrue sh\n");
    Difference { script, linux, husk: "True False\nFalse False\nTrue sh\n" }.check("proc", nothing);
}

#[test]
fn landlock_is_refused_as_where_it_is_switched_off() {
    // landlock_create_ruleset: its version, and a set of rules.
    let script = "
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
rules = ctypes.create_string_buffer((1 << 1).to_bytes(8, 'little'))
for arguments in [(None, 0, 1), (rules, 8, 0)]:
    refused = libc.syscall(444, *arguments) < 0 and ctypes.get_errno() == 95
    print('off' if refused else 'on')
";
    Difference { script, linux: None, husk: "off\noff\n" }.check("landlock", nothing);
}

#[test]
fn the_gs_base_is_not_a_programs() {
    // ARCH_SET_GS, ARCH_GET_GS; what AT_HWCAP2 says of the instructions.
    let script = "
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
block = ctypes.create_string_buffer(64)
base = ctypes.c_ulong(1)
print(libc.syscall(158, 0x1001, block) and ctypes.get_errno())
libc.syscall(158, 0x1004, ctypes.byref(base))
libc.getauxval.restype = ctypes.c_ulong
print(base.value == 0, libc.getauxval(26) & 2)
";
    Difference { script, linux: None, husk: "1\nTrue 0\n" }.check("gs-base", nothing);
}

#[test]
fn a_file_taken_from_another_process_has_its_own_offset() {
    let script = "
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
fd = os.open('made', os.O_RDWR | os.O_CREAT)
os.write(fd, b'0123456789')
os.lseek(fd, 4, os.SEEK_SET)
parent = os.getpid()
if (child := os.fork()) == 0:
    os.close(fd)
    got = libc.syscall(438, os.pidfd_open(parent), fd, 0)
    print(os.read(got, 3), flush=True)
    same = libc.syscall(312, parent, os.getpid(), 0, fd, got) == 0
    print(same, libc.syscall(312, parent, os.getpid(), 0, fd, 0) in (1, 2), flush=True)
    os._exit(0)
os.waitpid(child, 0)
print(os.lseek(fd, 0, os.SEEK_CUR))
";
    let (linux, husk) = ("b'456'\nTrue True\n7\n", "b'456'\nFalse True\n4\n");
    Difference { script, linux: Some(linux), husk }.check("taken", nothing);
}

#[test]
fn a_tracer_inside_is_told_that_it_does_not_see_all_calls() {
    // PTRACE_SYSCALL, of a child that has stopped for it.
    let script = "
import subprocess, sys
tracer = '''
import ctypes, os, signal
libc = ctypes.CDLL(None, use_errno=True)
if (child := os.fork()) == 0:
    libc.ptrace(0, 0, 0, 0)
    os.kill(os.getpid(), signal.SIGSTOP)
    os._exit(0)
os.waitpid(child, 0)
for _ in range(3):
    libc.ptrace(24, child, 0, 0)
    os.waitpid(child, 0)
os.kill(child, signal.SIGKILL)
'''
told = subprocess.run([sys.executable, '-c', tracer], stderr=subprocess.PIPE, text=True).stderr
print(told.count('is not shown the system calls that Husk answers'))
# ltrace asks to be traced in its child, before it starts the program.
import shutil
shutil.copy(sys.executable, 'ltrace')
asks = 'import ctypes; ctypes.CDLL(None).ptrace(0, 0, 0, 0)'
told = subprocess.run(['./ltrace', '-c', asks], stderr=subprocess.PIPE, text=True).stderr
print(told.count('ltrace cannot follow programs inside an image'))
";
    Difference { script, linux: Some("0\n0\n"), husk: "1\n1\n" }.check("tracer", nothing);
}

#[test]
fn the_resident_size_counts_a_program_whole_and_some_memory_of_the_image() {
    // What a program takes counts as natively, whoever asks; on top of it, of the image's memory,
    // comes less than 32 MiB, or more only by the bytes of files that were read.
    let script = "
import os, resource, subprocess, sys
def field(name, who='self'):
    lines = open(f'/proc/{who}/status')
    return next(int(line.split()[1]) for line in lines if line.startswith(name))
def near(kib, wanted): return wanted <= kib <= wanted + (12 << 10)
before = field('VmRSS')
block = bytearray(b'x') * (64 << 20)
print(near(field('VmRSS') - before, 64 << 10), near(field('VmHWM') - before, 64 << 10))
print(near(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, 62 << 10))
del block
takes = 'block = bytearray(b\"x\") * (128 << 20); print(flush=True); input()'
child = subprocess.Popen([sys.executable, '-c', takes], stdin=-1, stdout=-1)
child.stdout.read(1)
asked = subprocess.run(['ps', '-o', 'rss=', '-p', str(child.pid)], stdout=-1)
size = int(asked.stdout)
print(size == field('VmRSS', child.pid), (128 << 10) < size < (184 << 10))
child.stdin.write(b'go\\n')
child.stdin.close()
print(size <= os.wait4(child.pid, 0)[2].ru_maxrss + 1024 < (200 << 10))
shared = field('RssShmem')
print(shared > 0, shared < (32 << 10))
";
    let same = "True True\nTrue\nTrue True\nTrue\n";
    let (linux, husk) = (format!("{same}False True\n"), format!("{same}True True\n"));
    Difference { script, linux: Some(&linux), husk: &husk }.check("resident", nothing);
}

#[test]
fn fdinfo_shows_no_locks_of_files_of_the_image() {
    let script = "
import fcntl, os
fd = os.open('file', os.O_RDWR)
fcntl.flock(fd, fcntl.LOCK_EX)
print('lock:' in open(f'/proc/self/fdinfo/{fd}').read())
";
    Difference { script, linux: Some("True\n"), husk: "False\n" }.check("fdinfo", one_file);
}

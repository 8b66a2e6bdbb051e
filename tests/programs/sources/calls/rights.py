# What takes set-id bits and capabilities of files away, who hands them down, and who may link and remove.
import mmap, struct
root = os.geteuid() == 0
CAPSET = 126
def with_only(*capabilities):
    mask = sum(1 << c for c in capabilities)
    header, data = struct.pack("<II", 0x20080522, 0), struct.pack("<6I", mask & 0xffffffff, mask & 0xffffffff, 0, 0, 0, 0)
    assert call(CAPSET, ctypes.create_string_buffer(header), ctypes.create_string_buffer(data)) == 0
os.chmod(base, 0o777)
make("src", b"s" * 9000); os.chmod("src", 0o666)
def spliced(fd):
    r, w = os.pipe(); os.write(w, b"12345"); return os.splice(r, fd, 5)
def mapped(fd):
    m = mmap.mmap(fd, 4096); m[0] = 65; m.flush(); m.close()
# Linux guards links only if it is told to, as distributions tell it.
guarded = open("/proc/sys/fs/protected_hardlinks").read() == "1\n"
LINK = [("link", lambda fd: os.link("f", "f2"))] if guarded else []
bodies = [("write", lambda fd: os.write(fd, b"q")), ("write 0", lambda fd: os.write(fd, b"")), ("pwrite", lambda fd: os.pwrite(fd, b"q", 100)), ("writev", lambda fd: os.writev(fd, [b"q"])),
  ("pwritev", lambda fd: os.pwritev(fd, [b"q"], 5)),
  ("ftruncate", lambda fd: os.ftruncate(fd, 10)), ("ftruncate same", lambda fd: os.ftruncate(fd, 5000)), ("truncate", lambda fd: os.truncate("f", 7)),
  ("O_TRUNC", lambda fd: os.close(os.open("f", os.O_WRONLY | os.O_TRUNC))), ("fallocate", lambda fd: call(285, fd, 0, 0, 10)), ("punch", lambda fd: call(285, fd, 3, 0, 4096)),
  ("sendfile", lambda fd: os.sendfile(fd, os.open("src", 0), 0, 10)), ("copy", lambda fd: os.copy_file_range(os.open("src", 0), fd, 10)), ("splice", spliced), ("map", mapped),
  ("append", lambda fd: os.write(os.open("f", os.O_WRONLY | os.O_APPEND), b"1")), *LINK, ("rename", lambda fd: os.rename("f", "f2")),
  ("chmod same", lambda fd: os.chmod("f", stat.S_IMODE(os.stat("f").st_mode))), ("chmod 6777", lambda fd: os.chmod("f", 0o6777)), ("fchmod 2777", lambda fd: os.fchmod(fd, 0o2777)),
  ("setxattr", lambda fd: os.setxattr("f", "user.x", b"1")), ("utime", lambda fd: os.utime("f", ns=(1, 1))), ("utime now", lambda fd: os.utime("f")),
  ("caps set", lambda fd: os.setxattr("f", "security.capability", b"\1\0\0\2" + b"\0" * 16)),
  ("write caps", lambda fd: (call(188, b"f", b"security.capability", ctypes.create_string_buffer(b"\1\0\0\2" + b"\0" * 16, 20), 20, 0), os.write(fd, b"1"), attempt(os.getxattr, "f", "security.capability"))[2]),
]
whos = ["root", "capless", "fsetid", "stranger", "owner", "member", "owner member", "groupless owner"] if root else ["owner"]
def become(who):
    if who == "capless": with_only()
    elif who == "fsetid": with_only(4)
    elif who != "root" and root:
        groups, gid, uid = {"stranger": ([], 9, 9), "owner": ([], 9, 1), "member": ([1], 9, 9), "owner member": ([1], 9, 1), "groupless owner": ([], 1, 1)}[who]
        os.setgroups(groups); os.setgid(gid); os.setuid(uid)
for mode in [0o6777, 0o6767, 0o6666]:
    for who in whos:
        for word, body in bodies:
            make("f", b"x" * 5000)
            root and os.chown("f", 1, 1)
            os.chmod("f", mode)
            def run():
                become(who)
                fd = os.open("f", os.O_RDWR)
                answer = attempt(body, fd)
                say(oct(mode), who, word, answer)
            child(run)
            n = "f" if os.path.exists("f") else "f2"
            if oct(os.stat(n).st_mode)[-4:] != oct(mode)[-4:]: say("   ->", oct(os.stat(n).st_mode))
            for n in ["f", "f2"]:
                os.path.exists(n) and os.unlink(n)
# New things in set-group-id directories.
for dirmode in [0o777, 0o2777, 0o3777]:
    for who in whos:
        os.mkdir("s"); root and os.chown("s", 5, 1); os.chmod("s", dirmode)
        def run():
            become(who); os.umask(0)
            for n, mode in enumerate([0o644, 0o755, 0o2755, 0o2745, 0o6777, 0o2644, 0o1777, 0o7777]):
                out = []
                for kind, body in [("file", lambda p: os.close(os.open(p, os.O_CREAT | os.O_RDWR, mode))), ("dir", lambda p: os.mkdir(p, mode)), ("fifo", lambda p: os.mkfifo(p, mode)),
                    ("node", lambda p: os.mknod(p, mode | stat.S_IFREG)), ("link", lambda p: os.symlink("x", p))]:
                    p = "s/%s%d" % (kind, n)
                    a = attempt(body, p); st = os.lstat(p); out.append((kind, a, oct(st.st_mode), st.st_uid, st.st_gid))
                fd = os.open("s", os.O_TMPFILE | os.O_RDWR, mode); st = os.fstat(fd); out.append((oct(st.st_mode), st.st_gid)); os.close(fd)
                say(oct(dirmode), who, oct(mode), out)
        child(run)
        # the sticky bit
        def other():
            if root: os.setgroups([]); os.setgid(8); os.setuid(8)
            say("sticky", [attempt(os.unlink, "s/file0"), attempt(os.rename, "s/file1", "s/moved"), attempt(os.rename, "s/dir0", "s/dir9"), attempt(os.rmdir, "s/dir1"), attempt(os.rename, "src", "s/file2"),
                call(316, AT_FDCWD, b"s/file3", AT_FDCWD, b"s/file4", 2), guarded and attempt(os.link, "s/file5", "s/linked"), attempt(os.unlink, "s/link0")])
        child(other)
        shutil.rmtree("s")
        os.path.exists("src") or make("src", b"s" * 9000, 0o666)

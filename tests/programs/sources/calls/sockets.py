# Unix sockets bound to names: who may connect, whatever the umask was.
import socket
root = os.geteuid() == 0
os.chmod(base, 0o755)

def connects(path, kind=socket.SOCK_STREAM):
    with socket.socket(socket.AF_UNIX, kind) as one:
        return attempt(one.connect, path), one.getpeername() if attempt(one.getpeername) not in ["ENOTCONN"] else ""

servers = []
for mask in [0o022, 0o077, 0o777]:
    for kind in [socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET]:
        name = f"s{mask:o}.{int(kind)}"
        os.umask(mask)
        servers.append((name, kind, socket.socket(socket.AF_UNIX, kind)))
        servers[-1][2].bind(name)
        os.umask(0o022)
        kind != socket.SOCK_DGRAM and servers[-1][2].listen(9)
        say(name, oct(os.stat(name).st_mode), servers[-1][2].getsockname(), connects(name, kind))
def without_privilege():
    if root:
        os.setgroups([]); os.setgid(65534); os.setuid(65534)
    for name, kind, _ in servers:
        say(name, connects(name, kind))
say(child(without_privilege))
for mode in [0o755, 0o444, 0o666, 0o002, 0]:
    for name, _, _ in servers:
        os.chmod(name, mode)
    say(oct(mode), child(without_privilege))
os.mkdir("closed", 0o700)
os.chmod("s22.1", 0o777)
os.rename("s22.1", "closed/s")
def outside():
    if root:
        os.setgroups([]); os.setgid(65534); os.setuid(65534)
    say("closed", connects("closed/s"))
say(child(outside), connects("closed/s"))
os.unlink("closed/s")
say(servers[0][2].getsockname(), connects("closed/s"))
os.makedirs("a/b")
with socket.socket(socket.AF_UNIX) as one:
    one.bind("./a//b/../b/s")
    say(one.getsockname(), connects("a/b/s"))
    one.listen()
    say(connects("a/b/s"), connects(base + "/a/b/s")[0], one.accept()[1])
    os.unlink("a/b/s")
    say(one.getsockname())
say(connects("a/b/s"))

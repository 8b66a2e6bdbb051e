# All that a tree has and a command changes of it: `seed DIR`, `work DIR`, `dump DIR`.
set -u

seed() {
    cd "$1"; mkdir -p d1/sub d2 keep gone/a/b dir2file defaults lists
    echo one > d1/one; echo two > d1/sub/two; echo x > gone/a/b/x; echo f > file2dir
    echo y > dir2file/y; echo hl > hl1; ln hl1 hl2; ln hl1 d2/hl3; ln -s hl1 sym; ln sym sym2
    touch -d '2001-02-03 04:05:06.123456789' old; echo modes > m; chmod 640 m
    echo ro > ro; chmod 444 ro; echo attr > xa; echo acl > ac; mkfifo pipe0; ln pipe0 pipe2
    truncate -s 10M sp; echo end >> sp; echo modified > touchme; touch -d 2001-01-01 touchme
    mkdir -m 1777 sticky; mkdir -m 2775 sgid; echo del > del; echo r > ren_from
    echo swapA > A; echo swapB > B; echo moved > d1/sub/moved; ln d1/sub/moved outer
    mkdir -m 500 closed; echo c > closed/file; echo t > truncated; echo s > setid; chmod 6755 setid
    python3 - <<'P'
import os, struct
def acl(*entries):
    return struct.pack('<I', 2) + b''.join(struct.pack('<HHI', *one) for one in entries)
none = 0xffffffff
access = acl((1, 6, none), (2, 4, 65534), (4, 4, none), (16, 4, none), (32, 0, none))
default = acl((1, 7, none), (2, 5, 65534), (4, 5, none), (16, 5, none), (32, 0, none))
os.setxattr('xa', 'user.k', b'v')
os.setxattr('xa', 'user.bytes', bytes(range(256)))
os.setxattr('ac', 'system.posix_acl_access', access)
os.setxattr('defaults', 'system.posix_acl_default', default)
os.setxattr('d1', 'user.dir', b'd')
P
    find . -exec touch -h -d '2010-01-01 00:00:00.5' {} +
    touch -d '2001-02-03 04:05:06.123456789' old
}

work() {
    cd "$1"; mv d1 d1r; mv d2 d1r/in; rm -rf gone; rm file2dir; mkdir file2dir
    echo in > file2dir/in; rm -rf dir2file; echo nowfile > dir2file
    echo more >> hl1; ln -sf d1r/one sym; ln d1r/one hlnew; ln -s /nonexistent dangling
    touch -d '2002-02-03 04:05:06.123456789' d1r/one; chmod 755 m
    chmod u+w ro; echo w >> ro; chmod 444 ro; echo more >> ac; mkfifo pipe1
    mv d1r/sub/moved d1r/in/moved; echo both >> outer; ln outer lists/again
    truncate -s 100M sp; truncate -s 1G sparse2
    echo tail | dd of=sparse2 bs=1 seek=500000000 conv=notrunc status=none
    rm del; mv ren_from ren_to; mv A C; mv B A; mv C B; touch -d 2003-03-03 touchonly
    mkdir -m 700 priv; chmod 0 keep; mkdir "$(printf 'sp ace\nnl')"
    printf x > "$(printf '\xff\xfe\x80')"; printf y > "$(printf '%0255d' 0)"
    printf z > "$(printf '\t*?[]\\"$`')"; printf d > ./-dash
    mkdir -p umask; (umask 077; echo s > umask/s); (umask 0; echo t > umask/t)
    (umask 0; echo u > defaults/file; mkdir defaults/dir; echo v > defaults/dir/deep)
    touch -h -d 2004-04-04 dangling; touch -d 2005-05-05 umask
    chmod 1777 d1r; chmod g+s file2dir; printf '#!/bin/sh\necho hi\n' > ex; chmod 4755 ex
    echo more >> closed/file; : > truncated; chmod 600 closed/file; echo i >> setid
    python3 - <<'P'
import os, socket
socket.socket(socket.AF_UNIX).bind('sock1')
os.setxattr('xa', 'user.k2', b'v2')
os.removexattr('xa', 'user.k')
os.setxattr('umask', 'user.new', b'')
os.removexattr('d1r', 'user.dir')
P
}

dump() {
    cd "$1"; find . -printf '%P|%y|%m|%u:%g|%s|%l|%n\n' | LC_ALL=C sort
    find . -type f -printf '%P has %b blocks\n' | LC_ALL=C sort
    # Of what the command has written, the time is its own.
    find . ! -newermt '2011-01-01' -printf '%P|%T@\n' | LC_ALL=C sort
    python3 - <<'P'
import hashlib, os
names, same = [], {}
for top, directories, files in os.walk(b'.'):
    names += [os.path.join(top, one) for one in directories + files]
for name in sorted(names):
    for key in sorted(os.listxattr(name, follow_symlinks=False)):
        print(name, key, os.getxattr(name, key, follow_symlinks=False))
    found = os.lstat(name)
    if os.path.isfile(name) and not os.path.islink(name):
        print(name, hashlib.sha256(open(name, 'rb').read()).hexdigest())
    if found.st_nlink > 1 and not os.path.isdir(name):
        same.setdefault(found.st_ino, []).append(name)
print(sorted(same.values()))
P
}

"$@"

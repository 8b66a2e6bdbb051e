# As many descriptors as the limit allows: each is what it was opened as, and works as a source.
import os, resource, errno
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
for limit in (1024, min(4096, hard)):
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    start = os.statvfs('.').f_bfree
    files = []
    first = os.open('file', os.O_RDWR | os.O_CREAT)
    os.write(first, b'x' * 100000)
    try:
        for _ in range(limit): files.append(os.dup(first) if _ % 2 else os.open('file', os.O_RDONLY | os.O_CLOEXEC))
    except OSError as problem:
        print(errno.errorcode[problem.errno])
    print(limit - len(files) < 16, all(os.fstat(f).st_size == 100000 for f in files), len(set(files)) == len(files))
    spare = files.pop()
    print([f for f in files if os.dup2(f, spare) != spare])
    os.close(spare)
    print(all(os.get_inheritable(f) == False for f in files))
    for f in files + [first]: os.close(f)
    os.unlink('file')
    again = os.open('other', os.O_RDWR | os.O_CREAT); print(again == first); os.close(again); os.unlink('other')

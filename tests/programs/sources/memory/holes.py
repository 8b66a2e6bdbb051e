"""Writes through shared mappings of files with holes, also at a low address of its own choice."""
import ctypes
import mmap
import os

SIZE = 1 << 20
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]


def mapped_at(address, fd):
    shared_fixed = 0x01 | 0x10
    got = libc.mmap(address, SIZE, mmap.PROT_READ | mmap.PROT_WRITE, shared_fixed, fd, 0)
    if got != address:
        raise OSError(ctypes.get_errno(), "mmap")
    return (ctypes.c_char * SIZE).from_address(got)


for size in range(4096, 400000, 12289):
    fd = os.open("file", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    os.write(fd, b"a" * (size // 2))
    os.ftruncate(fd, size)
    with mmap.mmap(fd, 0) as view:
        view[size - 1] = 7
    assert os.pread(fd, 2, size - 2) == b"\0\7", size
    os.close(fd)
for address in 0x2000000, 0x8000000, 0x10000000, 0x40000000:
    fd = os.open("file", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    os.ftruncate(fd, SIZE)
    view = mapped_at(address, fd)
    view[SIZE - 1] = b"z"
    assert os.pread(fd, 1, SIZE - 1) == b"z", hex(address)
    os.close(fd)
print("written")

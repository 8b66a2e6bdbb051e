# What /proc/self/maps and its kin say that a program has mapped: itself, its libraries, a file.
import mmap
import os
import shutil
import subprocess
import sys

shutil.copy('/usr/bin/cat', 'copied')


def rows(text):
    for line in text.splitlines():
        parts = line.split(None, 5)
        if len(parts) == 6 and '-' in parts[0] and parts[5].startswith('/'):
            # Memory of the image itself, which is nobody's file.
            if not parts[5].startswith('/memfd:husk-'):
                yield parts


def told(program, name):
    out = subprocess.run([program, name], capture_output=True, text=True)
    found = list(rows(out.stdout))
    mine = [parts for parts in found if os.path.basename(parts[5]) == os.path.basename(program)]
    facts = os.stat(program)
    print(program, name, len(mine) > 3, mine[0][2] == '00000000', mine[0][5] == os.path.realpath(program),
          all(int(parts[4]) == facts.st_ino for parts in mine))
    code = sorted({os.path.basename(parts[5]) for parts in found if 'x' in parts[1]})
    print(code)
    wrong = [parts for parts in found if not os.path.exists(parts[5])]
    print(wrong)


for name in ['/proc/self/maps', '/proc/thread-self/maps', '/proc/self/smaps', '//proc/self//maps']:
    told('./copied', name)
    told('/usr/bin/cat', name)

with open('data', 'wb') as file:
    file.write(b'x' * 20000)
with open('data', 'r+b') as file:
    mapped = mmap.mmap(file.fileno(), 8192, offset=8192)
for way in ['self', str(os.getpid()), f'self/task/{os.getpid()}']:
    with open(f'/proc/{way}/maps') as file:
        print([parts[2] for parts in rows(file.read()) if parts[5] == os.path.realpath('data')])


def linked(wanted):
    names = os.listdir('/proc/self/map_files')
    links = [(name, os.readlink(f'/proc/self/map_files/{name}')) for name in names]
    return [(name, link) for name, link in links if wanted in link and 'memfd:' not in link]


def followed(name):
    try:
        return os.stat(f'/proc/self/map_files/{name}').st_ino == os.fstat(opened).st_ino
    except OSError as error:
        return error.errno


opened = os.open('data', os.O_RDONLY)
print([(link == os.path.realpath('data'), followed(name)) for name, link in linked('/data')])
os.rename('data', 'moved name')
print([link == os.path.realpath('moved name') for _, link in linked('/moved name')])
with open('/proc/self/maps') as file:
    print([os.path.basename(parts[5]) for parts in rows(file.read()) if 'moved' in parts[5]])
os.unlink('moved name')
print(len(linked(' (deleted)')))
with open('/proc/self/maps') as file:
    print(sum('deleted' in parts[5] and 'memfd' not in parts[5] for parts in rows(file.read())))
for flags in [os.O_WRONLY, os.O_RDONLY | os.O_DIRECTORY]:
    try:
        os.close(os.open('/proc/self/maps', flags))
        print('opened')
    except OSError as error:
        print(error.errno)
sys.stdout.flush()
os.unlink('copied')

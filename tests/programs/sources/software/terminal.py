# An interactive bash at a terminal: jobs are stopped by Ctrl-Z, go on, and are ended by Ctrl-C.
import os, pty, re, select, signal, time
signal.alarm(50)
pid, terminal = pty.fork()
if pid == 0:
    os.environ.update(PS1='ready> ', TERM='dumb', HISTFILE='')
    os.execvp('bash', ['bash', '--norc', '--noprofile', '-i'])
seen = b''


def shows(what, patience):
    """Reads until the terminal shows `what`, which is used up. None: not within these seconds."""
    global seen
    end = time.monotonic() + patience
    while not (found := re.search(what, seen)):
        if not select.select([terminal], [], [], max(end - time.monotonic(), 0))[0]:
            return None
        seen += os.read(terminal, 4096)
    seen = seen[found.end():]
    return found[0].decode()


def until(what):
    shown = shows(what, 20)
    if shown is None:
        raise SystemExit(f'no {what!r} in {seen!r}')
    return shown


def presses(key, what):
    """Presses a key until it tells: who is just setting its terminal up may throw keys away."""
    for _ in range(10):
        types(key)
        if shown := shows(what, 2):
            return shown
    raise SystemExit(f'{key!r} shows no {what!r} but {seen!r}')


def types(text):
    os.write(terminal, text)


until(b'ready> ')
types(b'sh -c "echo be\\gun; read line; echo got \\$line > out; echo do\\ne"\n')
until(b'begun\r\n')
types(b'\x1a')
print('stopped:', until(rb'Stopped'))
until(b'ready> ')
types(b'jobs | wc -l; echo side > side; cat side\n')
print(until(rb'\n1\r\nside\r\n').split())
until(b'ready> ')
types(b'fg\n')
until(rb'sh -c[^\n]*\n')
types(b'a line\n')
print(until(b'done\r\n').split())
until(b'ready> ')
# The job has the terminal once it prints: an interrupt that comes before it may find bash itself.
types(b'cat out; sh -c "echo sl\\eeps; exec sleep 40"; echo ended $?\n')
until(b'got a line\r\n')
until(b'sleeps\r\n')
presses(b'\x03', b'ready> ')
types(b'echo status $?\n')
print(until(rb'\nstatus \d+').split())
until(b'ready> ')
types(b'sleep 41 &\n')
until(rb'\n\[1\] \d+\r\n')
until(b'ready> ')
types(b'kill -STOP %1\n')
until(b'ready> ')
types(b'kill -CONT %1; kill %1; wait -f %1; echo $?\n')
print(until(rb'\n143\r\n').split())
until(b'ready> ')
types(b'less out\n')
until(b'RETURN')
types(b'\n')
until(b'got a line')
print('less:', presses(b'\x1a', rb'Stopped'))
until(b'ready> ')
types(b'kill %less; fg\n')
until(b'ready> ')
# An editor that is stopped in the middle goes on with what was typed into it.
types(b'TERM=vt100 vim -u NONE -N +startinsert edited\n')
until(b'-- INSERT --')
types(b'first line\r')
until(b'first line')
types(b'\x1b')
print('vim:', presses(b'\x1a', rb'Stopped'))
until(b'ready> ')
types(b'echo beside > beside; fg\n')
until(b'first line')
types(b'ofrom vim\x1b:w! edited\r')
until(b'written')
types(b':!cat beside edited\r')
print(until(rb'beside\s+first line\s+from vim').split())
types(b'\r')
types(b':q\r')
until(b'ready> ')
types(b'cat edited\n')
print(until(rb'\nfirst line\s+from vim').split())
until(b'ready> ')
types(b'exit 7\n')
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))

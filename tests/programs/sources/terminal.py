# An interactive bash at a terminal: jobs are stopped by Ctrl-Z, go on, and are ended by Ctrl-C.
import os, pty, re, select, signal, time
signal.alarm(50)
pid, terminal = pty.fork()
if pid == 0:
    os.environ.update(PS1='ready> ', TERM='dumb', HISTFILE='')
    os.execvp('bash', ['bash', '--norc', '--noprofile', '-i'])
seen = b''


def until(what):
    """Reads until the terminal shows `what`; that much is used up."""
    global seen
    end = time.monotonic() + 20
    while not (found := re.search(what, seen)):
        if not select.select([terminal], [], [], end - time.monotonic())[0]:
            raise SystemExit(f'no {what!r} in {seen!r}')
        seen += os.read(terminal, 4096)
    seen = seen[found.end():]
    return found[0].decode()


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
types(b'cat out; sleep 40; echo ended $?\n')
until(b'\na line|got a line\r\n')
time.sleep(0.3)
types(b'\x03')
until(b'ready> ')
types(b'echo status $?; sleep 41 & kill -STOP %1; kill -CONT %1; kill %1; wait %1; echo $?\n')
print(until(rb'\nstatus \d+').split(), until(rb'\n143\r\n').split())
until(b'ready> ')
types(b'less out\n')
until(b'RETURN')
types(b'\n')
until(b'got a line')
types(b'\x1a')
print('less:', until(rb'Stopped'))
until(b'ready> ')
types(b'kill %less; fg\n')
until(b'ready> ')
types(b'exit 7\n')
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))

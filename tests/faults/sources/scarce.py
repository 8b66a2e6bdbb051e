# git, tar, sqlite3 and gcc where there is less and less room: scarce.py bytes|names LEAST-STEP
#
# Each works again and again with a little more room, until it has succeeded twice. Whoever fails
# says so by a status, not by a signal; what had been there is there, whole; and when all is removed
# there is as much room as before.
import glob, os, shutil, subprocess, sys, time

KIND, STEP = sys.argv[1], int(sys.argv[2])
HERE = os.getcwd()
QUIET = dict(os.environ, TMPDIR='.', GIT_CONFIG_NOSYSTEM='1', HOME=HERE, GIT_AUTHOR_NAME='a',
             GIT_AUTHOR_EMAIL='a@b', GIT_COMMITTER_NAME='a', GIT_COMMITTER_EMAIL='a@b')
FILES = {f'd{n % 5}/file{n}': (f'{n} ' * (n * 37 % 700)) + '\n' for n in range(40)}
LATER = {f'd{n % 7}/later{n}': (f'{n}:' * (n * 61 % 900)) + '\n' for n in range(40)}
SOURCE = '#include <stdio.h>\nint main(void) { puts("compiled"); return 0; }\n'


def need(what, *facts):
    if not what:
        print('wrong:', *facts, flush=True)
        os._exit(1)


def put(files, where):
    for name, text in files.items():
        os.makedirs(os.path.dirname(f'{where}/{name}'), exist_ok=True)
        with open(f'{where}/{name}', 'w') as file:
            file.write(text)


def same(files, where):
    return all(open(f'{where}/{name}').read() == text for name, text in files.items())


def call(*words, given=None, where='w'):
    """Status and what it said; who cannot be started at all raises an error."""
    done = subprocess.run(words, cwd=where, env=QUIET, input=given, text=True, timeout=60,
                          capture_output=True, errors='replace')
    return done.returncode, done.stdout + done.stderr


def must(*words, given=None, where='w'):
    status, said = call(*words, given=given, where=where)
    need(status == 0, words, status, said)
    return said


class Git:
    def before(self):
        must('git', 'init', '-q')
        put(FILES, 'w')
        must('git', 'add', '.')
        must('git', 'commit', '-qm', 'first')
        put(LATER, 'w')

    def work(self):
        for words in (['add', '.'], ['commit', '-qm', 'second'], ['repack', '-adq']):
            status, said = call('git', '-c', 'gc.auto=0', *words)
            if status != 0:
                return status, said
        return status, said

    def after(self, succeeded):
        for lock in glob.glob('w/.git/*.lock') + glob.glob('w/.git/refs/heads/*.lock'):
            os.unlink(lock)
        must('git', 'fsck', '--strict', '--full')
        subjects = must('git', 'log', '--format=%s').split()
        need(subjects == ['second', 'first'] or subjects == ['first'] and not succeeded, subjects)
        must('git', 'checkout', '-qf', 'HEAD')
        need(same(FILES, 'w'), 'files of git')
        need('second' not in subjects or same(LATER, 'w'), 'later files of git')


class Tar:
    def before(self):
        put(FILES, 'w/in')
        must('tar', 'cf', 'all.tar', '-C', 'in', '.')

    def work(self):
        os.mkdir('w/out')
        return call('tar', 'xf', 'all.tar', '-C', 'out')

    def after(self, succeeded):
        need(same(FILES, 'w/in'), 'what tar read')
        need(not succeeded or same(FILES, 'w/out'), 'what tar wrote')
        must('tar', 'df', 'all.tar', '-C', 'in')


class Sqlite:
    ROWS = 'with recursive c(x) as (select 1 union all select x+1 from c where x<{}) ' \
        'insert into t select x, hex(randomblob(200)) from c;'

    def before(self):
        script = 'pragma synchronous=off; create table t(a, b); create index i on t(b);'
        must('sqlite3', 'db', given=script + self.ROWS.format(300))

    def work(self):
        script = f'.bail on\nbegin;{self.ROWS.format(200)} update t set b=b||a; commit;\n'
        return call('sqlite3', 'db', given=script)

    def after(self, succeeded):
        need(must('sqlite3', 'db', given='pragma integrity_check;') == 'ok\n', 'integrity')
        count = must('sqlite3', 'db', given='select count(*), sum(length(b)) from t;')
        old = count == '300|120000\n'
        need(count.startswith('500|') or old and not succeeded, count, succeeded)


class Gcc:
    def before(self):
        put({'d/a.c': SOURCE}, 'w')

    def work(self):
        return call('gcc', '-O1', '-o', 'a.out', 'd/a.c')

    def after(self, succeeded):
        need(same({'d/a.c': SOURCE}, 'w'), 'the source')
        if succeeded:
            need(must('./a.out') == 'compiled\n', 'the program')


def fill():
    """Takes all there is; gives back what takes `left` steps away from it."""
    if KIND == 'bytes':
        filler = os.open('filler', os.O_RDWR | os.O_CREAT)
        for size in (1 << 20, 65536, 4096):
            try:
                while os.write(filler, bytes(size)) == size:
                    pass
            except OSError:
                pass
        return filler
    count = 0
    try:
        while True:
            os.symlink('t' * 1000, f'names/{count}')
            count += 1
    except OSError:
        return count


def leave(full, left):
    if KIND == 'bytes':
        size = os.fstat(full).st_size // 4096 * 4096
        os.ftruncate(full, max(size - left * 4096, 0))
    else:
        for number in range(max(full - left, 0), full):
            os.unlink(f'names/{number}')


def empty(full, left):
    if KIND == 'bytes':
        os.ftruncate(full, 0)
        os.close(full)
        os.unlink('filler')
    else:
        for number in range(max(full - left, 0)):
            os.unlink(f'names/{number}')


def room():
    facts = os.statvfs('.')
    return facts.f_bfree, facts.f_ffree


def comes_back(before):
    """What ended programs held is given back a moment later."""
    until = time.monotonic() + 5
    while time.monotonic() < until:
        now = room()
        if now[0] >= before[0] and now[1] >= before[1]:
            return True
        time.sleep(0.01)
    return False


def attempt(task, left):
    os.mkdir('w')
    task.before()
    full = fill()
    leave(full, left)
    try:
        status, said = task.work()
    except OSError as error:
        status, said = -1000, str(error)
    empty(full, left)
    # gcc aborts where it finds no room for a temporary file.
    need(status >= 0 or status in (-1000, -6), type(task).__name__, left, 'signal', status, said)
    task.after(status == 0)
    shutil.rmtree('w')
    return status, said


def sweep(task, started):
    name, left, succeeded, failed = type(task).__name__, 0, 0, {}
    while succeeded < 2:
        status, said = attempt(task, left)
        succeeded = succeeded + 1 if status == 0 else 0
        if status != 0:
            failed[left] = (status, said[-100:])
        need(comes_back(started), name, left, 'not given back', started, room())
        left += max(STEP, left // 8)
        need(left < 100000, name, 'never succeeds', failed)
    last = max(failed, default=None)
    print(name, len(failed), 'failures, the last with room for', last, failed.get(last),
          file=sys.stderr, flush=True)
    # Where names lack, a journal is one file, which may find what was too little for a long link.
    need(failed or (name, KIND) == ('Sqlite', 'names'), name, 'there was no lack')
    print(f'{name.lower()}: ok', flush=True)


os.mkdir('names')
tasks = [Git(), Tar(), Sqlite(), Gcc()]
for task in tasks:
    attempt(task, 100000)  # pools fill and tables grow to what they need
    comes_back((0, 0))
time.sleep(0.2)
began = room()
for task in tasks:
    sweep(task, began)

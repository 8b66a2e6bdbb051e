"""Acknowledges step after step as databases and package managers do; or tells how many there are.

ledger.py go|look WAY DIRECTORY
"""
import os
import sqlite3
import sys

ROWS = 3


# SQLite acknowledges after a bare unlink of its journal where this is not EXTRA: nothing that it
# has synced says that the transaction is over.
SYNCHRONOUS = {"delete": "extra"}


def sqlite(directory, way, is_look):
    mode = way.removesuffix("-full")
    path = os.path.join(directory, "ledger-" + way)
    base = sqlite3.connect(path, isolation_level=None, timeout=20)
    assert base.execute("pragma journal_mode=" + mode).fetchone()[0] == mode
    base.execute("pragma synchronous=" + SYNCHRONOUS.get(way, "full"))
    base.execute("pragma wal_autocheckpoint=20")
    base.execute("create table if not exists entry(step integer, part integer, text)")
    base.execute("create unique index if not exists one on entry(step, part)")
    rows = base.execute("select step, part, text from entry order by step, part").fetchall()
    last = len(rows) // ROWS
    # A transaction is there as a whole, and all before it are.
    wanted = [(step, part, str(step) * 40) for step in range(1, last + 1) for part in range(ROWS)]
    assert rows == wanted, rows[-ROWS:]
    if is_look:
        for check in ("integrity_check", "quick_check"):
            assert base.execute("pragma " + check).fetchall() == [("ok",)]
        return last
    while True:
        last += 1
        base.execute("begin immediate")
        for part in range(ROWS):
            base.execute("insert into entry values(?, ?, ?)", (last, part, str(last) * 40))
        base.execute("commit")
        print(last, flush=True)


def put(path, text):
    with open(path, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def sync_directory(path):
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    os.fsync(directory)
    os.close(directory)


def text_of(name, step):
    return name * 5000 + str(step) + "\n"


def package(directory, is_look):
    """As dpkg: unpack all files beside the old ones, sync them, rename them, then say so."""
    names = ["bin", "conf", "doc", "lib"]
    files = os.path.join(directory, "files")
    status = os.path.join(directory, "status")
    os.makedirs(files, exist_ok=True)
    last = int(open(status).read().split()[0]) if os.path.exists(status) else 0
    for name in names if last else []:
        found = open(os.path.join(files, name)).read()
        # The next update may have come up to here, and left no half file.
        assert found in (text_of(name, last), text_of(name, last + 1)), (name, last, len(found))
    if is_look:
        return last
    while True:
        last += 1
        for name in names:
            put(os.path.join(files, name + ".new"), text_of(name, last))
        for name in names:
            os.rename(os.path.join(files, name + ".new"), os.path.join(files, name))
        sync_directory(files)
        put(status + "-new", "%d installed\n" % last)
        if os.path.exists(status):
            if os.path.exists(status + "-old"):
                os.unlink(status + "-old")
            os.link(status, status + "-old")
        os.rename(status + "-new", status)
        sync_directory(directory)
        print(last, flush=True)


def main():
    verb, way, directory = sys.argv[1:]
    is_look = verb == "look"
    last = package(directory, is_look) if way == "package" else sqlite(directory, way, is_look)
    print(last)


main()

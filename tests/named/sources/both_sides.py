# Changes what is below the current directory at random: SEED COUNT SIDE PEEK. Files hold a line for
# each write, which no other write has; prints `+LINE` for each that it makes and, with PEEK,
# `-LINE` for each that it destroys. Without, it reads no file.
import os, random, shutil, sys

seed, count, side, peek = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4] == "1"
chance = random.Random(seed + side)
made = 0
NAMES = "a b c d e f x y".split()


def put(path, mode):
    global made
    made += 1
    line = f"{side}{seed}_{made}"
    with open(path, mode) as file:
        file.write(line + "\n")
    print("+" + line)


def tree():
    """Directories, and all else; what write-backs have put beside is left alone."""
    directories, files = [], []
    for top, names, others in os.walk("."):
        names[:] = sorted(name for name in names if ".husk-" not in name)
        for name in names:
            path = os.path.join(top, name)
            (files if os.path.islink(path) else directories).append(path)
        files += [os.path.join(top, name) for name in others if ".husk-" not in name]
    return sorted(directories), sorted(files)


def is_file(path):
    return bool(path) and os.path.isfile(path) and not os.path.islink(path)


def destroyed(path):
    """Lines that go with a name, or with the bytes of a file."""
    if not peek or os.path.islink(path):
        return
    if os.path.isdir(path):
        for top, _, names in os.walk(path):
            for name in names:
                destroyed(os.path.join(top, name))
    elif os.path.isfile(path):
        with open(path) as file:
            for line in file:
                print("-" + line.strip())


def swap(one, other):
    os.rename(one, ".swap")
    os.rename(other, one)
    os.rename(".swap", other)


def replace(path):
    # What cannot be read is not replaced.
    destroyed(path)
    put(".new", "w")
    os.rename(".new", path)


def overwrite(path):
    destroyed(path)
    put(path, "w")


def truncate(path):
    destroyed(path)
    os.truncate(path, 0)


def unlink(path):
    destroyed(path)
    os.unlink(path)


def rename(path, target):
    if os.path.lexists(target) and os.lstat(path).st_ino != os.lstat(target).st_ino:
        destroyed(target)
    os.rename(path, target)


def remove(path):
    destroyed(path)
    shutil.rmtree(path)


def become_directory(path):
    unlink(path)
    os.mkdir(path)
    put(os.path.join(path, "q"), "w")


KINDS = """write append truncate new unlink rename rename rename move move mkdir remove rmdir symlink
    link chmod swap replace touch become""".split()


def change(step):
    kind, draws = chance.choice(KINDS), [chance.random() for _ in range(6)]
    directories, files = tree()

    def pick(among, draw):
        return among[int(draws[draw] * len(among))] if among else None

    name = os.path.join(pick(["."] + directories, 0), pick(NAMES, 1))
    file, directory = pick(files, 2), pick(directories, 3)
    free, regular = not os.path.lexists(name), is_file(file)
    if kind == "write" and regular:
        overwrite(file)
    elif kind == "append" and regular:
        put(file, "a")
    elif kind == "truncate" and regular:
        truncate(file)
    elif kind == "new" and free:
        put(name, "x")
    elif kind == "unlink" and file:
        unlink(file)
    elif kind == "rename" and file and not os.path.isdir(name):
        rename(file, name)
    elif kind == "move" and directory and free:
        os.rename(directory, name)
    elif kind == "mkdir":
        os.mkdir(name)
    elif kind == "remove" and directory:
        remove(directory)
    elif kind == "rmdir" and directory:
        os.rmdir(directory)
    elif kind == "symlink":
        os.symlink(pick(NAMES, 4), name)
    elif kind == "link" and file and not os.path.islink(file):
        os.link(file, name)
    elif kind == "chmod" and regular:
        os.chmod(file, pick([0o600, 0o644, 0o755], 4))
    elif kind == "swap" and file and pick(files, 4) != file and not os.path.exists(".swap"):
        swap(file, pick(files, 4))
    elif kind == "replace" and regular:
        replace(file)
    elif kind == "touch" and regular:
        os.utime(file, (1e9 + step, 1e9 + step))
    elif kind == "become" and file:
        become_directory(file)


for step in range(count):
    try:
        change(step)
    except OSError:
        pass  # What cannot be done is not done.

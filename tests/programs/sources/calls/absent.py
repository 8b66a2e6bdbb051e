# Names that the host has not, has later, or has only behind a link into a tree: each call that
# looks is answered as on Linux, every time.
import errno, os, shutil, tempfile, threading

outside = tempfile.mkdtemp(dir="/dev/shm")
here = os.getcwd()


def said(call):
    try:
        result = call()
    except OSError as problem:
        return errno.errorcode[problem.errno]
    if isinstance(result, int) and result > 2 and not isinstance(result, bool):
        os.close(result)
    return "yes" if result is not False else "no"


def look(when):
    for name in NAMES:
        path = f"{outside}/{name}"
        print(when, name, [
            said(lambda: os.open(path, os.O_RDONLY)),
            said(lambda: os.open(path, os.O_PATH)),
            said(lambda: os.open(path, os.O_RDONLY | os.O_NOFOLLOW)),
            said(lambda: os.open(path, os.O_RDONLY | os.O_DIRECTORY)),
            said(lambda: os.stat(path) and None),
            said(lambda: os.lstat(path) and None),
            said(lambda: os.access(path, os.R_OK)),
            said(lambda: os.readlink(path) and None),
            said(lambda: os.listdir(path) and None),
        ])


NAMES = ["no", "no/", "no/way", "no/way/out", "no/../file", "file", "file/", "file/no", "file/no/way",
         "dangling", "dangling/x", "loop", "loop/x", "into", "into/new", "into/none", "into/sub",
         "into/sub/deep", "into/sub/none", "into/gone/none", "x" * 300, "x" * 300 + "/y", "./no",
         "into/../none", "made/by/and/by"]

open(f"{outside}/file", "w").close()
os.symlink("/nowhere/at/all", f"{outside}/dangling")
os.symlink("loop", f"{outside}/loop")
os.symlink(here, f"{outside}/into")
look("first")
open("new", "w").close()
os.mkdir("sub")
open("sub/deep", "w").close()
look("new")
os.mkdir(f"{outside}/no")
os.makedirs(f"{outside}/made/by/and/by")
look("more")
os.symlink(here, f"{outside}/no/way")
open("out", "w").close()
look("linked")
print(said(lambda: os.open(f"{outside}/none", os.O_CREAT | os.O_WRONLY)))
print(said(lambda: os.open(f"{outside}/never/none", os.O_CREAT | os.O_WRONLY)))
print(said(lambda: os.open(f"{outside}/into/late", os.O_CREAT | os.O_WRONLY)), sorted(os.listdir(".")))


# A directory of the host goes by what it is, not by the name it had.
def below(when, directory):
    print(when, [[
        said(lambda: os.stat(name, dir_fd=directory) and None),
        said(lambda: os.lstat(name) and None) if directory is None else "",
        said(lambda: os.open(name, os.O_RDONLY, dir_fd=directory)),
        said(lambda: os.open(name, os.O_PATH | os.O_NOFOLLOW, dir_fd=directory)),
        said(lambda: os.open(name, os.O_CREAT | os.O_RDWR, dir_fd=directory)),
        said(lambda: os.access(name, os.R_OK, dir_fd=directory)),
    ] for name in [".", "..", "../file", "./.", "in", "in/", "none", "none/way", "./none", "../none", "../into/new"]])


os.makedirs(f"{outside}/place/in")
handle = os.open(f"{outside}/place", os.O_RDONLY)
below("held", handle)
os.rename(f"{outside}/place", f"{outside}/elsewhere")
below("renamed", handle)
os.chdir(handle)
below("renamed cwd", None)
shutil.rmtree(f"{outside}/elsewhere")
below("removed", handle)
below("removed cwd", None)
os.mkdir(f"{outside}/elsewhere")
below("made again", handle)
os.mkdir(f"{outside}/elsewhere (deleted)")
open(f"{outside}/elsewhere (deleted)/none", "w").close()
below("made by that name", handle)

# Neither does it matter that it is renamed while a name in it is looked at.
os.mkdir(f"{outside}/a")
for n in range(600):
    open(f"{outside}/a/{n}", "w").close()
handle = os.open(f"{outside}/a", os.O_RDONLY)
os.chdir(handle)
done = threading.Event()
def rename():
    while not done.is_set():
        os.rename(f"{outside}/a", f"{outside}/b")
        os.rename(f"{outside}/b", f"{outside}/a")
mover = threading.Thread(target=rename)
mover.start()
print([n for n in range(300) if said(lambda: os.stat(str(n), dir_fd=handle) and None) != "yes"])
print([n for n in range(300, 600) if said(lambda: os.stat(str(n)) and None) != "yes"])
done.set()
mover.join()
os.chdir(here)

os.remove("new")
shutil.rmtree(outside)
look("gone")

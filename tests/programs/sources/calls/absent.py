# Names that the host has not, has later, or has only behind a link into a tree: each call that
# looks is answered as on Linux, every time.
import errno, os, shutil, tempfile

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
os.remove("new")
shutil.rmtree(outside)
look("gone")

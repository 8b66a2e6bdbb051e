# What an image has put in the place of what the host has in a tree, looked at through links of the
# host that lie beside the tree: files for directories, directories for files and for links.
os.chdir(owned)
top = owned
shutil.rmtree("tree/directory"), shutil.rmtree("tree/gone")
with open("tree/directory", "w") as file: file.write("a file of the image")
os.unlink("tree/file"), os.makedirs("tree/file/below")
os.unlink("tree/outside"), os.makedirs("tree/outside/passwd")
os.unlink("tree/changed"), os.symlink("file", "tree/changed")

def opened(path, flags=os.O_RDONLY):
    fd = os.open(path, flags)
    kind = os.fstat(fd).st_mode
    os.close(fd)
    return oct(kind)

questions = [opened, lambda path: oct(os.stat(path).st_mode), lambda path: oct(os.lstat(path).st_mode), os.readlink,
             lambda path: os.access(path, os.R_OK), lambda path: sorted(os.listdir(path)), lambda path: opened(path, os.O_WRONLY | os.O_CREAT),
             lambda path: os.utime(path, ns=(5, 5)), os.rmdir, lambda path: os.rename(path, path)]
names = ["directory", "gone", "file", "outside", "changed", "none"]
ends = ["", "/", "//", "/.", "/..", "/../file", "/below", "/below/", "/below/file", "/passwd", "/passwd/"]
starts = [f"{front}side/tree/{name}" for front in ["", top + "/", "side/../"] for name in names]
starts += [f"{front}side/directory" for front in ["", top + "/"]]
for turn in range(2):
    for path in [start + end for start in starts for end in ends]:
        for number, ask in enumerate(questions):
            if number >= 8 and not path.endswith(("/.", "/")): continue
            if number == 8 and path.rstrip("/").endswith(("file", "below", "passwd", "outside", "changed", "tree")): continue
            try:
                answer = ask(path)
            except OSError as error:
                answer = errno.errorcode[error.errno]
            say(turn, path.replace(top, "TOP"), number, answer)
            if number == 6 and os.path.lexists("tree/none"): os.unlink("tree/none")
            if number == 6 and os.path.lexists("tree/gone"): os.unlink("tree/gone")
            if number == 6 and os.path.lexists("side/none"): os.unlink("side/none")

//! Memory that programs on other nodes map to files of the image, and write to.

use std::process::Command;

use husk_tests::husk::husk;
use husk_tests::{Case, Length, Scratch, against_native};

use crate::run;

/// Before each script: `there` runs Python on node 1.
const BEGIN: &str = r#"
import errno, mmap, os, signal, subprocess, sys, time
def argv(program):
    return [sys.executable, "-c", "import errno, mmap, os, signal, sys, time\n" + program]
THERE = {**os.environ, "HUSK_NODE": "1"}
def there(program):
    sys.stdout.flush()
    return subprocess.run(argv(program), env=THERE).returncode
def bytes_of(name):
    with open(name, "rb") as file:
        return file.read()
with open("file", "wb") as file:
    file.write(b"a" * 5000 + b"b" * 5000)
MAP = "fd = os.open('file', os.O_RDWR); m = mmap.mmap(fd, 10000)\n"
"#;

/// What is compared with Linux.
const SCRIPTS: [(&str, &str); 7] = [
    (
        "nodes-map-unmapped",
        r#"
there(MAP + "m[4998:5002] = b'1234'; os.close(fd); m.close()")
print(bytes_of("file")[4990:5010], len(bytes_of("file")))
there("fd = os.open('new', os.O_RDWR | os.O_CREAT); os.ftruncate(fd, 20000)\n"
      "m = mmap.mmap(fd, 20000); m[12345] = 7; m[19999] = 8; m.close(); os.write(fd, b'head')")
made = bytes_of("new")
print(len(made), made[:5], made[12345], made[19999], made.count(0))
"#,
    ),
    (
        "nodes-map-flushed",
        r#"
there(MAP + '''
m[0] = 65; m.flush(); print(os.pread(fd, 2, 0))
m[1] = 66; m.flush(); print(os.pread(fd, 2, 0), m[9999])
''')
print(bytes_of("file")[:4])
"#,
    ),
    (
        "nodes-map-ends",
        r#"
there(MAP + "m[0] = 65; os._exit(3)")
there(MAP + "m[1] = 66; sys.stdout.flush(); os.kill(os.getpid(), signal.SIGKILL)")
end = time.monotonic() + 60
while bytes_of("file")[1] != 66 and time.monotonic() < end:
    time.sleep(0.01)
print(there(MAP + "m[2] = 67; os.execvp('true', ['true'])"))
print(bytes_of("file")[:4])
"#,
    ),
    (
        "nodes-map-pages-of-others",
        r#"
there(MAP + '''
with open("file", "r+b") as file: file.write(b"written")
m[9000] = 65
os.pwrite(fd, b"more", 20000)
m.close()
''')
seen = bytes_of("file")
print(seen[:8], seen[9000], len(seen), seen[20000:])
"#,
    ),
    (
        "nodes-map-children",
        r#"
there(MAP + '''
child = os.fork()
if child == 0:
    while m[0] != 65: time.sleep(0.001)
    m[1] = 66; os._exit(0)
m[0] = 65
os.waitpid(child, 0)
print(m[:3])
if os.fork() == 0:
    os.setsid(); m[2] = 67; os._exit(0)
os.wait(); os._exit(0)
''')
print(bytes_of("file")[:4])
"#,
    ),
    (
        "nodes-map-two-mappings",
        r#"
there(MAP + '''
two = mmap.mmap(os.open("file", os.O_RDWR), 4096, offset=4096)
m[4096] = 65; print(two[0]); two[1] = 66; print(m[4097])
read = mmap.mmap(fd, 10000, access=mmap.ACCESS_READ); print(read[4096:4099])
m.close(); two[2] = 67
''')
print(bytes_of("file")[4095:4100])
"#,
    ),
    (
        "nodes-map-rights",
        r#"
os.chmod("file", 0o6755)
there(MAP + "m[0] = 65; m.close()")
print(oct(os.stat("file").st_mode), bytes_of("file")[:2])
there("fd = os.open('file', os.O_RDONLY)\n"
      "try: mmap.mmap(fd, 100)\n"
      "except OSError as error: print(errno.errorcode[error.errno])")
before = os.stat("file").st_mtime_ns
there(MAP + "m[0] = 66; m.close()")
print(os.stat("file").st_mtime_ns > before)
os.unlink("file")
there("fd = os.open('gone', os.O_RDWR | os.O_CREAT); os.ftruncate(fd, 9); os.unlink('gone')\n"
      "m = mmap.mmap(fd, 9); m[1] = 65; m.flush(); print(os.pread(fd, 3, 0))")
"#,
    ),
];

#[test]
fn what_is_stored_in_a_mapping_on_another_node_is_in_the_file_when_it_is_mapped_no_more() {
    for (name, script) in SCRIPTS {
        let script = format!("{BEGIN}{script}");
        Case::new(name, Length::Once, &["python3", "-c", &script])
            .options(&["--nodes", "2"])
            .check();
    }
}

/// What a script prints on three nodes, of which the image is sound afterwards.
fn prints(name: &str, script: &str, expected: &str) {
    let scratch = Scratch::new(name);
    let (work, script) = (scratch.fresh("work"), format!("{BEGIN}{script}"));
    let outcome = run(&scratch, &work, husk(&["--nodes", "3"], &["python3", "-c", &script]));
    assert_eq!(String::from_utf8_lossy(&outcome.stdout), expected, "{}", outcome.shown());
    assert!(outcome.stderr.contains("husk: fsck: clean"), "{}", outcome.shown());
}

#[test]
fn a_second_program_cannot_map_a_file_to_write_to_it_while_one_on_another_node_does() {
    if against_native() {
        return;
    }
    let script = r#"
TRY = '''
try:
    m = mmap.mmap(os.open("file", os.O_RDWR), 10000); m[5] = 65; print(NAME, "maps", flush=True)
except OSError as error:
    print(NAME, errno.errorcode[error.errno], flush=True)
'''
def child(name, node):
    program = f"NAME = '{name}'\n" + TRY + "sys.stdin.read()"
    env = {**os.environ, "HUSK_NODE": str(node)}
    child = subprocess.Popen(argv(program), env=env, stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE, text=True)
    print(child.stdout.readline().strip(), flush=True)
    return child
def ends(child):
    child.stdin.close(); child.wait()
def mappings(*nodes):
    children = [child(f"{place} on {node}", node) for place, node in enumerate(nodes)]
    for one in children: ends(one)
mappings(1, 2); mappings(1, 1); mappings(1, 0); mappings(0, 1); mappings(0, 0); mappings(2)
print(bytes_of("file")[5])
"#;
    let alone = ["0 on 1 maps\n1 on 2 ENODEV\n", "0 on 1 maps\n1 on 1 ENODEV\n"];
    let mixed = ["0 on 1 maps\n1 on 0 ENODEV\n", "0 on 0 maps\n1 on 1 ENODEV\n"];
    let rest = ["0 on 0 maps\n1 on 0 maps\n", "0 on 2 maps\n", "65\n"];
    let expected = [&alone[..], &mixed[..], &rest[..]].concat().concat();
    prints("nodes-map-alone", script, &expected);
}

#[test]
fn a_program_that_is_killed_at_any_moment_leaves_no_mapping_in_the_way() {
    if against_native() {
        return;
    }
    let script = r#"
import random
MANY = '''
import random
fd = os.open("file", os.O_RDWR)
while True:
    m = mmap.mmap(fd, 10000)
    m[random.randrange(10000)] = 65
    if random.random() < 0.1: m.flush()
    if random.random() < 0.5: m.close()
'''
for one in range(30):
    child = subprocess.Popen(argv(MANY), env={**os.environ, "HUSK_NODE": str(1 + one % 2)},
                             stderr=subprocess.PIPE, text=True)
    time.sleep(0.05 + random.random() / 20)
    child.kill(); said = child.stderr.read(); child.wait()
    if said: print(said)
m = mmap.mmap(os.open("file", os.O_RDWR), 10000); m[1] = 66
print(len(bytes_of("file")), bytes_of("file")[1])
"#;
    prints("nodes-map-killed", script, "10000 66\n");
}

#[test]
fn go_builds_on_another_node_as_on_one() {
    if Command::new("go").arg("version").output().is_err() {
        println!("no go here");
        return;
    }
    let script = r#"export GOFLAGS=-mod=mod GOPROXY=off GO111MODULE=on HUSK_NODE=1
mkdir m && cd m
printf 'module m\n\ngo 1.18\n' > go.mod
printf 'package main\n\nimport "fmt"\n\nfunc main() { fmt.Println("built", 1+1) }\n' > main.go
go build -o p . && ./p && sha256sum p
cd .. && rm -rf m"#;
    Case::new("nodes-go", Length::Once, &["bash", "-c", script]).options(&["--nodes", "2"]).check();
}

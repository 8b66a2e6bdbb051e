//! Many files written back at once: new ones, then each with more at its end.

use std::process::Command;

use husk_tests::husk::binary;
use husk_tests::{Scratch, against_native};
use rustix::process::getuid;

use crate::done;

/// Files for every change, and with `HUSK_FULL`.
const FILES: (u32, u32) = (5_000, 200_000);

/// On a disk in memory with a limit, seen by this script alone.
const SCRIPT: &str = r#"
mkdir "$ROOM/disk"; mount -t tmpfs -o size=1400m husk-test "$ROOM/disk"; cd "$ROOM/disk"
export XDG_STATE_HOME="$ROOM"
change='import os, sys
files, mode, text = int(sys.argv[1]), sys.argv[2], sys.argv[3]
for n in range(files):
    os.makedirs(f"t/{n // 500}", exist_ok=True) if n % 500 == 0 else None
    open(f"t/{n // 500}/{n}", mode).write(f"{text} {n}\n")'
check='import os, sys
files, texts = int(sys.argv[1]), sys.argv[2:]
wrong = [n for n in range(files)
         if open(f"t/{n // 500}/{n}").read() != "".join(f"{text} {n}\n" for text in texts)]
names = sum(len(names) for _, _, names in os.walk("."))
print(len(wrong), names == files)'
"$HUSK" run --memory 2G -- python3 -c "$change" "$FILES" w one; python3 -c "$check" "$FILES" one
"$HUSK" run --memory 2G -- python3 -c "$change" "$FILES" a two; python3 -c "$check" "$FILES" one two
"#;

#[test]
fn many_files_come_to_the_host_and_grow_there() {
    if against_native() {
        return;
    }
    let full = std::env::var_os("HUSK_FULL").is_some();
    let files = if full { FILES.1 } else { FILES.0 };
    let scratch = Scratch::new("written");
    let room = scratch.fresh("room");
    let mut command = Command::new("unshare");
    command.args([if getuid().is_root() { "-m" } else { "-rm" }, "bash", "-euc", SCRIPT]);
    command.env("HUSK", binary()).env("ROOM", &room).env("FILES", files.to_string());
    done(command, &scratch, "0 True\n0 True\n");
}

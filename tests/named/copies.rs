//! `husk cp`: what comes out is what went in, and every mistake has its line.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use husk_tests::against_native;

use crate::{Images, refusal, shown, text};

/// A tree with all kinds of things in it.
const TREE: &str = r#"
    mkdir -p "$1/d/e" "$1/empty"
    echo file > "$1/file"; chmod 640 "$1/file"; touch -d '2001-02-03 04:05:06.789' "$1/file"
    : > "$1/d/nothing"; chmod 400 "$1/d/nothing"
    seq 200000 > "$1/d/e/large"; chmod 755 "$1/d/e/large"
    truncate -s 64M "$1/d/hole"; echo end >> "$1/d/hole"
    ln -s ../file "$1/d/link"; ln -s nowhere "$1/dangling"
    touch -hd '2002-01-01 00:00:00.5' "$1/dangling"
    mkfifo "$1/fifo"; echo x > "$1/$(printf 'new\nline')"; echo x > "$1/$(printf '\377')"
    chmod 700 "$1/d/e"; touch -d '2003-01-01 00:00:01.25' "$1/d" "$1/empty" "$1"
"#;

/// All there is to know of a tree, but for what its root is called.
fn facts(images: &Images, root: &Path) -> String {
    let find = "cd \"$0\" && find . -printf '%P %y %m %T@ %l ' -type f -exec sha256sum {} + -o \
                -printf '\\n' | sort && find . -type f -printf '%P %s\\n' | sort";
    let root = root.to_str().expect("a plain path");
    let output = images.command("bash", &["-euc", find, root]).output().expect("find");
    assert!(output.status.success(), "{}", shown(&output));
    text(&output.stdout)
}

#[test]
fn a_tree_comes_back_as_it_went_in() {
    if against_native() {
        return;
    }
    let images = Images::new("round-trip");
    images.up("ci");
    let host = images.scratch.fresh("host");
    let (tree, back) = (host.join("tree"), host.join("back"));
    let made = images.command("bash", &["-euc", TREE, "sh", tree.to_str().expect("plain")]);
    assert!({ made }.status().expect("bash").success());
    let [tree_name, back_name] = [&tree, &back].map(|path| path.to_str().expect("plain"));
    images.done(&["cp", "-r", tree_name, "ci:/tmp"]);
    assert_eq!(
        images.script("ci", "cat /tmp/tree/d/link; stat -c %a /tmp/tree/file"),
        "file\n640\n"
    );
    images.done(&["cp", "-r", "ci:/tmp/tree", back_name]);
    assert_eq!(facts(&images, &back), facts(&images, &tree));
    assert!(fs::metadata(back.join("d/hole")).expect("it").blocks() < 1000, "the hole is filled");
    // Once more, onto what is there; nothing is left of the way.
    fs::write(back.join("file"), "another").expect("written");
    fs::write(back.join("more"), "more").expect("written");
    images.done(&["cp", "-r", "ci:/tmp/tree/.", back_name]);
    let again = host.join("back/tree");
    assert_eq!(facts(&images, &again), facts(&images, &tree));
    images.done(&["cp", "-r", "ci:/tmp/tree/file", "ci-file"]);
    images.done(&["cp", "ci:/tmp/tree/d/link", back.join("file").to_str().expect("plain")]);
    assert_eq!(fs::read(back.join("file")).expect("it"), b"file\n");
    assert_eq!(fs::read(images.work.join("ci-file")).expect("it"), b"file\n");
    assert_eq!(fs::read(back.join("more")).expect("it"), b"more");
    let left = fs::read_dir(&back).expect("a directory").flatten();
    assert!(
        left.map(|entry| entry.file_name())
            .all(|name| !text(name.as_encoded_bytes()).starts_with(".husk"))
    );
    images.down("ci");
}

#[test]
fn mistakes_of_a_copy_have_one_line_each() {
    if against_native() {
        return;
    }
    let images = Images::new("cp-mistakes");
    images.up("ci");
    images.script("ci", "mkdir /tmp/d; echo x > /tmp/d/x; echo y > /tmp/y");
    fs::write(images.work.join("file"), "file").expect("a file");
    fs::create_dir(images.work.join("dir")).expect("a directory");
    for (arguments, why) in [
        (["cp", "a", "b"], "neither is in an image"),
        (["cp", "ci:", "b"], "neither is in an image"),
        (["cp", "ci:/tmp/y", "ci:/tmp/z"], "both are in images"),
        (["cp", "nix:/tmp/y", "z"], "there is no such image"),
        (["cp", "ci:/tmp/absent", "z"], "cannot copy /tmp/absent: "),
        (["cp", "ci:/tmp/d", "z"], "cannot copy /tmp/d: it is a directory; add -r"),
        (["cp", "dir", "ci:/tmp/z"], "cannot copy dir: it is a directory; add -r"),
        (["cp", "absent", "ci:/tmp/z"], "cannot copy absent: "),
        (["cp", "ci:/dev/null", "z"], "a socket or a device"),
        (["cp", "ci:/tmp/y", "nowhere/z"], "cannot copy nowhere: "),
        (["cp", "file", "ci:/tmp/nowhere/z"], "cannot copy /tmp/nowhere: "),
        (["cp", "ci:/tmp/y", "file/"], "cannot copy file/: it is not a directory"),
        (["cp", "file", "ci:/tmp/y/"], "cannot copy /tmp/y/: it is not a directory"),
        (["cp", "ci:/tmp/y", "new/"], "cannot copy new/: it is not a directory"),
    ] {
        let said = images.refused(&arguments, 125);
        assert!(said.contains(why), "{arguments:?}: {said}");
    }
    let said = images.refused(&["cp", "-r", "ci:/tmp/d", "file"], 125);
    assert!(said.contains("cannot copy file: "), "{said}");
    assert_eq!(fs::read(images.work.join("file")).expect("it"), b"file");
    assert_eq!(images.script("ci", "cat /tmp/y"), "y\n");
    // What says that it is empty, and is not.
    images.done(&["cp", "ci:/proc/version", "file"]);
    let version = fs::read("/proc/version").expect("the host's");
    assert_eq!(fs::read(images.work.join("file")).expect("it"), version);
    fs::write(images.work.join("file"), "file").expect("a file");
    // What does not fit is told, and what was there stays.
    images.script("ci", "yes | head -c 3000000 > /tmp/big");
    let husk = husk_tests::husk::binary().to_str().expect("a plain path");
    let script = "ulimit -f 1000; trap '' XFSZ; exec \"$0\" cp ci:/tmp/big file";
    let output = images.command("bash", &["-c", script, husk]).output().expect("bash");
    assert!(refusal(&output, 125).contains("cannot copy file: "), "{}", shown(&output));
    assert_eq!(fs::read(images.work.join("file")).expect("it"), b"file");
    assert_eq!(images.script("ci", "ls /tmp | grep -c husk || true"), "0\n");
    images.down("ci");
    assert_eq!(fs::read_dir(&images.work).expect("a directory").count(), 2);
}

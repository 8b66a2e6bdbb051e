//! `--overlay /`: the whole system is read through, and its changes are kept and decided on.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use husk_tests::husk::{binary, husk};
use husk_tests::{Scratch, against_native};
use rustix::process::getuid;

const OPTIONS: [&str; 4] = ["--memory", "128M", "--overlay", "/"];

fn whole(options: &[&str], script: &str) -> Command {
    husk(&[&OPTIONS[..], options].concat(), &["bash", "-c", script])
}

fn shown(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!("{}\n{}{}", output.status, text(&output.stdout), text(&output.stderr))
}

/// Where this user may write, in three directories of the root.
#[test]
fn changes_anywhere_are_kept_and_dropped_and_what_is_no_tree_is_read_only() {
    if against_native() {
        return;
    }
    let scratch = Scratch::new("whole");
    let work = scratch.fresh("work");
    fs::write(work.join("old"), "host\n").expect("it can be written");
    // What installers do: files of the system, of the user, in /tmp, and what they must not.
    let script = r#"
        echo image >> old; echo made > new; rm -rf gone; cat old new
        name=husk-whole-$$; dirs="/tmp /var/tmp"
        test "$(id -u)" = 0 && dirs="$dirs /usr/local /etc /opt"
        for dir in $dirs; do
            mkdir "$dir/$name" && echo x > "$dir/$name/file" && echo "$dir/$name" >> list
        done
        test -e /proc/self/status && test -c /dev/null && ls / > /dev/null || echo missing
        mkdir "/$name" 2>&1 | sed 's/.*: //'
        echo x 2>&1 > /proc/sys/kernel/husk-none
        test -r /etc/passwd && getent passwd 0 | cut -d: -f1; cat list >&2"#;
    let output = whole(&["--discard"], script).current_dir(&work).output().expect("husk");
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(told.starts_with("host\nimage\nmade\n"), "{}", shown(&output));
    assert!(told.ends_with("root\n") && !told.contains("missing"), "{}", shown(&output));
    let refused = if getuid().is_root() { "Read-only file system\n" } else { "ermission denied\n" };
    assert!(told.contains(refused) || told.contains("Read-only"), "{}", shown(&output));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let made: Vec<&str> = said.lines().filter(|line| line.contains("husk-whole-")).collect();
    assert!(made.len() >= 2, "{}", shown(&output));
    for path in made {
        assert!(!Path::new(path).exists(), "{path}");
    }
    assert_eq!(fs::read_to_string(work.join("old")).unwrap(), "host\n");
    assert!(!work.join("new").exists());
}

/// Into file systems of this test alone, where it may have some.
#[test]
fn what_is_installed_is_written_back_and_nothing_else() {
    if against_native() {
        return;
    }
    let scratch = Scratch::new("whole-install");
    let work = scratch.fresh("work");
    fs::write(work.join("prog"), "#!/bin/sh\necho installed\n").expect("it can be written");
    let makefile = "install:\n\tinstall -D -m 755 prog /usr/local/bin/husk-whole-prog\n\
                    \tinstall -D -m 644 prog /opt/husk-whole/share/prog\n\
                    \tln -sf /usr/local/bin/husk-whole-prog /opt/husk-whole/link\n";
    fs::write(work.join("Makefile"), makefile).expect("it can be written");
    let script = r#"
        set -e; mount -t tmpfs tmpfs /usr/local; mount -t tmpfs tmpfs /opt
        "$HUSK" run --memory 128M --overlay / -- make -s install
        husk-whole-prog 2> /dev/null || /usr/local/bin/husk-whole-prog
        find /usr/local /opt -mindepth 1 -printf '%p %m %l\n' | sort; ls -A"#;
    let user = if getuid().is_root() { "-m" } else { "-rm" };
    let mut command = Command::new("unshare");
    command.args([user, "bash", "-c", script]).env("HUSK", binary()).current_dir(&work);
    let output = command.output().expect("unshare");
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "installed\n/opt/husk-whole 755 \n\
         /opt/husk-whole/link 777 /usr/local/bin/husk-whole-prog\n/opt/husk-whole/share 755 \n\
         /opt/husk-whole/share/prog 644 \n/usr/local/bin 755 \n\
         /usr/local/bin/husk-whole-prog 755 \nMakefile\nprog\n",
        "{}",
        shown(&output)
    );
}

/// As `dpkg`, `apt-get` and their scripts do it.
#[test]
fn a_package_is_installed_and_dropped() {
    if against_native() || !getuid().is_root() || !Path::new("/usr/bin/dpkg-deb").exists() {
        return;
    }
    let scratch = Scratch::new("whole-package");
    let work = scratch.fresh("work");
    let script = r#"
        set -e; mkdir -p p/DEBIAN p/usr/bin p/etc
        printf '#!/bin/sh\necho packaged\n' > p/usr/bin/husk-whole-deb; chmod 755 p/usr/bin/*
        echo conf > p/etc/husk-whole.conf; echo /etc/husk-whole.conf > p/DEBIAN/conffiles
        printf '#!/bin/sh\nmkdir -p /var/lib/husk-whole; touch /var/lib/husk-whole/done\n' \
            > p/DEBIAN/postinst; chmod 755 p/DEBIAN/postinst
        printf 'Package: husk-whole\nVersion: 1\nArchitecture: all\n' > p/DEBIAN/control
        printf 'Maintainer: x <x@x>\nDescription: x\n' >> p/DEBIAN/control
        dpkg-deb --build p p.deb > /dev/null; dpkg -i p.deb > log 2>&1 || cat log
        husk-whole-deb; dpkg -s husk-whole | sed -n 2p; ls /var/lib/husk-whole
        cat /etc/husk-whole.conf; dpkg -P husk-whole > log 2>&1 || cat log
        ls /usr/bin/husk-whole-deb 2> /dev/null || echo purged"#;
    let output = whole(&["--discard"], script).current_dir(&work).output().expect("husk");
    let told = String::from_utf8_lossy(&output.stdout);
    let expected = "packaged\nStatus: install ok installed\ndone\nconf\npurged\n";
    assert_eq!(told, expected, "{}", shown(&output));
    assert!(!Path::new("/var/lib/dpkg/info/husk-whole.list").exists());
}

/// A walk over what nobody has changed is no work for the write-back.
#[test]
fn a_user_without_rights_installs_into_the_home_directory() {
    if against_native() || !getuid().is_root() {
        return;
    }
    let scratch = Scratch::new("whole-user");
    let home = scratch.fresh("home");
    std::os::unix::fs::chown(&home, Some(65534), Some(65534)).expect("root gives files away");
    let copy = home.join("husk");
    fs::copy(binary(), &copy).expect("a copy of the command");
    let script = "mkdir -p ~/.local/bin && echo x > ~/.local/bin/tool
        find /usr/share /etc -xdev > /dev/null 2>&1
        touch /usr/bin/husk-whole-user 2>&1 | sed 's/.*: //'; touch /var/x 2> /dev/null; echo end";
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&copy);
    command.args(["run"]).args(OPTIONS).args(["--", "sh", "-c", script]).current_dir(&home);
    let output = command.env("HOME", &home).output().expect("setpriv");
    let told = String::from_utf8_lossy(&output.stdout);
    assert_eq!(told, "Permission denied\nend\n", "{}", shown(&output));
    assert!(output.status.success(), "{}", shown(&output));
    assert_eq!(fs::read_to_string(home.join(".local/bin/tool")).expect("it is there"), "x\n");
}

/// Makes a file in each of two file systems of this test alone.
const BOTH: &str = "mkdir -p /opt/husk-whole; echo one > /opt/husk-whole/one; \
                    echo two > /usr/local/husk-whole-two";

fn in_own_mounts(scratch: &Scratch, script: &str) -> String {
    let user = if getuid().is_root() { "-m" } else { "-rm" };
    let mounts = "set -e; mount -t tmpfs tmpfs /usr/local; mount -t tmpfs tmpfs /opt";
    let mut command = Command::new("unshare");
    command.args([user, "bash", "-c", &format!("{mounts}\n{script}")]).env("HUSK", binary());
    command
        .env("HUSK_IMAGES", scratch.fresh("images").join("husk"))
        .env("BOTH", BOTH)
        .env("PAGER", "cat");
    let output = command.current_dir(scratch.fresh("work")).output().expect("unshare");
    assert!(output.status.success(), "{}", shown(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn what_a_command_has_changed_anywhere_is_asked_about_and_written_as_answered() {
    if against_native() {
        return;
    }
    let scratch = Scratch::new("whole-asked");
    let driver = husk_tests::husk::workspace().join("tests/named/sources/answers.py");
    let all = "./opt/husk-whole/one one ./usr/local/husk-whole-two two ";
    let looks = r#"["Write back? ", "l\n"], ["husk-whole-two", ""]"#;
    for (answer, left) in [(r#""a\n""#, all), (r#""n\n""#, "")] {
        let answers = format!(r#"[{looks}, ["Write back? ", {answer}]]"#);
        let script = format!(
            "python3 {} '{answers}' \"$HUSK\" run --memory 128M --ask --overlay / -- \
             sh -c \"$BOTH\"; cd /; find ./opt ./usr/local -type f | sort | while read -r f; do \
             echo -n \"$f $(cat \"$f\") \"; done",
            driver.display()
        );
        let told = in_own_mounts(&scratch, &script);
        assert!(told.contains("in /opt:\nA  husk-whole/"), "{told}");
        assert!(told.ends_with(&format!("exit 0\n{left}")), "{told}");
    }
}

/// A second disk, as they are mounted: the root directory is root's, one below it the user's.
#[test]
fn a_mounted_file_system_that_is_another_users_is_overlaid_too() {
    if against_native() || !getuid().is_root() {
        return;
    }
    let scratch = Scratch::new("whole-disk");
    let script = r#"cp "$HUSK" husk; chmod 755 /usr/local; mkdir /usr/local/user
        chown 65534 /usr/local/user .
        as="setpriv --reuid 65534 --regid 65534 --clear-groups env -u HUSK_IMAGES HOME=$PWD"
        $as ./husk run --memory 128M --discard --overlay / -- \
            sh -c 'echo new > /usr/local/user/file && cat /usr/local/user/file'
        ls /usr/local/user
        $as ./husk run --memory 128M --overlay / -- sh -c 'echo new > /usr/local/user/file'
        cat /usr/local/user/file"#;
    assert_eq!(in_own_mounts(&scratch, script), "new\nnew\n");
}

#[test]
fn what_is_mounted_below_an_overlay_is_part_of_it() {
    if against_native() {
        return;
    }
    let scratch = Scratch::new("whole-below");
    let script = r#"mkdir -p /opt/tree/bound /opt/tree/sub/own /opt/other; cd /opt/tree
        mount --bind /opt/other bound; mount -t tmpfs tmpfs sub/own
        echo 1 > bound/file; echo 2 > sub/own/file
        change="rm bound/file; echo new > sub/own/file; echo new > bound/new; cat sub/own/file"
        for how in "--discard" "--discard --overlay /opt/tree" "--overlay /opt/tree"; do
            "$HUSK" run --memory 128M $how -- sh -c "$change"
            ls bound; cat sub/own/file
        done"#;
    let unchanged = "new\nfile\n2\n";
    assert_eq!(in_own_mounts(&scratch, script), [unchanged, unchanged, "new\nnew\nnew\n"].concat());
}

#[test]
fn an_image_with_a_name_overlays_the_whole_system() {
    if against_native() {
        return;
    }
    let scratch = Scratch::new("whole-up");
    let script = r#""$HUSK" up all --memory 128M --overlay /; "$HUSK" exec all -- sh -c "$BOTH"
        ls /opt /usr/local; "$HUSK" diff all --name-only | grep -c husk-whole
        "$HUSK" sync all /opt; ls /opt /usr/local; "$HUSK" down all 2> /dev/null
        cat /opt/husk-whole/one /usr/local/husk-whole-two"#;
    let told = in_own_mounts(&scratch, script);
    assert_eq!(told, "/opt:\n\n/usr/local:\n3\n/opt:\nhusk-whole\n\n/usr/local:\none\ntwo\n");
}

//! Access control lists of the host's directories and files count in an image, and what the image
//! makes, changes or takes away of them is on the host when it ends.

use std::cell::RefCell;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::Command;
use std::rc::Rc;

use husk_tests::{Case, Length};
use rustix::fs::{XattrFlags, setxattr};

const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";

/// `user::rwx`, `user:1001:RIGHTS`, `group::r-x`, `mask::rwx`, `other::---`.
fn list(rights: u16) -> Vec<u8> {
    let all = u32::MAX;
    let entries = [(1u16, 7u16, all), (2, rights, 1001), (4, 5, all), (16, 7, all), (32, 0, all)];
    let mut bytes = 2u32.to_le_bytes().to_vec();
    for (tag, rights, id) in entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(rights.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

fn give(work: &Path, name: &str, which: &str, rights: u16) {
    setxattr(work.join(name), which, &list(rights), XattrFlags::empty()).expect("lists are kept");
}

/// Directories with default lists, files with access lists.
fn listed(work: &Path) {
    for name in ["down", "down/old", "plain", "emptied"] {
        fs::create_dir(work.join(name)).expect("a directory");
    }
    for name in ["listed", "cleared", "down/file", "moved", "grown"] {
        fs::write(work.join(name), "of the host\n").expect("a file");
    }
    for name in ["down", "down/old", "emptied"] {
        give(work, name, DEFAULT, 6);
    }
    for name in ["listed", "cleared", "moved", "grown"] {
        give(work, name, ACCESS, 4);
    }
}

/// All lists of a tree, as Python prints them.
const LOOK: &str = "
import os, sys
def look(path):
    found = os.lstat(path)
    if not os.path.islink(path):
        lists = {name[17:]: os.getxattr(path, name).hex() for name in sorted(os.listxattr(path))}
        print(path, oct(found.st_mode), lists)
for place, names, files in sorted(os.walk('.')):
    names.sort()
    for name in ['.'] + sorted(files): look(os.path.join(place, name))
";

/// What the host has when a run has ended is the same natively and after a write-back.
fn the_same_afterwards(name: &'static str, input: fn(&Path), script: &str) {
    let script = [script, LOOK].concat();
    let seen: Rc<RefCell<Vec<String>>> = Rc::default();
    let look = move |work: &Path| {
        let python = Command::new("python3").args(["-c", LOOK]).current_dir(work).output();
        let python = python.expect("python3");
        assert!(python.status.success(), "{}", String::from_utf8_lossy(&python.stderr));
        let text = String::from_utf8_lossy(&python.stdout).into_owned();
        let mut seen = seen.borrow_mut();
        seen.push(text);
        assert_eq!(seen.first(), seen.last(), "lists on the host");
    };
    let argv = ["python3", "-c", &script];
    Case::new(name, Length::Once, &argv).input(input).afterwards(look).check();
}

#[test]
fn what_a_default_list_of_the_host_gives_is_inherited_and_written_back() {
    let script = "
import os, socket
os.umask(0o027)
for within in ['down', 'down/old', 'plain', 'emptied']:
    os.chdir(within)
    os.mkdir('dir'); os.mkdir('dir/below', 0o750); os.mkfifo('fifo', 0o666)
    open('made', 'w').write('text'); open('dir/below/made', 'w').close()
    os.symlink('made', 'link')
    socket.socket(socket.AF_UNIX).bind('socket')
    os.close(os.open('program', os.O_CREAT, 0o755))
    os.chdir('../..' if '/' in within else '..')
os.chmod('down/made', 0o604)
os.chmod('listed', 0o640)
open('down/file', 'a').write('more\\n')
open('grown', 'a').write('more\\n')
os.removexattr('cleared', 'system.posix_acl_access')
os.removexattr('emptied', 'system.posix_acl_default')
os.removexattr('down/dir', 'system.posix_acl_default')
os.mkdir('emptied/later')
os.setxattr('plain', 'system.posix_acl_default', os.getxattr('down', 'system.posix_acl_default'))
open('plain/later', 'w').close()
os.rename('moved', 'down/moved')
os.rename('plain/made', 'down/other')
";
    the_same_afterwards("lists", listed, script);
}

/// Another user's tree, in which a list lets this one work. Only root may prepare it.
#[test]
fn who_is_named_by_a_list_of_the_host_works_in_anothers_directory() {
    if !rustix::process::getuid().is_root() {
        return;
    }
    let input = |work: &Path| {
        for name in ["open", "open/sub", "shut"] {
            fs::create_dir(work.join(name)).expect("a directory");
            fs::write(work.join(name).join("file"), "of the host\n").expect("a file");
        }
        fs::set_permissions(work, fs::Permissions::from_mode(0o755)).expect("a mode");
        for name in ["open", "open/sub", "shut", "open/file", "open/sub/file", "shut/file"] {
            chown(work.join(name), Some(1000), Some(1000)).expect("an owner");
            give(work, name, ACCESS, if name.starts_with("open") { 7 } else { 1 });
        }
    };
    let script = "
import os
def attempt(what, *args):
    try: what(*args); return 'done'
    except OSError as error: return error.errno
def child():
    os.setgroups([]); os.setgid(1001); os.setuid(1001)
    for within in ['open', 'open/sub', 'shut']:
        file, moved = within + '/file', within + '/moved'
        print(within, attempt(os.listdir, within), attempt(open, file), attempt(open, file, 'a'),
            attempt(os.mkdir, within + '/made'), attempt(os.rename, file, moved),
            attempt(os.chmod, within, 0o700), attempt(os.access, file, 7),
            attempt(os.truncate, moved, 3), attempt(os.utime, moved), flush=True)
pid = os.fork()
if pid == 0: child(); os._exit(0)
print(os.waitpid(pid, 0)[1])
";
    the_same_afterwards("lists-named", input, script);
}

//! Whether the modes of a file system say who may read its files.
//!
//! Linux keeps all users but one out of a FUSE mount, and root too, whatever modes it shows. AFS
//! has lists of its own, NFS with Kerberos and CIFS with several users ask a server for each user.
//!
//! Invariant: what is not known to go by modes is not shown.

use std::fs;
use std::os::fd::AsFd;

use rustix::fs::{AtFlags, StatxFlags, fstatfs, statx};
use rustix::io::{Errno, Result};

/// File systems of which the mount says more, by `f_type`: FUSE, NFS, CIFS, SMB2, 9P, Ceph.
const ASKED: [u32; 6] = [0x6573_5546, 0x6969, 0xff53_4d42, 0xfe53_4d42, 0x0102_1997, 0x00c3_6400];
/// Those that have their own rule: AFS (two of them), Coda.
const OWN_RULE: [u32; 3] = [0x5346_414f, 0x6b41_4653, 0x7375_7245];

/// An error: the modes of the file system of `file` do not say who may read it.
pub fn decide(file: impl AsFd) -> Result<()> {
    let kind = fstatfs(&file)?.f_type as u32;
    if OWN_RULE.contains(&kind) {
        return Err(Errno::ACCESS);
    }
    if !ASKED.contains(&kind) {
        return Ok(());
    }
    let found = statx(&file, "", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID)?;
    // The mounts of this thread: it may have a namespace of its own.
    let mounts = fs::read_to_string("/proc/thread-self/mountinfo").map_err(|_| Errno::ACCESS)?;
    let number = found.stx_mnt_id.to_string();
    let line = mounts.lines().find(|line| line.split(' ').next() == Some(&number));
    let goes_by_modes = line.is_some_and(goes_by_modes);
    if goes_by_modes { Ok(()) } else { Err(Errno::ACCESS) }
}

/// Whether a mount, as a line of `mountinfo` has it, goes by modes for all users.
fn goes_by_modes(line: &str) -> bool {
    let Some((_, source)) = line.split_once(" - ") else { return false };
    let words: Vec<_> = source.split(' ').collect();
    let [kind, _, options] = words[..] else { return false };
    let has = |wanted: &str| options.split(',').any(|option| option == wanted);
    match kind.split('.').next().unwrap_or_default() {
        "fuse" | "fuseblk" => has("allow_other") && has("default_permissions"),
        "virtiofs" => true,
        "nfs" | "nfs4" => has("sec=sys"),
        "cifs" | "smb3" => !has("multiuser") && !has("noperm") && !has("cifsacl"),
        // Without either, each user is another one for the server.
        "9p" => has("access=any") || has("access=client"),
        "ceph" => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;
    use std::os::fd::AsRawFd;
    use std::path::Path;
    use std::thread;
    use std::time::{Duration, SystemTime};

    use fuser::{
        Config, FileAttr, FileHandle, FileType, Filesystem, Generation, INodeNo, LockOwner,
        OpenFlags, ReplyAttr, ReplyData, ReplyEntry, Request, Session, SessionACL,
    };
    use nix::sched::{CloneFlags, unshare};
    use rustix::fs::{CWD, Mode, OFlags, open};
    use rustix::mount::{
        MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_change, unmount,
    };

    use crate::hosts::room::asks::{Answer, Ask, Identity};
    use crate::hosts::room::home::Home;

    /// A file system in which every name is a file with a secret, to be read by all.
    struct Open;

    const SECRET: &[u8] = b"secret";

    fn attributes(number: u64) -> FileAttr {
        let (kind, perm) =
            if number == 1 { (FileType::Directory, 0o755) } else { (FileType::RegularFile, 0o644) };
        let (ino, time) = (INodeNo(number), SystemTime::UNIX_EPOCH);
        let (size, blksize) = (SECRET.len() as u64, 512);
        let (atime, mtime, ctime, crtime) = (time, time, time, time);
        let (blocks, nlink, uid, gid, rdev, flags) = (1, 1, 0, 0, 0, 0);
        FileAttr {
            ino,
            size,
            blocks,
            atime,
            mtime,
            ctime,
            crtime,
            kind,
            perm,
            nlink,
            uid,
            gid,
            rdev,
            blksize,
            flags,
        }
    }

    impl Filesystem for Open {
        fn lookup(&self, _: &Request, _: INodeNo, _: &std::ffi::OsStr, reply: ReplyEntry) {
            reply.entry(&Duration::from_secs(1), &attributes(2), Generation(0));
        }

        fn getattr(&self, _: &Request, number: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
            reply.attr(&Duration::from_secs(1), &attributes(number.0));
        }

        fn read(
            &self,
            _: &Request,
            _: INodeNo,
            _: FileHandle,
            offset: u64,
            _: u32,
            _: OpenFlags,
            _: Option<LockOwner>,
            reply: ReplyData,
        ) {
            reply.data(&SECRET[(offset as usize).min(SECRET.len())..]);
        }
    }

    /// What home says of a file in such a file system at `place`, mounted with these options.
    fn told(place: &Path, options: &str) -> Answer {
        let device = open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).unwrap();
        let number = device.as_raw_fd();
        let options = format!("fd={number},rootmode=40000,user_id=0,group_id=0{options}");
        let options = CString::new(options).unwrap();
        mount("test", place, "fuse", MountFlags::RDONLY, Some(options.as_c_str())).unwrap();
        let session = Session::from_fd(Open, device, SessionACL::All, Config::default()).unwrap();
        let server = thread::spawn(move || session.run());
        let path = place.join("file");
        let found = rustix::fs::statat(CWD, &path, AtFlags::empty()).unwrap();
        let told = Home::begin().answer(&Ask::Read(path, Identity::of(&found), 0));
        unmount(place, UnmountFlags::DETACH).unwrap();
        let _ = server.join();
        told
    }

    #[test]
    fn what_is_in_a_mount_for_one_user_is_not_shown_whatever_its_modes_say() {
        if !rustix::process::getuid().is_root() || !Path::new("/dev/fuse").exists() {
            return;
        }
        let ours = thread::spawn(|| {
            // Nobody else sees what is mounted here.
            unshare(CloneFlags::CLONE_FS | CloneFlags::CLONE_NEWNS).unwrap();
            let own = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
            mount_change("/", own).unwrap();
            let place = tempfile::tempdir_in("/var").unwrap();
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
            fs::set_permissions(place.path(), mode).unwrap();
            let refused = Answer::Failed(Errno::ACCESS.raw_os_error());
            assert_eq!(told(place.path(), ""), refused);
            assert_eq!(told(place.path(), ",allow_other"), refused);
            let shown = told(place.path(), ",allow_other,default_permissions");
            assert_eq!(shown, Answer::Bytes(SECRET.to_vec()));
        });
        ours.join().unwrap();
    }

    #[test]
    fn a_mount_goes_by_modes_only_where_linux_judges_all_users_by_them() {
        let mount =
            |source: &str| goes_by_modes(&format!("36 35 0:40 / /m rw shared:1 - {source}"));
        for shown in [
            "fuse.sshfs host: rw,user_id=0,group_id=0,default_permissions,allow_other",
            "virtiofs shared rw",
            "nfs4 server:/ rw,vers=4.2,sec=sys,addr=10.0.0.1",
            "cifs //server/share rw,uid=0,file_mode=0755",
            "9p shared rw,access=client,trans=virtio",
        ] {
            assert!(mount(shown), "{shown}");
        }
        for hidden in [
            "fuse.gocryptfs place rw,user_id=7,group_id=7",
            "fuse.rclone remote: rw,user_id=7,group_id=7,allow_other",
            "fuse place rw,user_id=7,group_id=7,default_permissions",
            "nfs4 server:/ rw,sec=krb5p",
            "cifs //server/share rw,multiuser",
            "9p shared rw,trans=virtio",
            "what none rw",
            "",
        ] {
            assert!(!mount(hidden), "{hidden}");
        }
    }
}

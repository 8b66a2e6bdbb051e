//! Wishes to gather a program, granted in an image of this process's own.

use std::fs::{self, File};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use husk_carrier::{Direct, Layout};
use husk_proto::Shortcuts as _;
use husk_proto::fs::HostIdentity;
use husk_proto::image::{Image as _, Rewritten};
use husk_supervisor::image;
use husk_supervisor::image::copies::serve_one;
use husk_supervisor::image::descriptors;

const LAYOUT: Layout = Layout { kernels: 1, memory_bytes: 16 << 20 };
const MIB: usize = 1 << 20;

/// A program of `bytes` bytes that are all loaded as code.
fn program(path: &Path, bytes: usize, content: u8) -> HostIdentity {
    let mut file = b"\x7fELF\x02\x01\x01".to_vec();
    file.resize(16, 0);
    file.extend([3, 0, 62, 0, 1, 0, 0, 0]);
    file.extend([0; 8]);
    file.extend(64u64.to_le_bytes());
    file.extend([0; 12]);
    file.extend([64, 0, 56, 0, 1, 0, 64, 0, 0, 0, 0, 0]);
    file.extend([1, 0, 0, 0, 5, 0, 0, 0]);
    for word in [0, 0, 0, bytes as u64, bytes as u64, 4096] {
        file.extend(word.to_le_bytes());
    }
    file.resize(bytes, content);
    fs::write(path, &file).expect("a program");
    identity(path)
}

fn identity(path: &Path) -> HostIdentity {
    let found = fs::metadata(path).expect("its facts");
    HostIdentity {
        device: found.dev(),
        inode: found.ino(),
        size: found.size(),
        modified_ns: found.mtime() * 1_000_000_000 + found.mtime_nsec(),
        changed_ns: 0,
    }
}

struct Scene {
    direct: Direct,
    region: OwnedFd,
    scratch: tempfile::TempDir,
}

impl Scene {
    fn new() -> Scene {
        let region = descriptors::region(LAYOUT.file_bytes()).expect("a region");
        husk_carrier::map_region(region.as_raw_fd() as u32, LAYOUT).expect("mapped");
        husk_carrier::format(LAYOUT, 99, b"/nonexistent").expect("formatted");
        let direct = image::attach().expect("attached");
        Scene { direct, region, scratch: tempfile::tempdir().expect("a directory") }
    }

    fn ask(&mut self, file: &HostIdentity, path: &Path) {
        self.direct.request_gathered(file, path.as_os_str().as_encoded_bytes());
    }

    /// Grants what was wished.
    fn serve(&mut self) {
        while serve_one(None, Some(&self.region), &mut self.direct) {}
    }

    fn left(&self) -> u64 {
        self.direct.room_to_gather().1
    }

    fn memory(&self) -> u64 {
        let region = File::from(self.region.try_clone().expect("a second number"));
        region.metadata().expect("its facts").blocks() * 512
    }
}

/// One image a process: one test.
#[test]
fn a_program_is_gathered_once_and_what_fails_takes_no_room() {
    let mut scene = Scene::new();
    let (first, second) = (scene.scratch.path().join("a"), scene.scratch.path().join("b"));
    let file = program(&first, 5 * MIB, 7);
    let room = scene.left();

    // Nobody knows of it yet: it is no wish for a copy.
    scene.ask(&file, &first);
    scene.serve();
    assert_eq!((scene.direct.rewritten(&file), scene.left()), (Rewritten::Unknown, room));

    // Two ask before one is granted.
    scene.direct.set_rewritten(&file, Rewritten::Plain);
    scene.ask(&file, &first);
    scene.ask(&file, &first);
    scene.serve();
    let Rewritten::Gathered(at) = scene.direct.rewritten(&file) else { panic!("not gathered") };
    assert_eq!(scene.left(), room - 6 * MIB as u64);
    let mut bytes = vec![0; 5 * MIB];
    let region = File::from(scene.region.try_clone().expect("a second number"));
    region.read_exact_at(&mut bytes, at).expect("its bytes");
    assert!(bytes == fs::read(&first).expect("the program"), "other bytes");

    // A wish for a copy that comes late takes nothing back.
    scene.direct.request_rewrite(&file, first.as_os_str().as_encoded_bytes());
    scene.serve();
    assert_eq!(scene.direct.rewritten(&file), Rewritten::Gathered(at));

    // One that was replaced meanwhile, and one that is gone.
    let (left, memory) = (scene.left(), scene.memory());
    let old = program(&second, 5 * MIB, 8);
    scene.direct.set_rewritten(&old, Rewritten::Plain);
    scene.ask(&old, &second);
    program(&second, 4 * MIB, 9);
    scene.serve();
    assert_eq!((scene.direct.rewritten(&old), scene.left()), (Rewritten::Plain, left));
    // But for what says which file it was.
    assert!(scene.memory() < memory + MIB as u64 / 16, "what was filled is still held");
    fs::remove_file(&second).expect("removed");
    scene.ask(&old, &second);
    scene.serve();
    assert_eq!((scene.direct.rewritten(&old), scene.left()), (Rewritten::Plain, left));

    // What would fit, but has no code for a huge page, is not asked for again.
    let small = program(&second, MIB, 9);
    scene.direct.set_rewritten(&small, Rewritten::Plain);
    scene.ask(&small, &second);
    scene.serve();
    assert_eq!((0..200).filter(|_| scene.direct.count_start(&small)).count(), 0);
}

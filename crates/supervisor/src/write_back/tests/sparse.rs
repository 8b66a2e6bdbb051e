//! Host files with holes that a write-back copies: what they hold is copied, and nothing else.

use std::cell::Cell;
use std::os::unix::fs::FileExt;
use std::rc::Rc;

use super::*;
use crate::write_back::host::beneath::schedule;

const SIZE: u64 = 64 << 20;
/// What is in the middle of it.
const MIDDLE: &[u8] = b"in the middle";
const AT: u64 = SIZE / 2 + 5;

fn make(path: &Path) {
    let file = fs::File::create(path).unwrap();
    file.set_len(SIZE).unwrap();
    file.write_all_at(b"begin", 0).unwrap();
    file.write_all_at(MIDDLE, AT).unwrap();
}

#[track_caller]
fn is_sparse(path: &Path, begin: &[u8]) {
    let (file, found) = (fs::File::open(path).unwrap(), fs::metadata(path).unwrap());
    assert_eq!(found.len(), SIZE);
    assert!(found.blocks() * 512 < 1 << 20, "{} bytes", found.blocks() * 512);
    for (expected, at) in [(begin, 0), (MIDDLE, AT), (&[0; 13], SIZE - 13)] {
        let mut bytes = vec![1; expected.len()];
        file.read_exact_at(&mut bytes, at).unwrap();
        assert_eq!(bytes, expected, "at {at}");
    }
}

#[test]
fn what_the_host_has_changed_of_a_file_that_the_image_has_moved_is_copied_with_its_holes() {
    for live in [false, true] {
        let mut scene = Scene::new(|path| make(&path.join("file")));
        scene.rename("file", "moved");
        let file = fs::File::options().write(true).open(scene.path.join("file")).unwrap();
        file.write_all_at(b"OTHER", 0).unwrap();
        scene.bring(live, &[]);
        is_sparse(&scene.path.join("moved"), b"OTHER");
    }
}

#[test]
fn taking_over_a_file_with_holes_reads_what_it_holds() {
    let mut scene = Scene::new(|path| make(&path.join("file")));
    scene.rename("file", "moved");
    let reads = Rc::new(Cell::new(0));
    let count = Rc::clone(&reads);
    let plan = move |call: &'static str| {
        count.set(count.get() + u32::from(call == "pread"));
        Ok(())
    };
    complete(&schedule::during(plan, || scene.bring_here(true)));
    let inode = scene.at("moved");
    let shown = scene.direct.attributes(inode).unwrap();
    assert_eq!((shown.backing, shown.size), (Backing::Image, SIZE));
    assert!(shown.blocks_512 < 2048, "{} blocks", shown.blocks_512);
    let mut bytes = [0; MIDDLE.len()];
    assert_eq!(scene.direct.read_at(inode, AT, &mut bytes), Ok(bytes.len()));
    assert_eq!(bytes, MIDDLE);
    assert!((1..10).contains(&reads.get()), "{} reads", reads.get());
    is_sparse(&scene.path.join("moved"), b"begin");
}

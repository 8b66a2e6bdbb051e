//! Who waits for a volume: answers come to those that they are for, all at once.

#[path = "support/mod.rs"]
mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use husk_proto::fs::Node;
use husk_proto::image::Cover;
use husk_proto::volume::{Asked, State, Volumes as _};
use husk_proto::{
    Admin as _, Errno, Fs as _, Inode, Processes as _, Shortcuts as _, VolumeLog as _,
};
use husk_region::{FIXED_WORDS, Region, Session};
use support::{LAYOUT, beside, clock, image, in_child, joined, program, root_user, tid, until};

/// Nobody sleeps so long but who was not woken.
const LONG_NS: u64 = 100_000_000_000;

fn session() -> Session {
    // SAFETY: `image` has mapped and formatted it.
    let region = unsafe { Region::attach() }.expect("mapped");
    Session::new(region, std::process::id(), tid())
}

#[test]
fn who_is_named_wakes_up_and_others_sleep_on() {
    in_child(|| {
        let (mut boss, _) = image(LAYOUT, Cover::Memory);
        let me = session();
        // The last of the fixed area: nothing else uses it.
        let word = me.region.map.fixed(FIXED_WORDS - 1);
        let named = Arc::new(AtomicU32::new(0));
        let sleepers = [1, 2, 6].map(|bits| {
            let named = Arc::clone(&named);
            std::thread::spawn(move || {
                let is_late = session().sleep_as(word, bits, 0, LONG_NS);
                (is_late, named.load(Ordering::SeqCst) & bits != 0)
            })
        });
        let [first, second, third] = sleepers;
        for (bits, woken) in [(4, vec![third]), (3, vec![first, second])] {
            named.fetch_or(bits, Ordering::SeqCst);
            // Whoever has not slept yet is woken later.
            until("they wake up", || {
                me.wake_those(word, bits);
                woken.iter().all(|one| one.is_finished())
            });
            for one in woken {
                assert_eq!(joined("a sleeper", one), (false, true), "late, named: {bits}");
            }
        }
        assert!(me.sleep_as(word, 1, 0, 1000), "nobody wakes it");
        assert!(!me.sleep_as(word, 1, 1, LONG_NS), "the word is another");
        boss.detach();
    });
}

#[test]
fn each_of_a_group_gets_its_answer_and_who_is_not_in_it_waits() {
    in_child(|| {
        let (mut boss, root) = image(LAYOUT, Cover::Memory);
        let tree = boss.make_volume(root).expect("a volume");
        boss.volume_set_state(tree, State::Served);
        let mut me = program(&mut boss, clock);
        let mut make = |name: &[u8]| me.create(&root_user(), root, name, Node::File(0o644));
        let files = [&b"a"[..], b"b", b"c"].map(|name| make(name).expect("a file"));
        let process = me.current();
        let [a, b, c] = files.map(|file| beside(process, move |me| me.commit(file, false)));
        let mut wishes = Vec::new();
        until("all have asked", || {
            wishes.clear();
            me.volume_each_wish(tree, &mut |wish, asked| match asked {
                Asked::Commit(Some(inode)) => wishes.push((inode, wish)),
                _ => panic!("nobody has asked for that"),
            });
            wishes.len() == files.len()
        });
        let of = |file: Inode| wishes.iter().find(|(inode, _)| *inode == file).expect("asked").1;
        me.volume_grant(tree, &[of(files[2]), of(files[0])], Ok(()));
        assert_eq!((joined("a", a), joined("c", c)), (Ok(()), Ok(())));
        assert!(!b.is_finished());
        me.volume_grant(tree, &[of(files[1])], Err(Errno::ENOSPC));
        assert_eq!(joined("b", b), Err(Errno::ENOSPC));
        me.exit();
    });
}

//! Attributes of objects that came from the host.

#[path = "support/mod.rs"]
mod support;
#[path = "support/world.rs"]
mod world;

use husk_proto::fs::{Change, Imported, Kind};
use husk_proto::image::Cover;
use husk_proto::{Fs, Processes as _};
use support::{LAYOUT, clock, image, in_child, program, root_user};
use world::{at, findings};

#[test]
fn a_change_in_the_tick_of_the_hosts_last_one_shows_in_the_times() {
    in_child(|| {
        let (mut boss, root) = image(LAYOUT, Cover::Overlay);
        let mut me = program(&mut boss, clock);
        for n in 0..200u8 {
            let name = [b'f', n / 16 + b'a', n % 16 + b'a'];
            let host_ns = clock();
            let mut object = world::imported(&name, Kind::File);
            object.identity.changed_ns = host_ns;
            assert_eq!(me.import(root, &[object]), Ok(true));
            let file = at(&mut me, root, &name);
            for mode in [0o600, 0o755] {
                let change = Change { mode: Some(mode), ..Default::default() };
                me.change(&root_user(), file, change).expect("chmod");
                let facts = me.attributes(file).expect("stat");
                assert_ne!(facts.changed_ns, host_ns, "mode {mode:o} left no trace");
            }
        }
        me.exit();
        assert_eq!(findings(&boss), []);
    });
}

/// A file system gives a number again once its object is gone.
#[test]
fn a_file_with_the_number_of_one_that_is_gone_is_another_file() {
    in_child(|| {
        let (mut boss, root) = image(LAYOUT, Cover::Overlay);
        let mut me = program(&mut boss, clock);
        let named = |name: &'static [u8], number, born_ns, modified_ns| {
            let mut object = world::imported(name, Kind::File);
            object.identity.inode = number;
            object.identity.modified_ns = modified_ns;
            Imported { links: 2, born_ns, ..object }
        };
        // Known by birth, whatever else has changed, or where that is not told by size and time.
        let cases = [
            (named(b"a1", 11, 5, 1), named(b"a2", 11, 5, 2), true),
            (named(b"b1", 12, 5, 1), named(b"b2", 12, 6, 1), false),
            (named(b"c1", 13, 0, 1), named(b"c2", 13, 0, 1), true),
            (named(b"d1", 14, 0, 1), named(b"d2", 14, 0, 2), false),
        ];
        for (first, second, same) in cases {
            assert_eq!(me.import(root, &[first, second]), Ok(true));
            let (one, two) = (at(&mut me, root, first.name), at(&mut me, root, second.name));
            assert_eq!(one == two, same, "{:?}", first.name);
            let links = me.attributes(two).expect("stat").links;
            assert_eq!(links, 2, "{:?}", first.name);
        }
        // From now on the number leads to the file that has it.
        assert_eq!(me.import(root, &[named(b"b3", 12, 6, 1)]), Ok(true));
        assert_eq!(at(&mut me, root, b"b3"), at(&mut me, root, b"b2"));
        me.exit();
        assert_eq!(findings(&boss), []);
    });
}

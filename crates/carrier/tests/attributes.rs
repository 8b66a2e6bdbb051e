//! Attributes of objects that came from the host.

#[path = "support/mod.rs"]
mod support;
#[path = "support/world.rs"]
mod world;

use husk_proto::fs::{Change, Kind};
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

//! A store of `tenacious` in a volume: the same promises inside an image as on a disk.

use std::path::PathBuf;

use tenacious::Store;

use super::Room;
use super::databases::survives;

/// Says that this process is the program, and what it is to do.
const ROLE: &str = "HUSK_TEST_STORE";
const SIZE_BYTES: u64 = 2 << 20;

/// Counts on and says each number once it is durable, or says how far it came.
fn work(verb: &str, tree: &str) {
    let path = PathBuf::from(tree).join("store");
    let store = match path.exists() {
        true => Store::open(&path).or_else(|_| {
            // What made it was killed before it was whole.
            std::fs::remove_file(&path).expect("nothing was promised yet");
            Store::create(&path, SIZE_BYTES)
        }),
        false => Store::create(&path, SIZE_BYTES),
    };
    let store = store.unwrap();
    let counter = store.counter("steps").unwrap();
    if verb == "look" {
        return println!("{}", counter.get());
    }
    loop {
        store.wait(counter.add(1).unwrap()).unwrap();
        println!("{}", counter.get());
    }
}

#[test]
fn what_a_store_in_a_volume_acknowledged_survives_the_death_of_all() {
    if let Ok(role) = std::env::var(ROLE) {
        let (verb, tree) = role.split_once(' ').expect("a verb and a tree");
        return work(verb, tree);
    }
    let room = Room::new("store", "32M");
    let own = std::env::current_exe().unwrap();
    let name = "volumes::stores::what_a_store_in_a_volume_acknowledged_survives_the_death_of_all";
    // The test runner says a few lines of its own.
    let line =
        format!("{} --exact {name} --nocapture | grep --line-buffered -x '[0-9]*'", own.display());
    survives(&room, ("store", 0), |verb| {
        let mut command = room.command("128M", &["sh", "-c", &line]);
        command.env(ROLE, format!("{} {}", verb.word(), room.tree()));
        command
    });
}

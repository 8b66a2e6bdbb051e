//! No room for names, none for addresses: an error of the call, and a way out.

use husk_tests::{Scratch, against_native, husk};

use crate::run;

#[test]
fn an_image_full_of_names_can_still_run_rm() {
    if against_native() {
        return;
    }
    let scratch = Scratch::new("names");
    let work = scratch.fresh("work");
    let script = "
mkdir d
python3 -c '
import os
try:
    for n in range(10**6): os.symlink(\"t\" * 1000, \"d/%0200d\" % n)
except OSError as error:
    print(error.errno)
'
for n in 1 2 3 4 5 6 7 8; do (exit 0) || exit 1; done
rm -r d && mkdir d && rmdir d && echo removed";
    let outcome = run(&scratch, &work, husk(&["--memory", "32M"], &["sh", "-c", script]));
    assert_eq!(outcome.code(), 0, "{}", outcome.shown());
    assert_eq!(outcome.stdout, b"28\nremoved\n", "{}", outcome.shown());
}

#[test]
fn a_limit_of_address_space_is_an_error_of_the_call() {
    if against_native() {
        return;
    }
    let scratch = Scratch::new("space");
    let work = scratch.fresh("work");
    // Room for every program, and none for the image's bytes.
    let script = "ulimit -v 300000; echo text > made || echo refused";
    let outcome = run(&scratch, &work, husk(&["--memory", "512M"], &["bash", "-c", script]));
    assert_eq!(outcome.code(), 0, "{}", outcome.shown());
    assert_eq!(outcome.stdout, b"refused\n", "{}", outcome.shown());
    assert!(outcome.stderr.contains("Cannot allocate memory"), "{}", outcome.shown());
}

//! Where processes of an image are placed, and what is said of it.

use std::process::{Child, Command, Stdio};

use husk_tests::against_native;
use husk_tests::husk::binary;
use serde_json::Value;

use crate::{Images, shown, text, until};

/// Loads that differ by more are not taken for the same.
const CLEARLY: f64 = 1.0;

/// Cores that tests may use.
fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

/// Starts a script in the background of an image; the numbers that it prints.
fn background(images: &Images, options: &[&str], script: &str) -> Vec<String> {
    let words: Vec<_> = ["exec"].into_iter().chain(options.iter().copied()).collect();
    let words: Vec<_> = words.into_iter().chain(["ci", "--", "bash", "-euc", script]).collect();
    images.done(&words).split_whitespace().map(str::to_owned).collect()
}

fn explained(images: &Images, pid: &str) -> Value {
    json(&images.done(&["explain", "ci", pid, "--json"]))
}

const SLEEPERS: &str = "for i in 1 2 3 4 5 6; do sleep 67 > /dev/null 2>&1 & echo $!; done";

fn end(images: &Images) {
    let output = images.husk(&["down", "ci", "--force", "--discard"]);
    assert!(output.status.success(), "{}", shown(&output));
    assert!(text(&output.stderr).contains("fsck: clean"), "{}", shown(&output));
}

#[test]
fn processes_take_kernels_in_turn_and_are_told_why() {
    if against_native() {
        return;
    }
    let images = Images::new("turns");
    images.done(&["up", "ci", "--memory", "64M", "--kernels", "3", "--place", "round-robin"]);
    let pids = background(&images, &[], SLEEPERS);
    let told: Vec<_> = pids.iter().map(|pid| explained(&images, pid)).collect();
    let kernels: Vec<_> = told.iter().map(|one| one["kernel"].as_u64().expect("one")).collect();
    // Who is first takes the next one.
    let mut turns = kernels.clone();
    turns.sort_unstable();
    assert_eq!(turns, [0, 0, 1, 1, 2, 2], "{kernels:?}");
    for one in &told {
        assert_eq!((&one["policy"], &one["runs"]), (&"round-robin".into(), &true.into()));
        assert_eq!(one["said_by"], "option of the image");
        assert_eq!(one["placed"]["moment"], "fork");
        assert_eq!(one["placed"]["allowed"], serde_json::json!([0, 1, 2]));
        assert_eq!(
            (&one["command"][0], &one["placed"]["pinned"]),
            (&"sleep".into(), &false.into())
        );
        let now = &one["now"];
        assert!(now["core"].is_u64() && now["cores"].is_string(), "{one}");
    }
    let listed = json(&images.done(&["ps", "ci", "--json"]));
    for (pid, kernel) in pids.iter().zip(&kernels) {
        let rows = listed.as_array().expect("rows");
        let row = rows.iter().find(|row| row["pid"].as_u64() == pid.parse().ok()).expect("its row");
        assert_eq!(row["kernel"], *kernel, "{row}");
        assert_eq!(row["user"], rustix::process::getuid().as_raw());
        assert!(row["memory_bytes"].as_u64() > Some(0) && row["group"].is_i64(), "{row}");
    }
    let said = images.done(&["explain", &pids[0]]);
    assert!(said.contains("policy   round-robin (option of the image)"), "{said}");
    assert!(said.starts_with(&format!("process {}: sleep 67\n", pids[0])), "{said}");
    images.done(&["kill", "ci", &pids[0]]);
    until("it has ended", || explained(&images, &pids[0])["runs"] == false);
    let said = images.done(&["explain", "ci", &pids[0]]);
    assert!(said.starts_with(&format!("process {}, which has ended\n", pids[0])), "{said}");
    end(&images);
}

#[test]
fn the_nearest_one_who_says_a_policy_wins() {
    if against_native() {
        return;
    }
    let images = Images::new("nearest");
    images.done(&["up", "ci", "--memory", "64M"]);
    let of = |options: &[&str], script: &str| {
        let pids = background(&images, options, script);
        let told = explained(&images, &pids[0]);
        (text_of(&told["policy"]), text_of(&told["said_by"]))
    };
    let plain = "sleep 67 > /dev/null 2>&1 & echo $!";
    let is = |policy: &str, who: &str| (policy.to_owned(), who.to_owned());
    assert_eq!(of(&[], plain), is("host", "default"));
    assert_eq!(of(&["--place", "stay"], plain), is("stay", "option of the command"));
    let child = "HUSK_PLACE=random sleep 67 > /dev/null 2>&1 & echo $!";
    let wait = |script: &str| format!("{script}; until grep -q sleep /proc/$!/comm; do :; done");
    assert_eq!(of(&[], &wait(child)), is("random", "HUSK_PLACE"));
    assert_eq!(of(&["--place", "stay"], &wait(child)), is("random", "HUSK_PLACE"));
    let nonsense = "HUSK_PLACE=nowhere sleep 67 > /dev/null 2>&1 & echo $!";
    assert_eq!(of(&["--place", "stay"], &wait(nonsense)), is("stay", "option of the command"));
    let back = "HUSK_PLACE=host sleep 67 > /dev/null 2>&1 & echo $!";
    assert_eq!(of(&["--place", "stay"], &wait(back)), is("host", "HUSK_PLACE"));
    assert_eq!(of(&["--place", "host"], plain), is("host", "option of the command"));
    // An option takes the place of the caller's variable.
    let mut command = images.command(binary().to_str().expect("a plain path"), &[]);
    command.args(["exec", "--place", "stay", "ci", "--", "sh", "-c", "echo ${HUSK_PLACE-unset}"]);
    let output = command.env("HUSK_PLACE", "random").output().expect("it starts");
    assert_eq!(text(&output.stdout), "unset\n", "{}", shown(&output));
    end(&images);
    let mut up = images.command(binary().to_str().expect("a plain path"), &["up", "ci"]);
    let up = up.args(["--memory", "64M"]).env("HUSK_PLACE", "stay").output().expect("it starts");
    assert!(up.status.success(), "{}", shown(&up));
    assert_eq!(of(&[], plain), is("stay", "configuration"));
    assert_eq!(of(&["--place", "host"], plain), is("host", "option of the command"));
    end(&images);
}

fn text_of(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// The masks of a command, its child, and of those who set their own.
const MASKS: &str = r#"
mask() { grep Cpus_allowed_list /proc/$1/status | cut -f2; }
for i in 1 2 3 4; do sleep 67 > /dev/null 2>&1 & echo $!; done
taskset -c 0,1 bash -c 'sleep 67 > /dev/null 2>&1 & echo $!'
HUSK_PLACE=host sleep 67 > /dev/null 2>&1 & echo $!
until grep -q sleep /proc/$!/comm; do :; done
"#;

#[test]
fn a_pinned_process_runs_on_the_core_of_its_kernel_unless_it_says_otherwise() {
    if against_native() || cores() < 2 {
        return;
    }
    let images = Images::new("pinned");
    let up = ["up", "ci", "--memory", "64M", "--kernels", "2", "--pin", "--place", "round-robin"];
    images.done(&up);
    let pids = background(&images, &[], MASKS);
    let told: Vec<_> = pids.iter().map(|pid| explained(&images, pid)).collect();
    let mut seen = Vec::new();
    for one in &told[..4] {
        assert_eq!(one["placed"]["pinned"], true, "{one}");
        assert_eq!(one["now"]["cores"], one["placed"]["core"].to_string(), "{one}");
        seen.push(text_of(&one["now"]["cores"]));
    }
    seen.sort();
    seen.dedup();
    assert_eq!(seen, ["0", "1"]);
    let own = &told[4];
    assert_eq!((&own["now"]["cores"], &own["placed"]["pinned"]), (&"0-1".into(), &false.into()));
    assert_eq!(own["placed"]["own_affinity"], true, "{own}");
    assert_eq!((&told[5]["now"]["cores"], &told[5]["policy"]), (&"0-1".into(), &"host".into()));
    // Also where it is the very core that it was on.
    let same = "taskset -c $(grep Cpus_allowed_list /proc/self/status | cut -f2) bash -euc '\
                for i in 1 2 3 4; do sleep 67 > /dev/null 2>&1 & echo $!; done'";
    let pids = background(&images, &[], same);
    let cores: Vec<_> =
        pids.iter().map(|pid| text_of(&explained(&images, pid)["now"]["cores"])).collect();
    assert!(cores.iter().all(|core| *core == cores[0]), "{cores:?}");
    end(&images);
}

#[test]
fn what_cannot_be_pinned_is_refused() {
    if against_native() {
        return;
    }
    let images = Images::new("unpinned");
    let many = (cores() + 1).to_string();
    let said = images.refused(&["up", "ci", "--kernels", &many, "--pin"], 125);
    assert!(said.contains("cannot pin") && said.contains("--kernels"), "{said}");
    let narrow = ["-c", "0", binary().to_str().expect("plain"), "up", "ci", "--kernels=2", "--pin"];
    let output = images.command("taskset", &narrow).output().expect("taskset");
    assert!(crate::refusal(&output, 125).contains("this process may run on 1 only"));
    let said = images.refused(&["up", "ci", "--pin", "--place", "host"], 125);
    assert!(said.contains("--place host leaves that to Linux"), "{said}");
    let said = images.refused(&["up", "ci", "--place", "there"], 125);
    assert!(said.contains("round-robin"), "{said}");
    assert_eq!(images.done(&["ls", "--json"]).trim(), "[]");
}

/// Something that does nothing but run, on one core.
struct Busy(Child);

impl Drop for Busy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_load_of_a_busy_core_is_seen() {
    if against_native() || cores() < 2 {
        return;
    }
    let images = Images::new("loads");
    let up = ["up", "ci", "--memory", "64M", "--kernels", "2", "--place", "least-loaded"];
    images.done(&up);
    let busy = |core: &str| {
        // No `timeout` between: it could not pass the signal that ends this on.
        let mut command = Command::new("taskset");
        command.args(["-c", core, "sh", "-c", "while :; do :; done"]).stdout(Stdio::null());
        Busy(command.spawn().expect("taskset"))
    };
    let _both = [busy("0"), busy("0"), busy("0")];
    let start = || {
        let pids = background(&images, &[], "sleep 67 > /dev/null 2>&1 & echo $!");
        explained(&images, &pids[0])
    };
    let load = |told: &Value, kernel: usize| told["placed"]["loads"][kernel]["load"].as_f64();
    until("its load is seen", || {
        let told = start();
        let loads = [0, 1].map(|kernel| load(&told, kernel).unwrap_or(0.0));
        let chosen = told["kernel"].as_u64().expect("a kernel") as usize;
        // Where it comes from is good enough, too, if that is as good.
        assert!(loads[chosen] <= loads[1 - chosen] + CLEARLY, "{told}");
        loads[0] > 0.8
    });
    end(&images);
}

#[test]
fn who_cannot_be_explained_is_told_in_a_line() {
    if against_native() {
        return;
    }
    let images = Images::new("unexplained");
    images.up("ci");
    let own = std::process::id().to_string();
    let supervisor = images.supervisor("ci").to_string();
    for (arguments, why) in [
        (&["explain", "ci", "x"][..], "not a process id"),
        (&["explain", "0"], "not a process id"),
        (&["explain", "ci", &own], "no such process runs in the image"),
        (&["explain", &own], "in no image"),
        (&["explain", &supervisor], "no such process runs in the image"),
        (&["explain", "nix", &own], "there is no such image"),
        (&["explain", "4194000"], "no such process"),
    ] {
        let said = images.refused(arguments, 125);
        assert!(said.contains(why), "{arguments:?}: {said}");
    }
    images.down("ci");
}

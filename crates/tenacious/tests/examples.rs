//! The examples, run as the README says, with producers in processes of their own, and killed.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Once;

const PRODUCERS: usize = 4;

/// A directory on a disk: a file system in memory may know no O_DIRECT.
fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// A built example.
fn example(name: &str) -> Command {
    static BUILT: Once = Once::new();
    // Where one test alone is asked for, they are not built with it.
    BUILT.call_once(|| {
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--quiet", "--offline", "--package", "tenacious", "--examples"]);
        if !cfg!(debug_assertions) {
            build.arg("--release");
        }
        assert!(build.current_dir(env!("CARGO_MANIFEST_DIR")).status().unwrap().success());
    });
    let own = std::env::current_exe().unwrap();
    let profile = own.parent().and_then(Path::parent).unwrap();
    Command::new(profile.join("examples").join(name))
}

fn text(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Ends with its owner.
struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn begin(store: &Path) -> Self {
        let mut command = example("key_value_server");
        let mut child =
            command.arg(store).arg("127.0.0.1:0").stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening on ").expect("an address").to_owned();
        Self { child, address }
    }

    fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Asks the server, by one write: several would wait for one another.
fn ask(mut stream: &TcpStream, line: &str) -> std::io::Result<()> {
    stream.write_all(format!("{line}\n").as_bytes())
}

/// Sets one key after the other, and says each that was acknowledged.
fn produce(role: &str) {
    let (address, own) = role.split_once(' ').unwrap();
    let stream = TcpStream::connect(address).unwrap();
    let mut answers = BufReader::new(stream.try_clone().unwrap()).lines();
    for n in 0.. {
        if ask(&stream, &format!("set {own}-{n} value-{n}")).is_err() {
            return;
        }
        match answers.next() {
            Some(Ok(answer)) if answer == "ok" => println!("acknowledged {own}-{n}"),
            _ => return,
        }
    }
}

#[test]
fn a_key_that_the_server_acknowledged_to_any_of_several_processes_is_there_after_its_death() {
    const ROLE: &str = "TENACIOUS_PRODUCES";
    const NAME: &str =
        "a_key_that_the_server_acknowledged_to_any_of_several_processes_is_there_after_its_death";
    if let Ok(role) = std::env::var(ROLE) {
        return produce(&role);
    }
    let directory = directory();
    let store = directory.path().join("kv.store");
    let mut server = Server::begin(&store);
    let producer = |n: usize| {
        let mut own = Command::new(std::env::current_exe().unwrap());
        own.args(["--exact", NAME, "--nocapture"]).stdout(Stdio::piped());
        own.env(ROLE, format!("{} {n}", server.address)).spawn().unwrap()
    };
    let mut producers: Vec<Child> = (0..PRODUCERS).map(producer).collect();
    let mut printed: Vec<_> = producers
        .iter_mut()
        .map(|child| BufReader::new(child.stdout.take().unwrap()).lines())
        .collect();
    let key = |line: String| line.rsplit_once("acknowledged ").map(|(_, key)| key.to_owned());
    // The harness of a child says a few lines of its own.
    let mut told: Vec<String> = Vec::new();
    for lines in &mut printed {
        told.extend(lines.by_ref().map_while(Result::ok).filter_map(key).take(20));
    }
    server.kill();
    told.extend(printed.into_iter().flatten().map_while(Result::ok).filter_map(key));
    producers.into_iter().for_each(|mut child| _ = child.wait().unwrap());
    assert!(told.len() >= 20 * PRODUCERS, "{}", told.len());

    let server = Server::begin(&store);
    let stream = TcpStream::connect(&server.address).unwrap();
    let mut answers = BufReader::new(stream.try_clone().unwrap()).lines();
    for key in &told {
        ask(&stream, &format!("get {key}")).unwrap();
        let number = key.split_once('-').unwrap().1;
        assert_eq!(answers.next().unwrap().unwrap(), format!("value-{number}"), "{key}");
    }
    // One more of each producer may be there whose answer the kill has taken.
    ask(&stream, "count").unwrap();
    let count: usize = answers.next().unwrap().unwrap().parse().unwrap();
    assert!((told.len()..=told.len() + PRODUCERS).contains(&count), "{count}, {}", told.len());
}

#[test]
fn a_job_whose_worker_is_killed_is_run_again_and_each_has_one_status() {
    let directory = directory();
    let store: PathBuf = directory.path().join("jobs.store");
    let queue = |arguments: &[&str]| {
        let mut command = example("job_queue");
        command.arg(&store).args(arguments).current_dir(directory.path()).output().unwrap()
    };
    let kills = "echo two >> ran; test -e killed || { touch killed; kill -9 $PPID; }";
    text(&queue(&["add", "echo one >> ran", kills, "echo three >> ran; exit 3"]));
    assert!(!queue(&["work"]).status.success(), "the second job kills its worker");
    assert_eq!(text(&queue(&["list"])), "echo one >> ran: exit status: 0\n");
    text(&queue(&["work"]));
    let list = text(&queue(&["list"]));
    let statuses: Vec<&str> = list.lines().map(|line| line.rsplit_once(": ").unwrap().1).collect();
    assert_eq!(statuses, ["0", "0", "3"], "{list}");
    let ran = std::fs::read_to_string(directory.path().join("ran")).unwrap();
    assert_eq!(ran, "one\ntwo\ntwo\nthree\n");
}

#[test]
fn durable_appends_are_measured_beside_a_file_and_nothing_is_left() {
    let directory = directory();
    let output = example("durable_appends").arg(directory.path()).arg("1").output().unwrap();
    let table = text(&output);
    let rows: Vec<Vec<&str>> =
        table.lines().map(|line| line.split_ascii_whitespace().collect()).collect();
    let writers: Vec<&str> = rows.iter().skip(1).map(|row| row[0]).collect();
    assert_eq!(writers, ["1", "4", "16"], "{table}");
    let is_positive = |word: &&str| word.parse::<f64>().is_ok_and(|figure| figure > 0.0);
    assert!(rows[1..].iter().all(|row| row[1..].iter().all(is_positive)), "{table}");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

//! `husk top`: on a terminal, in a pipe, and how the terminal is left.

use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Output};

use husk_tests::against_native;
use husk_tests::husk::binary;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::{Images, shown, text, until};

/// A terminal with a shell in it.
struct Terminal<'a> {
    images: &'a Images,
    socket: String,
}

impl Terminal<'_> {
    fn new(images: &Images) -> Terminal<'_> {
        let socket = images.room.join("tmux").to_str().expect("a plain path").to_owned();
        let terminal = Terminal { images, socket };
        let size = ["-x", "120", "-y", "30"];
        let shell = ["env", "PS1=$ ", "bash", "--norc"];
        let words: Vec<_> =
            ["-f", "/dev/null", "new-session", "-d"].into_iter().chain(size).chain(shell).collect();
        let started = terminal.tmux(&words);
        assert!(started.status.success(), "{}", shown(&started));
        terminal
    }

    fn tmux(&self, arguments: &[&str]) -> Output {
        let words: Vec<_> =
            ["-S", &self.socket].into_iter().chain(arguments.iter().copied()).collect();
        let mut tmux = self.images.command("tmux", &words);
        tmux.env("TERM", "screen-256color").output().expect("tmux")
    }

    fn typed(&self, keys: &[&str]) {
        let words: Vec<_> = ["send-keys"].into_iter().chain(keys.iter().copied()).collect();
        assert!(self.tmux(&words).status.success());
    }

    fn screen(&self) -> String {
        text(&self.tmux(&["capture-pane", "-p"]).stdout)
    }

    fn shows(&self, what: &str) {
        let mut screen = String::new();
        until(&format!("the terminal shows {what:?}"), || {
            screen = self.screen();
            screen.contains(what)
        });
    }

    /// Starts `husk top ci`, and waits until it shows something.
    fn top(&self, more: &str) {
        let husk = binary().to_str().expect("a plain path");
        let interval = if more.is_empty() { "--interval 0.2" } else { more };
        let line = format!("'{husk}' top ci {interval}; echo status $?");
        self.typed(&[&line, "Enter"]);
        self.shows("husk top: ci");
        self.shows("q quit");
        assert_eq!(self.said("#{alternate_on}"), "1");
    }

    fn said(&self, format: &str) -> String {
        text(&self.tmux(&["display-message", "-p", format]).stdout).trim().to_owned()
    }

    /// The terminal is as it was: its own screen, with a cursor, lines and echo.
    fn is_given_back(&self) {
        self.shows("status 0");
        assert_eq!(self.said("#{alternate_on} #{cursor_flag}"), "0 1");
        self.typed(&["clear; stty -a | tr ' ' ','; echo thr''ough", "Enter"]);
        self.shows("through");
        let settings = self.screen();
        for on in [",icanon", ",echo,", ",isig", ",opost"] {
            assert!(settings.replace('\n', ",").contains(on), "{on}: {settings}");
        }
        self.typed(&["clear", "Enter"]);
    }

    /// The process that the shell in it has started.
    fn child(&self) -> Pid {
        let shell = self.said("#{pane_pid}");
        let path = format!("/proc/{shell}/task/{shell}/children");
        let children = std::fs::read_to_string(path).expect("a shell");
        let child = children.split_whitespace().next().expect("a child");
        Pid::from_raw(child.parse().expect("a number")).expect("a process")
    }
}

impl Drop for Terminal<'_> {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]);
    }
}

/// A program of the image, ended with its test. It has no time limit of its own, as other commands
/// have: on a slow machine that would end it while somebody still looks at it.
struct Busy(Child);

impl Drop for Busy {
    fn drop(&mut self) {
        // Whoever has ended needs no end.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A program that makes and removes files until it is ended.
fn busy(images: &Images) -> Busy {
    let script = "while :; do echo x > busy; done";
    let mut command = Command::new(binary());
    command.args(["exec", "ci", "--", "bash", "-c", script]);
    command.current_dir(&images.work).env("HUSK_IMAGES", images.all());
    command.env("HOME", husk_tests::run::home("own"));
    Busy(command.spawn().expect("husk"))
}

#[test]
fn in_a_pipe_it_shows_rates_once() {
    if against_native() {
        return;
    }
    let images = Images::new("top-once");
    images.up("ci");
    let mut busy = busy(&images);
    let told = || -> Value {
        let told = images.done(&["top", "ci", "--json", "--interval", "0.3"]);
        serde_json::from_str(&told).expect("JSON")
    };
    until("it works", || told()["kernels"][0]["by_type_per_s"]["write"].as_f64() > Some(10.0));
    let told = told();
    let all = &told["kernels"][0];
    assert_eq!(all["kernel"], Value::Null);
    let sum = |what: &str| -> f64 {
        let each = told["kernels"].as_array().expect("a list").iter().skip(1);
        each.map(|kernel| kernel[what].as_f64().expect("a rate")).sum()
    };
    let all = all["operations_per_s"].as_f64().expect("a rate");
    assert!((sum("operations_per_s") - all).abs() < 1.0, "{told}");
    assert!(told["processes"][0]["share_percent"].as_f64() > Some(20.0), "{told}");
    let shown = images.done(&["top", "ci", "--once", "--interval", "0.2"]);
    assert!(shown.contains("KERNEL") && shown.contains("bash -c while"), "{shown}");
    images.husk(&["down", "ci", "--discard", "--force"]);
    busy.0.wait().expect("its end");
}

#[test]
fn mistakes_are_told_in_one_line() {
    if against_native() {
        return;
    }
    let images = Images::new("top-not");
    // What is missing is told before what is needed to show it.
    for arguments in [&["top", "ci", "--once"][..], &["top", "ci"]] {
        assert!(images.refused(arguments, 125).contains("there is no such image"), "{arguments:?}");
    }
    images.up("ci");
    let said = images.refused(&["top", "ci"], 125);
    assert!(said.contains("not a terminal") && said.contains("--once"), "{said}");
    for bad in ["0", "-1", "x", "4000"] {
        images.refused(&["top", "ci", "--once", "--interval", bad], 125);
    }
    images.down("ci");
}

#[test]
fn the_terminal_is_given_back_however_it_ends() {
    if against_native() {
        return;
    }
    let images = Images::new("top-ends");
    images.up("ci");
    let terminal = Terminal::new(&images);
    for key in ["q", "C-c", "F10"] {
        terminal.top("");
        terminal.typed(&[key]);
        terminal.is_given_back();
    }
    for signal in [Signal::TERM, Signal::HUP, Signal::INT] {
        terminal.top("");
        kill_process(terminal.child(), signal).expect("a signal");
        terminal.is_given_back();
    }
    // Another supervisor is no end.
    terminal.top("");
    images.kill_supervisor("ci");
    std::thread::sleep(std::time::Duration::from_millis(600));
    terminal.shows("husk top: ci");
    assert_eq!(terminal.said("#{alternate_on}"), "1");
    images.down("ci");
    terminal.shows("husk: image ci has ended");
    terminal.is_given_back();
}

/// Time that a process has spent on cores, ns.
fn core_ns(pid: Pid) -> u64 {
    let path = format!("/proc/{}/schedstat", pid.as_raw_nonzero());
    let text = std::fs::read_to_string(path).expect("it lives");
    text.split_whitespace().next().and_then(|ns| ns.parse().ok()).expect("a number")
}

/// As it is without options, over an image at work; the figure is in processor time, which a busy
/// machine stretches little.
#[test]
fn it_takes_less_than_a_hundredth_of_a_core() {
    const SPAN: std::time::Duration = std::time::Duration::from_secs(4);
    const SPANS_MAX: usize = 4;
    if against_native() {
        return;
    }
    let images = Images::new("top-cost");
    images.up("ci");
    let mut busy = busy(&images);
    let terminal = Terminal::new(&images);
    terminal.top("--interval 1");
    terminal.shows("bash -c while");
    let top = terminal.child();
    let share = || {
        let (spent, since) = (core_ns(top), std::time::Instant::now());
        // Nothing is waited for: what is spent within a span is the measure.
        std::thread::sleep(SPAN);
        (core_ns(top) - spent) as f64 / since.elapsed().as_nanos() as f64
    };
    let mut shares = (0..SPANS_MAX).map(|_| share()).inspect(|one| println!("{one:.4} of a core"));
    assert!(shares.any(|one| one < 0.01), "in none of {SPANS_MAX} spans");
    terminal.typed(&["q"]);
    images.husk(&["down", "ci", "--discard", "--force"]);
    busy.0.wait().expect("its end");
}

#[test]
fn keys_choose_sort_and_kill() {
    if against_native() {
        return;
    }
    let images = Images::new("top-keys");
    images.up("ci");
    let mut busy = busy(&images);
    let terminal = Terminal::new(&images);
    terminal.top("");
    terminal.shows("bash -c while");
    terminal.typed(&["N", "C", "P", "M", "I", "I", "O", "PageDown", "End", "Home", "F5", "x"]);
    terminal.shows("WAITS UNDONE   WALK");
    terminal.typed(&["F4"]);
    terminal.shows("filter: _");
    terminal.typed(&["nobody-is-called-so"]);
    terminal.shows("filter: nobody-is-called-so_");
    until("nobody is shown", || !terminal.screen().contains("bash -c while"));
    terminal.typed(&["Escape"]);
    terminal.shows("bash -c while");
    terminal.typed(&["k"]);
    terminal.shows("signal for");
    terminal.typed(&["n"]);
    terminal.shows("q quit");
    assert!(busy.0.try_wait().expect("a child").is_none(), "it was killed unasked");
    terminal.tmux(&["resize-window", "-x", "60", "-y", "10"]);
    terminal.shows("q quit");
    terminal.typed(&["F9"]);
    terminal.shows("signal for");
    terminal.typed(&["9"]);
    until("it has ended by that", || {
        let ended = busy.0.try_wait().expect("a child");
        ended.is_some_and(|status| status.signal() == Some(9))
    });
    terminal.typed(&["q"]);
    terminal.is_given_back();
    images.down("ci");
}

//! Event loops of tokio whose connections cross an image's border.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use husk_tests::against_native;
use rustix::process::{Pid, Signal, kill_process};

use crate::{Images, shown, text};

/// A server of two worker threads, whose clients are on the other side of the image's border.
#[test]
fn a_tokio_server_and_its_clients_talk_across_the_image_s_border() {
    if against_native() {
        return;
    }
    let images = Images::new("tokio");
    images.done(&["up", "ci", "--memory", "64M"]);
    let echo = env!("CARGO_BIN_EXE_tokio-echo");
    let husk = husk_tests::husk::binary().to_str().expect("a plain path");
    let command = |inside: bool, words: &[&str]| match inside {
        true => images.command(husk, &[&["exec", "ci", "--", echo], words].concat()),
        false => images.command(echo, words),
    };
    for server_inside in [true, false] {
        let mut serve = command(server_inside, &["serve", "tcp", "127.0.0.1:0"]);
        let mut server = serve.stdout(Stdio::piped()).spawn().expect("a server");
        let mut address = String::new();
        let output = server.stdout.take().expect("a pipe");
        BufReader::new(output).read_line(&mut address).expect("its address");
        let asked = command(!server_inside, &["ask", "tcp", address.trim()]).output();
        let asked = asked.expect("clients");
        // `timeout` hands the signal on.
        kill_process(Pid::from_child(&server), Signal::TERM).expect("it runs");
        server.wait().expect("its end");
        let said = text(&asked.stdout);
        assert!(asked.status.success() && said.starts_with("tcp "), "{}", shown(&asked));
    }
    let output = images.husk(&["down", "ci", "--force", "--discard"]);
    assert!(output.status.success(), "{}", shown(&output));
}

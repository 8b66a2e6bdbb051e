//! Starts `husk` on another host over ssh, with the user's own keys and configuration.
//!
//! ```text
//!   ssh HOST sh -c SCRIPT ─► "ready" | "missing" ─► (the file, if missing) ─► "ready" | why not
//!                         ─► exec ~/.cache/husk/husk-DIGEST serve-guest: frames from now on
//! ```
//!
//! Invariants
//! 1. Nothing is asked on a terminal: what would need a password is refused.
//! 2. What runs there has the digest of what is sent from here, judged there at each start: by its
//!    bytes, or where these were read before by its device, inode, size and times (`known`).
//!    Another file in its place is replaced.
//! 3. Every wait has an end: for the connection by ssh's options, for the answers by `START_MAX`.

use std::io::{self, Read};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::hosts::fingerprint::known::{Known, is_identity, name_of, was_settled};
use crate::hosts::session::own::Own;
use crate::output::failure::Failure;
use crate::run::request::reason;

/// How long the other host may take for an answer, a copy of the file included.
pub const START_MAX: Duration = Duration::from_secs(120);
/// Most that is kept of what ssh says.
const SAID_BYTES_MAX: u64 = 16 << 10;
/// How ssh is called beside what the user's configuration says.
const OPTIONS: [&str; 15] = [
    "-T",
    "-x",
    "-a",
    "-e",
    "none",
    "-oBatchMode=yes",
    "-oConnectTimeout=10",
    "-oServerAliveInterval=5",
    "-oServerAliveCountMax=3",
    "-oClearAllForwardings=yes",
    "-oPermitLocalCommand=no",
    "-oRemoteCommand=none",
    "-oRequestTTY=no",
    // One that is made for others would outlive the session.
    "-oControlMaster=no",
    "--",
];
/// What is drawn on a terminal while the command is copied.
const TEMPLATE: &str = "husk: copying husk to {msg}: {bytes} of {total_bytes} {wide_bar} {eta}";
/// Whoever has this turn draws: others copy meanwhile.
const TURN: &str = "copying";
/// What no file is known by.
const UNKNOWN: &str = "none";
/// What its shell does there. `SIZE`, `DIGEST` and `KNOWN` are filled in; no single quotes.
const SCRIPT: &str = r#"
umask 077
m=$(uname -sm)
[ "$m" = "Linux x86_64" ] || { echo "refused $m is not served: it must be Linux x86_64"; exit 0; }
d=${XDG_CACHE_HOME:-$HOME/.cache}/husk
f=$d/husk-DIGEST
same() { [ "$(sha256sum <"$1" 2>/dev/null)" = "DIGEST  -" ] && [ -O "$1" ]; }
i=$(stat -L -c "%d %i %s %.9Y %.9Z" "$f" 2>/dev/null)
if [ "$i" = "KNOWN" ] && [ -O "$f" ]; then echo ready
elif same "$f"; then echo "is $(date +%s) $i"; echo ready; else
  w=$(mkdir -p "$d" 2>&1) || { echo "refused ${w##*: }: $d"; exit 0; }
  [ -e "$f" ] && echo changed
  for o in "$d"/husk-*.part; do
    p=${o%.part}; [ -e "$o" ] && ! kill -0 "${p##*-}" 2>/dev/null && rm -f "$o"
  done
  t=$d/husk-$$.part
  trap "rm -f \"$t\"" EXIT HUP INT TERM
  echo missing
  w=$(head -c SIZE 2>&1 >"$t") || { echo "refused ${w##*: }: $d"; exit 0; }
  chmod 700 "$t"
  same "$t" || { echo "refused the copy of husk there is not whole: $d"; exit 0; }
  mv -f "$t" "$f" || { echo "refused cannot keep husk in $d"; exit 0; }
  trap - EXIT HUP INT TERM
  echo ready
fi
w=$("$f" --version 2>&1) || { echo "refused it cannot run programs in $d: ${w##*: }"; exit 0; }
echo go
exec "$f" serve-guest
"#;

/// A link to another host.
pub struct Link {
    /// The ssh that carries it.
    pub ssh: Child,
    /// To there.
    pub to: ChildStdin,
    /// From there.
    pub from: ChildStdout,
}

/// Starts `own` at `host`. Remarks are given to `note`.
pub fn start(
    host: &str,
    own: &mut Own,
    known: &Known,
    note: &dyn Fn(String),
) -> Result<Link, Failure> {
    let before = known.identity(&name_of(host), &own.digest);
    let script = SCRIPT
        .replace("DIGEST", &own.digest)
        .replace("SIZE", &own.size.to_string())
        .replace("KNOWN", before.as_deref().unwrap_or(UNKNOWN));
    let mut command = Command::new("ssh");
    command.args(OPTIONS).arg(host).arg(format!("exec /bin/sh -c '{script}'"));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut ssh = command.spawn().map_err(|problem| {
        let what = format!("cannot use {host}");
        match problem.kind() {
            io::ErrorKind::NotFound => {
                Failure::new(what, "there is no ssh here", "install an OpenSSH client")
            }
            _ => Failure::new(what, reason(&problem), "see `husk check`"),
        }
    })?;
    let taken = (ssh.stdin.take(), ssh.stdout.take(), ssh.stderr.take());
    let (Some(to), Some(from), Some(said)) = taken else { unreachable!("all three are pipes") };
    let said = listen(said);
    let mut link = Link { ssh, to, from };
    match agree(host, &mut link, (own, known), note) {
        Ok(()) => Ok(link),
        Err(failure) => {
            drop(link.to);
            // It may have ended by itself; if not, what it waits for does not come.
            let _ = link.ssh.kill();
            let _ = link.ssh.wait();
            let said = said.recv_timeout(Duration::from_secs(1)).unwrap_or_default();
            Err(failure.unwrap_or_else(|| unreachable(host, &said)))
        }
    }
}

/// What ssh says while it starts; it never waits for a reader.
fn listen(mut said: impl Read + Send + 'static) -> Receiver<String> {
    let (tell, told) = channel();
    thread::spawn(move || {
        let mut text = Vec::new();
        let _ = (&mut said).take(SAID_BYTES_MAX).read_to_end(&mut text);
        let _ = tell.send(String::from_utf8_lossy(&text).into_owned());
        let _ = io::copy(&mut said, &mut io::sink());
    });
    told
}

/// Why ssh has ended, by its last line.
fn unreachable(host: &str, said: &str) -> Failure {
    let mut lines = said.lines().map(str::trim).filter(|line| !line.is_empty());
    let last = lines.next_back().unwrap_or("ssh has ended without a reason");
    let last = last.strip_prefix("ssh: ").unwrap_or(last);
    let remedy = format!("see whether `ssh {host} true` works without a password");
    Failure::new(format!("cannot use {host}"), last.trim_end_matches('.'), remedy)
}

/// The talk before the frames. `Err(None)`: ssh has ended.
fn agree(
    host: &str,
    link: &mut Link,
    (own, known): (&mut Own, &Known),
    note: &dyn Fn(String),
) -> Result<(), Option<Failure>> {
    let refused = |why: &str| {
        let (what, remedy) = (format!("cannot use {host}"), "correct that, or leave it out");
        Some(Failure::new(what, why, remedy))
    };
    loop {
        let line = line(&mut link.from).ok_or(None)?;
        match line.as_str() {
            "ready" => {}
            "go" => return Ok(()),
            "changed" => {
                note(format!("note: the copy of husk on {host} was not ours: it is replaced"));
            }
            "missing" => {
                note(format!("copying husk to {host} ({} MB, once)", own.size >> 20));
                copy(host, own, known, &mut link.to);
            }
            other => match (other.strip_prefix("is "), other.strip_prefix("refused ")) {
                (Some(is), _) => {
                    let (now_s, identity) = is.split_once(' ').unwrap_or_default();
                    if is_identity(identity) && was_settled(identity, now_s) {
                        known.note(&name_of(host), &own.digest, identity);
                    }
                }
                (_, Some(why)) => return Err(refused(why)),
                // A start-up file of its shell speaks, too.
                _ => return Err(refused(&format!("its shell says {other:?}"))),
            },
        }
    }
}

/// Copies the command, and draws how far that is on a terminal; what stops it there is said there.
fn copy(host: &str, own: &mut Own, known: &Known, to: &mut ChildStdin) {
    let turn = known.turn(TURN);
    let target = match turn {
        Some(_) => ProgressDrawTarget::stderr(),
        None => ProgressDrawTarget::hidden(),
    };
    let bar = ProgressBar::with_draw_target(Some(own.size), target).with_message(host.to_owned());
    if let Ok(style) = ProgressStyle::with_template(TEMPLATE) {
        bar.set_style(style);
    }
    let _ = own.copy(to, &|written| bar.set_position(written));
    bar.finish_and_clear();
    drop(turn);
}

/// A line, a byte at a time: what follows is not ours.
fn line(from: &mut impl Read) -> Option<String> {
    let mut line = Vec::new();
    let mut byte = [0];
    while line.len() < 1024 {
        from.read_exact(&mut byte).ok()?;
        match byte[0] {
            b'\n' => return Some(String::from_utf8_lossy(&line).into_owned()),
            other => line.push(other),
        }
    }
    None
}

//! Programs as Debian ships them: each row is a script that runs natively and in an image, and
//! whose output, files and status must be the same. Once here, ten times in the long check.
//!
//! A script prints only what is the same every time and removes what is not.

use husk_tests::{Case, Length};

fn row(name: &'static str, script: &str) {
    let script = format!("PATH=$PATH:/usr/local/go/bin:{}\n{script}", toolchain());
    Case::new(name, Length::Program, &["bash", "-euo", "pipefail", "-c", &script]).check();
}

/// Where the programs of the Rust toolchain in use lie, not rustup's stand-ins for them.
fn toolchain() -> String {
    let asked = std::process::Command::new("rustc").args(["--print", "sysroot"]).output();
    let sysroot = asked.expect("rustc runs").stdout;
    format!("{}/bin", String::from_utf8_lossy(&sysroot).trim())
}

#[test]
fn apache() {
    row("apache", include_str!("sources/apache.sh"));
}

#[test]
fn archives() {
    row("archives", include_str!("sources/archives.sh"));
}

#[test]
fn asyncio() {
    row("asyncio", include_str!("sources/asyncio.sh"));
}

#[test]
fn cargo() {
    row("cargo", include_str!("sources/cargo.sh"));
}

#[test]
fn clang() {
    row("clang", include_str!("sources/clang.sh"));
}

#[test]
fn cmake() {
    row("cmake", include_str!("sources/cmake.sh"));
}

#[test]
fn coreutils() {
    row("coreutils", include_str!("sources/coreutils.sh"));
}

#[test]
fn cxx() {
    row("cxx", include_str!("sources/cxx.sh"));
}

#[test]
fn dash() {
    row("dash", include_str!("sources/dash.sh"));
}

#[test]
fn debuggers() {
    row("debuggers", include_str!("sources/debuggers.sh"));
}

#[test]
fn editors() {
    row("editors", include_str!("sources/editors.sh"));
}

#[test]
fn gobuild() {
    row("gobuild", include_str!("sources/gobuild.sh"));
}

#[test]
fn java() {
    row("java", include_str!("sources/java.sh"));
}

#[test]
fn jobserver() {
    row("jobserver", include_str!("sources/jobserver.sh"));
}

#[test]
fn listeners() {
    row("listeners", include_str!("sources/listeners.sh"));
}

#[test]
fn lighttpd() {
    row("lighttpd", include_str!("sources/lighttpd.sh"));
}

#[test]
fn memcached() {
    row("memcached", include_str!("sources/memcached.sh"));
}

#[test]
fn musl() {
    row("musl", include_str!("sources/musl.sh"));
}

#[test]
fn nginx() {
    row("nginx", include_str!("sources/nginx.sh"));
}

#[test]
fn node() {
    row("node", include_str!("sources/node.sh"));
}

#[test]
fn nodehttp() {
    row("nodehttp", include_str!("sources/nodehttp.sh"));
}

#[test]
fn npm() {
    row("npm", include_str!("sources/npm.sh"));
}

#[test]
fn pbzip2() {
    row("pbzip2", include_str!("sources/pbzip2.sh"));
}

#[test]
fn perl() {
    row("perl", include_str!("sources/perl.sh"));
}

#[test]
fn pip() {
    row("pip", include_str!("sources/pip.sh"));
}

#[test]
fn postgres() {
    row("postgres", include_str!("sources/postgres.sh"));
}

#[test]
fn pythons() {
    row("pythons", include_str!("sources/pythons.sh"));
}

#[test]
fn redis() {
    row("redis", include_str!("sources/redis.sh"));
}

#[test]
fn redistcp() {
    row("redistcp", include_str!("sources/redistcp.sh"));
}

#[test]
fn rsync() {
    row("rsync", include_str!("sources/rsync.sh"));
}

#[test]
fn tokio() {
    let script = include_str!("sources/tokio.sh");
    row("tokio", &format!("TOKIO_ECHO='{}'\n{script}", env!("CARGO_BIN_EXE_tokio-echo")));
}

#[test]
fn wrk() {
    row("wrk", include_str!("sources/wrk.sh"));
}

//! What steering itself costs: connecting, accepting and closing with the program and without, and
//! moving the whole table.

use std::net::{SocketAddr, TcpListener, TcpStream};

use anyhow::Context;
use husk_net::steer;
use nix::sys::time::TimeValLike;
use nix::time::{ClockId, clock_gettime};
use rustix::net::{AddressFamily, SocketType, bind, listen, socket, sockopt};

use super::site::LOOPBACK;
use super::{Attached, fixed};

/// Connections of one turn.
const CONNECTIONS: u32 = 1_000;
/// How often the whole table is moved.
const TABLES: usize = 101;

fn listener(address: SocketAddr) -> anyhow::Result<TcpListener> {
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None)?;
    sockopt::set_socket_reuseport(&socket, true)?;
    bind(&socket, &address)?;
    listen(&socket, 64)?;
    let listener = TcpListener::from(socket);
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Microseconds of this thread for a connection.
fn turn(listeners: &[TcpListener; 2]) -> anyhow::Result<f64> {
    let address = listeners[0].local_addr()?;
    let cpu_us = || {
        let now = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID);
        now.map_or(0.0, |now| now.num_nanoseconds() as f64 / 1e3)
    };
    let before_us = cpu_us();
    for _ in 0..CONNECTIONS {
        let stream = TcpStream::connect(address)?;
        // It is there: the other end is connected.
        let accepted = listeners[0].accept().or_else(|_| listeners[1].accept());
        accepted.context("a connection that nobody can accept")?;
        // No port waits after it.
        sockopt::set_socket_linger(&stream, Some(std::time::Duration::ZERO))?;
    }
    Ok((cpu_us() - before_us) / f64::from(CONNECTIONS))
}

/// Rounds of (without, with), in microseconds.
pub fn connections(rounds: u32) -> anyhow::Result<Vec<(f64, f64)>> {
    let first = listener(SocketAddr::from((LOOPBACK, 0)))?;
    let address = first.local_addr()?;
    let listeners = [first, listener(address)?];
    let round = || {
        let without_us = turn(&listeners)?;
        let attached = Attached::to(&address.to_string(), fixed())?;
        let with_us = turn(&listeners)?;
        drop(attached);
        Ok((without_us, with_us))
    };
    (0..=rounds).map(|_| round()).skip(1).collect()
}

/// Microseconds of a move of all groups.
pub fn whole_table_us() -> anyhow::Result<f64> {
    let times_us = steer::whole_table_us(TABLES);
    let times_us = times_us.map_err(|why| anyhow::anyhow!("{}: {}", why.what, why.why))?;
    Ok(crate::bench::report::median(times_us.into_iter()))
}

//! An echo server and its clients on tokio, the row `tokio` of the matrix.
//!
//! ```text
//!   tokio-echo serve tcp|unix ADDRESS      prints where it listens, and serves until it is killed
//!   tokio-echo ask   tcp|unix ADDRESS      forty connections; prints what they have had back
//!   tokio-echo rate  tcp|unix ADDRESS C S  C connections for S seconds; prints messages a second
//!   tokio-echo wake  S                     two threads wake each other; prints wakes a second
//! ```
//!
//! Both sides have two worker threads. A worker that sleeps in epoll is woken by another one
//! through an eventfd, and by bytes of connections otherwise.

#![forbid(unsafe_code)]

use std::io::{self, Write};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Connections of `ask`, and messages on each.
const CONNECTIONS: usize = 40;
const MESSAGES: usize = 60;
/// Bytes that are sent and received one after the other.
const PIECE_BYTES: usize = 4096;
/// Longest time that `ask` may take.
const LIMIT: Duration = Duration::from_secs(60);
/// Bytes of a message of `rate`.
const RATE_BYTES: usize = 64;

/// A connection of any kind.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

fn workers(count: usize) -> io::Result<Runtime> {
    Builder::new_multi_thread().worker_threads(count).enable_all().build()
}

/// Sends back what comes, until there is no more.
async fn echo(mut stream: Box<dyn Stream>) -> io::Result<()> {
    let mut bytes = vec![0; 65_536];
    loop {
        let got = stream.read(&mut bytes).await?;
        if got == 0 {
            return stream.shutdown().await;
        }
        stream.write_all(&bytes[..got]).await?;
    }
}

async fn serve(way: &str, address: &str) -> io::Result<()> {
    let say = |at: &str| {
        println!("{at}");
        io::stdout().flush()
    };
    if way == "unix" {
        let listener = UnixListener::bind(address)?;
        say(address)?;
        loop {
            tokio::spawn(echo(Box::new(listener.accept().await?.0)));
        }
    }
    let listener = TcpListener::bind(address).await?;
    say(&listener.local_addr()?.to_string())?;
    loop {
        tokio::spawn(echo(Box::new(listener.accept().await?.0)));
    }
}

async fn connect(way: &str, address: &str) -> io::Result<Box<dyn Stream>> {
    if way == "unix" {
        return Ok(Box::new(UnixStream::connect(address).await?));
    }
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    Ok(Box::new(stream))
}

/// Message `n` of connection `who`: some are longer than any buffer on the way.
fn message(who: usize, n: usize) -> Vec<u8> {
    let bytes = if n % 20 == 19 { 300_000 + who } else { 1 + (who * 131 + n * 37) % 5000 };
    (0..bytes).map(|at| (at * 7 + who * 3 + n) as u8).collect()
}

/// Sends half of the messages piece by piece, and receives each before the next; the other half it
/// sends and receives at the same time. How many bytes came back.
async fn ask_one(who: usize, stream: Box<dyn Stream>) -> io::Result<usize> {
    let (mut from, mut to) = tokio::io::split(stream);
    let mut all = 0;
    for n in 0..MESSAGES / 2 {
        let sent = message(who, n);
        for piece in sent.chunks(PIECE_BYTES) {
            let mut got = vec![0; piece.len()];
            to.write_all(piece).await?;
            from.read_exact(&mut got).await?;
            assert_eq!(got, piece, "message {n} of connection {who}");
            all += got.len();
        }
    }
    let writer = tokio::spawn(async move {
        for n in MESSAGES / 2..MESSAGES {
            to.write_all(&message(who, n)).await?;
        }
        to.shutdown().await
    });
    let mut got = Vec::new();
    from.read_to_end(&mut got).await?;
    writer.await??;
    let sent: Vec<u8> = (MESSAGES / 2..MESSAGES).flat_map(|n| message(who, n)).collect();
    assert!(got == sent, "the rest of connection {who}");
    Ok(all + got.len())
}

async fn ask(way: &str, address: &str) -> io::Result<usize> {
    let mut all = JoinSet::new();
    for who in 0..CONNECTIONS {
        let stream = connect(way, address).await?;
        all.spawn(ask_one(who, stream));
    }
    let mut bytes = 0;
    while let Some(one) = all.join_next().await {
        bytes += one??;
    }
    Ok(bytes)
}

/// Messages a second of so many connections.
async fn rate(way: &str, address: &str, connections: usize, seconds: f64) -> io::Result<f64> {
    let (mut all, begun) = (JoinSet::new(), Instant::now());
    for _ in 0..connections {
        let mut stream = connect(way, address).await?;
        all.spawn(async move {
            let (mut count, mut bytes) = (0_u64, [7; RATE_BYTES]);
            while begun.elapsed().as_secs_f64() < seconds {
                stream.write_all(&bytes).await?;
                stream.read_exact(&mut bytes).await?;
                count += 1;
            }
            io::Result::Ok(count)
        });
    }
    let mut count = 0;
    while let Some(one) = all.join_next().await {
        count += one??;
    }
    Ok(count as f64 / begun.elapsed().as_secs_f64())
}

/// Two runtimes of one thread each, that hand a number to each other: each is woken from its epoll
/// set by the other's eventfd. Wakes a second.
fn wake(seconds: f64) -> io::Result<f64> {
    let (there, mut here) = mpsc::channel::<u64>(1);
    let (back, mut answer) = mpsc::channel::<u64>(1);
    let other = std::thread::spawn(move || -> io::Result<()> {
        Builder::new_current_thread().enable_all().build()?.block_on(async {
            while let Some(n) = here.recv().await {
                if back.send(n + 1).await.is_err() {
                    break;
                }
            }
        });
        Ok(())
    });
    let begun = Instant::now();
    let count = Builder::new_current_thread().enable_all().build()?.block_on(async {
        let mut count = 0;
        while begun.elapsed().as_secs_f64() < seconds {
            if there.send(count).await.is_err() {
                break;
            }
            count = answer.recv().await.unwrap_or(count) + 1;
        }
        drop(there);
        count
    });
    other.join().expect("the other thread")?;
    Ok(count as f64 / begun.elapsed().as_secs_f64())
}

fn number(text: &str) -> f64 {
    text.parse().expect("a number")
}

fn main() -> io::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["serve", way, address] => workers(2)?.block_on(serve(way, address)),
        ["ask", way, address] => {
            let asked = workers(2)?.block_on(async { timeout(LIMIT, ask(way, address)).await });
            println!("{way} {} bytes", asked.map_err(io::Error::other)??);
            Ok(())
        }
        ["rate", way, address, connections, seconds] => {
            let connections = number(connections) as usize;
            let asked = rate(way, address, connections, number(seconds));
            println!("{:.0}", workers(2)?.block_on(asked)?);
            Ok(())
        }
        ["wake", seconds] => {
            println!("{:.0}", wake(number(seconds))?);
            Ok(())
        }
        _ => Err(io::Error::other("what is to be done?")),
    }
}

//! A key-value server: one command a line, answered once it is durable.
//!
//! ```text
//!   key_value_server STORE ADDRESS:PORT
//!
//!   set KEY VALUE ─► ok        get KEY ─► VALUE or nothing
//!   del KEY       ─► ok        count   ─► number of keys
//! ```
//!
//! Each connection has a thread. Those that wait at the same time share one write to the disk.
#![forbid(unsafe_code)]

use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

use tenacious::{Map, Store};

const SIZE_BYTES: u64 = 64 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, path, address] = &arguments[..] else {
        return Err("usage: key_value_server STORE ADDRESS:PORT".into());
    };
    let store = match std::fs::exists(path)? {
        true => Store::open(path)?,
        false => Store::create(path, SIZE_BYTES)?,
    };
    let map = store.map("values")?;
    let listener = TcpListener::bind(address.parse::<SocketAddr>()?)?;
    println!("listening on {}", listener.local_addr()?);
    for stream in listener.incoming() {
        let (stream, store, map) = (stream?, store.clone(), map.clone());
        std::thread::spawn(move || {
            // Who goes away in the middle of a line wants no answer.
            let _ = serve(&stream, &store, &map);
        });
    }
    Ok(())
}

fn serve(stream: &TcpStream, store: &Store, map: &Map) -> Result<(), Box<dyn Error>> {
    for line in BufReader::new(stream).lines() {
        let line = line?;
        let words: Vec<&str> = line.splitn(3, ' ').collect();
        let answer = match words[..] {
            ["set", key, value] => {
                store.wait(map.insert(key.as_bytes(), value.as_bytes())?)?;
                "ok".to_owned()
            }
            ["del", key] => {
                store.wait(map.remove(key.as_bytes())?)?;
                "ok".to_owned()
            }
            ["get", key] => {
                let value = map.get(key.as_bytes()).unwrap_or_default();
                // What is read may be another connection's change of this moment.
                store.wait(store.last())?;
                String::from_utf8_lossy(&value).into_owned()
            }
            ["count"] => map.len().to_string(),
            _ => "error: set KEY VALUE, get KEY, del KEY or count".to_owned(),
        };
        // One write: Linux would keep the second one back until the first is acknowledged (Nagle).
        (&mut &*stream).write_all(format!("{answer}\n").as_bytes())?;
    }
    Ok(())
}

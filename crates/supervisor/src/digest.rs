//! SHA-256 as text, of bytes that are there and of files.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use sha2::{Digest, Sha256};

/// The bytes of a digest as text.
pub fn hex(digest: &[u8]) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The digest of a file's bytes, and whether it could be read.
pub fn of_file(path: &Path) -> Option<String> {
    let mut file = File::open(path).ok()?;
    let mut digest = Sha256::new();
    let mut bytes = vec![0; 1 << 20];
    loop {
        match file.read(&mut bytes) {
            Ok(0) => return Some(hex(&digest.finalize())),
            Ok(count) => digest.update(&bytes[..count]),
            Err(problem) if problem.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => return None,
        }
    }
}

//! SHA-256 as text.

/// The bytes of a digest as text.
pub fn hex(digest: &[u8]) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The bytes of a digest from 64 digits.
pub fn bytes_of(text: &str) -> Option<[u8; 32]> {
    let digits = text.as_bytes().as_chunks::<2>().0.iter();
    let bytes = digits.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok());
    bytes.collect::<Option<Vec<_>>>()?.try_into().ok()
}

//! Names in `/proc`, written without memory of their own.

/// Where a process's own descriptors have names: the number follows.
pub const DESCRIPTORS: &[u8; 14] = b"/proc/self/fd/";

/// The name of the caller's descriptor `fd`, with NUL.
pub fn descriptor(fd: u32) -> [u8; 26] {
    let mut name = [0; 26];
    name[..DESCRIPTORS.len()].copy_from_slice(DESCRIPTORS);
    put_decimal(&mut name[DESCRIPTORS.len()..], fd);
    name
}

/// The name of what the host tells of the caller's descriptor `fd`, with NUL.
pub fn descriptor_facts(fd: u32) -> [u8; 30] {
    const FACTS: &[u8; 18] = b"/proc/self/fdinfo/";
    let mut name = [0; 30];
    name[..FACTS.len()].copy_from_slice(FACTS);
    put_decimal(&mut name[FACTS.len()..], fd);
    name
}

/// Writes `number` in decimal at the start of `out`; returns its length.
pub fn put_decimal(out: &mut [u8], mut number: u32) -> usize {
    let mut digits = [0u8; 10];
    let mut length = 0;
    loop {
        digits[length] = b'0' + (number % 10) as u8;
        number /= 10;
        length += 1;
        if number == 0 {
            break;
        }
    }
    for i in 0..length {
        out[i] = digits[length - 1 - i];
    }
    length
}

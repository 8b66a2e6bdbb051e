//! What C hands in, made into what Rust can hold.

use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// What a handle leads to; `None`: it is null.
///
/// # Safety
///
/// The handle is null or was handed out here and not freed.
pub unsafe fn shared<'a, T>(handle: *const T) -> Option<&'a T> {
    // SAFETY: the caller's promise.
    unsafe { handle.as_ref() }
}

/// Takes a handle back.
///
/// # Safety
///
/// The handle is null or was handed out here and not freed; nobody uses it any more.
pub unsafe fn free<T>(handle: *mut T) {
    if !handle.is_null() {
        // SAFETY: the caller's promise; handles are boxes.
        drop(unsafe { Box::from_raw(handle) });
    }
}

/// `length` bytes; `None`: there are none at null. No bytes may be anywhere.
///
/// # Safety
///
/// `data` is null or has `length` bytes that nobody changes meanwhile.
pub unsafe fn bytes<'a>(data: *const c_void, length: usize) -> Option<&'a [u8]> {
    match (data.is_null(), length) {
        (_, 0) => Some(&[]),
        (true, _) => None,
        // SAFETY: the caller's promise.
        _ => Some(unsafe { std::slice::from_raw_parts(data.cast(), length) }),
    }
}

/// The string at `name`, if it is one of UTF-8.
///
/// # Safety
///
/// `name` is null or ends in a zero.
pub unsafe fn name<'a>(name: *const c_char) -> Option<&'a str> {
    if name.is_null() {
        return None;
    }
    // SAFETY: the caller's promise.
    super::text(unsafe { CStr::from_ptr(name) })
}

/// The path at `path`.
///
/// # Safety
///
/// `path` is null or ends in a zero.
pub unsafe fn path<'a>(path: *const c_char) -> Option<&'a Path> {
    if path.is_null() {
        return None;
    }
    // SAFETY: the caller's promise.
    let text = unsafe { CStr::from_ptr(path) };
    Some(Path::new(OsStr::from_bytes(text.to_bytes())))
}

/// Writes `value` to where C wants it; says so where there is no place.
///
/// # Safety
///
/// `place` is null or can be written to.
pub unsafe fn out<T>(place: *mut T, value: T) -> c_int {
    if place.is_null() {
        return super::invalid("the place for the result");
    }
    // SAFETY: the caller's promise; what was there is not dropped, it may be anything.
    unsafe { place.write(value) };
    0
}

/// A pointer that is given to a callback, and looked at by nobody else.
#[derive(Debug, Clone, Copy)]
pub struct Context(pub *mut c_void);

impl Context {
    /// The pointer.
    pub fn pointer(self) -> *mut c_void {
        self.0
    }
}

// SAFETY: the pointer is handed on and not followed here; the header says that the callback is
// called on another thread.
unsafe impl Send for Context {}

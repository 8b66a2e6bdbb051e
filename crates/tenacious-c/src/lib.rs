//! The C interface of `tenacious`; `include/tenacious.h` says what each function does.
//!
//! Invariants
//! 1. A handle is a `Box` that C holds as a pointer; only its `_free` or `_close` takes it back.
//! 2. Functions return 0, or a negative errno; `tenacious_error` has the line of the last one that
//!    failed in this thread.
//! 3. Bytes that are handed out are a boxed slice, taken back by `tenacious_bytes_free`.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::os::fd::AsRawFd;
use std::time::Duration;

use tenacious::{Batch, Counter, Doorbell, Error, Item, Log, Lsn, Map, Queue, Store};

mod arguments;
mod batch;

use arguments::{bytes, name, out, shared};

const EINVAL: c_int = 22;
const ENOENT: c_int = 2;

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// Bytes that are handed out.
#[repr(C)]
#[derive(Debug)]
pub struct Bytes {
    data: *mut u8,
    length: usize,
}

impl Bytes {
    fn new(bytes: Vec<u8>) -> Self {
        let length = bytes.len();
        Self { data: Box::into_raw(bytes.into_boxed_slice()).cast(), length }
    }
}

/// Notes why something failed; its errno, negative.
fn failed(error: &Error) -> c_int {
    noted(&error.to_string(), error.errno())
}

fn noted(line: &str, errno: c_int) -> c_int {
    LAST.set(CString::new(line.replace('\0', " ")).unwrap_or_default());
    -errno
}

fn invalid(what: &str) -> c_int {
    noted(&format!("{what} is missing or not as it should be"), EINVAL)
}

fn missing(what: &str) -> c_int {
    noted(what, ENOENT)
}

/// Hands out what was made, or says why it was not.
///
/// # Safety
///
/// `place` is null, or can be written to.
unsafe fn hand_out<T>(made: Result<T, Error>, place: *mut *mut T) -> c_int {
    match made {
        // SAFETY: the caller's promise.
        Ok(made) => unsafe { out(place, Box::into_raw(Box::new(made))) },
        Err(error) => failed(&error),
    }
}

/// Hands out the number of a change.
///
/// # Safety
///
/// `lsn` is null, or can be written to.
unsafe fn number_of(done: Result<Lsn, Error>, lsn: *mut u64) -> c_int {
    match done {
        Ok(_) if lsn.is_null() => 0,
        // SAFETY: the caller's promise.
        Ok(done) => unsafe { out(lsn, done.0) },
        Err(error) => failed(&error),
    }
}

/// Hands out bytes, if there are some.
///
/// # Safety
///
/// `place` is null, or can be written to.
unsafe fn bytes_of(found: Option<Vec<u8>>, what: &str, place: *mut Bytes) -> c_int {
    match found {
        // Nothing is made that nobody would free.
        Some(_) if place.is_null() => invalid("the place for bytes"),
        // SAFETY: the caller's promise.
        Some(found) => unsafe { out(place, Bytes::new(found)) },
        None => missing(what),
    }
}

/// Declares functions: C's promises about pointers, once for all of them.
macro_rules! interface {
    ($($name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)? $body:block)*) => {
        $(
            /// See `include/tenacious.h`.
            ///
            /// # Safety
            ///
            /// Pointers are null, or what the header says: handles that were not freed, strings
            /// that end in a zero, bytes of the length that is given, places of the right type.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($argument: $type),*) $(-> $result)? {
                // SAFETY: the caller's promise, as above.
                unsafe { $body }
            }
        )*
    };
}
pub(crate) use interface;

/// See `include/tenacious.h`.
#[unsafe(no_mangle)]
pub extern "C" fn tenacious_error() -> *const c_char {
    LAST.with(|last| last.borrow().as_ptr())
}

interface! {
    tenacious_create(path: *const c_char, size_bytes: u64, store: *mut *mut Store) -> c_int {
        let Some(path) = arguments::path(path) else { return invalid("the path") };
        hand_out(Store::create(path, size_bytes), store)
    }

    tenacious_open(path: *const c_char, store: *mut *mut Store) -> c_int {
        let Some(path) = arguments::path(path) else { return invalid("the path") };
        hand_out(Store::open(path), store)
    }

    tenacious_close(store: *mut Store) { arguments::free(store) }

    tenacious_last(store: *const Store) -> u64 {
        shared(store).map_or(0, |store| store.last().0)
    }

    tenacious_durable(store: *const Store) -> u64 {
        shared(store).map_or(0, |store| store.durable().0)
    }

    tenacious_wait(store: *const Store, lsn: u64) -> c_int {
        let Some(store) = shared(store) else { return invalid("the store") };
        store.wait(Lsn(lsn)).map_or_else(|error| failed(&error), |()| 0)
    }

    tenacious_on_durable(
        store: *const Store,
        lsn: u64,
        callback: Option<extern "C" fn(*mut c_void, c_int)>,
        context: *mut c_void
    ) -> c_int {
        let (Some(store), Some(callback)) = (shared(store), callback) else {
            return invalid("the store or the callback");
        };
        let context = arguments::Context(context);
        let call = move |result: Result<(), Error>| {
            callback(context.pointer(), result.map_or_else(|error| -error.errno(), |()| 0));
        };
        store.on_durable(Lsn(lsn), call).map_or_else(|error| failed(&error), |()| 0)
    }

    tenacious_doorbell_open(store: *const Store, bell: *mut *mut Doorbell) -> c_int {
        let Some(store) = shared(store) else { return invalid("the store") };
        hand_out(store.doorbell(), bell)
    }

    tenacious_doorbell_free(bell: *mut Doorbell) { arguments::free(bell) }

    tenacious_doorbell_fd(bell: *const Doorbell) -> c_int {
        shared(bell).map_or_else(|| invalid("the doorbell"), AsRawFd::as_raw_fd)
    }

    tenacious_doorbell_ring_at(bell: *const Doorbell, lsn: u64) -> c_int {
        let Some(bell) = shared(bell) else { return invalid("the doorbell") };
        bell.ring_at(Lsn(lsn)).map_or_else(|error| failed(&error), |()| 0)
    }

    tenacious_doorbell_take(bell: *const Doorbell, durable: *mut u64) -> c_int {
        let Some(bell) = shared(bell) else { return invalid("the doorbell") };
        number_of(bell.take(), durable)
    }

    tenacious_bytes_free(bytes: Bytes) {
        if !bytes.data.is_null() {
            drop(Box::from_raw(std::ptr::slice_from_raw_parts_mut(bytes.data, bytes.length)));
        }
    }

    tenacious_log_open(store: *const Store, called: *const c_char, log: *mut *mut Log) -> c_int {
        let (Some(store), Some(name)) = (shared(store), name(called)) else {
            return invalid("the store or the name");
        };
        hand_out(store.log(name), log)
    }

    tenacious_log_free(log: *mut Log) { arguments::free(log) }

    tenacious_log_append(log: *const Log, data: *const c_void, length: usize, lsn: *mut u64)
    -> c_int {
        let (Some(log), Some(entry)) = (shared(log), bytes(data, length)) else {
            return invalid("the log or the entry");
        };
        number_of(log.append(entry), lsn)
    }

    tenacious_log_trim(log: *const Log, before: u64, lsn: *mut u64) -> c_int {
        let Some(log) = shared(log) else { return invalid("the log") };
        number_of(log.trim(before), lsn)
    }

    tenacious_log_get(log: *const Log, number: u64, entry: *mut Bytes) -> c_int {
        let Some(log) = shared(log) else { return invalid("the log") };
        bytes_of(log.get(number), "the log has no such entry", entry)
    }

    tenacious_log_begin(log: *const Log) -> u64 { shared(log).map_or(0, Log::begin) }

    tenacious_log_end(log: *const Log) -> u64 { shared(log).map_or(0, Log::end) }

    tenacious_queue_open(store: *const Store, called: *const c_char, queue: *mut *mut Queue)
    -> c_int {
        let (Some(store), Some(name)) = (shared(store), name(called)) else {
            return invalid("the store or the name");
        };
        hand_out(store.queue(name), queue)
    }

    tenacious_queue_free(queue: *mut Queue) { arguments::free(queue) }

    tenacious_queue_push(queue: *const Queue, data: *const c_void, length: usize, lsn: *mut u64)
    -> c_int {
        let (Some(queue), Some(item)) = (shared(queue), bytes(data, length)) else {
            return invalid("the queue or the item");
        };
        number_of(queue.push(item), lsn)
    }

    tenacious_queue_take(
        queue: *const Queue,
        limit_ms: u64,
        number: *mut u64,
        item: *mut Bytes
    ) -> c_int {
        let Some(queue) = shared(queue) else { return invalid("the queue") };
        if number.is_null() || item.is_null() {
            return invalid("the place for the item");
        }
        let Some(taken) = queue.take_within(Duration::from_millis(limit_ms)) else {
            return missing("the queue has no item that nobody has");
        };
        out(number, taken.number);
        out(item, Bytes::new(taken.bytes))
    }

    tenacious_queue_done(queue: *const Queue, number: u64, lsn: *mut u64) -> c_int {
        let Some(queue) = shared(queue) else { return invalid("the queue") };
        number_of(queue.done(&item(number)), lsn)
    }

    tenacious_queue_put_back(queue: *const Queue, number: u64) -> c_int {
        let Some(queue) = shared(queue) else { return invalid("the queue") };
        queue.put_back(&item(number)).map_or_else(|error| failed(&error), |()| 0)
    }

    tenacious_queue_length(queue: *const Queue) -> u64 {
        shared(queue).map_or(0, |queue| queue.len() as u64)
    }

    tenacious_map_open(store: *const Store, called: *const c_char, map: *mut *mut Map) -> c_int {
        let (Some(store), Some(name)) = (shared(store), name(called)) else {
            return invalid("the store or the name");
        };
        hand_out(store.map(name), map)
    }

    tenacious_map_free(map: *mut Map) { arguments::free(map) }

    tenacious_map_insert(
        map: *const Map,
        key: *const c_void,
        key_length: usize,
        value: *const c_void,
        value_length: usize,
        lsn: *mut u64
    ) -> c_int {
        let (Some(map), Some(key)) = (shared(map), bytes(key, key_length)) else {
            return invalid("the map or the key");
        };
        let Some(value) = bytes(value, value_length) else { return invalid("the value") };
        number_of(map.insert(key, value), lsn)
    }

    tenacious_map_remove(map: *const Map, key: *const c_void, key_length: usize, lsn: *mut u64)
    -> c_int {
        let (Some(map), Some(key)) = (shared(map), bytes(key, key_length)) else {
            return invalid("the map or the key");
        };
        number_of(map.remove(key), lsn)
    }

    tenacious_map_get(map: *const Map, key: *const c_void, key_length: usize, value: *mut Bytes)
    -> c_int {
        let (Some(map), Some(key)) = (shared(map), bytes(key, key_length)) else {
            return invalid("the map or the key");
        };
        bytes_of(map.get(key), "the map has no such key", value)
    }

    tenacious_map_length(map: *const Map) -> u64 {
        shared(map).map_or(0, |map| map.len() as u64)
    }

    tenacious_counter_open(store: *const Store, called: *const c_char, counter: *mut *mut Counter)
    -> c_int {
        let (Some(store), Some(name)) = (shared(store), name(called)) else {
            return invalid("the store or the name");
        };
        hand_out(store.counter(name), counter)
    }

    tenacious_counter_free(counter: *mut Counter) { arguments::free(counter) }

    tenacious_counter_add(counter: *const Counter, by: i64, lsn: *mut u64) -> c_int {
        let Some(counter) = shared(counter) else { return invalid("the counter") };
        number_of(counter.add(by), lsn)
    }

    tenacious_counter_get(counter: *const Counter) -> i64 {
        shared(counter).map_or(0, Counter::get)
    }

    tenacious_batch_begin(store: *const Store) -> *mut Batch {
        let Some(store) = shared(store) else { return std::ptr::null_mut() };
        Box::into_raw(Box::new(store.batch()))
    }

    tenacious_batch_free(batch: *mut Batch) { arguments::free(batch) }
}

/// An item as far as its queue asks.
fn item(number: u64) -> Item {
    Item { number, bytes: Vec::new() }
}

/// The name in a string.
fn text(string: &CStr) -> Option<&str> {
    string.to_str().ok()
}

//! Batches: operations that count together.

use std::ffi::{c_int, c_void};

use tenacious::{Batch, Counter, Log, Map, Queue};

use super::arguments::bytes;
use super::{interface, invalid, item, number_of};

/// # Safety
///
/// The handle is null or was handed out here and not freed, and no other thread uses it.
unsafe fn own<'a>(batch: *mut Batch) -> Option<&'a mut Batch> {
    // SAFETY: the caller's promise.
    unsafe { batch.as_mut() }
}

interface! {
    tenacious_batch_append(
        batch: *mut Batch,
        log: *const Log,
        data: *const c_void,
        length: usize
    ) -> c_int {
        let (Some(batch), Some(log), Some(entry)) = (own(batch), log.as_ref(), bytes(data, length))
        else {
            return invalid("the batch, the log or the entry");
        };
        batch.append(log, entry);
        0
    }

    tenacious_batch_trim(batch: *mut Batch, log: *const Log, before: u64) -> c_int {
        let (Some(batch), Some(log)) = (own(batch), log.as_ref()) else {
            return invalid("the batch or the log");
        };
        batch.trim(log, before);
        0
    }

    tenacious_batch_push(
        batch: *mut Batch,
        queue: *const Queue,
        data: *const c_void,
        length: usize
    ) -> c_int {
        let (Some(batch), Some(queue), Some(item)) =
            (own(batch), queue.as_ref(), bytes(data, length))
        else {
            return invalid("the batch, the queue or the item");
        };
        batch.push(queue, item);
        0
    }

    tenacious_batch_done(batch: *mut Batch, queue: *const Queue, number: u64) -> c_int {
        let (Some(batch), Some(queue)) = (own(batch), queue.as_ref()) else {
            return invalid("the batch or the queue");
        };
        batch.done(queue, &item(number));
        0
    }

    tenacious_batch_insert(
        batch: *mut Batch,
        map: *const Map,
        key: *const c_void,
        key_length: usize,
        value: *const c_void,
        value_length: usize
    ) -> c_int {
        let (Some(batch), Some(map)) = (own(batch), map.as_ref()) else {
            return invalid("the batch or the map");
        };
        let (Some(key), Some(value)) = (bytes(key, key_length), bytes(value, value_length)) else {
            return invalid("the key or the value");
        };
        batch.insert(map, key, value);
        0
    }

    tenacious_batch_remove(
        batch: *mut Batch,
        map: *const Map,
        key: *const c_void,
        key_length: usize
    ) -> c_int {
        let (Some(batch), Some(map), Some(key)) =
            (own(batch), map.as_ref(), bytes(key, key_length))
        else {
            return invalid("the batch, the map or the key");
        };
        batch.remove(map, key);
        0
    }

    tenacious_batch_count(batch: *mut Batch, counter: *const Counter, by: i64) -> c_int {
        let (Some(batch), Some(counter)) = (own(batch), counter.as_ref()) else {
            return invalid("the batch or the counter");
        };
        batch.count(counter, by);
        0
    }

    tenacious_batch_commit(batch: *mut Batch, lsn: *mut u64) -> c_int {
        let Some(batch) = own(batch) else { return invalid("the batch") };
        number_of(batch.commit(), lsn)
    }
}

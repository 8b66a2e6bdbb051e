//! What durable writes cost, in a volume and on the file system beside it.

pub mod redis;
pub mod redis_part;
pub mod volume;
pub mod volume_part;

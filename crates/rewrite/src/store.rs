//! later
#[allow(missing_docs)]
pub struct Identity;
#[allow(missing_docs)]
pub struct Outcome;
#[allow(missing_docs)]
pub struct Store;

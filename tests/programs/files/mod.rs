//! Files of the host in an image: what programs may do with them, and what a write-back gives back.

mod kept;
mod lent;
mod lists;
mod numbers;
mod rights;
mod specials;
mod trees;

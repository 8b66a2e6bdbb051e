//! How a run begins and ends, and what is in its way.

mod bad_input;
mod ends;
mod file;
mod json;
mod limits;
mod status;
mod techniques;

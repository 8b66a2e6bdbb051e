//! Processes of an image, the programs that they run, and the core dumps that they leave.

mod copies;
mod dumps;
mod table;

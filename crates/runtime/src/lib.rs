//! The code that lives in the application: what of it is plain logic and tested on the host.
#![cfg_attr(not(test), no_std)]

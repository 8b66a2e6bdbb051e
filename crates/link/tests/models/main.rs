//! Lanes and doorbells under a model checker: the code that ships, with its accesses to shared
//! words interleaved, stores that others see late, and deaths at any access.
//!
//! Each model says what it holds against, and must fail with each bug planted in it. `HUSK_SEED=n`
//! takes other schedules, `HUSK_FULL` more of them.

mod bells;
mod checker;
mod lanes;

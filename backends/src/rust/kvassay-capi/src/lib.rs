//! The C ABI of `kvassay.h` over `kvassay-core`: pointers in, slices out, nothing else.
//!
//! Every function asks of its pointers what the header says of them, and checks what can be checked.
#![allow(clippy::missing_safety_doc)] // the header is the contract of every function here

mod abi;
mod cache;
mod fail;
mod info;
mod pure;

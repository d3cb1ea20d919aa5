//! The rules of kwoon.

#![no_std]

extern crate alloc;

pub mod storage;

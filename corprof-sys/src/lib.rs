#![doc = include_str!("../README.md")]
#![allow(non_camel_case_types, non_snake_case, non_upper_case_globals, reason = "IDL names, untouched")]
#![allow(clippy::too_many_arguments, reason = "as many as the API has")]
#![allow(clippy::missing_safety_doc, reason = "one section for all: see the crate's documentation")]

#[rustfmt::skip]
mod generated;

pub use generated::*;

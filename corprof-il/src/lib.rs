//! Parses, edits, verifies and encodes the method bodies of .NET. No runtime, no `unsafe`.
//!
//! ```
//! use corprof_il::{Body, Opcode, Token};
//!
//! // ldc.i4.1; brtrue.s IL_0004; nop; IL_0004: ret
//! let bytes = [0x16, 0x17, 0x2d, 0x01, 0x00, 0x2a];
//! let mut body = Body::parse(&bytes)?;
//! assert_eq!(body.encode()?, bytes);
//!
//! let ret = body.last().ok_or("no instruction")?;
//! body.before(ret)?.ldc_i4(7).op(Opcode::Pop)?;
//! body.set_max_stack(1);
//! assert_eq!(body.encode()?, [0x1e, 0x17, 0x2d, 0x01, 0x00, 0x1d, 0x26, 0x2a]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Guarantees
//!
//! - **Identity**: a body that was parsed and not changed encodes to the same bytes. Forms of branches, headers and
//!   sections stay as parsed; they grow where they are too small, and never shrink.
//! - **Inserted code belongs where the instruction is** that it was inserted before: branches to that instruction run
//!   it, the regions that cover the instruction cover it. The other choices are named:
//!   [`Insert::without_retargeting`](body::Insert::without_retargeting), [`Body::outside`].
//! - **Invalid bodies cannot be expressed**: a prefix is part of its instruction, branches go to [`Label`]s and not to
//!   offsets, regions are ranges of instructions.
//! - **Max stack is exact**: an edited body has none until [`Verifier::finish`](verify::Verifier::finish) has followed
//!   its values, or the caller sets it.
//! - Bytes are not trusted: neither parsing nor verifying panics, hangs, or takes memory out of proportion.
//!
//! # Modules
//!
//! [`body`] is the model of a method body, [`signature`] reads and writes signature blobs, [`verify`] says what a
//! runtime would choke on, [`csharp`] spells names, and `file` reads assemblies, for tools and tests. No published
//! crate was taken for the last: those at hand are whole analysis frameworks that need a newer Rust, or do not bound
//! their input.
//!
//! # Features
//!
//! - `file`: the module `file`, and the dependency that it needs. No feature is on by default.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

pub mod body;
pub mod csharp;
#[cfg(feature = "file")]
pub mod file;
mod opcode;
pub mod signature;
mod text;
pub mod token;
pub mod verify;

pub use body::{Body, InsnId, Instruction, Label, Operand, Prefix};
pub use opcode::{Flow, Opcode, OperandKind};
pub use text::{Display, Names, Notes};
pub use token::Token;

//! Asking about identifiers that may be dead.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use corprof::error::ErrorKind;
use corprof::prelude::*;
use corprof::{InNoGc, sys};

/// An identifier of any kind.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Kept {
    Assembly(AssemblyId),
    Module(ModuleId),
    Class(ClassId),
    Function(FunctionId),
    Thread(ThreadId),
}

/// The outcome of a call.
#[derive(Default)]
pub(crate) struct Answers {
    pub(crate) good: AtomicU64,
    pub(crate) dead: [AtomicU64; 5],
    pub(crate) unexpected: AtomicU64,
}

const ORDINARY: [ErrorKind; 3] = [ErrorKind::NotYet, ErrorKind::WrongSubject, ErrorKind::InvalidArgument];

impl Answers {
    fn count<T>(&self, kind: usize, call: &str, answer: Result<T>) {
        match answer {
            Ok(_) => self.good.fetch_add(1, Relaxed),
            Err(error) if error.code() == sys::COR_E_OBJECTDISPOSED => self.dead[kind].fetch_add(1, Relaxed),
            // Ordinary answers about live things: not loaded so far, an array, never compiled.
            Err(error) if ORDINARY.contains(&error.kind()) => self.good.fetch_add(1, Relaxed),
            // Code, while another thread has suspended the runtime.
            Err(error) if call == "code_ranges" && error.kind() == ErrorKind::TryAgain => {
                self.good.fetch_add(1, Relaxed)
            }
            // At the end of the process, corprof's own thread that searches for code may end before this one.
            Err(error) if call == "code_ranges" && error.code() == sys::CORPROF_E_UNSUPPORTED_CALL_SEQUENCE => {
                self.good.fetch_add(1, Relaxed)
            }
            Err(error) => {
                eprintln!("unexpected: {call}: {error}");
                self.unexpected.fetch_add(1, Relaxed)
            }
        };
    }

    /// Makes all calls that take it.
    pub(crate) fn ask(&self, cx: &InNoGc<'_>, id: Kept) {
        match id {
            Kept::Assembly(assembly) => self.count(0, "assembly_info", cx.assembly_info(assembly)),
            Kept::Module(module) => {
                self.count(1, "module_info", cx.module_info(module));
                let methods = |metadata: corprof::metadata::MetadataImport<'_>| {
                    metadata.type_defs()?.iter().map(|&class| metadata.methods(class)).collect::<Result<Vec<_>>>()
                };
                self.count(1, "methods", cx.metadata(module).and_then(methods));
            }
            Kept::Class(class) => {
                self.count(2, "class_info", cx.class_info(class));
                self.count(2, "array_class", cx.array_class(class));
                let _ = cx.names().class(class);
            }
            Kept::Function(function) => {
                self.count(3, "function_info", cx.function_info(function));
                self.count(3, "code_ranges", cx.code_ranges(function));
                let body = cx.function_info(function).and_then(|info| cx.il_function_body(info.module, info.token));
                self.count(3, "il_function_body", body);
                let _ = cx.names().function(function);
            }
            Kept::Thread(thread) => {
                self.count(4, "os_thread_id", cx.os_thread_id(thread));
                self.count(4, "thread_app_domain", cx.thread_app_domain(thread));
            }
        }
    }
}

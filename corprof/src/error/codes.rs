//! The meaning of each code: its kind, and a sentence on what it means and what to change.

use corprof_sys as sys;
use windows_core::HRESULT;

use super::{
    CLASS_E_CLASSNOTAVAILABLE, CLASS_E_NOAGGREGATION, E_ABORT, E_ACCESSDENIED, E_FAIL, E_INVALIDARG, E_NOINTERFACE,
    E_NOTIMPL, E_OUTOFMEMORY, E_POINTER, E_UNEXPECTED, ErrorKind, INSUFFICIENT_BUFFER,
};

/// The names of the general codes, which corerror.h does not list or lists by other names.
const COM_NAMES: &[(HRESULT, &str)] = &[
    (E_NOTIMPL, "E_NOTIMPL"),
    (E_NOINTERFACE, "E_NOINTERFACE"),
    (E_POINTER, "E_POINTER"),
    (E_ABORT, "E_ABORT"),
    (E_FAIL, "E_FAIL"),
    (E_UNEXPECTED, "E_UNEXPECTED"),
    (E_ACCESSDENIED, "E_ACCESSDENIED"),
    (E_OUTOFMEMORY, "E_OUTOFMEMORY"),
    (E_INVALIDARG, "E_INVALIDARG"),
    (INSUFFICIENT_BUFFER, "HRESULT_FROM_WIN32(ERROR_INSUFFICIENT_BUFFER)"),
    (CLASS_E_CLASSNOTAVAILABLE, "CLASS_E_CLASSNOTAVAILABLE"),
    (CLASS_E_NOAGGREGATION, "CLASS_E_NOAGGREGATION"),
];

/// The code's name in corerror.h or winerror.h.
pub(super) fn name(code: HRESULT) -> Option<&'static str> {
    if let Some(&(_, name)) = COM_NAMES.iter().find(|&&(known, _)| known == code) {
        return Some(name);
    }
    let names = sys::HRESULT_NAMES;
    let at = names.binary_search_by_key(&(code.0 as u32), |&(known, _)| known.0 as u32).ok()?;
    names.get(at).map(|&(_, name)| name)
}

/// The kind and the meaning of a code.
pub(super) fn meaning(code: HRESULT) -> Option<(ErrorKind, &'static str)> {
    if let Some(&(_, kind, hint)) = CODES.iter().find(|&&(known, ..)| known == code) {
        return Some((kind, hint));
    }
    // The metadata have too many codes for a sentence each.
    let name = name(code)?;
    let is_of_metadata = ["META_E_", "CLDB_E_"].iter().any(|prefix| name.starts_with(prefix));
    is_of_metadata
        .then_some((ErrorKind::Metadata, "the metadata do not have the requested row, or cannot store the given one"))
}

macro_rules! codes {
    ($($kind:ident { $($code:expr, $hint:literal;)* })*) => {
        pub(super) const CODES: &[(HRESULT, ErrorKind, &str)] = &[$($(($code, ErrorKind::$kind, $hint),)*)*];
    };
}

codes! {
    WrongPlace {
        sys::CORPROF_E_UNSUPPORTED_CALL_SEQUENCE,
            "the call is not allowed from this place: make it from a callback whose context offers it";
        sys::CORPROF_E_CALL_ONLY_FROM_INIT,
            "the runtime accepts this call in `initialize` only: make it there";
        sys::CORPROF_E_NOT_MANAGED_THREAD,
            "the thread has never run managed code: ask about, or on, a thread that has";
    }
    NotYet {
        sys::CORPROF_E_DATAINCOMPLETE,
            "the runtime has not loaded this far yet: ask again from the matching ...Finished callback";
        sys::CORPROF_E_NOT_YET_AVAILABLE,
            "the runtime does not know this yet: ask again later in its start-up, or when the class is initialized";
        sys::CORPROF_E_FUNCTION_NOT_COMPILED,
            "the function has not been compiled yet: ask from `jit_compilation_finished` on";
        sys::CORPROF_E_RUNTIME_UNINITIALIZED,
            "the runtime has not started yet: ask again after the first module has been loaded";
        sys::CORPROF_E_PROFILER_NOT_YET_INITIALIZED,
            "`initialize` has not returned yet: ask for this afterwards";
    }
    TryAgain {
        sys::CORPROF_E_ASYNCHRONOUS_UNSAFE,
            "the runtime cannot read its own tables at this moment: try again a little later";
        sys::CORPROF_E_STACKSNAPSHOT_UNSAFE,
            "the stack cannot be walked at this moment, because the thread is in an unsafe place in the runtime: try again \
             a little later";
        sys::CORPROF_E_SUSPENSION_IN_PROGRESS,
            "another suspension is in progress, usually a collection, or the threads are suspended already: try again \
             later";
        sys::CORPROF_E_TIMEOUT_WAITING_FOR_CONCURRENT_GC,
            "a concurrent collection did not end in time to turn the flag on: try again";
    }
    WrongSubject {
        sys::CORPROF_E_CLASSID_IS_ARRAY,
            "the class is an array and has no metadata of its own: ask `array_class` for its element";
        sys::CORPROF_E_CLASSID_IS_COMPOSITE,
            "the class is a pointer or by-ref and has no metadata of its own";
        sys::CORPROF_E_TYPE_IS_PARAMETERIZED,
            "the type is generic, so a token alone does not identify a class: pass the type arguments as well";
        sys::CORPROF_E_FUNCTION_IS_PARAMETERIZED,
            "the method or its type is generic, so a token alone does not identify a function: pass the type arguments as well";
        sys::CORPROF_E_FUNCTION_NOT_IL,
            "the function has no IL body: it is abstract, native, or made by the runtime";
        sys::CORPROF_E_FUNCTION_IS_COLLECTIBLE,
            "the function belongs to collectible code, which this call does not support: leave it out";
        sys::CORPROF_E_LITERALS_HAVE_NO_ADDRESS,
            "a constant has no address: read its value from the metadata";
        sys::CORPROF_E_NOT_GC_OBJECT,
            "the object is not on the collected heap, so it has no generation: see `is_frozen_object`";
        sys::CORPROF_E_MODULE_IS_DYNAMIC,
            "the module was made at run time, which this call does not support: leave it out";
        sys::CORPROF_E_MODULE_IS_ENC,
            "the module is open to edit-and-continue, which this call does not support: leave it out";
    }
    Flags {
        sys::CORPROF_E_INCONSISTENT_WITH_FLAGS,
            "the event mask does not fit this call: turn on the flag that it needs, or turn off the one that excludes it";
        sys::CORPROF_E_REJIT_NOT_ENABLED,
            "functions can be recompiled only with ENABLE_REJIT: turn it on in `initialize`";
        sys::CORPROF_E_REJIT_INLINING_DISABLED,
            "the runtime tracks inlined functions only while inlining is on: use `request_rejit`, or leave \
             DISABLE_INLINING off";
        sys::CORPROF_E_CONCURRENT_GC_NOT_PROFILABLE,
            "with concurrent collection on, COR_PRF_MONITOR_GC can only be turned on in `initialize`";
    }
    Attach {
        sys::CORPROF_E_UNSUPPORTED_FOR_ATTACHING_PROFILER,
            "a profiler that attached may not do this: load it at start-up instead";
        sys::CORPROF_E_PROFILER_NOT_ATTACHABLE,
            "the profiler has no `initialize_for_attach`: load it at start-up instead";
        sys::CORPROF_E_PROFILER_ALREADY_ACTIVE,
            "the application has a profiler already: it can have only one";
        sys::CORPROF_E_PROFILER_CANCEL_ACTIVATION,
            "the profiler refused to be loaded";
        sys::CORPROF_E_PROFILEE_INCOMPATIBLE_WITH_TRIGGER,
            "the application's runtime is older than the tool that attaches: use the tool of its version";
        sys::CORPROF_E_PROFILEE_PROCESS_NOT_FOUND,
            "there is no such process, or it runs no .NET, or belongs to another user: check its number";
        sys::CORPROF_E_IPC_FAILED,
            "the application did not answer over its diagnostics port: is it alive, and is DOTNET_EnableDiagnostics on?";
        sys::CORPROF_E_UNRECOGNIZED_PIPE_MSG_FORMAT,
            "the application's runtime does not understand the tool that attaches: use the tool of its version";
        sys::CORPROF_E_DEBUGGING_DISABLED,
            "the application was started with diagnostics turned off: start it without DOTNET_EnableDiagnostics=0";
    }
    Detach {
        sys::CORPROF_E_PROFILER_DETACHING,
            "the profiler is being detached: the runtime accepts no more calls";
        sys::CORPROF_E_IRREVERSIBLE_INSTRUMENTATION_PRESENT,
            "the profiler has changed code permanently, by hooks, IL or ReJIT, or had ENABLE_REJIT on: it cannot be detached";
        sys::CORPROF_E_IMMUTABLE_FLAGS_SET,
            "a flag is on that can never be turned off again: do not set it in a profiler that is to detach";
    }
    NotSupported {
        E_NOINTERFACE, "this runtime is older than the call";
        E_NOTIMPL, "this runtime, or this system, does not offer the call";
        sys::CORPROF_E_CALLBACK3_REQUIRED, "the profiler's object lacks ICorProfilerCallback3: corprof's has it";
        sys::CORPROF_E_CALLBACK4_REQUIRED, "the profiler's object lacks ICorProfilerCallback4: corprof's has it";
        sys::CORPROF_E_CALLBACK6_REQUIRED, "the profiler's object lacks ICorProfilerCallback6: corprof's has it";
        sys::CORPROF_E_CALLBACK7_REQUIRED, "the profiler's object lacks ICorProfilerCallback7: corprof's has it";
    }
    StackWalk {
        sys::CORPROF_E_STACKSNAPSHOT_ABORTED, "the walk ended early because its visitor asked for that";
        sys::CORPROF_E_STACKSNAPSHOT_UNMANAGED_CTX,
            "the walk would begin in native code: begin with the registers of the first managed frame";
        sys::CORPROF_E_STACKSNAPSHOT_INVALID_TGT_THREAD, "the thread to walk has ended: leave it out";
    }
    InvalidArgument {
        E_INVALIDARG, "the runtime does not accept an argument";
        E_POINTER, "a pointer that must not be null is null";
        CLASS_E_CLASSNOTAVAILABLE, "the library has no profiler with this CLSID: correct CORECLR_PROFILER";
        CLASS_E_NOAGGREGATION, "a profiler's object cannot be part of another";
    }
    Gone {
        sys::COR_E_OBJECTDISPOSED, "the thing with this identifier has been unloaded, or has ended";
    }
    BufferTooSmall {
        INSUFFICIENT_BUFFER, "the result is longer than the buffer for it";
        sys::COR_E_OVERFLOW, "the result is too large for its type: use the newer form of the call";
    }
    OutOfMemory {
        E_OUTOFMEMORY, "the runtime ran out of memory";
    }
    Metadata {
        sys::CLDB_E_RECORD_NOTFOUND, "the metadata have no such row: the token belongs to another module, or is wrong";
        sys::CLDB_E_INDEX_NOTFOUND, "the metadata have no such row: the token belongs to another module, or is wrong";
        sys::CLDB_E_FILE_CORRUPT, "the metadata contradict themselves: the file is damaged, or obfuscated";
        sys::META_E_BADMETADATA, "the metadata contradict themselves: the file is damaged, or obfuscated";
        sys::META_E_BAD_SIGNATURE, "the signature is malformed";
        sys::META_E_INVALID_TOKEN_TYPE, "the token belongs to another table than this call expects";
        sys::META_E_BAD_INPUT_PARAMETER, "the metadata interfaces do not accept an argument";
    }
    Failed {
        E_FAIL, "the runtime gives no reason";
        E_UNEXPECTED, "the runtime met an unexpected state";
        E_ABORT, "the call was aborted";
        E_ACCESSDENIED, "the system does not allow it";
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_code_has_one_line_and_a_name() {
        let mut seen = HashSet::new();
        for &(code, _, hint) in CODES {
            assert!(name(code).is_some(), "{code:?}");
            assert!(seen.insert(code), "{code:?} is there twice");
            assert!(!hint.is_empty() && !hint.ends_with('.') && !hint.contains("  "), "{hint}");
        }
    }

    #[test]
    fn every_code_of_the_profiling_interface_is_explained() {
        let codes = sys::HRESULT_NAMES.iter().filter(|(_, name)| name.starts_with("CORPROF_E_"));
        let mut count = 0;
        for &(code, name) in codes {
            assert!(CODES.iter().any(|&(known, ..)| known == code), "{name}");
            count += 1;
        }
        assert_eq!(count, 45);
    }

    #[test]
    fn every_code_in_the_contract_table_has_a_name_and_a_hint() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../corprof-sys/gen/contracts.toml");
        let table: toml::Table = std::fs::read_to_string(path).unwrap().parse().unwrap();
        let rows = ["info", "callback"].into_iter().filter_map(|section| table.get(section)?.as_array()).flatten();
        let lists = rows.flat_map(|row| ["errors", "macro_errors"].map(|key| row.get(key)));
        let names: HashSet<&str> =
            lists.flatten().filter_map(toml::Value::as_array).flatten().filter_map(toml::Value::as_str).collect();
        assert!(names.len() > 40, "{names:?}");
        // This name stands for any error of the system.
        for wanted in names.into_iter().filter(|&name| name != "HRESULT_FROM_WIN32(GetLastError())") {
            let known = CODES
                .iter()
                .any(|&(code, ..)| name(code) == Some(wanted) || sys::HRESULT_NAMES.contains(&(code, wanted)));
            assert!(known, "{wanted}");
        }
    }

    #[test]
    fn codes_of_the_metadata_without_a_line_are_known_as_such() {
        assert_eq!(meaning(sys::CLDB_E_TOO_BIG).map(|(kind, _)| kind), Some(ErrorKind::Metadata));
        assert_eq!(meaning(HRESULT(-1)), None);
    }
}

//! Errors: what failed, what the code means, what to change.

mod codes;
pub(crate) mod context;

use std::fmt;

use windows_core::HRESULT;

pub use context::ResultExt;

/// The result of a call to the runtime.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A failed call: its name and its result code.
///
/// Success is any code that is not negative, as everywhere in COM: `S_FALSE` is not an error. `Display` shows the call,
/// the name of the code, its meaning and, if something can be changed, a hint. `Debug` shows the same with the fields'
/// names, so that `unwrap` and `{:?}` lose nothing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub struct Error {
    code: HRESULT,
    call: &'static str,
    /// The subject of the call and the rule that it broke, if corprof knows more than the code says.
    about: Option<(&'static str, &'static str)>,
}

/// The kinds of failures of an [`Error`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The call is not allowed in the place where it was made.
    WrongPlace,
    /// The runtime has not got this far yet: make the call in a later callback.
    NotYet,
    /// The runtime is temporarily busy: the same call may succeed a moment later.
    TryAgain,
    /// The call does not apply to a thing of this kind.
    WrongSubject,
    /// The event mask does not fit the call.
    Flags,
    /// Attaching to a running application failed.
    Attach,
    /// Detaching from the application failed.
    Detach,
    /// The runtime or the system does not offer the call.
    NotSupported,
    /// A stack could not be walked to its end.
    StackWalk,
    /// An argument is wrong.
    InvalidArgument,
    /// The thing with this identifier has been unloaded or has ended: the identifier is dead.
    Gone,
    /// The result is larger than the buffer for it.
    BufferTooSmall,
    /// There is no memory left.
    OutOfMemory,
    /// The metadata do not have the requested row, or are damaged.
    Metadata,
    /// The runtime failed, and gives no reason.
    Failed,
    /// A code that this version of corprof does not know.
    Other,
}

impl Error {
    /// An error of the caller's own: `call` names the attempted call.
    #[inline]
    pub const fn new(code: HRESULT, call: &'static str) -> Self {
        Self { code, call, about: None }
    }

    /// The same error, with the subject of the call and the rule that it broke.
    pub(crate) const fn about(self, subject: &'static str, rule: &'static str) -> Self {
        Self { about: Some((subject, rule)), ..self }
    }

    /// The error of a call about a loaded class. `CORPROF_E_DATAINCOMPLETE` means that the class has no metadata.
    pub(crate) fn about_class(self) -> Self {
        if self.code != corprof_sys::CORPROF_E_DATAINCOMPLETE {
            return self;
        }
        self.about(
            CLASS_WITHOUT_METADATA,
            "the runtime has made this class for a method that it suspends itself (runtime async), as one of the \
             `System.Runtime.CompilerServices.Continuation`s: it has no metadata of its own, and asking again does not help",
        )
    }

    /// `Ok` if the code says success, which includes `S_FALSE`.
    ///
    /// # Errors
    /// The code with the call's name, if the code is negative.
    #[inline]
    pub const fn check(code: HRESULT, call: &'static str) -> Result<()> {
        if code.is_ok() { Ok(()) } else { Err(Self::new(code, call)) }
    }

    /// The code.
    pub const fn code(&self) -> HRESULT {
        self.code
    }

    /// The call that failed, by its IDL name.
    pub const fn call(&self) -> &'static str {
        self.call
    }

    /// The code's name in corerror.h or winerror.h, such as `CORPROF_E_DATAINCOMPLETE`.
    pub fn name(&self) -> Option<&'static str> {
        codes::name(self.code)
    }

    /// The kind of failure, for a profiler that handles some of them.
    ///
    /// ```
    /// # use corprof::{error::ErrorKind, prelude::*};
    /// # fn ask() -> Result<u32> { Err(Error::new(corprof::sys::CORPROF_E_SUSPENSION_IN_PROGRESS, "SuspendRuntime")) }
    /// let answer = match ask() {
    ///     Err(error) if error.kind() == ErrorKind::TryAgain => ask(),
    ///     answer => answer,
    /// };
    /// ```
    pub fn kind(&self) -> ErrorKind {
        // The code says "not yet", but there will never be an answer.
        if self.about.is_some_and(|(subject, _)| subject == CLASS_WITHOUT_METADATA) {
            return ErrorKind::WrongSubject;
        }
        codes::meaning(self.code).map_or(ErrorKind::Other, |(kind, _)| kind)
    }

    /// The meaning of the code and what to change, if corprof knows.
    pub fn hint(&self) -> Option<&'static str> {
        if let Some((_, rule)) = self.about {
            return Some(rule);
        }
        codes::meaning(self.code).map(|(_, hint)| hint)
    }
}

/// The subject of calls about a class that the runtime has made, without metadata.
const CLASS_WITHOUT_METADATA: &str = "class without metadata";

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = f.debug_struct("Error");
        fields.field("call", &self.call);
        match self.name() {
            Some(name) => fields.field("code", &format_args!("{name} ({:#010X})", self.code.0)),
            None => fields.field("code", &format_args!("{:#010X}", self.code.0)),
        };
        if let Some((subject, _)) = self.about {
            fields.field("about", &subject);
        }
        if let Some(hint) = self.hint() {
            fields.field("hint", &hint);
        }
        fields.finish()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.about {
            Some((subject, _)) => write!(f, "{}({subject}): ", self.call)?,
            None => write!(f, "{}: ", self.call)?,
        }
        match self.name() {
            Some(name) => write!(f, "{name} ({:#010X})", self.code.0)?,
            None => write!(f, "HRESULT {:#010X}", self.code.0)?,
        }
        match self.hint() {
            Some(hint) => write!(f, ": {hint}"),
            None => Ok(()),
        }
    }
}

/// `S_OK`.
pub(crate) const S_OK: HRESULT = HRESULT(0);
/// `S_FALSE`: a success that says "no".
pub(crate) const S_FALSE: HRESULT = HRESULT(1);
/// `E_NOTIMPL`.
pub(crate) const E_NOTIMPL: HRESULT = HRESULT(0x8000_4001_u32 as i32);
/// `E_NOINTERFACE`.
pub(crate) const E_NOINTERFACE: HRESULT = HRESULT(0x8000_4002_u32 as i32);
/// `E_ABORT`.
pub(crate) const E_ABORT: HRESULT = HRESULT(0x8000_4004_u32 as i32);
/// `E_UNEXPECTED`.
pub(crate) const E_UNEXPECTED: HRESULT = HRESULT(0x8000_FFFF_u32 as i32);
/// `E_ACCESSDENIED`.
pub(crate) const E_ACCESSDENIED: HRESULT = HRESULT(0x8007_0005_u32 as i32);
/// `E_POINTER`.
pub(crate) const E_POINTER: HRESULT = HRESULT(0x8000_4003_u32 as i32);
/// `E_FAIL`.
pub const E_FAIL: HRESULT = HRESULT(0x8000_4005_u32 as i32);
/// `E_INVALIDARG`.
pub const E_INVALIDARG: HRESULT = HRESULT(0x8007_0057_u32 as i32);
/// `E_OUTOFMEMORY`.
pub(crate) const E_OUTOFMEMORY: HRESULT = HRESULT(0x8007_000E_u32 as i32);
/// `CLASS_E_NOAGGREGATION`.
pub(crate) const CLASS_E_NOAGGREGATION: HRESULT = HRESULT(0x8004_0110_u32 as i32);
/// `CLASS_E_CLASSNOTAVAILABLE`.
pub(crate) const CLASS_E_CLASSNOTAVAILABLE: HRESULT = HRESULT(0x8004_0111_u32 as i32);
/// `HRESULT_FROM_WIN32(ERROR_INSUFFICIENT_BUFFER)`.
pub(crate) const INSUFFICIENT_BUFFER: HRESULT = HRESULT(0x8007_007A_u32 as i32);

#[cfg(test)]
mod tests {
    use corprof_sys as sys;

    use super::*;

    #[test]
    fn success_includes_s_false() {
        assert_eq!(Error::check(S_OK, "X"), Ok(()));
        assert_eq!(Error::check(S_FALSE, "X"), Ok(()));
        assert_eq!(Error::check(E_FAIL, "X"), Err(Error::new(E_FAIL, "X")));
    }

    #[test]
    fn display_names_call_code_and_cure() {
        let text = Error::new(sys::CORPROF_E_DATAINCOMPLETE, "GetModuleInfo").to_string();
        assert_eq!(
            text,
            "GetModuleInfo: CORPROF_E_DATAINCOMPLETE (0x80131351): the runtime has not loaded this far yet: ask again from \
             the matching ...Finished callback"
        );
        assert_eq!(Error::new(HRESULT(-1), "X").to_string(), "X: HRESULT 0xFFFFFFFF");
    }

    #[test]
    fn a_class_without_metadata_is_not_asked_about_again() {
        let error = Error::new(sys::CORPROF_E_DATAINCOMPLETE, "GetClassIDInfo2").about_class();
        assert_eq!(error.kind(), ErrorKind::WrongSubject);
        assert!(error.to_string().starts_with("GetClassIDInfo2(class without metadata): CORPROF_E_DATAINCOMPLETE"));
        assert!(error.to_string().ends_with("asking again does not help"), "{error}");
        let array = Error::new(sys::CORPROF_E_CLASSID_IS_ARRAY, "GetClassIDInfo2");
        assert_eq!(array.about_class(), array);
        let module = Error::new(sys::CORPROF_E_DATAINCOMPLETE, "GetModuleInfo");
        assert_eq!(module.kind(), ErrorKind::NotYet);
    }

    #[test]
    fn debug_names_them_too() {
        let error = Error::new(sys::CORPROF_E_PROFILER_DETACHING, "GetModuleInfo").about("module", "ask before");
        assert_eq!(
            format!("{error:?}"),
            r#"Error { call: "GetModuleInfo", code: CORPROF_E_PROFILER_DETACHING (0x80131367), about: "module", hint: "ask before" }"#
        );
        assert_eq!(format!("{:?}", Error::new(HRESULT(-1), "X")), r#"Error { call: "X", code: 0xFFFFFFFF }"#);
    }
}

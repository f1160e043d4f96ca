//! Errors: what failed, what the code means, what to change.

use std::fmt;

use corprof_sys as sys;
use windows_core::HRESULT;

/// What a call into the runtime answers.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A call that failed: its name and the code it answered.
///
/// Success is any code that is not negative, as everywhere in COM: `S_FALSE` is not an error. `Display` gives the call, the
/// name of the code, its meaning and, where there is something to change, a hint.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
pub struct Error {
    code: HRESULT,
    call: &'static str,
    /// What the call was about, and the rule it broke, where corprof knows better than the code says.
    about: Option<(&'static str, &'static str)>,
}

impl Error {
    /// An error of one's own making: `call` says what was attempted.
    pub const fn new(code: HRESULT, call: &'static str) -> Self {
        Self { code, call, about: None }
    }

    /// The same error, saying what the call was about and which rule it broke.
    pub(crate) const fn about(self, subject: &'static str, rule: &'static str) -> Self {
        Self { about: Some((subject, rule)), ..self }
    }

    /// `Ok` if the code says success, which includes `S_FALSE`.
    ///
    /// # Errors
    /// The code with the call's name, if it is negative.
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
        // The general names first: corerror.h has others for some of them, such as COR_E_ARGUMENT for E_INVALIDARG.
        if let Some(&(_, name)) = COM_NAMES.iter().find(|&&(code, _)| code == self.code) {
            return Some(name);
        }
        let names = sys::HRESULT_NAMES;
        let at = names.binary_search_by_key(&(self.code.0 as u32), |&(code, _)| code.0 as u32).ok()?;
        names.get(at).map(|&(_, name)| name)
    }

    /// What the code means, and what to change, where corprof knows.
    pub fn hint(&self) -> Option<&'static str> {
        if let Some((_, rule)) = self.about {
            return Some(rule);
        }
        HINTS.iter().find(|&&(code, _)| code == self.code).map(|&(_, hint)| hint)
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

/// The general codes, which corerror.h does not list.
const COM_NAMES: &[(HRESULT, &str)] = &[
    (E_NOTIMPL, "E_NOTIMPL"),
    (E_NOINTERFACE, "E_NOINTERFACE"),
    (E_POINTER, "E_POINTER"),
    (HRESULT(0x8000_4004_u32 as i32), "E_ABORT"),
    (E_FAIL, "E_FAIL"),
    (HRESULT(0x8000_FFFF_u32 as i32), "E_UNEXPECTED"),
    (HRESULT(0x8007_0005_u32 as i32), "E_ACCESSDENIED"),
    (E_OUTOFMEMORY, "E_OUTOFMEMORY"),
    (E_INVALIDARG, "E_INVALIDARG"),
    (INSUFFICIENT_BUFFER, "HRESULT_FROM_WIN32(ERROR_INSUFFICIENT_BUFFER)"),
    (CLASS_E_CLASSNOTAVAILABLE, "CLASS_E_CLASSNOTAVAILABLE"),
];

/// The codes that the present calls answer; the typed API gives every CORPROF_E_* its line.
const HINTS: &[(HRESULT, &str)] = &[
    (E_INVALIDARG, "an argument is not what the runtime expects, or the id it names is dead"),
    (E_NOINTERFACE, "this runtime is older than the call"),
    (
        sys::CORPROF_E_UNSUPPORTED_CALL_SEQUENCE,
        "the call is not allowed from this place: make it from a callback whose context offers it",
    ),
    (
        sys::CORPROF_E_DATAINCOMPLETE,
        "the runtime has not loaded this far yet: ask again from the matching ...Finished callback",
    ),
    (
        sys::CORPROF_E_CLASSID_IS_ARRAY,
        "the class is an array and has no metadata of its own: ask `array_class` for its element",
    ),
    (sys::CORPROF_E_CLASSID_IS_COMPOSITE, "the class is a pointer or by-ref and has no metadata of its own"),
    (sys::CORPROF_E_NOT_MANAGED_THREAD, "the calling thread has never run managed code"),
    (sys::CORPROF_E_PROFILER_DETACHING, "the profiler is being detached: no call is answered any more"),
    (sys::CORPROF_E_PROFILER_CANCEL_ACTIVATION, "the profiler does not want to be loaded here"),
    (
        sys::CORPROF_E_PROFILER_NOT_ATTACHABLE,
        "the profiler has no `initialize_for_attach`: load it at start-up instead",
    ),
    (sys::CORPROF_E_FUNCTION_NOT_COMPILED, "the function has not been compiled yet"),
    (sys::CORPROF_E_RUNTIME_UNINITIALIZED, "the runtime has not started yet"),
    (
        sys::CORPROF_E_CONCURRENT_GC_NOT_PROFILABLE,
        "with concurrent collection on, COR_PRF_MONITOR_GC can only be asked for in `initialize`",
    ),
];

#[cfg(test)]
mod tests {
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
    fn every_hint_has_a_name() {
        for &(code, _) in HINTS {
            assert!(Error::new(code, "X").name().is_some(), "{code:?}");
        }
    }
}

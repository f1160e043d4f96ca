//! Exceptions.

use corprof_sys as sys;

use crate::context::InNoGc;
use crate::error::{Error, Result, S_FALSE};
use crate::generated::contract::contract;

/// The clause that the runtime is about to run, or has run, for an exception.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ExceptionClause {
    /// A filter, a catch or a finally.
    pub kind: sys::COR_PRF_CLAUSE_TYPE,
    /// The address of its code.
    pub program_counter: usize,
    /// The frame pointer of the function that it is in.
    pub frame_pointer: usize,
    /// The shadow stack pointer; 0 on most systems.
    pub shadow_stack_pointer: usize,
}

impl InNoGc<'_> {
    /// The clause of the calling thread's exception callback; none if the thread handles no exception.
    #[doc = contract!(GetNotifiedExceptionClauseInfo)]
    #[doc(alias = "GetNotifiedExceptionClauseInfo")]
    pub fn notified_exception_clause_info(&self) -> Result<Option<ExceptionClause>> {
        const CALL: &str = "GetNotifiedExceptionClauseInfo";
        let info = self.as_version::<sys::ICorProfilerInfo2>(CALL)?;
        let mut clause = sys::COR_PRF_EX_CLAUSE_INFO {
            clauseType: sys::COR_PRF_CLAUSE_NONE,
            programCounter: 0,
            framePointer: 0,
            shadowStackPointer: 0,
        };
        // SAFETY: the call writes one structure and keeps nothing (fact: outputs).
        let code = unsafe { info.GetNotifiedExceptionClauseInfo(&mut clause) };
        Error::check(code, CALL)?;
        Ok((code != S_FALSE).then_some(ExceptionClause {
            kind: clause.clauseType,
            program_counter: clause.programCounter,
            frame_pointer: clause.framePointer,
            shadow_stack_pointer: clause.shadowStackPointer,
        }))
    }
}

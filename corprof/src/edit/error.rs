//! Why a method was not edited.

use corprof_il::body;
use corprof_il::signature;
use corprof_il::verify::IlError;
use corprof_sys as sys;

use super::CallProblem;
use crate::error::Error;

/// Why a method was not edited. Its old body goes on in every case.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EditError {
    /// The runtime refused a call.
    #[error(transparent)]
    Runtime(Error),
    /// Such methods cannot be edited.
    #[error("{0}")]
    Refused(#[from] Refusal),
    /// The method's own body cannot be read.
    #[error("the method's own body cannot be parsed: {0}")]
    Parse(#[from] body::ParseError),
    /// The method's own body breaks rules, so nothing can be said of an edited one.
    #[error("the method's own body breaks {}", list(.0))]
    Original(Vec<IlError>),
    /// The edited body breaks rules: all that were found.
    #[error("the edited body breaks {}", list(.0))]
    Rejected(Vec<IlError>),
    /// The edit names an instruction or region that the body does not have.
    #[error(transparent)]
    Edit(#[from] body::EditError),
    /// An instruction was given an operand that it does not take.
    #[error(transparent)]
    Operand(#[from] body::WrongOperand),
    /// The edited body does not fit the format.
    #[error("the edited body cannot be written: {0}")]
    Encode(#[from] body::EncodeError),
    /// The signature of a method, of local variables or of a type does not fit the format.
    #[error("a signature cannot be written: {0}")]
    Signature(#[from] signature::EncodeError),
    /// A call is not inserted.
    #[error("the call of {method} is refused: {problem}")]
    Call {
        /// The called method.
        method: String,
        /// The rule, and what to change.
        problem: CallProblem,
    },
    /// The closure's own reason.
    #[error("{0}")]
    Other(String),
}

impl EditError {
    /// All breaches of rules, each with instruction, found and expected; none for other reasons.
    pub fn breaches(&self) -> &[IlError] {
        match self {
            Self::Original(errors) | Self::Rejected(errors) => errors,
            _ => &[],
        }
    }
}

fn list(errors: &[IlError]) -> String {
    let lines: Vec<String> = errors.iter().map(ToString::to_string).collect();
    format!("{} of the rules: {}", errors.len(), lines.join("; "))
}

impl From<Error> for EditError {
    /// That a method has no IL is a refusal, whoever finds it.
    fn from(error: Error) -> Self {
        match error.code() {
            sys::CORPROF_E_FUNCTION_NOT_IL => Self::Refused(Refusal::NotIl),
            _ => Self::Runtime(error),
        }
    }
}

/// Why a method cannot be edited at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The application makes the module at run time (`AssemblyBuilder`), and goes on changing it.
    #[error("the module is dynamic: the application still adds to it")]
    DynamicModule,
    /// The function is a `DynamicMethod` or a stub of the runtime: it has no token, and is freed with its object.
    #[error("a dynamic method, or a stub of the runtime, has no body that could be replaced")]
    DynamicMethod,
    /// The runtime makes explicit tail calls by this method. .NET 8 now and then cannot compile it if it is edited: in
    /// 8 of 200 runs that edited it and other methods, and in 0 of 100 that left it out, a tail call threw
    /// `InvalidProgramException`.
    #[error("the runtime makes explicit tail calls by this method, and may not be able to compile another body")]
    TailCallDispatch,
    /// The signature of the method, or that of its local variables, cannot be read.
    #[error("the method's signatures cannot be read")]
    BadSignature,
    /// The instruction to change is not an `ldstr`.
    #[error("the instruction loads no literal string")]
    NoString,
    /// The module refers to no assembly of this name, and defines no such type.
    #[error("the module does not refer to this assembly: define a reference by `metadata_emit` first")]
    NoAssembly,
    /// The methods do not take and return the same, or are instance methods of different types.
    #[error("the methods have different signatures, or different types for `this`")]
    OtherSignature,
    /// The module has no method with this token.
    #[error("the module has no such method")]
    NoMethod,
    /// The method is abstract, or its code is native or provided by the runtime. `jit_compilation_started` comes for
    /// the last: methods with `[UnsafeAccessor]`, of which .NET 10's core library has ten.
    #[error("the method has no IL: it is abstract, native or provided by the runtime")]
    NotIl,
    /// A ReJIT request: the runtime recompiles nothing in a collectible module, and does not say so.
    #[error(
        "the module is collectible (it can be unloaded), and the runtime recompiles none of its methods: edit them in \
             `jit_compilation_started`, by `edit_once`"
    )]
    CollectibleModule,
    /// A ReJIT request: precompiled code has the method's body inlined for good (`[NonVersionable]`).
    #[error(
        "the method is [NonVersionable]: precompiled code contains its body, and the runtime does not look for it there"
    )]
    NonVersionable,
    /// Inserted calls, and inserted hooks of the ends of methods: the runtime suspends such a method (`async` in
    /// MethodImpl) and has it go on on another thread, where a hook's stack is another one. Probes are of one call,
    /// whatever its threads.
    #[error(
        "the runtime itself suspends this method (runtime-async), and inserted calls and hooks of its end are not told of that: \
         use hooks with `HookKinds::ENTER` alone, a probe, or hooks that the runtime calls"
    )]
    RuntimeAsync,
    /// A ReJIT request: runtimes before .NET 11 ignore it for most methods that they suspend themselves (generic ones
    /// are recompiled, and both versions are called).
    #[error("this runtime ignores requests to recompile methods that it suspends itself (runtime-async)")]
    RuntimeAsyncReJit,
    /// A ReJIT request: the compiler calls these methods of the runtime's own library as parts of its instructions.
    #[error("compiled code calls this method in place of an instruction, and .NET 8 crashes when it is recompiled")]
    CompilerHelper,
    /// The profiler is being shut down or was disabled, before the method was looked at.
    #[error("the profiler is being shut down, or was disabled")]
    Stopped,
    /// A method has at most 65,535 local variables, and an edit adds at most 1,024.
    #[error("too many local variables")]
    TooManyLocals,
    /// The method has a `tail.` call, after which nothing of it is left: its end cannot be seen.
    #[error("a `tail.` call ends the method: its end can be seen only after `drop_tail_calls`")]
    TailCall,
    /// The method has a `jmp`, which goes to another method for good: its end cannot be seen.
    #[error("a `jmp` ends the method: only its beginning can be seen")]
    Jmp,
    /// The method takes a variable number of arguments, or is called by the rules of another language.
    #[error("the method's calling convention is not the managed one")]
    CallingConvention,
    /// The method is part of the runtime's own handling of exceptions, of suspensions, or of collections.
    #[error("the method is part of the runtime's own handling of exceptions, async methods or collections")]
    OfTheRuntime,
    /// Probes pass addresses as 64-bit numbers.
    #[error("probes need a 64-bit process")]
    Not64Bit,
}

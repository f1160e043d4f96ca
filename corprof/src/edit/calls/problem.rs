//! Why a call is not inserted.

use corprof_il::Opcode;
use corprof_il::body::InsnId;

/// Why a call is not inserted: the rule, and what to change.
///
/// Whoever knows more than corprof does can write the call by
/// [`MethodEdit::body_mut`](super::super::MethodEdit::body_mut), which is `unsafe`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallProblem {
    /// The module does not define the method, or what it defines cannot be read.
    #[error("the module of the edited method defines no such method: name one of its own")]
    NotFound,
    /// The type has no method of the name, or several.
    #[error("the type has {0} static methods of this name: find the one by `metadata`")]
    NotOne(usize),
    /// An instance method, for which there is no object, or a static virtual one.
    #[error("the method is not static, or is virtual: name a static one that takes the object as an argument")]
    NotStatic,
    /// The method or its type has type parameters.
    #[error("the method or its type is generic: name one that is not, in a type that is not")]
    Generic,
    /// A class constructor: the runtime calls it once.
    #[error("the method is a class constructor, which the runtime calls once: name another one")]
    ClassConstructor,
    /// A P/Invoke, an abstract method, or one that the runtime provides.
    #[error("the method has no IL, as it is native, abstract or provided by the runtime: name one with IL")]
    NoIl,
    /// The method has the attribute `UnmanagedCallersOnly`.
    #[error("the method is [UnmanagedCallersOnly], and the process ends if managed code calls it: name another one")]
    UnmanagedCallersOnly,
    /// The method takes a variable number of arguments.
    #[error("the method's calling convention is not the managed one: name one with a fixed number of arguments")]
    CallingConvention,
    /// The runtime suspends the method itself: what it returns is made elsewhere.
    #[error("the runtime itself suspends the method (runtime-async): name one that is not async")]
    RuntimeAsync,
    /// The edited method may not access the method, and would throw a `MethodAccessException` where it is compiled.
    #[error("the edited method may not access the method or its type: name one that is `internal` or `public`")]
    Inaccessible,
    /// The method is one of the core library, whose code the compiler replaces by its own here and there.
    #[error("the method is of the core library, where bodies do not tell what compiled code does")]
    CoreLibrary,
    /// A parameter has a type whose values are addresses, or are unknown, or can be changed by whoever has them:
    /// arrays, and objects of other modules. Code that works with addresses may trust what is in an array. As an
    /// `object` they are passed.
    #[error(
        "parameter {number} is `{ty}`: only numbers, bool, char, string, object, structs and classes of the module are passed, no \
         `ref`, pointer, native int, array, ref struct, type parameter or class of another module"
    )]
    Parameter {
        /// The parameter, counted from 0.
        number: usize,
        /// Its type, as IL assembly has it.
        ty: String,
    },
    /// The result has such a type.
    #[error("the result is `{0}`, which is not a number, object or struct: name a method that returns nothing")]
    Result(String),
    /// There are more or fewer arguments than parameters.
    #[error("the method takes {parameters} arguments, and is given {arguments}")]
    ArgumentCount {
        /// How many the method takes.
        parameters: usize,
        /// How many there are.
        arguments: usize,
    },
    /// An argument has another type than its parameter.
    #[error(
        "argument {number} is `{argument}`, and the parameter is `{parameter}`: they must be the same, or the parameter `object` and \
         the argument a reference"
    )]
    ArgumentType {
        /// The argument, counted from 0.
        number: usize,
        /// Its type, as IL assembly has it.
        argument: String,
        /// The parameter's type, as IL assembly has it.
        parameter: String,
    },
    /// The edited method has no such argument or local variable.
    #[error("argument {0} names an argument or a local variable that the edited method does not have")]
    NoVariable(usize),
    /// The constant is one that could not be read from metadata.
    #[error("a constant that could not be read from metadata has no value")]
    UnreadableConstant,
    /// The method calls the edited method, which would then call it again, without end; or may do so, as it is passed
    /// an object whose `ToString`, `Equals` or `GetHashCode` may be the edited one.
    #[error(
        "the method calls the edited method, or may do so by an object: it would call again without end; name another one"
    )]
    Recursive,
    /// The edited method itself works with addresses: it may not expect that an exception is thrown there.
    #[error("the edited method {0}: it may not expect a call there, or its exception")]
    UnsafeCaller(String),
    /// The code of the method, or of one that it calls, could harm the process with some arguments or at this moment.
    #[error(
        "{method}{} {why}: the call is not proven to be harmless; name another method, or write the call by `body_mut`, which is \
         `unsafe`",
        at(*.offset)
    )]
    Unproven {
        /// The method that it is about: the called one, or one that it calls.
        method: String,
        /// Where in the method.
        offset: Option<u32>,
        /// What it does, for human readers.
        why: String,
    },
    /// A `tail.` call and its `ret` belong together: nothing can run between them.
    #[error("the place is between a `tail.` call and its `ret`: insert before the call, or `drop_tail_calls` first")]
    AfterTailCall(InsnId),
    /// Control does not go from the instruction to the next one, so code after it would never run.
    #[error("control does not go on after `{1}`: insert before it")]
    NeverGoesOn(InsnId, Opcode),
    /// The address of a function is taken for a delegate by the next instruction: nothing can run between them.
    #[error("the place is between a `{1}` and the instruction that takes its function: insert before or after both")]
    FunctionAddress(InsnId, Opcode),
}

fn at(offset: Option<u32>) -> String {
    offset.map(|offset| format!(" at IL_{offset:04x}")).unwrap_or_default()
}

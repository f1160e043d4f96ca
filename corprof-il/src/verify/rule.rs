//! The rules, and the report of a breach.

use std::fmt;

use crate::body::{InsnId, RegionId};

macro_rules! rules {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// A rule that a body can break. Names follow those of ILVerify, where it has the rule.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum Rule {
            $($(#[doc = $doc])+ $name,)+
        }

        impl Rule {
            /// All rules.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// Its name.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)+
                }
            }
        }
    };
}

rules! {
    /// A body has an instruction.
    NoCode,
    /// The last instruction does not go on, reached or not.
    MethodFallthrough,
    /// A prefix stands before an instruction that it has a meaning for, once, with an operand that means something.
    BadPrefix,
    /// No runtime knows the prefix `no.`.
    NoPrefixUnknown,
    /// `constrained.` with `call` or `ldftn` names a static virtual method; on a value type with `callvirt` a method of
    /// that type, of an interface, or of `Object`, `ValueType` or `Enum`.
    ConstrainedCall,
    /// `tail.` stands before a call that is followed by `ret`.
    TailCallWithoutRet,
    /// `tail.` is in no part of a region.
    TailCallInRegion,
    /// Only the arguments of a tail call are on the stack.
    TailCallStack,
    /// The number of an argument is below the number of arguments.
    UnrecognizedArgumentNumber,
    /// The number of a local variable is below the number of local variables.
    UnrecognizedLocalNumber,
    /// The parts of regions are ranges of instructions.
    BadRegion,
    /// Regions lie in each other or apart.
    RegionNotNested,
    /// No region is in a filter.
    RegionInFilter,
    /// An inner region stands before an outer one in the table.
    RegionOrder,
    /// A finally or fault handler has its tried code for itself.
    SharedTry,
    /// A filter stands right before its handler.
    FilterNotBeforeHandler,
    /// A filter ends with its only `endfilter`.
    FilterEnd,
    /// A catch handler names a type.
    CatchType,
    /// `endfilter` is in a filter, reached or not.
    EndfilterOutsideFilter,
    /// `endfinally` is in a finally or fault handler.
    EndfinallyOutsideHandler,
    /// `rethrow` is in a catch handler.
    RethrowOutsideCatch,
    /// `ret` is in no tried code.
    ReturnFromTry,
    /// `ret` is in no handler and no filter.
    ReturnFromHandler,
    /// Tried code is entered at its first instruction.
    BranchIntoTry,
    /// Handlers and filters are not branched into.
    BranchIntoHandler,
    /// Tried code is left by `leave`.
    BranchOutOfTry,
    /// Handlers are left by `leave` or `endfinally`.
    BranchOutOfHandler,
    /// `leave` does not leave a finally or fault handler, nor a filter.
    LeaveOutOfFinally,
    /// Code does not run into a handler or filter.
    FallthroughIntoHandler,
    /// Code does not run out of a part of a region.
    FallthroughOutOfRegion,
    /// `localloc` is in no handler and no filter.
    LocallocInHandler,
    /// Only the size is on the stack at `localloc`.
    LocallocStack,
    /// `jmp` is in no part of a region, with nothing on the stack, from a method that is neither generic nor
    /// synchronized to one that is not generic and of the same signature.
    BadJmp,
    /// `arglist` is in a method with variable arguments.
    ArglistWithoutVarArg,
    /// Methods with a variable number of arguments are on Windows only.
    VarArgUnsupported,
    /// There is a value to take from the stack.
    StackUnderflow,
    /// The stack holds no more values than the header says, and at most 65,535.
    StackOverflow,
    /// Whichever way an instruction is come to, as many values are on the stack.
    PathStackDepth,
    /// Whichever way an instruction is come to, values of the same kind are on the stack.
    PathStackUnexpected,
    /// Nothing is on the stack where tried code begins.
    TryNonEmptyStack,
    /// At `ret` only the return value is on the stack.
    ReturnStack,
    /// The filter's answer, and nothing else, is on the stack at `endfilter`.
    EndfilterStack,
    /// The value on the stack is of the kind that the instruction takes.
    StackUnexpected,
    /// The two values on the stack are of kinds that the instruction takes together.
    BinaryOperands,
    /// A value is of the kind of the argument, variable, field, element or result that it goes to.
    Assignment,
    /// A token names something of the table that the instruction takes.
    BadToken,
    /// A type fits the instruction: no `void`, no by-ref, a value type where it must be one. Generic types and methods
    /// have arguments.
    BadType,
    /// No value of a `ref struct` is boxed, by `box` or by a call of a method that it inherits. Where a ref struct can
    /// stand for a generic parameter, a branch or test stands right behind `box`, which then boxes nothing.
    ByRefLikeBoxed,
    /// A type, a member or a signature speaks only of generic parameters that the method and its type have.
    GenericParameter,
    /// `newobj` calls a constructor.
    CtorExpected,
    /// `newobj` makes an object of a class that is not abstract.
    NewobjAbstract,
    /// A delegate is made of a method whose signature fits its `Invoke`, named by `ldftn` or `ldvirtftn` right before.
    DelegateCtor,
    /// `callvirt` calls an instance method.
    CallVirtOnStatic,
    /// `call` and `ldftn` name a method with a body.
    CallAbstract,
    /// An instance field is used with an object, a static one without.
    FieldStatic,
    /// The signatures that the body needs can be read, and `void` stands in them for what is returned or pointed to
    /// only.
    BadSignature,
    /// The body can be analysed in bounded memory and time.
    TooComplex,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A breach of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IlError {
    /// The rule.
    pub rule: Rule,
    /// The instruction, unless it is about a region or the whole body.
    pub instruction: Option<InsnId>,
    /// The region, if it is about one.
    pub region: Option<RegionId>,
    /// Where the instruction was in the code that was parsed; `None` for one that was inserted.
    pub offset: Option<u32>,
    /// The number of the instruction, counted from 0 in the body as it is.
    pub index: Option<u32>,
    /// The instruction, disassembled.
    pub text: String,
    /// The value that was found.
    pub found: String,
    /// The value that the rule requires.
    pub expected: String,
}

impl fmt::Display for IlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.rule)?;
        match (self.offset, self.index) {
            (Some(offset), _) => write!(f, " at IL_{offset:04x}")?,
            (None, Some(index)) => write!(f, " at inserted instruction {index}")?,
            (None, None) => {}
        }
        if !self.text.is_empty() {
            write!(f, " `{}`", self.text)?;
        }
        if let Some(region) = self.region {
            write!(f, " in region {}", region.0)?;
        }
        if !self.found.is_empty() {
            write!(f, ": found {}", self.found)?;
        }
        if !self.expected.is_empty() {
            write!(f, ", expected {}", self.expected)?;
        }
        Ok(())
    }
}

impl std::error::Error for IlError {}

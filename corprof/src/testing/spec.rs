//! A test's description of a class or a function.

use corprof_sys as sys;

use crate::id::{ClassId, FunctionId};

use super::metadata::{compressed, element, spell};
use super::world::World;

/// `IMAGE_CEE_CS_CALLCONV_HASTHIS`
const HAS_THIS: u8 = 0x20;
/// `IMAGE_CEE_CS_CALLCONV_GENERIC`
const GENERIC: u8 = 0x10;

/// A class: its definition and its type arguments. A `&str` converts to one.
///
/// ```
/// # use corprof::testing::ClassSpec;
/// # fn f(int32: corprof::id::ClassId) -> ClassSpec {
/// ClassSpec::new("App.Shelf`1").args([int32])
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct ClassSpec {
    pub(crate) name: String,
    pub(crate) enclosing: Vec<String>,
    pub(crate) args: Vec<ClassId>,
    pub(crate) generic_params: Option<Vec<String>>,
    pub(crate) parent: Option<ClassId>,
}

impl ClassSpec {
    /// The class with this metadata name: with the namespace, and with the arity of a generic class (`` List`1 ``).
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned(), enclosing: Vec::new(), args: Vec::new(), generic_params: None, parent: None }
    }

    /// The class is nested in the one with this name; for several levels, name the outermost first.
    pub fn nested_in(mut self, enclosing: &str) -> Self {
        self.enclosing.push(enclosing.to_owned());
        self
    }

    /// Its type arguments; those of the enclosing classes come first.
    pub fn args(mut self, args: impl IntoIterator<Item = ClassId>) -> Self {
        self.args = args.into_iter().collect();
        self
    }

    /// The names of its type parameters; those of the enclosing classes come first. The default is `T`, or `T0`, `T1`,
    /// …
    pub fn generic_params<'n>(mut self, names: impl IntoIterator<Item = &'n str>) -> Self {
        self.generic_params = Some(names.into_iter().map(str::to_owned).collect());
        self
    }

    /// Its base class.
    pub fn parent(mut self, parent: ClassId) -> Self {
        self.parent = Some(parent);
        self
    }
}

impl From<&str> for ClassSpec {
    fn from(name: &str) -> Self {
        Self::new(name)
    }
}

/// The type of a parameter or a result. A [`ClassId`] converts to one.
#[derive(Clone, Debug)]
pub enum Param {
    /// A class, an array, an instantiation.
    Class(ClassId),
    /// The type parameter of the class with this number, from 0.
    TypeParam(u32),
    /// The type parameter of the method with this number, from 0.
    MethodParam(u32),
    /// A reference to a variable of the type.
    ByRef(Box<Param>),
}

impl From<ClassId> for Param {
    fn from(class: ClassId) -> Self {
        Self::Class(class)
    }
}

impl Param {
    fn spell(&self, world: &mut World, module: usize, signature: &mut Vec<u8>) {
        match self {
            Self::Class(class) => spell(world, module, class.as_raw(), signature),
            Self::TypeParam(at) => {
                signature.push(element(sys::ELEMENT_TYPE_VAR));
                compressed(*at, signature);
            }
            Self::MethodParam(at) => {
                signature.push(element(sys::ELEMENT_TYPE_MVAR));
                compressed(*at, signature);
            }
            Self::ByRef(inner) => {
                signature.push(element(sys::ELEMENT_TYPE_BYREF));
                inner.spell(world, module, signature);
            }
        }
    }
}

/// A function: a method of a class, with its type arguments. A `&str` converts to one without parameters.
#[derive(Clone, Debug)]
#[must_use]
pub struct FunctionSpec {
    pub(crate) name: String,
    takes: Vec<Param>,
    returns: Option<Param>,
    pub(crate) is_static: bool,
    pub(crate) is_shared: bool,
    pub(crate) args: Vec<ClassId>,
    pub(crate) generic_params: Vec<String>,
    signature: Option<Vec<u8>>,
}

impl FunctionSpec {
    /// The method with this name: static, without parameters and result.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            takes: Vec::new(),
            returns: None,
            is_static: true,
            is_shared: false,
            args: Vec::new(),
            generic_params: Vec::new(),
            signature: None,
        }
    }

    /// The types of its parameters.
    pub fn takes(mut self, takes: impl IntoIterator<Item = impl Into<Param>>) -> Self {
        self.takes = takes.into_iter().map(Into::into).collect();
        self
    }

    /// The type of its result.
    pub fn returns(mut self, returns: impl Into<Param>) -> Self {
        self.returns = Some(returns.into());
        self
    }

    /// It is an instance method.
    pub fn instance(mut self) -> Self {
        self.is_static = false;
        self
    }

    /// Its code is shared between instantiations. Before .NET 10 the runtime does not return the class of such a
    /// function without a frame; .NET 10 returns the class over `System.__Canon`.
    pub fn shared(mut self) -> Self {
        self.is_shared = true;
        self
    }

    /// It is generic, with type parameters of these names.
    pub fn generic_params<'n>(mut self, names: impl IntoIterator<Item = &'n str>) -> Self {
        self.generic_params = names.into_iter().map(str::to_owned).collect();
        self
    }

    /// Its own type arguments, without those of its class.
    pub fn args(mut self, args: impl IntoIterator<Item = ClassId>) -> Self {
        self.args = args.into_iter().collect();
        self
    }

    /// The bytes of its signature, if the other methods cannot express it, or if it is malformed on purpose.
    pub fn signature(mut self, signature: &[u8]) -> Self {
        self.signature = Some(signature.to_owned());
        self
    }

    /// The signature, encoded for `module`.
    pub(crate) fn spell(&self, world: &mut World, module: usize) -> Vec<u8> {
        if let Some(signature) = &self.signature {
            return signature.clone();
        }
        let mut signature = vec![];
        let this = if self.is_static { 0 } else { HAS_THIS };
        let generic = !self.generic_params.is_empty();
        signature.push(this | if generic { GENERIC } else { 0 });
        if generic {
            compressed(self.generic_params.len() as u32, &mut signature);
        }
        compressed(self.takes.len() as u32, &mut signature);
        match &self.returns {
            Some(returns) => returns.spell(world, module, &mut signature),
            None => signature.push(element(sys::ELEMENT_TYPE_VOID)),
        }
        for param in &self.takes {
            param.spell(world, module, &mut signature);
        }
        signature
    }
}

impl From<&str> for FunctionSpec {
    fn from(name: &str) -> Self {
        Self::new(name)
    }
}

/// An object on the heap of a fake CLR. Its address changes when it moves; this does not.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FakeObject(pub(crate) usize);

/// A function on the stack that an exception passes, with its blocks.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Frame {
    pub(crate) function: FunctionId,
    pub(crate) filters: bool,
    pub(crate) finally: bool,
    pub(crate) catches: bool,
}

impl Frame {
    /// It has no blocks.
    pub const fn new(function: FunctionId) -> Self {
        Self { function, filters: false, finally: false, catches: false }
    }

    /// It has a filter, which runs.
    pub const fn filter(mut self) -> Self {
        self.filters = true;
        self
    }

    /// It has a finally block, which runs.
    pub const fn finally(mut self) -> Self {
        self.finally = true;
        self
    }

    /// It catches the exception.
    pub const fn catch(mut self) -> Self {
        self.catches = true;
        self
    }
}

//! The kinds of values on the stack, and the kind of each type.

use rustc_hash::FxHashMap;

use super::resolve::{Category, Resolve, TypeInfo, WellKnown};
use crate::signature::{MethodSignature, Primitive, Type};
use crate::token::{Table, Token};

/// Names a value type that was met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct TypeId(u32);

/// What a managed pointer points to.
///
/// .NET's optimiser reads a read-only static field while it compiles, and dies if what it finds there is no reference
/// though an instruction, or a method that it inlines, takes it for one (tests/live/il.rs).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// An object's reference.
    Reference,
    /// A number or an unmanaged pointer.
    Number,
    /// A value of this type, which may hold references.
    Value(TypeId),
}

/// The kind of a value on the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Int32,
    /// A smaller integer as it was loaded, or added to others: an `int32`, but not for a parameter that is a native
    /// int, as the compiler of .NET widens an `int32` only.
    Small,
    Int64,
    /// A native integer or an unmanaged pointer.
    Native,
    /// A native integer that the compiler of .NET takes for an `int32`, on some paths at least, as the length of an
    /// array: a native integer, but not for a parameter that is a managed pointer.
    Mixed,
    Float,
    /// A managed pointer.
    Ref,
    /// A managed pointer to such a target, as a signature, a field or a variable has it.
    To(Target),
    Object,
    /// An array whose elements are not references: an object, but not for `stelem.ref`, of which .NET 10's optimiser
    /// dies.
    Values,
    /// An array whose elements are of this generic parameter, so that they may be no references.
    Elements(TypeId),
    /// The address of this method, as `ldftn` gives it: a native integer, but for the constructors of delegates.
    Function(Token),
    Value(TypeId),
    /// A value type of which the name is all that is known: it may be an enumeration, but it is neither an object nor a
    /// pointer.
    Named(TypeId),
    /// Unknown; fits every kind.
    Unknown,
}

impl Kind {
    /// A value type of which not even the name is known.
    const NAMELESS: Self = Self::Named(TypeId(u32::MAX));

    pub(super) const fn is_address(self) -> bool {
        matches!(self, Self::Ref | Self::Native | Self::Unknown)
    }

    pub(super) const fn is_index(self) -> bool {
        matches!(self, Self::Int32 | Self::Native | Self::Named(_) | Self::Unknown)
    }

    pub(super) const fn is_integer(self) -> bool {
        matches!(self, Self::Int32 | Self::Int64 | Self::Native | Self::Named(_) | Self::Unknown)
    }

    pub(super) const fn is_number(self) -> bool {
        self.is_integer() || matches!(self, Self::Float)
    }

    /// Whether it is of a value type that is known.
    pub(super) fn is_value(self) -> bool {
        matches!(self, Self::Value(_) | Self::Named(_)) && self != Self::NAMELESS
    }

    /// Whether a value of this kind may go where `to` is wanted (ECMA-335 III.1.6).
    pub(super) fn fits(self, to: Self) -> bool {
        match (self, to) {
            (Self::Unknown, _) | (_, Self::Unknown) => true,
            (Self::Named(_), other) | (other, Self::Named(_)) => !matches!(other, Self::Object | Self::Ref),
            (Self::Int32 | Self::Ref, Self::Native) | (Self::Native, Self::Ref) => true,
            _ => self == to,
        }
    }

    /// The kind as all instructions see it, but those with elements, `newobj`, and calls with native ints.
    pub(super) const fn plain(self) -> Self {
        match self {
            Self::Small => Self::Int32,
            Self::Values | Self::Elements(_) => Self::Object,
            Self::Function(_) | Self::Mixed => Self::Native,
            Self::To(_) => Self::Ref,
            other => other,
        }
    }

    /// The operand of an operation that it takes for a number: of a value type that may be an enumeration the type is
    /// unknown.
    pub(super) const fn computed(self) -> Self {
        if let Self::Named(_) = self { Self::Unknown } else { self }
    }

    /// The address of a variable or a place of this kind.
    pub(super) const fn address(self) -> Self {
        match self.plain() {
            Self::Object => Self::To(Target::Reference),
            Self::Int32 | Self::Int64 | Self::Native | Self::Float => Self::To(Target::Number),
            Self::NAMELESS => Self::Ref,
            Self::Value(id) | Self::Named(id) => Self::To(Target::Value(id)),
            _ => Self::Ref,
        }
    }

    /// The kind of a call's result: runtimes widen small integers there.
    pub(super) fn widened(self) -> Self {
        if self == Self::Small { Self::Int32 } else { self }
    }

    /// An array of elements of this kind.
    pub(super) const fn array(self) -> Self {
        match self {
            Self::Object | Self::Values | Self::Elements(_) | Self::Unknown => Self::Object,
            _ => Self::Values,
        }
    }

    /// The kind on the stack where two paths meet; `None` if they do not fit.
    pub(super) fn merge(self, other: Self) -> Option<Self> {
        match (self, other) {
            _ if self == other => Some(self),
            (Self::Unknown, _) | (_, Self::Unknown) => Some(Self::Unknown),
            (Self::Named(_), other) | (other, Self::Named(_)) => {
                let is_value = !matches!(other.plain(), Self::Object | Self::Ref);
                is_value.then_some(Self::NAMELESS)
            }
            (Self::Small, Self::Int32) | (Self::Int32, Self::Small) => Some(Self::Small),
            (Self::Small, other) | (other, Self::Small) => Self::Int32.merge(other),
            (Self::Int32, Self::Native) | (Self::Native, Self::Int32) => Some(Self::Mixed),
            (Self::Mixed, other) | (other, Self::Mixed) => {
                matches!(other.plain(), Self::Int32 | Self::Native).then_some(Self::Mixed)
            }
            (Self::To(_), other) | (other, Self::To(_)) => Self::Ref.merge(other.plain()),
            (Self::Ref, Self::Native) | (Self::Native, Self::Ref) => Some(Self::Ref),
            (Self::Object | Self::Values | Self::Elements(_), Self::Object | Self::Values | Self::Elements(_)) => {
                Some(Self::Object)
            }
            (Self::Function(_), other) | (other, Self::Function(_)) => Self::Native.merge(other.plain()),
            _ => None,
        }
    }
}

/// The arguments for generic parameters of a signature; a parameter without one stays.
#[derive(Clone, Copy, Default)]
pub(super) struct Scope<'a> {
    pub(super) of_type: Option<&'a [Type]>,
    pub(super) of_method: Option<&'a [Type]>,
}

impl<'a> Scope<'a> {
    fn argument(&self, ty: &Type) -> Option<&'a Type> {
        match ty {
            Type::TypeParameter(number) => self.of_type?.get(*number as usize),
            Type::MethodParameter(number) => self.of_method?.get(*number as usize),
            _ => None,
        }
    }
}

/// The longest spelling of a value type that is distinguished from others.
const LONGEST_KEY: usize = 8 << 10;

/// The value types that were met, by a spelling that is the same for the same type.
#[derive(Default)]
pub(super) struct Types {
    ids: FxHashMap<Box<[u8]>, TypeId>,
    names: Vec<String>,
    /// Those that are generic parameters.
    parameters: Vec<TypeId>,
    named: FxHashMap<Token, Kind>,
    infos: FxHashMap<Token, Option<TypeInfo>>,
    specs: FxHashMap<Token, Option<std::rc::Rc<Type>>>,
    generic: FxHashMap<Token, bool>,
    key: Vec<u8>,
    /// The kind of integers that are native ints in this module, if it is for processors of one width only.
    native: Option<Kind>,
}

/// The kind of a type as an instruction's operand.
pub(super) struct Operand {
    pub(super) kind: Kind,
    pub(super) is_void: bool,
    pub(super) is_by_ref: bool,
}

impl Types {
    /// No types yet, of a module in which this integer is a native int.
    pub(super) fn new(native_int: Option<Primitive>) -> Self {
        let native = match native_int {
            Some(Primitive::Int32) => Some(Kind::Int32),
            Some(Primitive::Int64) => Some(Kind::Int64),
            _ => None,
        };
        Self { native, ..Self::default() }
    }

    /// The kind in this module.
    #[inline]
    pub(super) fn sized(&self, kind: Kind) -> Kind {
        if self.native == Some(kind.plain()) { Kind::Native } else { kind }
    }

    /// Whether a value may go where `wanted` is wanted: besides what always fits, compilers of code for one width of
    /// processors have a native int cut to an `int32`.
    pub(super) fn fits(&self, found: Kind, wanted: Kind) -> bool {
        found.fits(wanted) || self.native.is_some() && (found, wanted) == (Kind::Native, Kind::Int32)
    }

    pub(super) fn name(&self, kind: Kind) -> String {
        match kind {
            Kind::Int32 | Kind::Small => "int32".into(),
            Kind::Int64 => "int64".into(),
            Kind::Native | Kind::Function(_) | Kind::Mixed => "native int".into(),
            Kind::Float => "float".into(),
            Kind::Ref => "managed pointer".into(),
            Kind::To(Target::Reference) => "address of a reference".into(),
            Kind::To(Target::Number) => "address of a number".into(),
            Kind::To(Target::Value(id)) => format!("address of {}", self.name(Kind::Value(id))),
            Kind::Object => "object".into(),
            Kind::Values | Kind::Elements(_) => "array of values".into(),
            Kind::NAMELESS => "a value type".into(),
            Kind::Value(id) | Kind::Named(id) => self.names.get(id.0 as usize).cloned().unwrap_or_default(),
            Kind::Unknown => "unknown".into(),
        }
    }

    /// The kind of a primitive type; nothing for `void`.
    pub(super) fn of_primitive(&mut self, primitive: Primitive) -> Option<Kind> {
        use Primitive as P;
        Some(match primitive {
            P::Void => return None,
            P::Bool | P::Char | P::Int8 | P::UInt8 | P::Int16 | P::UInt16 => Kind::Small,
            P::Int32 | P::UInt32 => Kind::Int32,
            P::Int64 | P::UInt64 => Kind::Int64,
            P::Float32 | P::Float64 => Kind::Float,
            P::String | P::Object => Kind::Object,
            P::NativeInt | P::NativeUInt => Kind::Native,
            P::TypedRef => self.well_known(WellKnown::Primitive(P::TypedRef)),
        })
    }

    /// The kind of a value type that instructions make themselves.
    pub(super) fn well_known(&mut self, of: WellKnown) -> Kind {
        self.key.clear();
        let (number, name) = match of {
            WellKnown::TypeHandle => (1, "valuetype System.RuntimeTypeHandle"),
            WellKnown::MethodHandle => (2, "valuetype System.RuntimeMethodHandle"),
            WellKnown::FieldHandle => (3, "valuetype System.RuntimeFieldHandle"),
            WellKnown::ArgumentHandle => (4, "valuetype System.RuntimeArgumentHandle"),
            WellKnown::Primitive(_) => (0, "typedref"),
        };
        self.key.extend([b'w', number]);
        self.intern(|| name.into())
    }

    fn intern(&mut self, name: impl FnOnce() -> String) -> Kind {
        if let Some(id) = self.ids.get(self.key.as_slice()) {
            return Kind::Value(*id);
        }
        let id = TypeId(self.names.len() as u32);
        self.names.push(name());
        if matches!(self.key.first(), Some(b't' | b'm')) {
            self.parameters.push(id);
        }
        self.ids.insert(self.key.as_slice().into(), id);
        Kind::Value(id)
    }

    /// Whether a value type is a generic parameter, for which any type can stand.
    pub(super) fn is_parameter(&self, id: TypeId) -> bool {
        self.parameters.contains(&id)
    }

    /// The kind that the fields and methods of a named type are of, though that it is a value type is not known.
    pub(super) fn holder<R: Resolve + ?Sized>(&mut self, resolve: &R, token: Token) -> Kind {
        match self.of_token(resolve, token) {
            Some(Kind::Unknown) => self.named(resolve, token),
            known => known.unwrap_or(Kind::Unknown),
        }
    }

    pub(super) fn spec<R: Resolve + ?Sized>(&mut self, resolve: &R, token: Token) -> Option<std::rc::Rc<Type>> {
        let found = self.specs.entry(token);
        found.or_insert_with(|| resolve.type_spec(token).map(std::rc::Rc::new)).clone()
    }

    /// Whether a token names a generic type without arguments.
    pub(super) fn is_open<R: Resolve + ?Sized>(&mut self, resolve: &R, token: Token) -> bool {
        let is_named = matches!(token.table(), Some(Table::TypeDef | Table::TypeRef));
        is_named && *self.generic.entry(token).or_insert_with(|| resolve.is_generic(token))
    }

    /// Whether a token names one of the types that point to arguments, which instructions make themselves.
    pub(super) fn is_argument_pointer<R: Resolve + ?Sized>(&mut self, resolve: &R, token: Token) -> bool {
        let known = self.info(resolve, token).and_then(|info| info.well_known);
        matches!(known, Some(WellKnown::Primitive(Primitive::TypedRef) | WellKnown::ArgumentHandle))
    }

    /// The kind of a type in a signature; nothing for `void`.
    pub(super) fn kind<R: Resolve + ?Sized>(&mut self, resolve: &R, ty: &Type, scope: Scope<'_>) -> Option<Kind> {
        Some(match ty {
            Type::Primitive(primitive) => return self.of_primitive(*primitive),
            Type::SzArray(element) => match (element.unmodified(), scope.argument(element.unmodified())) {
                (Type::TypeParameter(_) | Type::MethodParameter(_), None) => {
                    match self.value(resolve, element, scope) {
                        Kind::Value(id) => Kind::Elements(id),
                        _ => Kind::Object,
                    }
                }
                _ => self.kind(resolve, element, scope).map_or(Kind::Object, Kind::array),
            },
            Type::Class(_) | Type::Array(..) | Type::Generic { value_type: false, .. } => Kind::Object,
            Type::ByRef(to) => self.kind(resolve, to, scope).unwrap_or(Kind::Unknown).address(),
            Type::Pointer(_) | Type::FunctionPointer(_) => Kind::Native,
            Type::ValueType(token) => match self.of_token(resolve, token.token())? {
                Kind::Unknown => self.named(resolve, token.token()),
                known => known,
            },
            Type::Modified { inner, .. } | Type::InternalModified { inner, .. } | Type::Pinned(inner) => {
                return self.kind(resolve, inner, scope);
            }
            Type::TypeParameter(_) | Type::MethodParameter(_) => match scope.argument(ty) {
                Some(argument) => return self.kind(resolve, argument, Scope::default()),
                None => self.value(resolve, ty, scope),
            },
            Type::Generic { definition, .. } => match self.of_token(resolve, definition.token())? {
                // An enumeration in a generic type is generic itself.
                Kind::Value(_) => self.value(resolve, ty, scope),
                Kind::Named(_) | Kind::Unknown => match self.value(resolve, ty, scope) {
                    Kind::Value(id) => Kind::Named(id),
                    _ => Kind::NAMELESS,
                },
                other => other,
            },
            Type::Internal(_) => Kind::Unknown,
        })
    }

    fn value<R: Resolve + ?Sized>(&mut self, resolve: &R, ty: &Type, scope: Scope<'_>) -> Kind {
        let mut key = std::mem::take(&mut self.key);
        key.clear();
        let is_told = self.spell(resolve, ty, scope, &mut key).is_some();
        self.key = key;
        if is_told { self.intern(|| ty.to_string()) } else { Kind::Unknown }
    }

    /// The kind of a value type that is not at hand.
    fn named<R: Resolve + ?Sized>(&mut self, resolve: &R, token: Token) -> Kind {
        let Some(info) = self.info(resolve, token) else { return Kind::NAMELESS };
        self.key.clear();
        self.key.push(b'u');
        self.key.extend(info.identity.to_le_bytes());
        match self.intern(|| format!("valuetype {token}")) {
            Kind::Value(id) => Kind::Named(id),
            other => other,
        }
    }

    /// The kind of a named type; nothing for `void`.
    pub(super) fn of_token<R: Resolve + ?Sized>(&mut self, resolve: &R, token: Token) -> Option<Kind> {
        if let Some(kind) = self.named.get(&token) {
            return Some(*kind);
        }
        let Some(info) = self.info(resolve, token) else { return Some(Kind::Unknown) };
        let kind = match (info.well_known, info.category) {
            (Some(WellKnown::Primitive(primitive)), _) => self.of_primitive(primitive)?,
            (Some(other), _) => self.well_known(other),
            (None, Category::Reference) => Kind::Object,
            (None, Category::Enum(primitive)) => self.of_primitive(primitive)?,
            (None, Category::Unknown) => Kind::Unknown,
            (None, Category::ValueOrEnum) => self.named(resolve, token),
            (None, Category::Value) => {
                self.key.clear();
                self.key.push(b'n');
                self.key.extend(info.identity.to_le_bytes());
                self.intern(|| format!("valuetype {token}"))
            }
        };
        self.named.insert(token, kind);
        Some(kind)
    }

    /// The kind of a type's token as an instruction's operand; `None` if it names no type.
    pub(super) fn operand<R: Resolve + ?Sized>(&mut self, resolve: &R, token: Token) -> Option<Operand> {
        use crate::token::Table;
        let kind = match token.table() {
            Some(Table::TypeDef | Table::TypeRef) => {
                self.info(resolve, token)?;
                self.of_token(resolve, token)
            }
            Some(Table::TypeSpec) => {
                let ty = self.spec(resolve, token)?;
                let is_by_ref = matches!(ty.unmodified(), Type::ByRef(_));
                let kind = self.kind(resolve, &ty, Scope::default());
                let is_void = kind.is_none() || ty.has_misplaced_void();
                return Some(Operand { kind: kind.unwrap_or(Kind::Unknown), is_void, is_by_ref });
            }
            _ => return None,
        };
        Some(Operand { kind: kind.unwrap_or(Kind::Unknown), is_void: kind.is_none(), is_by_ref: false })
    }
}

impl Types {
    /// The metadata's facts about a named type, read once.
    fn info<R: Resolve + ?Sized>(&mut self, resolve: &R, token: Token) -> Option<TypeInfo> {
        *self.infos.entry(token).or_insert_with(|| resolve.type_info(token))
    }

    /// Writes a type so that the same type is spelt the same, whichever tokens name it; `None` if it is too long or not
    /// known.
    fn spell<R: Resolve + ?Sized>(
        &mut self,
        resolve: &R,
        ty: &Type,
        scope: Scope<'_>,
        key: &mut Vec<u8>,
    ) -> Option<()> {
        if key.len() > LONGEST_KEY {
            return None;
        }
        match ty {
            Type::Primitive(primitive) => key.extend([b'p', primitive.as_element()]),
            Type::Class(token) | Type::ValueType(token) => {
                let info = self.info(resolve, token.token())?;
                if let Some(WellKnown::Primitive(primitive)) = info.well_known {
                    key.extend([b'p', primitive.as_element()]);
                } else {
                    key.push(b'n');
                    key.extend(info.identity.to_le_bytes());
                }
            }
            Type::Pointer(inner) => return self.around(resolve, b'*', inner, scope, key),
            Type::ByRef(inner) => return self.around(resolve, b'&', inner, scope, key),
            Type::SzArray(inner) => return self.around(resolve, b'[', inner, scope, key),
            Type::Array(inner, shape) => {
                key.push(shape.rank as u8);
                return self.around(resolve, b'a', inner, scope, key);
            }
            Type::Modified { inner, .. } | Type::InternalModified { inner, .. } | Type::Pinned(inner) => {
                return self.spell(resolve, inner, scope, key);
            }
            Type::TypeParameter(number) | Type::MethodParameter(number) => match scope.argument(ty) {
                Some(argument) => return self.spell(resolve, argument, Scope::default(), key),
                None => {
                    key.push(if matches!(ty, Type::TypeParameter(_)) { b't' } else { b'm' });
                    key.extend(number.to_le_bytes());
                }
            },
            Type::Generic { definition, arguments, .. } => {
                let info = self.info(resolve, definition.token())?;
                key.push(b'g');
                key.extend(info.identity.to_le_bytes());
                key.extend((arguments.len() as u32).to_le_bytes());
                for argument in arguments {
                    self.spell(resolve, argument, scope, key)?;
                }
            }
            Type::FunctionPointer(method) => {
                let MethodSignature { convention, parameters, return_type, .. } = &**method;
                key.extend([b'f', *convention as u8]);
                key.extend((parameters.len() as u32).to_le_bytes());
                for part in parameters.iter().chain([return_type]) {
                    self.spell(resolve, part, scope, key)?;
                }
            }
            Type::Internal(_) => return None,
        }
        Some(())
    }

    fn around<R: Resolve + ?Sized>(
        &mut self,
        resolve: &R,
        tag: u8,
        inner: &Type,
        scope: Scope<'_>,
        key: &mut Vec<u8>,
    ) -> Option<()> {
        key.push(tag);
        self.spell(resolve, inner, scope, key)
    }
}

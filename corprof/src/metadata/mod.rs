//! Metadata: a module's own description of its types and members.
//!
//! [`MetadataImport`] reads a module's metadata, [`MetadataEmit`] adds to it, [`Token`] and its relatives identify
//! rows, [`signature`] decodes the blobs that describe types and methods. All of it is freed with the module. The
//! questions are in files by subject: `types`, `members`, `properties`, `generics`, `attributes`, `references`,
//! `strings`; `names` makes text of the answers.

mod attributes;
mod constant;
mod emit;
mod generics;
mod import;
mod members;
mod of_runtime;
mod properties;
mod raw;
mod references;
mod signature_checks;
mod strings;
mod types;

pub use attributes::CustomAttributeProps;
pub use constant::Constant;
pub use corprof_il::signature;
pub use corprof_il::token::{
    Assembly, AssemblyRef, CustomAttribute, Event, ExportedType, FieldDef, File, GenericParam, GenericParamConstraint,
    InterfaceImpl, MemberRef, MethodDef, MethodSpec, Module, ModuleRef, ParamDef, Property, StandAloneSignature, Table,
    Token, TypeDef, TypeDefOrRef, TypeRef, TypeSpec, UserString, WrongTable,
};
pub use emit::MetadataEmit;
pub use generics::GenericParamProps;
pub use import::MetadataImport;
pub use members::{FieldProps, MemberRefProps, MethodProps, MethodSpecProps, ParamProps};
pub(crate) use of_runtime::{
    CORE_LIBRARY, NATIVE, SUSPENDING, TASKS, awaited, dispatches_tail_calls, is_core_library, is_of_the_runtime,
    is_suspended_by_the_runtime,
};
pub use properties::{EventProps, PropertyProps};
pub use references::{AssemblyIdentity, ExportedTypeProps, PinvokeMap};
pub(crate) use types::is_nested;
pub use types::{InterfaceImplProps, TypeDefProps, TypeRefProps};

#[cfg(test)]
mod tests {
    use corprof_sys as sys;

    use super::signature::Primitive;
    use super::signature::cursor::element;

    /// The grammar is written from the standard; the runtime's header is a second source.
    #[test]
    fn element_types_are_those_of_the_runtime() {
        let primitives = [
            (sys::ELEMENT_TYPE_VOID, Primitive::Void),
            (sys::ELEMENT_TYPE_BOOLEAN, Primitive::Bool),
            (sys::ELEMENT_TYPE_CHAR, Primitive::Char),
            (sys::ELEMENT_TYPE_I1, Primitive::Int8),
            (sys::ELEMENT_TYPE_U1, Primitive::UInt8),
            (sys::ELEMENT_TYPE_I2, Primitive::Int16),
            (sys::ELEMENT_TYPE_U2, Primitive::UInt16),
            (sys::ELEMENT_TYPE_I4, Primitive::Int32),
            (sys::ELEMENT_TYPE_U4, Primitive::UInt32),
            (sys::ELEMENT_TYPE_I8, Primitive::Int64),
            (sys::ELEMENT_TYPE_U8, Primitive::UInt64),
            (sys::ELEMENT_TYPE_R4, Primitive::Float32),
            (sys::ELEMENT_TYPE_R8, Primitive::Float64),
            (sys::ELEMENT_TYPE_STRING, Primitive::String),
            (sys::ELEMENT_TYPE_OBJECT, Primitive::Object),
            (sys::ELEMENT_TYPE_TYPEDBYREF, Primitive::TypedRef),
            (sys::ELEMENT_TYPE_I, Primitive::NativeInt),
            (sys::ELEMENT_TYPE_U, Primitive::NativeUInt),
        ];
        for (theirs, primitive) in primitives {
            assert_eq!(u32::from(primitive.as_element()), theirs.0, "{primitive:?}");
        }
        let others = [
            (sys::ELEMENT_TYPE_PTR, element::PTR),
            (sys::ELEMENT_TYPE_BYREF, element::BYREF),
            (sys::ELEMENT_TYPE_VALUETYPE, element::VALUETYPE),
            (sys::ELEMENT_TYPE_CLASS, element::CLASS),
            (sys::ELEMENT_TYPE_VAR, element::VAR),
            (sys::ELEMENT_TYPE_ARRAY, element::ARRAY),
            (sys::ELEMENT_TYPE_GENERICINST, element::GENERICINST),
            (sys::ELEMENT_TYPE_FNPTR, element::FNPTR),
            (sys::ELEMENT_TYPE_SZARRAY, element::SZARRAY),
            (sys::ELEMENT_TYPE_MVAR, element::MVAR),
            (sys::ELEMENT_TYPE_CMOD_REQD, element::CMOD_REQD),
            (sys::ELEMENT_TYPE_CMOD_OPT, element::CMOD_OPT),
            (sys::ELEMENT_TYPE_INTERNAL, element::INTERNAL),
            (sys::ELEMENT_TYPE_SENTINEL, element::SENTINEL),
            (sys::ELEMENT_TYPE_PINNED, element::PINNED),
        ];
        for (theirs, ours) in others {
            assert_eq!(u32::from(ours), theirs.0);
        }
    }
}

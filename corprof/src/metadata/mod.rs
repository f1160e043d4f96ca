//! Metadata: what a module says about its types and members.
//!
//! [`MetadataImport`] asks a module's metadata, [`MetadataEmit`] adds to it, [`Token`] and its kin name rows of it,
//! [`signature`] decodes the blobs that describe types and methods. All of it dies with the module. The questions are in
//! files by what is asked about: `types`, `members`, `properties`, `generics`, `attributes`, `references`, `strings`;
//! `names` puts the answers together into text.

mod attributes;
mod constant;
mod emit;
mod generics;
mod import;
mod members;
mod properties;
mod raw;
mod references;
pub mod signature;
mod strings;
mod token;
mod types;

pub use attributes::CustomAttributeProps;
pub use constant::Constant;
pub use emit::MetadataEmit;
pub use generics::GenericParamProps;
pub use import::MetadataImport;
pub use members::{FieldProps, MemberRefProps, MethodProps, MethodSpecProps, ParamProps};
pub use properties::{EventProps, PropertyProps};
pub use references::{AssemblyIdentity, ExportedTypeProps, PinvokeMap};
pub use token::{
    Assembly, AssemblyRef, CustomAttribute, Event, ExportedType, FieldDef, File, GenericParam, GenericParamConstraint,
    InterfaceImpl, MemberRef, MethodDef, MethodSpec, Module, ModuleRef, ParamDef, Property, StandAloneSignature, Table,
    Token, TypeDef, TypeDefOrRef, TypeRef, TypeSpec, UserString, WrongTable,
};
pub(crate) use types::is_nested;
pub use types::{InterfaceImplProps, TypeDefProps, TypeRefProps};

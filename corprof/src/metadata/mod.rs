//! Metadata: what a module says about its types and members.
//!
//! [`MetadataImport`] asks a module's metadata, [`Token`] and its kin name rows of it, [`signature`] decodes the blobs that
//! describe types and methods. All of it is read-only, and dies with the module. `names` puts it together into text.

mod import;
pub mod signature;
mod token;

pub use import::{GenericParamProps, MemberRefProps, MetadataImport, MethodProps, TypeDefProps, TypeRefProps};
pub use token::{
    Assembly, AssemblyRef, CustomAttribute, Event, ExportedType, FieldDef, File, GenericParam, GenericParamConstraint,
    InterfaceImpl, MemberRef, MethodDef, MethodSpec, Module, ModuleRef, ParamDef, Property, StandAloneSignature, Table,
    Token, TypeDef, TypeDefOrRef, TypeRef, TypeSpec, UserString, WrongTable,
};

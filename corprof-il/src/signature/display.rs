//! Types and signatures as IL assembly spells them, with tokens for names.

use std::fmt;

use super::{CallingConvention, MethodSignature, Type};

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Primitive(primitive) => f.write_str(primitive.il_name()),
            Self::Class(token) => write!(f, "class {}", token.token()),
            Self::ValueType(token) => write!(f, "valuetype {}", token.token()),
            Self::Pointer(inner) => write!(f, "{inner}*"),
            Self::ByRef(inner) => write!(f, "{inner}&"),
            Self::SzArray(inner) => write!(f, "{inner}[]"),
            Self::Array(inner, shape) => write!(f, "{inner}[{}]", ",".repeat(shape.rank.clamp(1, 32) as usize - 1)),
            Self::Generic { value_type, definition, arguments } => {
                write!(f, "{} {}<", if *value_type { "valuetype" } else { "class" }, definition.token())?;
                list(f, arguments)?;
                f.write_str(">")
            }
            Self::TypeParameter(number) => write!(f, "!{number}"),
            Self::MethodParameter(number) => write!(f, "!!{number}"),
            Self::FunctionPointer(method) => write!(f, "method {method}"),
            Self::Modified { required, modifier, inner } => {
                write!(f, "{inner} {}({})", if *required { "modreq" } else { "modopt" }, modifier.token())
            }
            Self::Pinned(inner) => write!(f, "{inner} pinned"),
            Self::Internal(handle) => write!(f, "handle {handle:#x}"),
            Self::InternalModified { required, modifier, inner } => {
                write!(f, "{inner} {}(handle {modifier:#x})", if *required { "modreq" } else { "modopt" })
            }
        }
    }
}

impl fmt::Display for MethodSignature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.has_this {
            f.write_str(if self.explicit_this { "instance explicit " } else { "instance " })?;
        }
        f.write_str(match self.convention {
            CallingConvention::Default => "",
            CallingConvention::C => "unmanaged cdecl ",
            CallingConvention::StdCall => "unmanaged stdcall ",
            CallingConvention::ThisCall => "unmanaged thiscall ",
            CallingConvention::FastCall => "unmanaged fastcall ",
            CallingConvention::VarArg => "vararg ",
            CallingConvention::Unmanaged => "unmanaged ",
            CallingConvention::NativeVarArg => "unmanaged vararg ",
        })?;
        write!(f, "{} (", self.return_type)?;
        match self.sentinel {
            Some(at) if at <= self.parameters.len() => {
                let (fixed, variable) = self.parameters.split_at(at);
                list(f, fixed)?;
                f.write_str(if fixed.is_empty() { "..., " } else { ", ..., " })?;
                list(f, variable)?;
            }
            _ => list(f, &self.parameters)?,
        }
        f.write_str(")")
    }
}

fn list(f: &mut fmt::Formatter<'_>, types: &[Type]) -> fmt::Result {
    for (at, ty) in types.iter().enumerate() {
        write!(f, "{}{ty}", if at == 0 { "" } else { ", " })?;
    }
    Ok(())
}

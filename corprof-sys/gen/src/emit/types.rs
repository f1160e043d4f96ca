//! Types, and the items that name them: aliases, hook signatures, structures and unions.

use proc_macro2::TokenStream;
use quote::quote;

use super::{doc, ident};
use crate::model::{ArrayLength, CType, Model, Param, TypeKind};
use crate::sources::Input;

/// How Rust spells a type that is a field, a result or the meaning of an alias.
pub fn rust_type(model: &Model, ty: &CType) -> TokenStream {
    spell(model, ty, false)
}

/// `read`: an open array is only read, as an `[in]` one is.
fn spell(model: &Model, ty: &CType, read: bool) -> TokenStream {
    let mut pointers = ty.pointers;
    let kind = model.type_kind(&ty.base);
    let name = ident(ty.base.rsplit(' ').next().unwrap_or(&ty.base));
    let mut spelt = match kind {
        Some(TypeKind::Builtin(rust)) => rust.parse().unwrap_or_default(),
        Some(TypeKind::Opaque) => quote!(c_void),
        // A pointer to an interface is a value in Rust, and it may be null.
        Some(TypeKind::Interface) if pointers > 0 => {
            pointers -= 1;
            quote!(Option<#name>)
        }
        // The name of a function stands for a nullable pointer to it, with or without the `*`.
        Some(TypeKind::Function) => {
            pointers = pointers.saturating_sub(1);
            quote!(#name)
        }
        _ => quote!(#name),
    };
    // C's `const` belongs to the innermost pointer's target.
    for depth in 0..pointers {
        spelt = if depth == 0 && ty.constant { quote!(*const #spelt) } else { quote!(*mut #spelt) };
    }
    match ty.array {
        None => spelt,
        Some(ArrayLength::Fixed(length)) => quote!([#spelt; #length]),
        Some(ArrayLength::Open) if read || (ty.constant && pointers == 0) => quote!(*const #spelt),
        Some(ArrayLength::Open) => quote!(*mut #spelt),
    }
}

/// How Rust spells the type of a parameter.
pub(super) fn param_type(model: &Model, param: &Param) -> TokenStream {
    let ty = &param.ty;
    let read = param.is_in && !param.is_out;
    let scalar = ty.array.is_none();
    let interface = model.type_kind(&ty.base) == Some(TypeKind::Interface);
    match ty.base.as_str() {
        // Borrowed, not owned: the callee adds its own reference.
        _ if interface && ty.pointers == 1 && scalar && !param.is_out => {
            let name = ident(&ty.base);
            quote!(Ref<'_, #name>)
        }
        // GUIDs are lent.
        "GUID" if ty.pointers == 1 && scalar && read => quote!(*const GUID),
        // Headers say LPCWSTR also of buffers that are written to.
        "LPCWSTR" if ty.pointers == 0 && scalar && param.is_out && !param.is_in => quote!(*mut u16),
        _ => spell(model, ty, read),
    }
}

/// `name: type` of each parameter.
pub(super) fn params(model: &Model, params: &[Param]) -> Vec<TokenStream> {
    params
        .iter()
        .map(|param| {
            // A parameter that is called like a constant would be a pattern to be matched.
            let tail = if model.is_constant(&param.name) { "_" } else { "" };
            let name = ident(&format!("{}{tail}", param.name));
            let ty = param_type(model, param);
            quote!(#name: #ty)
        })
        .collect()
}

/// `-> type`, or nothing for `void`.
pub(super) fn returns(model: &Model, ty: &CType) -> Option<TokenStream> {
    (!ty.is_plain("void")).then(|| {
        let ty = rust_type(model, ty);
        quote!(-> #ty)
    })
}

/// A type as C writes it, with a name: for documentation.
pub(super) fn c_text(ty: &CType, name: &str) -> String {
    let constant = if ty.constant { "const " } else { "" };
    let array = match ty.array {
        None => String::new(),
        Some(ArrayLength::Open) => "[]".to_owned(),
        Some(ArrayLength::Fixed(length)) => format!("[{length}]"),
    };
    let space = if name.is_empty() { "" } else { " " };
    format!("{constant}{}{space}{}{name}{array}", ty.base, "*".repeat(ty.pointers))
}

/// A parameter as the IDL writes it: for documentation.
pub(super) fn idl_text(param: &Param) -> String {
    let size = param.size_is.as_ref().map(|size| format!("size_is({size})"));
    let length = param.length_is.as_ref().map(|length| format!("length_is({length})"));
    let words = [(param.is_in, "in"), (param.is_out, "out"), (param.is_string, "string")];
    let words = words.into_iter().filter(|(is, _)| *is).map(|(_, word)| word.to_owned());
    let words: Vec<String> = words.chain(size).chain(length).collect();
    let attributes = if words.is_empty() { String::new() } else { format!("[{}] ", words.join(", ")) };
    format!("{attributes}{}", c_text(&param.ty, &param.name))
}

/// Names for types.
pub(super) fn aliases(model: &Model, input: Input) -> TokenStream {
    let aliases = model.aliases.iter().filter(|alias| alias.input == input).map(|alias| {
        let name = ident(&alias.name);
        let ty = rust_type(model, &alias.ty);
        let doc = doc(format!("IDL: `{}`.", c_text(&alias.ty, "")));
        quote! {
            #doc
            pub type #name = #ty;
        }
    });
    aliases.collect()
}

/// Names for functions.
pub(super) fn functions(model: &Model, input: Input) -> TokenStream {
    let functions = model.functions.iter().filter(|function| function.input == input).map(|function| {
        let name = ident(&function.name);
        let params = params(model, &function.params);
        let returns = returns(model, &function.returns);
        let texts: Vec<String> = function.params.iter().map(idl_text).collect();
        let result = c_text(&function.returns, "");
        let doc = doc(format!("IDL: `{result} {}({})`; null is `None`.", function.name, texts.join(", ")));
        quote! {
            #doc
            pub type #name = Option<unsafe extern "system" fn(#(#params),*) #returns>;
        }
    });
    functions.collect()
}

/// Structures and unions.
pub(super) fn records(model: &Model, input: Input) -> TokenStream {
    let records = model.records.iter().filter(|record| record.input == input).map(|record| {
        let name = ident(&record.name);
        let fields = record.fields.iter().map(|(field, ty)| {
            let doc = doc(format!("IDL: `{}`.", c_text(ty, field)));
            let field = ident(field);
            let ty = rust_type(model, ty);
            quote! {
                #doc
                pub #field: #ty
            }
        });
        let (word, what) = if record.union { ("union", "Union") } else { ("struct", "Structure") };
        let word = ident_keyword(word);
        let doc = doc(format!("{what} `{}`.", record.name));
        // A union does not know which of its fields is in force, so it cannot show one.
        let derives = if record.union { quote!(Clone, Copy) } else { quote!(Clone, Copy, Debug) };
        quote! {
            #doc
            #[repr(C)]
            #[derive(#derives)]
            pub #word #name {
                #(#fields,)*
            }
        }
    });
    records.collect()
}

fn ident_keyword(word: &str) -> proc_macro2::Ident {
    proc_macro2::Ident::new(word, proc_macro2::Span::call_site())
}

//! The model to the files of `corprof-sys`.
//!
//! One file per family. Each emitter returns items; this module puts the head on them, says which names they use from
//! elsewhere, and has prettyplease lay them out. See `interfaces`, `enums`, `types`, `codes`, `layout`.

mod codes;
pub mod corprof;
mod enums;
mod interfaces;
mod layout;
mod types;

use std::collections::BTreeSet;

use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use quote::{format_ident, quote};

use crate::emitter::{Context, Output};
use crate::error::Error;
use crate::model::{Interface, Model};
use crate::sources::Input;

pub use types::rust_type;

/// Where the files of `corprof-sys` go.
const DIRECTORY: &str = "corprof-sys/src/generated";
/// Where the table for its tests goes.
const LAYOUT: &str = "corprof-sys/tests/generated/layout.rs";

/// Names that generated code uses from elsewhere.
const IMPORTS: [(&str, &str); 8] = [
    ("c_char", "core::ffi"),
    ("c_void", "core::ffi"),
    ("BOOL", "windows_core"),
    ("GUID", "windows_core"),
    ("HRESULT", "windows_core"),
    ("IUnknown", "windows_core"),
    ("Ref", "windows_core"),
    ("interface", "windows_core"),
];

/// A generated file of `corprof-sys`: its name, its first doc line, its inputs, its items.
struct Family {
    name: &'static str,
    about: &'static str,
    inputs: Vec<Input>,
    items: TokenStream,
}

/// The files of `corprof-sys`.
pub fn outputs(context: &Context) -> Result<Vec<Output>, Error> {
    let model = &context.model;
    let interfaces = |wanted: &dyn Fn(&Interface) -> bool| interfaces::emit(model, wanted);
    let corprof = |interface: &Interface| interface.input == Input::Corprof;
    let is_callback = |interface: &Interface| interface.name.starts_with("ICorProfilerCallback");
    let is_info = |interface: &Interface| interface.name.starts_with("ICorProfilerInfo");
    let supplement = [
        types::aliases(model, Input::Supplement),
        types::records(model, Input::Supplement),
        enums::emit(model, Input::Supplement),
        interfaces(&|interface| interface.input == Input::Supplement),
    ];
    let family = |name, about, input, items| Family { name, about, inputs: vec![input], items };
    let families = [
        family("types", "Identifiers, handles and hook signatures of the profiling API.", Input::Corprof, {
            let aliases = types::aliases(model, Input::Corprof);
            let functions = types::functions(model, Input::Corprof);
            quote!(#aliases #functions)
        }),
        family(
            "structs",
            "Structures and unions of the profiling API.",
            Input::Corprof,
            types::records(model, Input::Corprof),
        ),
        family(
            "enums",
            "Enumerations and flags of the profiling API.",
            Input::Corprof,
            enums::emit(model, Input::Corprof),
        ),
        family(
            "callback",
            "`ICorProfilerCallback` to `ICorProfilerCallback11`: the interfaces that a profiler implements.",
            Input::Corprof,
            interfaces(&is_callback),
        ),
        family(
            "info",
            "`ICorProfilerInfo` to `ICorProfilerInfo15`: the runtime's interfaces.",
            Input::Corprof,
            interfaces(&is_info),
        ),
        family(
            "support",
            "The small interfaces that come with the two large ones.",
            Input::Corprof,
            interfaces(&|interface| corprof(interface) && !is_callback(interface) && !is_info(interface)),
        ),
        family(
            "metadata",
            "The metadata interfaces.",
            Input::Metadata,
            interfaces(&|interface| interface.input == Input::Metadata),
        ),
        family(
            "corhdr",
            "Enumerations and flags of the metadata format.",
            Input::Corhdr,
            enums::emit(model, Input::Corhdr),
        ),
        family("errors", "Result codes and their names.", Input::Corerror, codes::emit(model)),
        family(
            "supplement",
            "Types that the other files use without declaring them.",
            Input::Supplement,
            supplement.into_iter().collect(),
        ),
    ];
    let mut outputs = vec![index(model, &families)?];
    for family in &families {
        outputs.push(file(model, family)?);
    }
    outputs.push(layout::emit(model, LAYOUT)?);
    Ok(outputs)
}

/// `mod.rs`: everything, flat.
fn index(model: &Model, families: &[Family]) -> Result<Output, Error> {
    let names: Vec<Ident> = families.iter().map(|family| format_ident!("{}", family.name)).collect();
    let body = quote! {
        #(mod #names;)*
        #(pub use #names::*;)*
    };
    output(model, &format!("{DIRECTORY}/mod.rs"), "The raw API, flat.", &Input::ALL, body)
}

fn file(model: &Model, family: &Family) -> Result<Output, Error> {
    let mut words = BTreeSet::new();
    collect(family.items.clone(), &mut words);
    let imports = ["core::ffi", "windows_core"].map(|module| {
        let names = IMPORTS.iter().filter(|(name, from)| *from == module && words.contains(*name));
        let names: Vec<Ident> = names.map(|(name, _)| format_ident!("{name}")).collect();
        let module: TokenStream = module.parse().unwrap_or_default();
        (!names.is_empty()).then(|| quote!(use #module::{#(#names),*};))
    });
    let own = declared(&family.items);
    let borrows = words.iter().any(|word| {
        let interface = word.strip_suffix("_Vtbl").or(word.strip_suffix("_Impl")).unwrap_or(word);
        model.kinds.contains_key(interface) && !own.contains(interface)
    });
    let glob = borrows.then(|| {
        quote!(
            use super::*;
        )
    });
    let items = &family.items;
    let allow = words
        .contains("interface")
        .then(|| quote!(#![allow(missing_docs, reason = "`#[interface]` also makes items that it does not document")]));
    let body = quote! {
        #allow
        #glob
        #(#imports)*
        #items
    };
    output(model, &format!("{DIRECTORY}/{}.rs", family.name), family.about, &family.inputs, body)
}

/// Lays a file out and puts its head on.
pub(crate) fn output(
    model: &Model,
    path: &str,
    about: &str,
    inputs: &[Input],
    body: TokenStream,
) -> Result<Output, Error> {
    let parsed: syn::File = syn::parse2(body).map_err(|source| Error::Emit { path: path.to_owned(), source })?;
    let text = tidy(model, &prettyplease::unparse(&parsed));
    let contents = format!("{}//! {about}\n\n{text}", model.stamp(inputs));
    Ok(Output { path: path.into(), contents })
}

/// How an interface starts when prettyplease has laid it out.
const INTERFACE: &str = "pub unsafe trait ";
/// How a method of one does.
const METHOD: &str = "    unsafe fn ";

/// The parts that prettyplease cannot format: an empty line between items, the inside of `bitflags!`, and `pub` before
/// the methods of a trait, which only `#[interface]` knows.
fn tidy(model: &Model, text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut previous = "";
    let mut in_interface = false;
    for line in text.lines() {
        in_interface = line.starts_with(INTERFACE) || (in_interface && line != "}");
        let starts = ["///", "#[", "impl", "use super", "bitflags_of!"].iter().any(|start| line.starts_with(start));
        let follows = previous.starts_with("///") || previous.starts_with("#[") || previous.is_empty();
        if starts && !follows {
            out.push('\n');
        }
        let flags = line.strip_prefix("bitflags_of!(").and_then(|rest| rest.strip_suffix(");"));
        match flags.and_then(|name| model.enumeration(name)) {
            Some(enumeration) => out.push_str(enums::flags_block(enumeration).trim_end()),
            None if in_interface && line.starts_with(METHOD) => {
                out.push_str("    pub");
                out.push_str(&line[3..]);
            }
            None => out.push_str(line),
        }
        out.push('\n');
        previous = line;
    }
    out
}

/// Every word of `tokens` that is not the rest of a path: those want an import.
fn collect(tokens: TokenStream, words: &mut BTreeSet<String>) {
    let mut colons = 0;
    for token in tokens {
        colons = match token {
            TokenTree::Punct(punct) if punct.as_char() == ':' => colons + 1,
            TokenTree::Ident(ident) => {
                if colons < 2 {
                    words.insert(ident.to_string());
                }
                0
            }
            TokenTree::Group(group) => {
                collect(group.stream(), words);
                0
            }
            _ => 0,
        };
    }
}

/// The names that items declare.
fn declared(items: &TokenStream) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut last = String::new();
    for token in items.clone() {
        match token {
            TokenTree::Ident(ident) => {
                if ["struct", "union", "type", "trait"].contains(&last.as_str()) {
                    names.insert(ident.to_string());
                }
                last = ident.to_string();
            }
            TokenTree::Group(group) if last == "bitflags_of" => {
                names.insert(group.stream().to_string());
            }
            _ => {}
        }
    }
    names
}

/// A Rust identifier: raw where the IDL's word is a keyword, with a tail where not even that is possible.
pub(crate) fn ident(name: &str) -> Ident {
    match name {
        "self" | "Self" | "super" | "crate" | "_" => format_ident!("{name}_"),
        _ => syn::parse_str::<Ident>(name).unwrap_or_else(|_| Ident::new_raw(name, Span::call_site())),
    }
}

/// A doc line.
pub(crate) fn doc(text: impl AsRef<str>) -> TokenStream {
    let text = format!(" {}", text.as_ref());
    quote!(#[doc = #text])
}

//! `#[derive(Profiler)]`: parses the struct and its `#[profiler(…)]`, and emits items.
//!
//! There is one function for each emitted item; [`expand`] merges them. `clsid.rs` parses CLSIDs; the trait `Profiler`
//! and the macro `export!` that the expansion uses are in `corprof`.

use proc_macro2::{Ident, Literal, Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::ext::IdentExt as _;
use syn::meta::ParseNestedMeta;
use syn::spanned::Spanned as _;
use syn::{Data, DeriveInput, Error, Expr, ExprLit, Fields, Lit, LitInt, Result};

use crate::clsid::{Clsid, HOW_TO_MAKE};

/// The keys of `#[profiler(…)]`, for messages.
const KEYS: &str = "`clsid = \"…\"`, `min_info = N`, `notification_only` and `no_export`";

/// The `ICorProfilerInfoN` versions that `min_info` accepts.
const INFO_VERSIONS: std::ops::RangeInclusive<u8> = 14..=15;

/// The derive: returns items for a correct struct, otherwise a `compile_error!` for each mistake.
pub(crate) fn expand(input: TokenStream) -> TokenStream {
    let input: DeriveInput = match syn::parse2(input) {
        Ok(input) => input,
        Err(error) => return error.into_compile_error(),
    };
    match (fields(&input), not_generic(&input), Keys::read(&input)) {
        (Ok(fields), Ok(()), Ok((clsid, keys))) => {
            Definition { name: &input.ident, has_fields: !fields.is_empty(), clsid, keys }.items()
        }
        (fields, generics, keys) => {
            let errors = [fields.err(), generics.err(), keys.err()];
            errors.into_iter().flatten().map(Error::into_compile_error).collect()
        }
    }
}

/// Everything that the derive needs to know about the struct.
struct Definition<'a> {
    name: &'a Ident,
    /// Whether the struct needs `initialize` or `Default`; one without fields is written out.
    has_fields: bool,
    clsid: Clsid,
    keys: Keys,
}

impl Definition<'_> {
    fn items(&self) -> TokenStream {
        let profiler = self.profiler();
        let threads = self.thread_check();
        let manifest = self.manifest();
        let export = self.export();
        let unwinding = self.unwinding_check();
        quote! { #profiler #threads #manifest #export #unwinding }
    }

    /// `impl Profiler`.
    fn profiler(&self) -> TokenStream {
        let name = self.name;
        let text = name.unraw().to_string();
        let clsid = LitInt::new(&self.clsid.literal(), Span::call_site());
        let min_info = self.keys.min_info.map(|version| {
            let version = Literal::u8_unsuffixed(version);
            quote! { const MIN_INFO: ::core::primitive::u8 = #version; }
        });
        let kind = self.keys.notification_only.then(|| {
            quote! { const NOTIFICATION_ONLY: ::core::primitive::bool = true; }
        });
        // The bound for all lifetimes, of which there are none, lets a struct without `Default` compile: it has
        // `initialize`.
        let (bound, made) = if self.has_fields {
            (
                Some(quote! { where for<'any> #name: ::core::default::Default }),
                quote! { ::core::default::Default::default() },
            )
        } else {
            (None, quote! { Self {} })
        };
        // At the struct's name, where a missing `Default` must be reported.
        let making = quote_spanned! {name.span()=> <#name as ::corprof::profiler::Subscriber>::Making };
        let without =
            quote_spanned! {name.span()=> <#making as ::corprof::profiler::Making<#name>>::without_initialize() };
        quote! {
            #[automatically_derived]
            impl ::corprof::Profiler for #name {
                const CLSID: ::corprof::Guid = ::corprof::Guid::from_u128(#clsid);
                const NAME: &'static ::core::primitive::str = #text;
                #min_info
                #kind
                fn without_initialize() -> ::core::option::Option<Self> { #without }
            }
            #[automatically_derived]
            impl ::corprof::profiler::ByDefault for #name #bound {
                fn by_default() -> Self { #made }
            }
        }
    }

    /// Reports at the struct's name that it is not `Send` or not `Sync`. The compiler quotes the function's name.
    fn thread_check(&self) -> TokenStream {
        let name = self.name;
        let check = Ident::new("callbacks_come_from_many_threads_at_once", Span::call_site());
        let call = quote_spanned! {name.span()=> #check::<#name>() };
        quote! {
            const _: () = {
                const fn #check<T: ::core::marker::Send + ::core::marker::Sync + 'static>() {}
                #call
            };
        }
    }

    /// The line from which tools read CLSID and name in the built library.
    fn manifest(&self) -> TokenStream {
        let name = self.name.unraw();
        let symbol = format!("CORPROF_PROFILER_{name}");
        let line = format!("corprof-profiler 1 {} {name}\0", self.clsid);
        let length = Literal::usize_unsuffixed(line.len());
        let line = Literal::byte_string(line.as_bytes());
        quote! {
            const _: () = {
                #[unsafe(export_name = #symbol)]
                pub static MANIFEST: [::core::primitive::u8; #length] = *#line;
            };
        }
    }

    /// The library's two entry points, unless the user exports several profilers together.
    fn export(&self) -> Option<TokenStream> {
        let name = self.name;
        (!self.keys.no_export).then(|| quote! { ::corprof::export!(#name); })
    }

    /// Requires unwinding: only then can a panic be caught before it ends the application.
    fn unwinding_check(&self) -> TokenStream {
        let message = "panic = \"abort\" would let a panic in the profiler end the application\n\
            corprof disables a profiler that panics, and needs panic = \"unwind\" for that: remove `panic = \"abort\"` from \
            Cargo.toml's [profile] sections (or from RUSTFLAGS)";
        let error = quote_spanned! {self.name.span()=> ::core::compile_error!(#message); };
        quote! { #[cfg(panic = "abort")] #error }
    }
}

/// The fields of a struct; an error for anything else.
fn fields(input: &DeriveInput) -> Result<&Fields> {
    let (span, what) = match &input.data {
        Data::Struct(data) => return Ok(&data.fields),
        Data::Enum(data) => (data.enum_token.span, "enum"),
        Data::Union(data) => (data.union_token.span, "union"),
    };
    let message = format!(
        "a profiler is a struct, not {article} {what}: derive `Profiler` on a struct with this {what} in a field",
        article = if what == "enum" { "an" } else { "a" }
    );
    Err(Error::new(span, message))
}

fn not_generic(input: &DeriveInput) -> Result<()> {
    if input.generics.params.is_empty() {
        return Ok(());
    }
    Err(Error::new_spanned(
        &input.generics,
        "a profiler cannot be generic: the runtime knows only its CLSID, and a CLSID means one type\n\
         remove the parameters and name the types in the fields (for a lifetime: own the data, or borrow for 'static)",
    ))
}

/// The keys of `#[profiler(…)]` other than the CLSID.
#[derive(Default)]
struct Keys {
    min_info: Option<u8>,
    no_export: bool,
    notification_only: bool,
}

impl Keys {
    fn read(input: &DeriveInput) -> Result<(Clsid, Self)> {
        let mut keys = Self::default();
        let mut clsid = None;
        let mut seen: Vec<String> = Vec::new();
        for attribute in input.attrs.iter().filter(|it| it.path().is_ident("profiler")) {
            if !matches!(attribute.meta, syn::Meta::List(_)) {
                return Err(Error::new_spanned(attribute, format!("write `#[profiler(…)]`; its keys are {KEYS}")));
            }
            attribute.parse_nested_meta(|meta| {
                let key = meta.path.get_ident().map(Ident::to_string).unwrap_or_default();
                if seen.contains(&key) {
                    return Err(meta.error(format!("`{key}` is given twice: keep one of them")));
                }
                match key.as_str() {
                    "clsid" => clsid = Some(read_clsid(&meta)?),
                    "min_info" => keys.min_info = Some(read_min_info(&meta)?),
                    "no_export" | "notification_only" if meta.input.peek(syn::Token![=]) => {
                        return Err(meta.error(format!("`{key}` takes no value: write just `{key}`")));
                    }
                    "no_export" => keys.no_export = true,
                    "notification_only" => keys.notification_only = true,
                    _ => return Err(meta.error(format!("unknown key: `#[profiler(…)]` takes {KEYS}"))),
                }
                seen.push(key);
                Ok(())
            })?;
        }
        let clsid = clsid.ok_or_else(|| {
            let message = format!(
                "a profiler needs a CLSID, by which the runtime finds it\n\
                 write `#[profiler(clsid = \"…\")]` above the struct: {HOW_TO_MAKE}"
            );
            Error::new_spanned(&input.ident, message)
        })?;
        Ok((clsid, keys))
    }
}

fn read_clsid(meta: &ParseNestedMeta<'_>) -> Result<Clsid> {
    match value(meta, "clsid = \"…\"")? {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => {
            Clsid::parse(&text.value()).map_err(|message| Error::new(text.span(), message))
        }
        other => Err(Error::new(other.span(), format!("write the CLSID here as a string: {HOW_TO_MAKE}"))),
    }
}

fn read_min_info(meta: &ParseNestedMeta<'_>) -> Result<u8> {
    let value = value(meta, "min_info = N")?;
    let version = match &value {
        Expr::Lit(ExprLit { lit: Lit::Int(number), .. }) => number.base10_parse().ok(),
        _ => None,
    };
    version.filter(|version| INFO_VERSIONS.contains(version)).ok_or_else(|| {
        let first = INFO_VERSIONS.start();
        let last = INFO_VERSIONS.end();
        let message = format!(
            "`min_info` is the number of the oldest ICorProfilerInfo that the profiler accepts: {first} (.NET 8) or \
             {last} (.NET 9)"
        );
        Error::new(value.span(), message)
    })
}

/// The expression after `key =`.
fn value(meta: &ParseNestedMeta<'_>, form: &str) -> Result<Expr> {
    if !meta.input.peek(syn::Token![=]) {
        return Err(meta.error(format!("a value is missing: write `{form}`")));
    }
    meta.value()?.parse()
}

#[cfg(test)]
mod tests;

//! `#[derive(ProviderEvent)]`: parses the struct and its `#[event(…)]`, and emits two impls.
//!
//! The traits are in `corprof-events`; [`expand`] writes what its documentation says.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::ext::IdentExt as _;
use syn::meta::ParseNestedMeta;
use syn::spanned::Spanned as _;
use syn::{Data, DeriveInput, Error, Field, Fields, GenericParam, Lifetime, LitInt, LitStr, Path, Result, Token};

/// The keys of `#[event(…)]` on the struct, for messages.
const KEYS: &str = "`provider = \"…\"`, `id = N`, `name = \"…\"`, `version = N`, `level = …`, `keywords = N`, `opcode = N`, `needs_stack` and `crate = …`";

/// The names of the levels, most important first.
const LEVELS: [&str; 6] = ["LogAlways", "Critical", "Error", "Warning", "Informational", "Verbose"];

/// The derive: returns impls for a correct struct, otherwise a `compile_error!` for each mistake.
pub(crate) fn expand(input: TokenStream) -> TokenStream {
    let input: DeriveInput = match syn::parse2(input) {
        Ok(input) => input,
        Err(error) => return error.into_compile_error(),
    };
    match (fields(&input), lifetime(&input), Keys::read(&input)) {
        (Ok(fields), Ok(lifetime), Ok(keys)) => impls(&input.ident, &fields, lifetime.as_ref(), &keys),
        (fields, lifetime, keys) => {
            let errors = [fields.err(), lifetime.err(), keys.err()];
            errors.into_iter().flatten().map(Error::into_compile_error).collect()
        }
    }
}

fn impls(name: &Ident, fields: &[(&Field, String)], lifetime: Option<&Lifetime>, keys: &Keys) -> TokenStream {
    let events = &keys.events;
    let arguments = lifetime.map(|lifetime| quote! { <#lifetime> });
    let of_event = lifetime.cloned().unwrap_or_else(|| Lifetime::new("'event", Span::mixed_site()));
    let of_field = lifetime.cloned().unwrap_or_else(|| Lifetime::new("'static", Span::mixed_site()));
    let text = keys.name.clone().unwrap_or_else(|| name.unraw().to_string());
    let Keys { provider, id, version, keywords, opcode, needs_stack, .. } = keys;
    let level = Ident::new(keys.level, Span::call_site());
    let mut definitions = TokenStream::new();
    let mut writes = TokenStream::new();
    let mut reads = TokenStream::new();
    for (field, field_name) in fields {
        let ident = &field.ident;
        let ty = &field.ty;
        // With the type's place, where the compiler reports an unsuitable one, and once only.
        let one = quote_spanned! {ty.span()=> <#ty as #events::EventField<#of_field>> };
        definitions.extend(quote! {
            #events::FieldDefinition { name: #field_name, ty: #one::TYPE, is_list: #one::IS_LIST },
        });
        let write = quote_spanned! {ty.span()=> #one::write(&self.#ident, payload) };
        writes.extend(quote! {
            if let ::core::result::Result::Err(misfit) = #write {
                return ::core::result::Result::Err(#events::EncodeError { event: #text, field: #field_name, misfit });
            }
        });
        let of_event = quote_spanned! {ty.span()=> <#ty as #events::EventField<#of_event>> };
        let read = quote_spanned! {ty.span()=> #of_event::read };
        reads.extend(quote! { #ident: fields.field(#field_name, #read)?, });
    }
    let mutable = (!fields.is_empty()).then(|| quote! { mut });
    quote! {
        #[automatically_derived]
        impl #arguments #events::ProviderEvent for #name #arguments {
            const EVENT: #events::EventDefinition = #events::EventDefinition {
                provider: #provider,
                name: #text,
                id: #id,
                version: #version,
                level: #events::Level::#level,
                keywords: #events::Keywords::from_bits(#keywords),
                opcode: #opcode,
                needs_stack: #needs_stack,
                fields: &[#definitions],
            };

            #[allow(unused_variables)]
            fn write(
                &self,
                payload: &mut ::std::vec::Vec<::core::primitive::u8>,
            ) -> ::core::result::Result<(), #events::EncodeError> {
                #writes
                ::core::result::Result::Ok(())
            }
        }

        #[automatically_derived]
        impl<#of_event> #events::View<#of_event> for #name #arguments {
            fn decode(event: &#events::Event<#of_event>) -> ::core::result::Result<Self, #events::DecodeError> {
                #[allow(unused_variables)]
                let #mutable fields = #events::Decoder::new(event, &<Self as #events::ProviderEvent>::EVENT)?;
                ::core::result::Result::Ok(Self { #reads })
            }
        }
    }
}

/// The fields of a struct and their names in the event; an error for anything else.
fn fields(input: &DeriveInput) -> Result<Vec<(&Field, String)>> {
    let named = match &input.data {
        Data::Struct(data) => match &data.fields {
            Fields::Named(fields) => &fields.named,
            Fields::Unit => return Ok(Vec::new()),
            Fields::Unnamed(fields) => {
                return Err(Error::new_spanned(
                    fields,
                    "the fields of an event have names: write `struct Name { name: Type }`",
                ));
            }
        },
        Data::Enum(data) => return Err(no_struct(data.enum_token.span, "an enum")),
        Data::Union(data) => return Err(no_struct(data.union_token.span, "a union")),
    };
    let mut fields: Vec<(&Field, String)> = Vec::new();
    for field in named {
        let name = field_name(field)?;
        if fields.iter().any(|(_, other)| *other == name) {
            return Err(Error::new_spanned(
                field,
                format!("two fields have the name \"{name}\" in the event: rename one"),
            ));
        }
        fields.push((field, name));
    }
    Ok(fields)
}

fn no_struct(span: Span, what: &str) -> Error {
    Error::new(span, format!("an event is a struct, not {what}: write a struct for each event of the provider"))
}

/// The name in the event: that of `#[event(name = "…")]`, or the field's own, in the style of .NET.
fn field_name(field: &Field) -> Result<String> {
    let mut name = None;
    for attribute in field.attrs.iter().filter(|it| it.path().is_ident("event")) {
        attribute.parse_nested_meta(|meta| {
            if !meta.path.is_ident("name") || name.is_some() {
                return Err(meta.error("`#[event(…)]` on a field takes one key: `name = \"…\"`"));
            }
            name = Some(text(&meta)?);
            Ok(())
        })?;
    }
    Ok(name.unwrap_or_else(|| {
        let ident = field.ident.as_ref().map(|ident| ident.unraw().to_string()).unwrap_or_default();
        camel_case(&ident)
    }))
}

/// `customer_name` as `customerName`, which is how C# names parameters.
fn camel_case(name: &str) -> String {
    let mut words = name.split('_').filter(|word| !word.is_empty());
    let first = words.next().unwrap_or(name).to_owned();
    words.fold(first, |mut name, word| {
        let mut rest = word.chars();
        name.extend(rest.next().into_iter().flat_map(char::to_uppercase));
        name + rest.as_str()
    })
}

/// The only lifetime of the struct, if it has one.
fn lifetime(input: &DeriveInput) -> Result<Option<Lifetime>> {
    let mut parameters = input.generics.params.iter();
    match (parameters.next(), parameters.next()) {
        (None, _) => Ok(None),
        (Some(GenericParam::Lifetime(parameter)), None) if parameter.bounds.is_empty() => {
            Ok(Some(parameter.lifetime.clone()))
        }
        _ => Err(Error::new_spanned(
            &input.generics,
            "an event is one type: it can have a lifetime, for the texts that it borrows, and no other parameter",
        )),
    }
}

/// The keys of `#[event(…)]` on the struct.
struct Keys {
    provider: String,
    id: LitInt,
    name: Option<String>,
    version: LitInt,
    level: &'static str,
    keywords: LitInt,
    opcode: LitInt,
    needs_stack: bool,
    /// The path of `corprof-events`.
    events: TokenStream,
}

impl Keys {
    fn read(input: &DeriveInput) -> Result<Self> {
        let zero = || LitInt::new("0", Span::call_site());
        let mut provider = None;
        let mut id = None;
        let mut keys = Self {
            provider: String::new(),
            id: zero(),
            name: None,
            version: zero(),
            level: "Informational",
            keywords: zero(),
            opcode: zero(),
            needs_stack: false,
            events: quote! { ::corprof::events },
        };
        let mut seen: Vec<String> = Vec::new();
        for attribute in input.attrs.iter().filter(|it| it.path().is_ident("event")) {
            if !matches!(attribute.meta, syn::Meta::List(_)) {
                return Err(Error::new_spanned(attribute, format!("write `#[event(…)]`; its keys are {KEYS}")));
            }
            attribute.parse_nested_meta(|meta| {
                let key = meta.path.get_ident().map(Ident::to_string).unwrap_or_default();
                if seen.contains(&key) {
                    return Err(meta.error(format!("`{key}` is given twice: keep one of them")));
                }
                match key.as_str() {
                    "provider" => provider = Some(text(&meta)?),
                    "id" => id = Some(number::<u32>(&meta)?),
                    "name" => keys.name = Some(text(&meta)?),
                    "version" => keys.version = number::<u32>(&meta)?,
                    "level" => keys.level = level(&meta)?,
                    "keywords" => keys.keywords = number::<u64>(&meta)?,
                    "opcode" => keys.opcode = number::<u8>(&meta)?,
                    "needs_stack" if meta.input.peek(Token![=]) => {
                        return Err(meta.error("`needs_stack` takes no value: write just `needs_stack`"));
                    }
                    "needs_stack" => keys.needs_stack = true,
                    "crate" => {
                        let path = meta.value()?.call(Path::parse_mod_style)?;
                        keys.events = quote! { #path };
                    }
                    _ => return Err(meta.error(format!("unknown key: `#[event(…)]` takes {KEYS}"))),
                }
                seen.push(key);
                Ok(())
            })?;
        }
        let missing = |what| Error::new_spanned(&input.ident, format!("write `#[event({what})]` above the struct"));
        keys.provider = provider.ok_or_else(|| missing("provider = \"…\", id = N"))?;
        keys.id = id.ok_or_else(|| missing("id = N"))?;
        Ok(keys)
    }
}

/// A text after `key =`. EventPipe ends it at a NUL.
fn text(meta: &ParseNestedMeta<'_>) -> Result<String> {
    let text: LitStr = meta.value()?.parse()?;
    let value = text.value();
    if value.is_empty() || value.contains('\0') {
        return Err(Error::new(text.span(), "a name in an event is not empty and contains no NUL"));
    }
    Ok(value)
}

/// A whole number after `key =`, which has room in `N`.
fn number<N: std::str::FromStr<Err: std::fmt::Display>>(meta: &ParseNestedMeta<'_>) -> Result<LitInt> {
    let number: LitInt = meta.value()?.parse()?;
    let digits = number.base10_parse::<N>();
    digits.map(|_| LitInt::new(number.base10_digits(), number.span())).map_err(|_| {
        let most = std::any::type_name::<N>();
        Error::new(number.span(), format!("this number is too large or has a type: it must fit into `{most}`"))
    })
}

fn level(meta: &ParseNestedMeta<'_>) -> Result<&'static str> {
    let level: Ident = meta.value()?.parse()?;
    let known = LEVELS.into_iter().find(|known| level == known);
    known.ok_or_else(|| Error::new(level.span(), format!("a level is one of {}", LEVELS.join(", "))))
}

#[cfg(test)]
mod tests;

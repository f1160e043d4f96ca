//! Tokens to declarations.
//!
//! The first word of a declaration decides its kind; from there on the parser does not turn back, so that a
//! complaint stands where the trouble is. Attributes and keywords that are not listed here are errors.

use winnow::combinator::{alt, cut_err, delimited, fail, opt, preceded, repeat, repeat_till, separated, terminated};
use winnow::prelude::*;
use winnow::token::any;

use crate::error::Diagnostic;
use crate::expr::expression;
use crate::lexer::{Kind, Token, tokens};
use crate::preprocess::Preprocessed;
use crate::sources::SourceFile;
use crate::syntax::{Attribute, Declaration, Enumerator, Item, Method, Name, TypeRef};
use crate::tokens::{Failure, Input, expected, kind, look, run, text, word};

type Parsed<T> = Result<T, Failure>;

/// Words for the one calling convention there is: the system's.
const CALL_CONVENTIONS: [&str; 4] = ["__stdcall", "STDMETHODCALLTYPE", "STDAPICALLTYPE", "WINAPI"];
/// Words that are part of a C type's name.
const TYPE_WORDS: [&str; 7] = ["unsigned", "signed", "long", "short", "int", "char", "__int64"];
/// Words that may stand before a type's name and say nothing new.
const TYPE_KINDS: [&str; 3] = ["struct", "enum", "union"];
/// The attributes that the profiling and metadata IDL use, or that MIDL allows in their places.
const ATTRIBUTES: [&str; 28] = [
    "annotation",
    "async_uuid",
    "call_as",
    "defaultvalue",
    "first_is",
    "helpstring",
    "hidden",
    "iid_is",
    "in",
    "last_is",
    "length_is",
    "local",
    "max_is",
    "object",
    "optional",
    "out",
    "pointer_default",
    "ptr",
    "range",
    "ref",
    "restricted",
    "retval",
    "size_is",
    "string",
    "switch_is",
    "unique",
    "uuid",
    "version",
];
/// Macros that define a GUID: the interface's own attribute says the same.
const GUID_MACROS: [&str; 4] = ["EXTERN_GUID", "DEFINE_GUID", "DECLARE_INTERFACE_GUID", "DEFINE_IID"];

/// Parses an input that has been preprocessed.
pub fn parse(file: &SourceFile, preprocessed: &Preprocessed) -> Result<Vec<Item>, Diagnostic> {
    let tokens = tokens(file, &preprocessed.text, 0)?;
    run(
        file,
        &tokens,
        preprocessed.text.trim_end().len(),
        repeat(0.., items).fold(Vec::new, |mut all, some: Vec<Item>| {
            all.extend(some);
            all
        }),
    )
}

/// One declaration, which may declare several names.
fn items(input: &mut Input<'_, '_>) -> Parsed<Vec<Item>> {
    let Some(token) = look(input, 0) else { return fail.parse_next(input) };
    let one = |item: Item| vec![item];
    match token.text {
        ";" => text(";").value(vec![Item::Nothing]).parse_next(input),
        "import" => delimited(text("import"), cut_err(imports), cut_err(text(";"))).map(one).parse_next(input),
        "typedef" => delimited(text("typedef"), cut_err(typedef), cut_err(text(";"))).parse_next(input),
        "enum" | "struct" | "union" => terminated(tagged, cut_err(text(";"))).map(one).parse_next(input),
        "[" | "interface" => interface.map(one).parse_next(input),
        word if GUID_MACROS.contains(&word) => {
            (any, cut_err(parenthesised), opt(text(";"))).value(vec![Item::Nothing]).parse_next(input)
        }
        _ => fail.context(expected("a declaration")).parse_next(input),
    }
}

fn imports(input: &mut Input<'_, '_>) -> Parsed<Item> {
    separated(1.., kind(Kind::Text, "a file name").void(), text(",")).map(|()| Item::Nothing).parse_next(input)
}

fn name<'t, 'i: 't>(what: &'static str) -> impl Parser<Input<'t, 'i>, Name, Failure> {
    kind(Kind::Ident, what).map(|token| Name { text: token.text.to_owned(), offset: token.offset })
}

/// `enum X { ... }`, `struct X { ... }`, or only their announcement.
fn tagged(input: &mut Input<'_, '_>) -> Parsed<Item> {
    let word = any.parse_next(input)?.text;
    let name = cut_err(name("the name of a type")).parse_next(input)?;
    if look(input, 0).is_none_or(|token| token.kind != Kind::OpenBrace) {
        return Ok(Item::Forward(name));
    }
    body(word, name, input)
}

/// The braces of an enumeration, structure or union.
fn body(word: &str, name: Name, input: &mut Input<'_, '_>) -> Parsed<Item> {
    if word == "enum" {
        let list = terminated(separated(0.., enumerator, text(",")), opt(text(",")));
        let enumerators = cut_err(delimited(text("{"), list, text("}"))).parse_next(input)?;
        return Ok(Item::Enum(name, enumerators));
    }
    let fields = cut_err(preceded(text("{"), repeat_till(0.., cut_err(field), text("}")))).parse_next(input)?.0;
    Ok(Item::Record { name, union: word == "union", fields })
}

fn enumerator(input: &mut Input<'_, '_>) -> Parsed<Enumerator> {
    let name = name("an enumerator").parse_next(input)?;
    let value = opt(preceded(text("="), cut_err(expression))).parse_next(input)?;
    // Here and not in the list: the message is better here for a value that stops half way.
    let next = look(input, 0).map(|token| token.kind);
    if !matches!(next, Some(Kind::Comma | Kind::CloseBrace)) {
        return cut_err(fail.context(expected("`,` or `}`"))).parse_next(input);
    }
    Ok(Enumerator { name, value })
}

fn field(input: &mut Input<'_, '_>) -> Parsed<Declaration> {
    terminated(|input: &mut Input<'_, '_>| declaration(Vec::new(), input), text(";")).parse_next(input)
}

fn typedef(input: &mut Input<'_, '_>) -> Parsed<Vec<Item>> {
    let _ = opt(attributes).parse_next(input)?;
    let first = look(input, 0).map_or("", |token| token.text);
    let is_body = TYPE_KINDS.contains(&first)
        && (1..3).any(|ahead| look(input, ahead).is_some_and(|token| token.kind == Kind::OpenBrace));
    if is_body {
        return typedef_body(input);
    }
    opt(call_convention).parse_next(input)?;
    let returns = type_ref(input)?;
    opt(call_convention).parse_next(input)?;
    if look(input, 0).is_some_and(|token| token.kind == Kind::OpenParen) {
        let inner = (opt(call_convention), text("*"), opt(call_convention));
        let name = delimited((text("("), inner), name("the name of a function"), text(")")).parse_next(input)?;
        let params = params(input)?;
        return Ok(vec![Item::Function { name, pointer: true, returns, params }]);
    }
    let name = name("the name of a type").parse_next(input)?;
    if look(input, 0).is_some_and(|token| token.kind == Kind::OpenParen) {
        let params = params(input)?;
        return Ok(vec![Item::Function { name, pointer: false, returns, params }]);
    }
    // `typedef enum X X;` announces, it does not rename.
    if TYPE_KINDS.contains(&first) && returns.pointers == 0 && returns.base.text == name.text {
        return Ok(vec![Item::Forward(name)]);
    }
    let array = array(input)?;
    Ok(vec![Item::Alias(Declaration { attributes: Vec::new(), ty: returns, name, array })])
}

/// `typedef struct TAG { ... } NAME, *POINTER;`: the name counts, the tag does not.
fn typedef_body(input: &mut Input<'_, '_>) -> Parsed<Vec<Item>> {
    let word = any.parse_next(input)?.text;
    let tag = opt(name("a tag")).parse_next(input)?;
    let unnamed = Name { text: String::new(), offset: look(input, 0).map_or(0, |token| token.offset) };
    let item = body(word, tag.unwrap_or(unnamed), input)?;
    let declared = name("the name of a type").parse_next(input)?;
    let item = match item {
        Item::Enum(_, enumerators) => Item::Enum(declared.clone(), enumerators),
        Item::Record { union, fields, .. } => Item::Record { name: declared.clone(), union, fields },
        other => other,
    };
    let pointer = preceded(text(","), (stars, name("the name of a type")));
    let pointers: Vec<(usize, Name)> = repeat(0.., pointer).parse_next(input)?;
    let aliases = pointers.into_iter().map(|(pointers, name)| {
        let ty = TypeRef { base: declared.clone(), constant: false, pointers };
        Item::Alias(Declaration { attributes: Vec::new(), ty, name, array: None })
    });
    Ok(std::iter::once(item).chain(aliases).collect())
}

fn call_convention(input: &mut Input<'_, '_>) -> Parsed<()> {
    word("a calling convention", |word| CALL_CONVENTIONS.contains(&word)).void().parse_next(input)
}

fn stars(input: &mut Input<'_, '_>) -> Parsed<usize> {
    repeat(0.., terminated(text("*"), opt(text("const")))).fold(|| 0, |count, _: Token<'_>| count + 1).parse_next(input)
}

fn type_ref(input: &mut Input<'_, '_>) -> Parsed<TypeRef> {
    let before = opt(text("const")).parse_next(input)?.is_some();
    opt(word("a kind of type", |word| TYPE_KINDS.contains(&word))).parse_next(input)?;
    let first = name("a type").parse_next(input)?;
    let mut base = first;
    if TYPE_WORDS.contains(&base.text.as_str()) {
        let more: Vec<Token<'_>> = repeat(0.., word("a type", |word| TYPE_WORDS.contains(&word))).parse_next(input)?;
        for token in more {
            base.text = format!("{} {}", base.text, token.text);
        }
    }
    let after = opt(text("const")).parse_next(input)?.is_some();
    let pointers = stars(input)?;
    Ok(TypeRef { base, constant: before || after, pointers })
}

fn array(input: &mut Input<'_, '_>) -> Parsed<Option<Option<crate::expr::Expr>>> {
    opt(delimited(text("["), opt(expression), cut_err(text("]")))).parse_next(input)
}

/// A type and a name.
fn declaration(attributes: Vec<Attribute>, input: &mut Input<'_, '_>) -> Parsed<Declaration> {
    let ty = type_ref(input)?;
    let name = name("a name").parse_next(input)?;
    let array = array(input)?;
    Ok(Declaration { attributes, ty, name, array })
}

fn params(input: &mut Input<'_, '_>) -> Parsed<Vec<Declaration>> {
    let none = (text("("), opt(text("void")), text(")")).value(Vec::new());
    let some = delimited(text("("), cut_err(separated(1.., cut_err(param), text(","))), cut_err(text(")")));
    alt((none, some)).parse_next(input)
}

fn param(input: &mut Input<'_, '_>) -> Parsed<Declaration> {
    let mut said = Vec::new();
    loop {
        let next = look(input, 0);
        if next.is_some_and(|token| token.kind == Kind::OpenBracket) {
            said.extend(attributes(input)?);
        } else if next.is_some_and(|token| is_annotation(token.text)) {
            said.push(annotation(input)?);
        } else {
            return declaration(said, input);
        }
    }
}

/// SAL, as headers write it: `_Out_writes_to_opt_(cchName, *pchName)`.
fn is_annotation(word: &str) -> bool {
    ["_In", "_Out", "_COM_Out", "_Ret", "_Reserved_"].iter().any(|start| word.starts_with(start)) && word.ends_with('_')
}

fn annotation(input: &mut Input<'_, '_>) -> Parsed<Attribute> {
    let name = name("an annotation").parse_next(input)?;
    let arguments = opt(parenthesised).parse_next(input)?;
    Ok(Attribute { name, arguments })
}

fn attributes(input: &mut Input<'_, '_>) -> Parsed<Vec<Attribute>> {
    delimited(text("["), cut_err(separated(0.., attribute, text(","))), cut_err(text("]"))).parse_next(input)
}

fn attribute(input: &mut Input<'_, '_>) -> Parsed<Attribute> {
    let known = word("a known attribute", |word| ATTRIBUTES.contains(&word));
    let token = cut_err(known).parse_next(input)?;
    let name = Name { text: token.text.to_owned(), offset: token.offset };
    if name.text == "uuid" {
        let guid = kind(Kind::Guid, "a GUID (8-4-4-4-12 hexadecimal digits)");
        let guid = cut_err(delimited(text("("), guid, text(")"))).parse_next(input)?;
        return Ok(Attribute { name, arguments: Some(guid.text.to_owned()) });
    }
    let arguments = opt(parenthesised).parse_next(input)?;
    Ok(Attribute { name, arguments })
}

/// Balanced parentheses; their contents as text.
fn parenthesised(input: &mut Input<'_, '_>) -> Parsed<String> {
    text("(").parse_next(input)?;
    let mut depth = 1;
    let mut words = String::new();
    loop {
        let token = cut_err(any.context(expected("`)`"))).parse_next(input)?;
        match token.text {
            "(" => depth += 1,
            ")" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Ok(words);
        }
        words.push_str(token.text);
        if token.kind == Kind::Comma {
            words.push(' ');
        }
    }
}

fn interface(input: &mut Input<'_, '_>) -> Parsed<Item> {
    let attributes = opt(attributes).parse_next(input)?.unwrap_or_default();
    cut_err(text("interface")).parse_next(input)?;
    let name = cut_err(name("the name of an interface")).parse_next(input)?;
    if attributes.is_empty() && look(input, 0).is_some_and(|token| token.kind == Kind::Semicolon) {
        return text(";").map(|_| Item::Forward(name.clone())).parse_next(input);
    }
    cut_err(|input: &mut Input<'_, '_>| {
        let parent = opt(preceded(text(":"), self::name("the parent"))).parse_next(input)?;
        let methods = preceded(text("{"), repeat_till(0.., cut_err(method), text("}"))).parse_next(input)?.0;
        opt(text(";")).parse_next(input)?;
        let uuid = attributes.iter().find(|attribute| attribute.name.text == "uuid").and_then(|attribute| {
            let text = attribute.arguments.clone()?;
            Some(Name { text, offset: attribute.name.offset })
        });
        Ok(Item::Interface { name: name.clone(), uuid, parent, methods })
    })
    .parse_next(input)
}

fn method(input: &mut Input<'_, '_>) -> Parsed<Method> {
    let _ = opt(attributes).parse_next(input)?;
    let returns = type_ref(input)?;
    opt(call_convention).parse_next(input)?;
    let name = name("the name of a method").parse_next(input)?;
    let params = terminated(params, text(";")).parse_next(input)?;
    Ok(Method { name, returns, params })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preprocess::preprocess;
    use crate::sources::Input as Source;

    fn items(text: &str) -> Vec<Item> {
        let file = SourceFile::new(Source::Corprof, text.to_owned());
        let preprocessed = preprocess(&file).unwrap_or_else(|error| panic!("{error}"));
        parse(&file, &preprocessed).unwrap_or_else(|error| panic!("{error}"))
    }

    fn one(text: &str) -> Item {
        let items = items(text);
        assert_eq!(items.len(), 1, "{items:?}");
        items.into_iter().next().expect("one")
    }

    #[test]
    fn announcements_declare_nothing() {
        for text in ["interface X;", "enum X;", "struct X;", "typedef enum X X;", "typedef struct X X;"] {
            assert!(matches!(one(text), Item::Forward(name) if name.text == "X"), "{text}");
        }
        for text in [";", "import \"a.idl\", \"b.idl\";", "EXTERN_GUID(IID_X, 0x1, 0x2, (3));"] {
            assert_eq!(one(text), Item::Nothing, "{text}");
        }
    }

    #[test]
    fn the_name_after_the_braces_counts() {
        let names: Vec<String> = items("typedef struct TAG { int a; unsigned long b[2]; } NAME, *PNAME;")
            .into_iter()
            .map(|item| match item {
                Item::Record { name, fields, union: false } if fields.len() == 2 => name.text,
                Item::Alias(alias) if alias.ty.base.text == "NAME" && alias.ty.pointers == 1 => alias.name.text,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(names, ["NAME", "PNAME"]);
        assert!(matches!(one("typedef union { int a; } U;"), Item::Record { union: true, .. }));
        assert!(matches!(one("struct S { int a; };"), Item::Record { name, .. } if name.text == "S"));
    }

    #[test]
    fn functions_and_pointers_to_them() {
        let forms = [
            ("typedef void __stdcall F(int a);", false),
            ("typedef __stdcall void F(int a);", false),
            ("typedef void (*F)(int a);", true),
            ("typedef void STDMETHODCALLTYPE (* F)(int a);", true),
            ("typedef void (__stdcall *F)(int a);", true),
        ];
        for (text, is_pointer) in forms {
            let Item::Function { name, pointer, params, .. } = one(text) else { panic!("{text}") };
            assert_eq!((name.text.as_str(), pointer, params.len()), ("F", is_pointer, 1), "{text}");
        }
    }

    #[test]
    fn parameters_keep_what_is_said_of_them() {
        let text = "[object, uuid(00000000-0000-0000-C000-000000000046)] interface X : IUnknown {\n\
                    HRESULT M([in, size_is(a, b)] const struct S * const *p[], _Out_opt_ void const **q, int r[3]); };";
        let Item::Interface { methods, uuid, parent, .. } = one(text) else { panic!("no interface") };
        assert_eq!(uuid.expect("a GUID").text, "00000000-0000-0000-C000-000000000046");
        assert_eq!(parent.expect("a parent").text, "IUnknown");
        let [p, q, r] = methods[0].params.as_slice() else { panic!("{methods:?}") };
        assert_eq!(p.attributes[1].arguments.as_deref(), Some("a, b"));
        assert_eq!((p.ty.constant, p.ty.pointers, &p.array), (true, 2, &Some(None)));
        assert_eq!((q.attributes[0].name.text.as_str(), q.ty.constant, q.ty.pointers), ("_Out_opt_", true, 2));
        assert_eq!(r.array, Some(Some(crate::expr::Expr::Int(3))));
    }
}

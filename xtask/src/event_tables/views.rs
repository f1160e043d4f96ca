//! The typed views.

use std::fmt::Write as _;

use anyhow::{Context, Result, bail, ensure};

use super::{Event, Field, FieldFact, HEADER, Length, Tables, Type, View, snake};

/// The text of `views.rs`.
pub(super) fn file(tables: &Tables) -> Result<String> {
    let mut out = HEADER.to_owned();
    out += "//! Events as types, for [`Event::decode`](crate::Event::decode).\n//!\n";
    out += "//! Fields that newer versions of an event have added are options.\n\n";
    out += "use crate::cursor::{Cursor, Truncated};\nuse crate::provider::Manifest;\nuse crate::text::Text;\n";
    out += "use crate::values::*;\nuse crate::view::{Item, Items, RuntimeView};\n";
    for view in &tables.views {
        let of_view = |event: &&Event| event.provider == view.provider && event.id == view.id;
        let versions: Vec<&Event> =
            tables.events.iter().filter(of_view).filter(|event| event.version >= view.oldest).collect();
        out += &one(tables, view, &versions).with_context(|| view.name.clone())?;
    }
    Ok(out)
}

/// A field of a view: the text of its line, the code that reads it, and whether it borrows.
struct Line {
    declared: String,
    name: String,
    read: String,
    borrows: bool,
}

fn one(tables: &Tables, view: &View, versions: &[&Event]) -> Result<String> {
    let newest = versions.last().context("no such event")?;
    for pair in versions.windows(2) {
        let is_longer = pair[0].fields.iter().zip(&pair[1].fields).all(|(a, b)| a.name == b.name);
        ensure!(is_longer, "version {} does not only add fields", pair[1].version);
    }
    let mut lines = Vec::new();
    for (index, field) in newest.fields.iter().enumerate() {
        let since = versions.iter().find(|event| index < event.fields.len()).map_or(0, |event| event.version);
        let since = (since > versions[0].version).then_some(since);
        let is_last = index + 1 == newest.fields.len();
        lines.push(line(tables, &view.name, field, since, is_last)?);
    }
    let mut out = String::new();
    for field in &newest.fields {
        if let Type::List(element, _) = &field.ty
            && let Type::Record(fields) = &**element
        {
            out += &entry(tables, view, fields)?;
        }
    }
    let lifetime = if lines.iter().any(|line| line.borrows && !line.declared.is_empty()) { "<'a>" } else { "" };
    let provider = if view.provider == "rundown" { "rundown's event " } else { "event " };
    writeln!(out, "\n/// {}\n///\n/// The {provider}`{}`, number {}.", view.meaning, newest.name, view.id)?;
    out += &structure(&view.name, lifetime, &lines);
    let manifest = if view.provider == "rundown" { "Rundown" } else { "Runtime" };
    let version = if lines.iter().any(|line| line.read.contains("version >=")) { "version" } else { "_version" };
    let cursor = if lines.iter().any(|line| !line.read.is_empty()) { "cursor" } else { "_cursor" };
    write!(
        out,
        "\nimpl<'a> RuntimeView<'a> for {}{lifetime} {{\n    const EVENT: (Manifest, u32, u32) = (Manifest::{manifest}, {}, {});\n    const NAME: &'static str = {:?};\n\n    #[inline]\n    fn read({cursor}: &mut Cursor<'a>, {version}: u32) -> Result<Self, Truncated> {{\n",
        view.name, view.id, versions[0].version, newest.name
    )?;
    out += &body(&lines);
    Ok(out)
}

/// The type of a view's entries.
fn entry(tables: &Tables, view: &View, fields: &[Field]) -> Result<String> {
    let name = format!("{}Entry", view.name);
    let lines: Vec<Line> =
        fields.iter().map(|field| line(tables, &view.name, field, None, false)).collect::<Result<_>>()?;
    let lifetime = if lines.iter().any(|line| line.borrows) { "<'a>" } else { "" };
    let mut out = format!("\n/// An entry of [`{}`].\n", view.name);
    out += &structure(&name, lifetime, &lines);
    write!(
        out,
        "\nimpl<'a> Item<'a> for {name}{lifetime} {{\n    #[inline]\n    fn read(cursor: &mut Cursor<'a>) -> Result<Self, Truncated> {{\n"
    )?;
    out += &body(&lines);
    Ok(out)
}

fn structure(name: &str, lifetime: &str, lines: &[Line]) -> String {
    let fields: String = lines.iter().map(|line| line.declared.as_str()).collect();
    let fields = if fields.is_empty() { " {}".to_owned() } else { format!(" {{\n{fields}}}") };
    format!("#[derive(Clone, Copy, Debug)]\n#[non_exhaustive]\npub struct {name}{lifetime}{fields}\n")
}

fn body(lines: &[Line]) -> String {
    let mut out = String::new();
    for line in lines.iter().filter(|line| !line.read.is_empty()) {
        let _ = writeln!(out, "        {}", line.read);
    }
    let names: Vec<&str> =
        lines.iter().filter(|line| !line.declared.is_empty()).map(|line| line.name.as_str()).collect();
    let _ = writeln!(out, "        Ok(Self {{ {} }})\n    }}\n}}", names.join(", "));
    out
}

fn line(tables: &Tables, view: &str, field: &Field, since: Option<u8>, is_last: bool) -> Result<Line> {
    let fact = tables.fields.get(&format!("{view}.{}", field.name)).or_else(|| tables.fields.get(&field.name));
    let FieldFact { rust_name, ty, meaning } = fact.with_context(|| format!("fields.tsv has no {}", field.name))?;
    let is_skipped = rust_name == "skip";
    let name = if rust_name.is_empty() || is_skipped { snake(&field.name) } else { rust_name.clone() };
    let entry = format!("{view}Entry");
    let (mut rust, mut read) = reading(&field.ty, &entry, is_last, since.is_some())?;
    if !ty.is_empty() {
        rust.clone_from(ty);
        read = format!("{ty}({read})");
    }
    let borrows = rust.contains("'a");
    let reading = match since {
        None => read,
        Some(version) => format!("if version >= {version} {{ Some({read}) }} else {{ None }}"),
    };
    if is_skipped {
        let read = if is_last { String::new() } else { format!("let _ = {reading};") };
        return Ok(Line { declared: String::new(), name, read, borrows: false });
    }
    let mut documented = format!("    /// {meaning}\n");
    if let Some(version) = since {
        rust = format!("Option<{rust}>");
        write!(documented, "    ///\n    /// From version {version} of the event on.\n")?;
    }
    let declared = format!("{documented}    pub {name}: {rust},\n");
    Ok(Line { declared, read: format!("let {name} = {reading};"), name, borrows })
}

/// The Rust type of a field, and the code that reads it.
fn reading(ty: &Type, entry: &str, is_last: bool, is_newer: bool) -> Result<(String, String)> {
    let simple = |rust: &str, method: &str| (rust.to_owned(), format!("cursor.{method}()?"));
    Ok(match ty {
        Type::Scalar(scalar) => match *scalar {
            "Bool32" => simple("bool", "boolean"),
            "Pointer" => simple("u64", "pointer"),
            "Utf16Z" => simple("Text<'a>", "utf16z"),
            "AnsiZ" => simple("Text<'a>", "ansiz"),
            "Guid" => simple("[u8; 16]", "array"),
            number => simple(&number.to_lowercase(), &number.to_lowercase()),
        },
        Type::List(element, Length::Field(length)) => {
            let count = snake(length) + if is_newer { ".unwrap_or_default()" } else { "" };
            match &**element {
                Type::Record(fields) => {
                    ensure!(is_last, "a list of structures in front of other fields");
                    let borrows = |field: &Field| matches!(field.ty, Type::List(..) | Type::Scalar("Utf16Z"));
                    let lifetime = if fields.iter().any(borrows) { "<'a>" } else { "" };
                    (format!("Items<'a, {entry}{lifetime}>"), format!("Items::rest(cursor, {count})"))
                }
                Type::Scalar("U64") => ("Items<'a, u64>".to_owned(), format!("Items::of_size(cursor, {count}, 8)?")),
                _ => bail!("a list that views do not read"),
            }
        }
        _ => bail!("a field that views do not read"),
    })
}

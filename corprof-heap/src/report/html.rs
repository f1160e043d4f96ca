//! The report as one HTML file.

use std::io::{self, Write};

use super::{Object, Report, Row, date, grouped};

const PAGE: &str = include_str!("page.html");

pub(super) fn write(report: &Report, mut out: impl Write) -> io::Result<()> {
    let mut rest = PAGE;
    while let Some((before, after)) = rest.split_once("{{") {
        out.write_all(before.as_bytes())?;
        let Some((place, after)) = after.split_once("}}") else { break };
        match place {
            "title" => out.write_all(escaped(&report.title).as_bytes())?,
            "summary" => summary(report, &mut out)?,
            "classes" => rows(&report.classes, true, &mut out)?,
            "others" if report.other_classes > 0 => write!(
                out,
                "<p>And {} more classes: {} objects, {} bytes shallow.</p>",
                grouped(report.other_classes),
                grouped(report.other_objects),
                grouped(report.other_shallow)
            )?,
            "assemblies" => rows(&report.assemblies, false, &mut out)?,
            "objects" => report.largest.iter().try_for_each(|object| write_object(object, &mut out))?,
            _ => {}
        }
        rest = after;
    }
    out.write_all(rest.as_bytes())?;
    out.flush()
}

fn summary(report: &Report, out: &mut impl Write) -> io::Result<()> {
    for warning in report.warnings() {
        writeln!(out, "<p class=\"warning\">{}</p>", escaped(&warning))?;
    }
    writeln!(out, "<dl>")?;
    let mut fact = |name: &str, value: &str| writeln!(out, "<div><dt>{name}</dt><dd>{}</dd></div>", escaped(value));
    fact("objects", &grouped(report.objects))?;
    fact("bytes", &grouped(report.bytes))?;
    fact("references", &grouped(report.references))?;
    if report.weak_table_pairs > 0 {
        fact("pairs in weak tables", &grouped(report.weak_table_pairs))?;
    }
    for roots in &report.roots {
        fact(&format!("roots: {}", roots.kind), &grouped(roots.count))?;
    }
    if let Some(taken) = report.taken {
        fact("taken", &date(taken))?;
    }
    writeln!(out, "</dl>")
}

fn number(value: u64, out: &mut impl Write) -> io::Result<()> {
    write!(out, "<td class=\"n\" data-v=\"{value}\">{}</td>", grouped(value))
}

fn rows(rows: &[Row], has_assembly: bool, out: &mut impl Write) -> io::Result<()> {
    for row in rows {
        write!(out, "<tr>")?;
        for value in [row.retained, row.shallow, row.objects] {
            number(value, out)?;
        }
        write!(out, "<td>{}</td>", escaped(&row.name))?;
        if has_assembly {
            write!(out, "<td>{}</td>", escaped(&row.assembly))?;
        }
        writeln!(out, "</tr>")?;
    }
    Ok(())
}

fn write_object(object: &Object, out: &mut impl Write) -> io::Result<()> {
    write!(out, "<tr>")?;
    for value in [object.retained, object.retained_objects, object.shallow] {
        number(value, out)?;
    }
    write!(out, "<td>{}<div class=\"path\">", escaped(&object.class))?;
    chain("kept by", &object.path, out)?;
    chain("holds", &object.holds, out)?;
    writeln!(out, "<span class=\"address\">{}</span></div></td></tr>", escaped(&object.address))
}

fn chain(name: &str, steps: &[String], out: &mut impl Write) -> io::Result<()> {
    if steps.is_empty() {
        return Ok(());
    }
    let steps: Vec<String> = steps.iter().map(|step| format!("<span>{}</span>", escaped(step))).collect();
    writeln!(out, "<div><b>{name}</b> {}</div>", steps.join(" \u{2192} "))
}

/// Text between tags. Characters that no browser shows, and that turn the direction of text, are replaced.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => escaped.push('\u{fffd}'),
            c if c.is_control() => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}

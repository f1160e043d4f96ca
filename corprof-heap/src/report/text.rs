//! The report as tables for a terminal.

use std::io::{self, Write};

use super::{Report, Row, date, grouped, plain};

pub(super) fn write(report: &Report, mut out: impl Write) -> io::Result<()> {
    let taken = report.taken.map(|taken| format!(", taken {}", date(taken))).unwrap_or_default();
    writeln!(out, "Heap of {}{taken}", plain(&report.title))?;
    let objects = grouped(report.objects);
    let bytes = grouped(report.bytes);
    writeln!(out, "{objects} objects, {bytes} bytes, {} references", grouped(report.references))?;
    if report.weak_table_pairs > 0 {
        let pairs = if report.weak_table_pairs == 1 { "pair" } else { "pairs" };
        writeln!(out, "{} {pairs} in weak tables", grouped(report.weak_table_pairs))?;
    }
    let roots: Vec<String> =
        report.roots.iter().map(|roots| format!("{} {}", grouped(roots.count), roots.kind)).collect();
    writeln!(out, "Roots: {}", if roots.is_empty() { "none".to_owned() } else { roots.join(", ") })?;
    for warning in report.warnings() {
        writeln!(out, "Warning: {warning}")?;
    }

    table(&mut out, "class", &report.classes)?;
    if report.other_classes > 0 {
        let classes = grouped(report.other_classes);
        let objects = grouped(report.other_objects);
        writeln!(
            out,
            "and {classes} more classes: {objects} objects, {} bytes shallow",
            grouped(report.other_shallow)
        )?;
    }
    table(&mut out, "assembly", &report.assemblies)?;

    writeln!(out, "\nObjects that retain most")?;
    for object in &report.largest {
        let retained = grouped(object.retained);
        let count = grouped(object.retained_objects);
        writeln!(out, "\n{} at {}: {retained} bytes in {count} objects", plain(&object.class), object.address)?;
        writeln!(out, "  kept by {}", plain(&object.path.join(" -> ")))?;
        if !object.holds.is_empty() {
            writeln!(out, "  holds   {}", plain(&object.holds.join(" -> ")))?;
        }
    }
    out.flush()
}

fn table(out: &mut impl Write, heading: &str, rows: &[Row]) -> io::Result<()> {
    writeln!(out, "\n{:>17} {:>17} {:>13}  {heading}", "retained", "shallow", "objects")?;
    for row in rows {
        let retained = grouped(row.retained);
        let shallow = grouped(row.shallow);
        let objects = grouped(row.objects);
        let assembly = if row.assembly.is_empty() { String::new() } else { format!("  [{}]", plain(&row.assembly)) };
        writeln!(out, "{retained:>17} {shallow:>17} {objects:>13}  {}{assembly}", plain(&row.name))?;
    }
    Ok(())
}

//! Recordings and their tables as JSON: `view` in the book's page of documents.

use corprof_export::Unit;
use serde_json::{Value, json};

use crate::recording::Facts;
use crate::recording::picture::Picture;
use crate::recording::table::{By, Row};

/// The document.
pub(super) fn of(picture: &Picture, by: &By, rows: &[Row]) -> Value {
    let total = picture.total();
    let by = match by {
        By::Method => "method",
        By::Line => "line",
        By::Type => "type",
        By::Thread => "thread",
        By::Label => "label",
    };
    json!({
        "files": picture.files.iter().map(file).collect::<Vec<_>>(),
        "unit": picture.measure.map(|measure| unit(measure.unit())),
        "samples": total.samples,
        "weight": total.weight,
        "by": by,
        "rows": rows.iter().map(row).collect::<Vec<_>>(),
    })
}

fn file(facts: &Facts) -> Value {
    let kinds = facts.kinds.iter().map(|kind| {
        json!({
            "provider": kind.provider,
            "event": kind.name,
            "id": kind.id,
            "version": kind.version,
            "events": kind.events,
            "stacks": kind.stacks,
        })
    });
    json!({
        "file": facts.path.display().to_string(),
        "version": facts.version,
        "process": facts.process,
        "duration_seconds": facts.duration.as_secs_f64(),
        "events": facts.events,
        "lost": facts.lost,
        "threads": facts.threads,
        "cut_at": facts.cut_at,
        "damaged_lines": facts.damaged,
        "kinds": kinds.collect::<Vec<_>>(),
    })
}

fn row(row: &Row) -> Value {
    json!({
        "name": row.name,
        "own": row.own.weight,
        "own_samples": row.own.samples,
        "total": row.total.weight,
        "total_samples": row.total.samples,
    })
}

/// The name of a unit.
fn unit(unit: Unit) -> &'static str {
    match unit {
        Unit::Nanoseconds => "nanoseconds",
        Unit::Bytes => "bytes",
        _ => "samples",
    }
}

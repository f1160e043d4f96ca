//! Differences as a page: the flame graph of the newer recording, coloured by them, and their table.

use std::collections::HashMap;
use std::path::Path;

use corprof_export::{Change, Profile, Table};

use super::compare::Row;
use super::{Scale, chance};
use crate::recording::picture::Picture;
use crate::recording::table::{By, Subjects};
use crate::view::profile;

/// The most rows of the table.
const ROWS: usize = 100;

/// The profile that the page is of.
pub(super) fn of(new: &Picture, rows: &[Row], scale: Scale, only_mine: bool, base: &Path) -> Profile {
    let by_name: HashMap<&str, &Row> = rows.iter().map(|row| (row.name.as_str(), row)).collect();
    let subjects = Subjects::new(new, &By::Method, false);
    let mut profile = profile::with_frames(new, only_mine, |profile, frame, number_of_frame| {
        let name =
            subjects.of_frame.get(number_of_frame).copied().flatten().and_then(|at| subjects.names.get_index(at));
        let row = name.and_then(|name| by_name.get(name.as_str()));
        let change = row.map_or(Change::Noise, |row| change(row));
        profile.set_change(frame, change, row.map_or(String::new(), |row| words(row, scale)));
    });
    let columns = ["base", "new", "difference", "± 95 %", "chance", "numbers of", "changed", "method"];
    let mut table = Table::new(format!("Differences from {}, {}", base.display(), scale.unit), columns);
    for row in rows.iter().take(ROWS) {
        let (is_own, compared) = row.shown();
        let sign = if compared.difference.value < 0.0 { "−" } else { "+" };
        table.row([
            scale.number(compared.base),
            scale.number(compared.new),
            format!("{sign}{}", scale.number(compared.difference.value.abs())),
            scale.number(compared.difference.error),
            chance(compared.difference.chance),
            if is_own { "own" } else { "total" }.to_owned(),
            if compared.is_changed { "yes" } else { "" }.to_owned(),
            row.name.clone(),
        ]);
    }
    profile.set_table(table);
    profile
}

/// The change of a method: its own, or else that of what it calls.
fn change(row: &Row) -> Change {
    match (row.own.is_changed, row.total.is_changed) {
        (true, _) if row.own.difference.value > 0.0 => Change::More,
        (true, _) => Change::Less,
        (false, true) if row.total.difference.value > 0.0 => Change::MoreBelow,
        (false, true) => Change::LessBelow,
        (false, false) => Change::Noise,
    }
}

fn words(row: &Row, scale: Scale) -> String {
    let part = |compared: &super::Compared| format!("{} → {}", scale.number(compared.base), scale.number(compared.new));
    format!("before → now, {}: own {}, total {}", scale.unit, part(&row.own), part(&row.total))
}

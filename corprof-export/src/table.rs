//! A table that a page shows besides the profile.

use std::fmt::Write;

use crate::Profile;
use crate::flame_graph::escaped;

/// How it looks: it is written with the table, so that other pages do not have it.
const STYLE: &str = include_str!("html/table.css");

/// A table of what the profile is made of, for the HTML page. Other formats leave it out.
///
/// ```
/// use corprof_export::{Profile, Table, Unit};
///
/// let mut table = Table::new("Where operations waited", ["waits", "mean ms", "waits at"]);
/// table.row(["250", "20.64", "Shop.Query"]);
/// Profile::new("shop", Unit::Nanoseconds).set_table(table);
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Table {
    title: String,
    columns: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table without rows. The last column is for text, the others are for numbers.
    pub fn new(title: impl Into<String>, columns: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { title: title.into(), columns: columns.into_iter().map(Into::into).collect(), rows: Vec::new() }
    }

    /// Adds a row below the others, with a text for each column.
    pub fn row(&mut self, cells: impl IntoIterator<Item = impl Into<String>>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    /// The table as part of a page.
    pub(crate) fn html(&self) -> String {
        let mut out = format!("<style>\n{STYLE}</style>\n<details id=\"table\" open><summary>{}", escaped(&self.title));
        out.push_str("</summary><div><table><thead>");
        line(&mut out, "th", &self.columns);
        out.push_str("</thead><tbody>\n");
        self.rows.iter().for_each(|row| line(&mut out, "td", row));
        out.push_str("</tbody></table></div></details>");
        out
    }
}

fn line(out: &mut String, tag: &str, cells: &[String]) {
    out.push_str("<tr>");
    for cell in cells {
        let _ = write!(out, "<{tag}>{}</{tag}>", escaped(cell)); // a String takes all
    }
    out.push_str("</tr>\n");
}

impl Profile {
    /// Shows a table on the HTML page, above the flame graph.
    pub fn set_table(&mut self, table: Table) {
        self.about.table = Some(table);
    }
}

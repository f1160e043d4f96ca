//! A table that a page shows besides the profile.

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
    pub(crate) title: String,
    pub(crate) columns: Vec<String>,
    pub(crate) rows: Vec<Vec<String>>,
}

/// No number is longer, with its unit.
const LONGEST_NUMBER: usize = 24;

impl Table {
    /// A table without rows. The last column is for text; others are as well if they have a long one, else for numbers.
    pub fn new(title: impl Into<String>, columns: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { title: title.into(), columns: columns.into_iter().map(Into::into).collect(), rows: Vec::new() }
    }

    /// Adds a row below the others, with a text for each column.
    pub fn row(&mut self, cells: impl IntoIterator<Item = impl Into<String>>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    /// The columns, from 0 on, that have longer texts than fit into one line beside others.
    pub(crate) fn columns_of_text(&self) -> impl Iterator<Item = usize> {
        let is_long = |column: &usize| {
            let mut cells = self.rows.iter().filter_map(|row| row.get(*column));
            cells.any(|cell| cell.chars().count() > LONGEST_NUMBER)
        };
        (0..self.columns.len()).filter(is_long)
    }
}

//! The formats, and the extensions that choose them.

use std::path::Path;

use crate::Error;

/// A format of profiles, and what reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Format {
    /// A flame graph, for any browser: `.svg`. Paths of calls that are too narrow to be seen are drawn as part of
    /// their callers, and what lies deeper than 1,000 levels as one frame `[deeper]`.
    FlameGraph,
    /// A line for each stack, root first, for scripts and many viewers: `.folded`, `.txt`.
    Folded,
    /// For speedscope: `.speedscope.json`.
    Speedscope,
    /// [`Speedscope`](Format::Speedscope), compressed: `.speedscope.json.gz`.
    SpeedscopeGz,
    /// For `pprof` and most continuous profilers: `.pb.gz`, `.pprof`. Always compressed, as its readers expect.
    Pprof,
    /// For the Firefox Profiler: `.firefox.json`, `.json`.
    Firefox,
    /// [`Firefox`](Format::Firefox), compressed: `.firefox.json.gz`, `.json.gz`.
    FirefoxGz,
}

/// Longer endings stand before those that they end in.
const ENDINGS: [(&str, Format); 10] = [
    (".speedscope.json.gz", Format::SpeedscopeGz),
    (".speedscope.json", Format::Speedscope),
    (".firefox.json.gz", Format::FirefoxGz),
    (".firefox.json", Format::Firefox),
    (".json.gz", Format::FirefoxGz),
    (".json", Format::Firefox),
    (".folded", Format::Folded),
    (".pb.gz", Format::Pprof),
    (".pprof", Format::Pprof),
    (".svg", Format::FlameGraph),
];

/// Not in `ENDINGS`, as it is said last.
const TEXT: &str = ".txt";

impl Format {
    /// The format that the name of a file asks for; upper and lower case are the same.
    ///
    /// # Errors
    /// [`Error::UnknownExtension`], which lists the known ones, and [`Error::TraceOfSamples`] for `.trace.json`.
    pub fn of_path(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
        if name.ends_with(".trace.json") || name.ends_with(".trace.json.gz") {
            return Err(Error::TraceOfSamples { path: path.to_owned() });
        }
        let found = ENDINGS.iter().find(|(ending, _)| name.ends_with(ending)).map(|&(_, format)| format);
        let found = found.or_else(|| name.ends_with(TEXT).then_some(Self::Folded));
        found.ok_or_else(|| Error::UnknownExtension { path: path.to_owned() })
    }
}

/// The endings, as a message says them.
pub(crate) fn known() -> String {
    let endings: Vec<_> = ENDINGS.iter().map(|(ending, _)| *ending).collect();
    format!("{}, {TEXT}", endings.join(", "))
}

//! The formats, and the extensions that choose them.

/// A format of profiles, with its viewer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Format {
    /// A page for any browser, which works offline: `.html`. Flame graph with zoom and search, table of methods, "only
    /// my code", threads.
    Html,
    /// A flame graph as a picture, for documents: `.svg`. Roots are on top. Paths of calls that are too narrow to be
    /// seen are left out, and frames below 1,000 levels become one frame `[deeper]`.
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
const ENDINGS: [(&str, Format); 11] = [
    (".html", Format::Html),
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
    /// The file extensions that choose a format. A longer one comes before those that it ends in.
    pub fn extensions() -> impl Iterator<Item = &'static str> {
        ENDINGS.into_iter().map(|(ending, _)| ending).chain([TEXT])
    }

    /// How many bytes at the end of a file's name are its extension: 0 if it is none of the known ones.
    pub(crate) fn ending_of(name: &str) -> usize {
        ending_of(&name.to_ascii_lowercase()).map_or(0, |(ending, _)| ending.len())
    }

    /// The format of a name in lower case, if it ends in a known extension.
    pub(crate) fn of_name(name: &str) -> Option<Self> {
        ending_of(name).map(|(_, format)| format)
    }
}

fn ending_of(name: &str) -> Option<(&'static str, Format)> {
    let mut endings = ENDINGS.into_iter().chain([(TEXT, Format::Folded)]);
    endings.find(|(ending, _)| name.ends_with(ending))
}

/// The endings, as a message says them.
pub(crate) fn known() -> String {
    Format::extensions().collect::<Vec<_>>().join(", ")
}

//! The names of recordings.

use std::path::Path;

/// How they end, those of compressed ones first.
pub const RECORDINGS: [&str; 2] = [PACKED, ".nettrace"];

const PACKED: &str = ".nettrace.gz";

/// Whether a file has the name of a recording.
pub fn is_recording(path: &Path) -> bool {
    RECORDINGS.iter().any(|ending| ends_in(path, ending))
}

/// Whether it has that of a compressed one.
pub fn is_packed_recording(path: &Path) -> bool {
    ends_in(path, PACKED)
}

fn ends_in(path: &Path, ending: &str) -> bool {
    path.to_string_lossy().to_ascii_lowercase().ends_with(ending)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recordings_are_known_by_the_end_of_their_names() {
        let is = |path: &str| (is_recording(Path::new(path)), is_packed_recording(Path::new(path)));
        assert_eq!(is("/tmp/my.app.nettrace"), (true, false));
        assert_eq!(is("APP.NETTRACE.GZ"), (true, true));
        assert_eq!(is("app.json.gz"), (false, false));
        assert_eq!(is("app.nettrace/app.html"), (false, false));
    }
}

//! What a sampler has told about its file, beside the stop file (`profilers/library/sampler/result_file.rs`).

use std::path::Path;

use crate::attached_profiler;

/// The last words of a sampler.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SamplerResult {
    /// The file is written; it says this of the run.
    Written(Vec<String>),
    /// There is no file, because there were no samples, for this reason.
    Empty(String),
    /// The file could not be written, for this reason.
    Failed(String),
}

impl SamplerResult {
    /// What the sampler has told by the file that belongs to `answer`.
    pub(super) fn read(answer: &Path) -> Option<Self> {
        let mut file = answer.as_os_str().to_owned();
        file.push(".told");
        let text = attached_profiler::folder::read(Path::new(&file)).ok()?;
        // It is shown in a terminal, and may come from another user's process.
        let shown: String = text.chars().filter(|letter| *letter == '\n' || !letter.is_control()).collect();
        Self::parse(&shown)
    }

    fn parse(text: &str) -> Option<Self> {
        let (word, rest) = text.split_once('\n')?;
        match word {
            "written" => Some(Self::Written(rest.lines().map(str::to_owned).collect())),
            "empty" => Some(Self::Empty(rest.trim_end().to_owned())),
            "failed" => Some(Self::Failed(rest.trim_end().to_owned())),
            _ => None,
        }
    }

    /// The lines of a written file.
    pub(super) fn lines(&self) -> &[String] {
        if let Self::Written(lines) = self { lines } else { &[] }
    }

    /// Why there is no file.
    pub(super) fn why_missing(&self) -> Option<String> {
        match self {
            Self::Written(_) => None,
            Self::Empty(why) => Some(format!("no samples: {why}")),
            Self::Failed(why) => Some(why.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn what_a_sampler_tells_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let answer = folder.path().join(".corprof-1.stop.7");
        assert_eq!(SamplerResult::read(&answer), None);
        let parsed = |text: &str| {
            fs::write(folder.path().join(".corprof-1.stop.7.told"), text).unwrap();
            SamplerResult::read(&answer)
        };
        let written = parsed("written\n2 samples\nWarning: few\n").unwrap();
        assert_eq!((written.lines().len(), written.why_missing()), (2, None));
        assert_eq!(parsed("empty\nidle\n").unwrap().why_missing().unwrap(), "no samples: idle");
        assert_eq!(parsed("failed\nfull\n"), Some(SamplerResult::Failed("full".to_owned())));
        assert_eq!(parsed("else\nx\n"), None);
    }
}

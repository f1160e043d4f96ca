//! [`Choice`]: the runtime that a user names.

use std::path::PathBuf;
use std::str::FromStr;

use anyhow::Result;

use crate::cache::Cache;
use crate::known::{self, KNOWN, Known};
use crate::process;
use crate::runtime::Runtime;
use crate::system::this_system;

/// The value of `--runtime`.
#[derive(Debug, Clone, PartialEq)]
pub enum Choice {
    /// A known runtime, by its name.
    Known(&'static str),
    /// A `dotnet` host, or the folder it lies in.
    Path(PathBuf),
}

impl FromStr for Choice {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let text_or_major = text.strip_suffix(".0").unwrap_or(text);
        if let Some(known) = KNOWN.iter().find(|known| known.name == text_or_major) {
            return Ok(Self::Known(known.name));
        }
        let path = PathBuf::from(text);
        let looks_like_path = path.exists() || path.components().count() > 1;
        if looks_like_path {
            Ok(Self::Path(path))
        } else {
            Err(format!("neither {}, nor the path of a `dotnet`", known::names("linux-x64")))
        }
    }
}

impl Choice {
    /// The requested runtime. Without a choice: the user's own, else .NET 10 from the folder of runtimes, else .NET 8.
    ///
    /// # Errors
    /// If the requested runtime is not available and cannot be fetched.
    pub fn resolve(choice: Option<&Self>, cache: &Cache) -> Result<Runtime> {
        match choice {
            Some(Self::Path(path)) => return Runtime::at(path),
            Some(Self::Known(name)) => return known::here(name, cache),
            None => {}
        }
        match Runtime::own() {
            Some(Ok(own)) => return Ok(own),
            Some(Err(reason)) => process::note(format_args!("your own dotnet cannot serve: {reason:#}")),
            None => {}
        }
        let lacks = match Known::find("10", &this_system()) {
            Ok(known) => match known.lacks() {
                None => return known.install(cache),
                Some(lacks) => lacks,
            },
            Err(error) => error.to_string(),
        };
        process::note(format_args!("{lacks}; .NET 8 serves meanwhile"));
        known::here("8", cache)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_is_a_name_or_a_path() {
        assert_eq!("8".parse(), Ok(Choice::Known("8")));
        assert_eq!("10.0".parse(), Ok(Choice::Known("10")));
        assert_eq!("11".parse(), Ok(Choice::Known("11")));
        assert_eq!("/opt/dotnet".parse(), Ok(Choice::Path("/opt/dotnet".into())));
        assert!("3.1".parse::<Choice>().unwrap_err().contains("neither 11, 10 or 8, nor"));
    }
}

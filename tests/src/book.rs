//! The book, the README and the pages of corprof-macros, as documentation whose code `cargo test --doc` compiles and
//! runs.

/// One module for each page, made by the build script.
#[cfg(doctest)]
mod pages {
    include!(concat!(env!("OUT_DIR"), "/book_pages.rs"));
}

/// The macros' own documentation.
#[cfg(doctest)]
mod macros {
    #[doc = include_str!("../../corprof-macros/src/callbacks.md")]
    mod callbacks {}
    #[doc = include_str!("../../corprof-macros/src/profiler.md")]
    mod profiler {}
    #[doc = include_str!("../../corprof-macros/src/provider_event.md")]
    mod provider_event {}
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::{Path, PathBuf};

    use pulldown_cmark::{CodeBlockKind, Event, Parser, Tag};

    use crate::book_pages;

    fn root() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap()
    }

    fn src() -> PathBuf {
        root().join("book/src")
    }

    /// Every page and the README, with its text.
    fn texts() -> Vec<(PathBuf, String)> {
        let mut pages = book_pages::pages(&src()).unwrap();
        pages.push(root().join("README.md"));
        pages.into_iter().map(|page| (page.clone(), fs::read_to_string(page).unwrap())).collect()
    }

    fn markdown_files(dir: &Path, found: &mut BTreeSet<PathBuf>) {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                markdown_files(&path, found);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                found.insert(path);
            }
        }
    }

    #[test]
    fn the_summary_lists_every_page() {
        let mut found = BTreeSet::new();
        markdown_files(&src(), &mut found);
        found.remove(&src().join("SUMMARY.md"));
        assert_eq!(found, book_pages::pages(&src()).unwrap().into_iter().collect());
    }

    /// The introduction lists all chapters in the order of the summary.
    #[test]
    fn the_introduction_lists_every_chapter() {
        let introduction = src().join("introduction.md");
        let text = fs::read_to_string(&introduction).unwrap();
        let (_, list) = text.split_once("## What is in this book").unwrap();
        let listed: Vec<_> = book_pages::links(list).into_iter().map(|link| src().join(link)).collect();
        let mut chapters = book_pages::pages(&src()).unwrap();
        chapters.retain(|page| *page != introduction);
        assert_eq!(listed, chapters);
    }

    /// A block marked `ignore` is never compiled, unless it is an example of the repository, whole. One without a
    /// language is taken for Rust by rustdoc only.
    #[test]
    fn every_code_block_has_a_language_and_all_rust_is_compiled() {
        for (page, text) in texts() {
            let mut events = Parser::new(&text).peekable();
            while let Some(event) = events.next() {
                if let Event::Start(Tag::CodeBlock(kind)) = event {
                    let code = match events.peek() {
                        Some(Event::Text(code)) => code.trim(),
                        _ => "",
                    };
                    let is_example = code.starts_with("{{#include ../../examples/") && code.lines().count() == 1;
                    let info = match kind {
                        CodeBlockKind::Fenced(info) => info,
                        CodeBlockKind::Indented => "".into(),
                    };
                    let words: Vec<_> = info.split([',', ' ']).collect();
                    assert_ne!(words, [""], "{}: a code block without a language (`text` is one)", page.display());
                    let ignored = words.iter().any(|word| word.starts_with("ignore"));
                    assert!(
                        !(words[0] == "rust" && ignored) || is_example,
                        "{}: a Rust block that nothing compiles",
                        page.display()
                    );
                }
            }
        }
    }

    #[test]
    fn links_between_pages_lead_somewhere() {
        for (page, text) in texts() {
            for link in book_pages::links(&text) {
                let file = link.split('#').next().unwrap();
                let target = page.parent().unwrap().join(file);
                assert!(file.is_empty() || target.exists(), "{}: a dead link to {link}", page.display());
            }
        }
    }
}

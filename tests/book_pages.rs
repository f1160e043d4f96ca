//! Which pages the book has. Read by the build script and by the tests of the book, from the book itself.

use std::path::{Path, PathBuf};

use pulldown_cmark::{Event, Parser, Tag};

/// Where the links of a Markdown text lead, as written; pictures count, other sites do not.
pub(crate) fn links(markdown: &str) -> Vec<String> {
    let events = Parser::new(markdown).filter_map(|event| match event {
        Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => Some(dest_url.to_string()),
        _ => None,
    });
    events.filter(|link| !link.contains("://") && !link.starts_with("mailto:")).collect()
}

/// The pages that the summary of the book in `src` lists, in its order. A draft, which links nowhere, is not a page.
pub(crate) fn pages(src: &Path) -> std::io::Result<Vec<PathBuf>> {
    let summary = std::fs::read_to_string(src.join("SUMMARY.md"))?;
    let pages = links(&summary).into_iter().filter(|link| link.ends_with(".md"));
    Ok(pages.map(|link| src.join(link)).collect())
}

//! `cargo xtask book`: builds the book, and checks that everything on its pages is visible.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use corprof_launch::running::Running;

use crate::cache::Cache;
use crate::cargo::workspace_root;
use crate::process::{self, announce, find_on_path, note};
use crate::tools;

/// Build the book into book/book.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Open each page in Chromium, 1,200 pixels wide, and check that nothing is cut off and every picture is there.
    /// Without Chromium the check is skipped, with a note
    #[arg(long)]
    check_layout: bool,
}

/// Runs the command.
///
/// # Errors
/// If mdBook is not available, warns or fails, or something on a page is not visible.
pub fn run(args: &Args) -> Result<ExitCode> {
    build()?;
    if args.check_layout {
        check_layout()?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Builds the book. mdBook only warns of many mistakes, so a warning counts as a failure.
pub(crate) fn build() -> Result<()> {
    let mdbook = tools::mdbook(&Cache::open()?)?;
    let mut command = Command::new(mdbook);
    command.arg("build").arg(workspace_root().join("book")).env_remove("RUST_LOG");
    announce(process::shown(&command));
    let mut child = command
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start `{}`", process::shown(&command)))?;
    let mut warnings = 0;
    if let Some(stderr) = child.stderr.take() {
        for line in BufReader::new(stderr).lines() {
            let line = line.context("cannot read the output of mdBook")?;
            warnings += usize::from(is_warning(&line));
            eprintln!("{line}");
        }
    }
    let status = child.wait().context("cannot wait for mdBook")?;
    if !status.success() || warnings > 0 {
        bail!("the book is not clean: {warnings} warnings or errors, {status}");
    }
    Ok(())
}

/// mdBook 0.5 starts a line with the level; 0.4 puts it in brackets after the time.
fn is_warning(line: &str) -> bool {
    let line = line.trim_start();
    ["WARN", "ERROR"].iter().any(|level| line.starts_with(level) || line.contains(&format!("[{level}]")))
}

/// The width in pixels of the window in which pages are checked, with the sidebar.
const WIDTH: u32 = 1200;

/// Keeps Chromium from using a network and from storing data.
const QUIETLY: [&str; 9] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
];

/// Checks each page of the built book.
pub(crate) fn check_layout() -> Result<()> {
    let Some(browser) = ["chromium", "chromium-browser", "google-chrome"].into_iter().find_map(find_on_path) else {
        note("SKIPPED: the layout of the book: there is no Chromium (Debian: apt-get install chromium)");
        return Ok(());
    };
    let built = workspace_root().join("book").join("book");
    let pages = pages(&built)?;
    announce(format_args!("Looking at {} pages of the book, {WIDTH} pixels wide", pages.len()));
    let problems = look(&browser, &built, &pages)?;
    ensure!(problems.is_empty(), "not everything in the book can be seen:\n  {}", problems.join("\n  "));
    Ok(())
}

/// The pages that mdBook has made of chapters.
fn pages(built: &Path) -> Result<Vec<String>> {
    let mut pages = Vec::new();
    for entry in fs::read_dir(built).with_context(|| format!("cannot read {}", built.display()))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        // print.html repeats all chapters, the others are not chapters.
        let is_chapter = !["print.html", "404.html", "toc.html"].contains(&name.as_str());
        if name.ends_with(".html") && is_chapter {
            pages.push(name);
        }
    }
    ensure!(!pages.is_empty(), "there are no pages in {}", built.display());
    pages.sort();
    Ok(pages)
}

/// Makes `browser` measure `pages`, which are in `folder`, and returns what is not visible.
fn look(browser: &Path, folder: &Path, pages: &[String]) -> Result<Vec<String>> {
    let temporary = tempfile::tempdir().context("cannot make a folder for the browser")?;
    let page = temporary.path().join("look.html");
    let mut text =
        format!("<!doctype html><script>{}</script><body style=\"margin: 0\">", include_str!("book/layout.js"));
    for page in pages {
        let address = folder.join(page);
        let style = format!("width: {WIDTH}px; height: 900px; border: 0");
        text += &format!("<iframe title=\"{page}\" src=\"file://{}\" style=\"{style}\"></iframe>", address.display());
    }
    fs::write(&page, text)?;
    let mut command = Command::new(browser);
    command.args(QUIETLY).arg("--allow-file-access-from-files").arg(format!("--window-size={WIDTH},900"));
    command.arg(format!("--user-data-dir={}", temporary.path().join("user").display()));
    // The DOM is printed once the page has loaded, with all of its frames.
    command.arg("--dump-dom").arg(format!("file://{}", page.display()));
    let text = output_within(&mut command, temporary.path(), Duration::from_secs(300))?;
    problems(&text).with_context(|| format!("the browser did not report a result: {text:.300}"))
}

/// The output of `command`; an error if it takes longer than `limit`, because a browser may hang.
fn output_within(command: &mut Command, folder: &Path, limit: Duration) -> Result<String> {
    let printed: PathBuf = folder.join("printed");
    command.stdout(fs::File::create(&printed)?).stderr(Stdio::null());
    let child = command.spawn().with_context(|| format!("cannot start `{}`", process::shown(command)))?;
    let mut running = Running::new(child)?;
    if running.wait_for(limit)?.is_none() {
        let _ = running.kill();
        bail!("`{}` has not ended after {} s", process::shown(command), limit.as_secs());
    }
    Ok(fs::read_to_string(&printed)?)
}

/// The lines between the two markers of the script; none if it has not come to its end.
fn problems(text: &str) -> Option<Vec<String>> {
    let (_, rest) = text.split_once("checked\n")?;
    let (problems, _) = rest.rsplit_once("end")?;
    Some(problems.lines().map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_of_both_mdbooks_are_seen() {
        assert!(is_warning(" WARN unexpected tag"));
        assert!(is_warning("2026-01-01 10:00:00 [WARN] (mdbook::x): y"));
        assert!(is_warning("ERROR Rendering failed"));
        assert!(!is_warning(" INFO Book building has started"));
        assert!(!is_warning("2026-01-01 10:00:00 [INFO] (mdbook::book): how to read WARN lines"));
    }

    #[test]
    fn a_browser_that_broke_off_has_seen_nothing() {
        assert_eq!(problems("<html>"), None);
        assert_eq!(problems("<body>checked\na: cut"), None);
        assert_eq!(problems("<body>checked\nend</body>"), Some(Vec::new()));
        assert_eq!(problems("<body>checked\na: cut off\nb\nend"), Some(vec!["a: cut off".into(), "b".into()]));
    }

    #[test]
    fn what_is_cut_off_is_found() {
        let Some(browser) = find_on_path("chromium") else {
            println!("skipped: there is no chromium on PATH");
            return;
        };
        let dir = tempfile::tempdir().unwrap();
        let page = |name: &str, body: &str| {
            fs::write(dir.path().join(name), format!("<main><h1>x</h1>{body}</main>")).unwrap();
            name.to_owned()
        };
        let long = "x".repeat(400);
        let pages = [
            page("fits.html", "<pre style='overflow: auto'>short</pre>"),
            page("cut.html", &format!("<pre style='overflow: auto; width: 700px'>{long}</pre>")),
            page("gone.html", "<img src='none.png' alt='x'>"),
        ];
        let problems = look(&browser, dir.path(), &pages).unwrap();
        assert_eq!(problems.len(), 2, "{problems:#?}");
        assert!(problems[0].contains("cut.html: cut off at the right"), "{problems:#?}");
        assert!(problems[1].contains("gone.html: no picture none.png"), "{problems:#?}");
    }
}

//! Pages that commands write: their data, and what Chromium shows of them.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// The data of a page.
pub(crate) fn data(page: &Path) -> Result<Value> {
    let page = fs::read_to_string(page)?;
    let (_, rest) = page.split_once("id=\"data\">").context("no data")?;
    let (data, _) = rest.split_once("</script>").context("no end of the data")?;
    Ok(serde_json::from_str(data)?)
}

/// The elements of a page, as Chromium shows them. None without Chromium.
pub(crate) fn shown(page: &Path, fragment: &str) -> Result<Option<String>> {
    let url = format!("file://{}{fragment}", page.display());
    let arguments = ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=5000", "--dump-dom"];
    let Ok(output) = Command::new("chromium").args(arguments).arg(url).output() else {
        println!("skipped: there is no chromium on PATH");
        return Ok(None);
    };
    ensure!(output.status.success(), "{output:?}");
    Ok(Some(String::from_utf8(output.stdout)?))
}

/// A script that does something once the page is there. `point` is at a place in pixels.
const HANDS: &str = "
const scroll = document.getElementById('moments-scroll'), canvas = document.getElementById('moments-canvas');
// A pointer that is not real cannot be captured.
canvas.setPointerCapture = () => {};
const key = (key, shiftKey) => scroll.dispatchEvent(new KeyboardEvent('keydown', { key, shiftKey }));
const point = (name, x, y) => {
  const place = canvas.getBoundingClientRect();
  const clientX = place.left + x, clientY = place.top + y;
  canvas.dispatchEvent(new PointerEvent(name, { clientX, clientY, button: 0, pointerId: 1 }));
};
const choose = (id, value) => {
  const choice = document.getElementById(id);
  choice.value = value;
  choice.dispatchEvent(new Event('change'));
};
setTimeout(() => { TODO }, 1000);
";

/// The same after a script has used the page.
pub(crate) fn shown_after(page: &Path, todo: &str) -> Result<Option<String>> {
    let changed = page.with_extension("hands.html");
    let script = HANDS.replace("TODO", todo);
    let text = fs::read_to_string(page)?;
    fs::write(&changed, text.replace("</body>", &format!("<script>{script}</script></body>")))?;
    shown(&changed, "")
}

/// The words below a heat map or a timeline.
pub(crate) fn words(shown: &str) -> Result<&str> {
    let (_, rest) = shown.split_once("id=\"moments-words\" aria-live=\"polite\">").context("no words")?;
    Ok(rest.split_once("</span>").context("no end of the words")?.0)
}

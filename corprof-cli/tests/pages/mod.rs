//! Pages that commands write: their data, and what Chromium shows of them.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, anyhow, ensure};
use serde_json::Value;

/// The data of a page.
pub(crate) fn data(page: &Path) -> Result<Value> {
    let page = fs::read_to_string(page)?;
    let (_, rest) = page.split_once("id=\"data\">").context("no data")?;
    let (data, _) = rest.split_once("</script>").context("no end of the data")?;
    Ok(serde_json::from_str(data)?)
}

/// The elements of a page as Chromium shows them at each fragment of its address, after a script has used it there.
/// None without Chromium.
pub(crate) fn shown<const N: usize>(page: &Path, uses: [(&str, &str); N]) -> Result<Option<[String; N]>> {
    let text = fs::read_to_string(page)?;
    let mut frames = String::new();
    for (number, (fragment, todo)) in uses.into_iter().enumerate() {
        let name = format!("use-{number}.html");
        let script = HANDS.replace("TODO", todo);
        fs::write(page.with_file_name(&name), text.replace("</body>", &format!("<script>{script}</script></body>")))?;
        frames += &format!("<iframe width=\"800\" height=\"600\" src=\"{name}{fragment}\"></iframe>");
    }
    let uses = page.with_file_name("uses.html");
    fs::write(&uses, USES.replace("FRAMES", &frames))?;
    let arguments = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        // Frames of files may be read by the page around them.
        "--allow-file-access-from-files",
        "--virtual-time-budget=60000",
        "--dump-dom",
    ];
    let url = format!("file://{}", uses.display());
    let Ok(output) = Command::new("chromium").args(arguments).arg(url).output() else {
        println!("skipped: there is no chromium on PATH");
        return Ok(None);
    };
    ensure!(output.status.success(), "{output:?}");
    fs::write(&uses, output.stdout)?;
    let shown: Vec<String> = serde_json::from_value(data(&uses)?)?;
    let shown = shown.try_into().map_err(|shown: Vec<_>| anyhow!("{} frames", shown.len()))?;
    Ok(Some(shown))
}

/// A page with each use of another one in a frame, whose elements it takes when all have been used. It starts Chromium
/// once.
const USES: &str = "<!DOCTYPE html><body>FRAMES<script type=\"application/json\" id=\"data\"></script><script>
const look = () => {
  const pages = [...document.querySelectorAll('iframe')].map((frame) => frame.contentDocument?.documentElement);
  if (!pages.every((page) => page?.dataset.isUsed)) return setTimeout(look, 10);
  const shown = pages.map((page) => page.outerHTML);
  document.getElementById('data').textContent = JSON.stringify(shown).replaceAll('<', '\\\\u003c');
};
look();
</script></body>";

/// A script that does something once the page is there. `point` is at a place in pixels. Chromium's time goes on when
/// there is nothing to do, also while another thread unpacks the data: each look gives it a little real time.
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
const whenThere = () => {
  if (document.getElementById('moments-words').textContent === '') return setTimeout(whenThere, 10);
  setTimeout(() => { TODO; goOn(200); }, 500);
};
const goOn = (looks) => {
  if (looks > 0) return setTimeout(goOn, 10, looks - 1);
  document.documentElement.dataset.isUsed = 'yes';
};
setTimeout(whenThere, 500);
";

/// The words below a heat map or a timeline.
pub(crate) fn words(shown: &str) -> Result<&str> {
    let (_, rest) = shown.split_once("id=\"moments-words\" aria-live=\"polite\">").context("no words")?;
    Ok(rest.split_once("</span>").context("no end of the words")?.0)
}

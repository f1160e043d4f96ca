// The page that this stands in has a frame for each page of the book. Once all of them are there, with their pictures, what
// cannot be seen becomes the text of the page, between two lines that say that it is whole.
const problems = (name, page) => {
  const found = [];
  for (const block of page.querySelectorAll("main pre, main pre > code, main .table-wrapper, main table")) {
    if (block.scrollWidth > block.clientWidth + 1) {
      const start = block.textContent.trim().replaceAll(/\s+/g, " ").slice(0, 60);
      found.push(`${name}: cut off at the right, ${block.scrollWidth} of ${block.clientWidth} pixels: ${start}`);
    }
  }
  for (const image of page.querySelectorAll("main img")) {
    const source = image.getAttribute("src");
    if (!image.complete || image.naturalWidth === 0) found.push(`${name}: no picture ${source}`);
    if (!image.alt) found.push(`${name}: a picture without words for it: ${source}`);
  }
  if (!page.querySelector("main h1")) found.push(`${name}: no heading: is this a page?`);
  return found;
};

window.onload = () => {
  const frames = [...document.querySelectorAll("iframe")];
  const found = frames.flatMap((frame) => problems(frame.title, frame.contentDocument));
  document.body.textContent = ["checked", ...found, "end"].join("\n");
};

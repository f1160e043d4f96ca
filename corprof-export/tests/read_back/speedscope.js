// Has speedscope import a file, and prints its title and what its page says. `NODE_PATH=… node speedscope.js FILE`
//
// The package on npm holds the page, not the importer as a module; so the page runs, in a stand-in for a browser.
"use strict";
const fs = require("fs");
const path = require("path");
const { JSDOM, VirtualConsole } = require("jsdom");

const release = path.join(path.dirname(require.resolve("speedscope/package.json")), "dist", "release");
const program = fs.readdirSync(release).find((name) => /^speedscope-.*\.js$/.test(name));
const dom = new JSDOM("<!DOCTYPE html><body></body>", {
  // With this the page waits for a file to be handed over, as speedscope's own command line does it.
  url: "http://localhost/#localProfilePath=/none.js",
  runScripts: "outside-only",
  pretendToBeVisual: true,
  virtualConsole: new VirtualConsole(),
});
const page = dom.window;
Object.assign(page, { TextDecoder, TextEncoder });
page.matchMedia = () => ({ matches: false, addListener() {}, addEventListener() {}, removeEventListener() {} });
// There is nothing to draw on; what is imported is known before anything is drawn.
page.HTMLCanvasElement.prototype.getContext = () => null;
const failures = [];
page.alert = (text) => failures.push(text);
for (const event of ["uncaughtException", "unhandledRejection"]) {
  process.on(event, (error) => failures.push(String(error)));
}
page.eval(fs.readFileSync(path.join(release, program), "utf8"));

const end = Date.now() + 60_000;
function wait(until, then) {
  if (until()) return then();
  if (Date.now() > end) {
    console.error("speedscope has not imported it", failures);
    process.exit(1);
  }
  setTimeout(() => wait(until, then), 50);
}
wait(() => page.speedscope, () => {
  const file = process.argv[2];
  page.speedscope.loadFileFromBase64(path.basename(file), fs.readFileSync(file).toString("base64"));
  wait(() => page.document.title.endsWith(" - speedscope"), () => {
    const answer = { title: page.document.title, text: page.document.body.textContent };
    process.stdout.write(JSON.stringify(answer), () => process.exit(0));
  });
});

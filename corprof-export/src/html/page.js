"use strict";
(async () => {
  const data = JSON.parse(document.getElementById("data").textContent);
  if (data.heat) await unpackMoments(data);
  const model = createModel(data);
  const about = data.about;
  const $ = (id) => document.getElementById(id);
  const KINDS = [["user", "your code"], ["framework", "framework"], ["native", "runtime and native"], ["wait", "waits"],
    ["generated", "generated"]];
  // Compared with another profile, boxes are coloured by their changes.
  const CHANGES = [["same", "within the noise"], ["more", "takes more"], ["morebelow", "calls what takes more"],
    ["less", "takes less"], ["lessbelow", "calls what takes less"]];
  const isCompared = Boolean(data.frames.change);
  const ROW = 21, LEAST_LABEL = 22, SHOWN_ROWS = 200;
  const scroll = $("scroll"), canvas = $("canvas"), pen = canvas.getContext("2d");

  // The state: what is asked for, the tree of calls it gives and the shown one (the same, or bottom-up), the box that
  // fills the width (-1: all), and the picked box or method.
  const options = { mine: about.onlyMine, waits: about.showsIdle ? "all" : "idle", threads: "merged", call: -1 };
  let calls, view, isUp = false, zoom = -1, picked = -1, pickedItem = null, words = "", sort = "own", isDown = true, showsAllRows = false;
  let colours = {}, widths = new Map();

  const make = (tag, className, content) => {
    const element = document.createElement(tag);
    if (className) element.className = className;
    if (content !== undefined) element.textContent = content;
    return element;
  };
  const kindName = (kind) => (kind < 0 ? "other" : KINDS[kind][0]);
  // The name of the colour of a frame.
  const colourName = (item, kind) => (isCompared && item >= 0 ? CHANGES[data.frames.change[item]][0] : kindName(kind));

  // Numbers.
  const digits = (value) => (value >= 100 ? 0 : value >= 10 ? 1 : 2);
  const scaled = (value, units, step) => {
    let unit = 0;
    while (unit < units.length - 1 && value >= step) { value /= step; unit++; }
    return value.toFixed(unit === 0 && step === 1024 ? 0 : digits(value)) + " " + units[unit];
  };
  function weight(value) {
    if (about.unit === "nanoseconds") return scaled(value / 1000, ["µs", "ms", "s"], 1000);
    if (about.unit === "bytes") return scaled(value, ["B", "KB", "MB", "GB", "TB"], 1024);
    return value.toLocaleString("en") + (value === 1 ? " sample" : " samples");
  }
  const whole = () => view.all || 1;
  const zoomed = () => (zoom < 0 ? whole() : view.total[zoom]);
  const percent = (value, of) => (value / of * 100).toFixed(1) + " %";

  // The head of the page.
  $("title").textContent = model.visible(about.name) || "profile";
  const facts = about.facts.slice();
  if (about.started !== null) facts.push(new Date(about.started).toLocaleString());
  $("facts").textContent = facts.map(model.visible).join(" · ");
  for (const warning of about.warnings) $("warnings").append(make("p", "", "⚠ " + model.visible(warning)));
  for (const note of about.notes) $("notes").append(make("div", "", model.visible(note)));
  for (const [name, label] of isCompared ? CHANGES : KINDS) {
    const entry = make("span"), dot = make("i", "dot");
    dot.style.setProperty("--kind", `var(--${name})`);
    entry.append(dot, label);
    $("legend").append(entry);
  }
  $("mine").checked = options.mine;
  $("waits").value = options.waits;
  $("waits").hidden = !model.hasWaits;
  $("threads").hidden = !model.hasThreads;
  data.threads.forEach((thread, number) => {
    if (thread.weight.length === 0) return;
    const title = model.threadName(thread) + (thread.id && thread.isNamed ? ` (${thread.id})` : "");
    const option = make("option", "", title);
    option.value = String(number);
    $("threads").append(option);
  });

  function rebuild() {
    calls = model.build(options);
    turn();
  }
  function turn() {
    view = isUp ? model.invert(calls) : calls;
    zoom = picked = -1;
    pickedItem = null;
    refresh();
  }
  function refresh() {
    $("reset").disabled = zoom < 0;
    found();
    fit();
    rows();
    details();
    around();
  }

  // The picture. The canvas is as large as what can be seen of it, and stays there while the page scrolls below it.
  function readColours() {
    const style = getComputedStyle(document.documentElement);
    for (const name of ["paper", "ink", "accent", "found", "other", ...KINDS.map(([name]) => name), ...CHANGES.map(([name]) => name)]) {
      colours[name] = style.getPropertyValue("--" + name).trim();
    }
    colours.isDark = matchMedia("(prefers-color-scheme: dark)").matches;
  }
  const levels = () => view.rows.length + 1;
  function fit() {
    scroll.style.setProperty("--levels", levels() * ROW + "px");
    const width = scroll.clientWidth, height = Math.min(scroll.clientHeight, Math.max(levels() * ROW, ROW));
    const ratio = window.devicePixelRatio || 1;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.width = width + "px";
    canvas.style.height = height + "px";
    $("spacer").style.height = Math.max(0, levels() * ROW - height) + "px";
    draw();
  }
  // Whether a box is above the one that fills the width.
  const ancestors = () => {
    const above = new Set();
    for (let node = zoom; node >= 0; node = view.caller[node]) above.add(node);
    return above;
  };
  function bounds(node, above, width) {
    if (above.has(node)) return [0, width];
    const start = zoom < 0 ? 0 : view.left[zoom], scale = width / zoomed();
    return [(view.left[node] - start) * scale, view.total[node] * scale];
  }
  const isBelowZoom = (node) => {
    if (zoom < 0) return true;
    const start = view.left[zoom], end = start + view.total[zoom];
    return view.depth[node] > view.depth[zoom] && view.left[node] >= start - 1e-9 * whole() &&
      view.left[node] + view.total[node] <= end * (1 + 1e-12) + 1e-9 * whole();
  };
  function shade(label) {
    let hash = 7;
    for (let at = 0; at < label.length; at++) hash = (hash * 31 + label.charCodeAt(at)) | 0;
    return (hash >>> 4) % 4 * 0.055;
  }
  function widthOf(label) {
    let width = widths.get(label);
    if (width === undefined) widths.set(label, width = pen.measureText(label).width);
    return width;
  }
  // The longest of the labels that fits, else the beginning of the shortest.
  function shortened(labels, room) {
    if (room < LEAST_LABEL) return "";
    for (const label of labels) if (widthOf(label) <= room) return label;
    const label = labels[labels.length - 1];
    let low = 0, high = label.length;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (pen.measureText(label.slice(0, middle) + "…").width <= room) low = middle; else high = middle - 1;
    }
    return low < 2 ? "" : label.slice(0, low) + "…";
  }
  function box(x, y, width, labels, colour, dim, outline) {
    pen.globalAlpha = dim;
    pen.fillStyle = colour;
    pen.fillRect(x, y, Math.max(width - 0.8, 0.4), ROW - 1);
    if (width > 3) {
      pen.fillStyle = colours.isDark ? "#fff" : "#000";
      pen.globalAlpha = dim * shade(labels[0]) * (colours.isDark ? 1 : 0.9);
      pen.fillRect(x, y, width - 0.8, ROW - 1);
    }
    pen.globalAlpha = dim;
    const words = shortened(labels, width - 9);
    if (words) {
      pen.fillStyle = colours.ink;
      pen.fillText(words, x + 4, y + ROW / 2);
    }
    pen.globalAlpha = 1;
    if (outline && width > 1.5) {
      pen.strokeStyle = outline;
      pen.lineWidth = 2;
      pen.strokeRect(x + 1, y + 1, Math.max(width - 2.8, 0.5), ROW - 3);
    }
  }
  function draw() {
    const ratio = window.devicePixelRatio || 1, width = canvas.width / ratio, height = canvas.height / ratio;
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.font = '12.5px system-ui, "Segoe UI", "DejaVu Sans", sans-serif';
    pen.textBaseline = "middle";
    pen.fillStyle = colours.paper;
    pen.fillRect(0, 0, width, height);
    if (view.all === 0) {
      pen.fillStyle = colours.ink;
      pen.fillText(view.hidden > 0 ? "Nothing but waiting threads" : "No samples", 16, ROW / 2);
      return;
    }
    const above = ancestors(), top = scroll.scrollTop;
    if (top < ROW) box(0, -top, width, ["all: " + weight(view.all)], colours.other, 1, null);
    const first = Math.max(0, Math.floor(top / ROW) - 1), last = Math.min(view.rows.length, Math.ceil((top + height) / ROW));
    for (let row = first; row < last; row++) {
      const y = (row + 1) * ROW - top;
      for (const node of view.rows[row]) {
        const isAbove = above.has(node);
        if (!isAbove && !isBelowZoom(node)) continue;
        const [x, wide] = bounds(node, above, width);
        if (wide < 0.35) continue;
        const isFound = words && model.matches(view.item[node], words);
        const isPicked = node === picked || (pickedItem !== null && view.key(node) === pickedItem);
        const dim = words && !isFound ? 0.32 : isAbove && node !== zoom ? 0.6 : 1;
        box(x, y, wide, view.labels(node), colours[colourName(view.item[node], view.kind(node))], dim,
          node === picked ? colours.ink : isPicked ? colours.accent : isFound ? colours.found : null);
      }
    }
  }
  // The box at a point of the canvas; -1 for that of everything, null for none.
  function at(event) {
    const place = canvas.getBoundingClientRect();
    const x = event.clientX - place.left, row = Math.floor((event.clientY - place.top + scroll.scrollTop) / ROW) - 1;
    if (row === -1) return -1;
    const above = ancestors();
    for (const node of view.rows[row] || []) {
      if (!above.has(node) && !isBelowZoom(node)) continue;
      const [start, wide] = bounds(node, above, place.width);
      if (x >= start && x < start + wide) return node;
    }
    return null;
  }

  // The method that a box of the bottom-up tree is a caller of.
  const leafOf = (node) => {
    while (view.caller[node] >= 0) node = view.caller[node];
    return node;
  };

  // Words about a box.
  function numbers(node) {
    const total = `${weight(view.total[node])} in all, ${percent(view.total[node], whole())}`;
    const leaf = isUp ? leafOf(node) : node;
    const parts = [leaf === node ? total : `${weight(view.total[node])} in ${view.label(leaf)} by this way, ${percent(view.total[node], whole())}`];
    if (zoom >= 0 && node !== zoom) parts.push(`${percent(view.total[node], zoomed())} of what is shown`);
    if (!isUp) parts.push(`${weight(view.own[node])} in itself, ${percent(view.own[node], whole())}`);
    return parts.join(" · ");
  }
  function fill(element, node) {
    const { name, module, source } = model.describe(view.item[node]);
    const title = make("strong", "", view.label(node));
    element.replaceChildren(title, make("span", "", numbers(node)));
    if (name && name !== view.label(node)) element.append(make("div", "full", name));
    const kind = view.kind(node) < 0 ? "" : KINDS[view.kind(node)][1];
    const where = [kind, module, source].filter(Boolean).join(" · ");
    if (where) element.append(make("div", "where", where));
    const words = isCompared && view.item[node] >= 0 ? data.frames.changeWords[view.item[node]] : -1;
    if (words >= 0 && data.texts[words]) element.append(make("div", "where", model.visible(data.texts[words])));
  }
  function details() {
    const element = $("details");
    if (picked >= 0) return fill(element, picked);
    const share = view.hidden / (view.all + view.hidden || 1);
    const parts = [`${weight(view.all)} shown.`];
    if (view.hidden > 0) parts.push(`${percent(share, 1)} hidden: threads that wait (see the choice above).`);
    if (isUp) parts.push("Below each method are its callers.");
    if (options.mine) parts.push("Frameworks are folded into the call that leads into them.");
    element.replaceChildren(make("span", "", parts.join(" ")),
      make("div", "where", "Click a box to zoom in, the top box to zoom out. Arrow keys, Enter and Escape work as well."));
  }

  // A name that may be broken after its dots.
  function breakable(name) {
    const element = make("span");
    for (const part of name.split(/(?<=[.,<])/)) element.append(part, make("wbr"));
    return element;
  }

  // The tables. Bottom-up, they are about everything.
  const tableRoot = () => (isUp ? -1 : zoom);
  const tableWhole = () => (isUp ? whole() : zoomed());
  // A line about a method: numbers with the whole that they are shares of, and what a click does.
  function tableLine(row, values, of, pick) {
    const line = make("tr");
    line.append(...values.map((value) => share(value, of)));
    const method = make("td", "method"), dot = make("i", "dot");
    dot.style.setProperty("--kind", `var(--${colourName(row.item, row.kind)})`);
    method.append(dot, breakable(row.label.length > 44 && row.brief ? row.brief : row.label));
    method.title = model.describe(row.item).name;
    line.append(method);
    if (!pick) {
      line.className = "still";
      return line;
    }
    line.tabIndex = 0;
    line.addEventListener("click", () => pick(false));
    line.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      pick(true);
    });
    return line;
  }
  function rows() {
    const direction = isDown ? -1 : 1;
    const all = model.table(calls, tableRoot()).filter((row) => !words || (row.item >= 0 && model.matches(row.item, words)));
    const compare = (one, other) => (sort === "label"
      ? (one.label < other.label ? -1 : one.label > other.label ? 1 : 0) * direction
      : (one[sort] - other[sort]) * direction || other.total - one.total);
    all.sort(compare);
    const shown = showsAllRows ? all : all.slice(0, SHOWN_ROWS);
    $("rows").replaceChildren(...shown.map((row) => {
      const line = tableLine(row, [row.own, row.total], tableWhole(), () => pickMethod(pickedItem === row.key ? null : row.key));
      line.dataset.key = row.key;
      return line;
    }));
    markRow();
    const more = $("more");
    more.replaceChildren();
    if (shown.length < all.length) {
      const button = make("button", "", `Show all ${all.length} methods`);
      button.type = "button";
      button.addEventListener("click", () => { showsAllRows = true; rows(); });
      more.append(button);
    } else {
      more.textContent = `${all.length} methods` + (tableRoot() < 0 ? "" : ` below ${view.label(zoom)}`);
    }
  }
  function markRow() {
    for (const line of $("rows").children) {
      line.classList.toggle("picked", pickedItem !== null && line.dataset.key === String(pickedItem));
    }
  }

  // Callers and callees of the picked method. They are found after the picture is drawn: of a method that is everywhere
  // that takes a moment, and arrow keys pick many a box.
  const pickedKey = () => (pickedItem !== null ? pickedItem : picked >= 0 ? view.key(picked) : null);
  let shownAround, aroundTimer = 0;
  function around() {
    clearTimeout(aroundTimer);
    aroundTimer = setTimeout(showAround, 30);
  }
  function showAround() {
    clearTimeout(aroundTimer);
    const key = pickedKey(), shows = `${tableRoot()} ${key}`;
    if (shownAround && shownAround.shows === shows && shownAround.calls === calls) return;
    shownAround = { shows, calls };
    const found = key === null || !model.isMethod(key) ? { total: 0 } : model.around(calls, tableRoot(), key);
    $("around").hidden = found.total === 0;
    if (found.total === 0) return;
    $("around-title").replaceChildren(breakable(found.label));
    const go = (row) => model.isMethod(row.key) && row.key !== key && ((byKey) => {
      pickMethod(row.key);
      showAround();
      if (byKey) $("around-title").focus();
    });
    const outermost = (row) => (row.key === null ? { ...row, label: "no caller: outermost" } : row);
    const itself = { key: null, item: -1, label: "itself", kind: -1, weight: found.own };
    $("around-tables").replaceChildren(
      pairs("Called by", found.callers.map(outermost), found.total, go),
      pairs("Calls", [...(found.own > 0 ? [itself] : []), ...found.callees], found.total, go),
      ...hotLines(key));
    $("around").scrollTop = 0;
  }
  // The lines of a method, if any are known, each with its share of the method's time.
  function hotLines(key) {
    const { rows, own, total } = model.hotLines(key);
    if (rows.length === 0) return [];
    const table = make("table", "lines"), top = make("thead"), head = make("tr"), body = make("tbody");
    const titles = [["Own", "Share of the method's own time, in the whole profile"], ["Total", "Share of its total time"], ["Hot lines", ""]];
    head.append(...titles.map(([title, hint]) => Object.assign(make("th", "", title), { title: hint })));
    top.append(head);
    body.append(...rows.slice(0, SHOWN_ROWS).map((row) => {
      const line = make("tr", "still");
      line.append(share(row.own, own), share(row.total, total));
      const place = make("td", "place", row.place.slice(Math.max(row.place.lastIndexOf("/"), row.place.lastIndexOf("\\")) + 1));
      place.title = row.place;
      line.append(place);
      return line;
    }));
    table.append(top, body);
    return [table];
  }
  function share(value, of) {
    const cell = make("td", "number", of > 0 ? percent(value, of) : "");
    cell.style.setProperty("--share", (of > 0 ? value / of * 100 : 0).toFixed(2) + "%");
    cell.title = weight(value);
    return cell;
  }
  function pairs(title, rows, of, go) {
    const table = make("table"), head = make("tr"), body = make("tbody");
    head.append(make("th", "", "Share"), make("th", "", title));
    body.append(...rows.slice(0, SHOWN_ROWS).map((row) => tableLine(row, [row.weight], of, go(row))));
    if (rows.length > SHOWN_ROWS) {
      const line = make("tr", "still");
      line.append(make("td"), make("td", "method", `${rows.length - SHOWN_ROWS} more`));
      body.append(line);
    }
    const top = make("thead");
    top.append(head);
    table.append(top, body);
    return table;
  }
  // Marks all boxes of a method, and picks the widest.
  function pickMethod(key) {
    pickedItem = key;
    picked = -1;
    if (pickedItem !== null) {
      for (const row of view.rows) {
        for (const node of row) {
          const isShown = zoom < 0 || node === zoom || isBelowZoom(node);
          if (isShown && view.key(node) === key && (picked < 0 || view.total[node] > view.total[picked])) picked = node;
        }
      }
    }
    markRow();
    reveal();
  }

  // Search.
  function found() {
    if (!words) return void ($("found").textContent = "");
    const { inside, outside } = model.found(view, zoom, words);
    const parts = [percent(inside, zoomed()) + (zoom < 0 ? " match" : " of this match")];
    if (zoom >= 0 && inside + outside > 0) {
      parts.push(`${percent(outside, inside + outside)} of all matches (${weight(outside)}) outside of the zoom`);
    }
    $("found").textContent = parts.join(" · ");
  }

  // Moving about.
  function zoomTo(node) {
    zoom = node;
    if (node >= 0) picked = node;
    pickedItem = null;
    if (view.reveal) view.reveal(node);
    refresh();
    reveal();
  }
  function reveal() {
    if (picked >= 0) {
      const y = (view.depth[picked] + 1) * ROW;
      if (y < scroll.scrollTop) scroll.scrollTop = y - ROW;
      if (y + ROW > scroll.scrollTop + scroll.clientHeight) scroll.scrollTop = y + 2 * ROW - scroll.clientHeight;
    }
    markRow();
    details();
    around();
    draw();
  }
  function move(key) {
    const isShown = (node) => zoom < 0 || node === zoom || isBelowZoom(node);
    if (picked < 0) {
      picked = zoom >= 0 ? zoom : view.roots.length > 0 ? view.roots[0] : -1;
    } else if (key === "ArrowUp") {
      picked = view.caller[picked] >= 0 ? view.caller[picked] : picked;
    } else if (key === "ArrowDown") {
      picked = view.children[picked].length > 0 ? view.children[picked][0] : picked;
    } else {
      const row = view.rows[view.depth[picked]].filter(isShown);
      const next = row[row.indexOf(picked) + (key === "ArrowRight" ? 1 : -1)];
      picked = next === undefined ? picked : next;
    }
    pickedItem = null;
    reveal();
  }
  scroll.addEventListener("keydown", (event) => {
    if (event.key.startsWith("Arrow")) move(event.key);
    else if (event.key === "Enter" && picked >= 0) zoomTo(picked);
    else if (event.key === "Escape" || event.key === "Backspace") zoomTo(zoom >= 0 ? view.caller[zoom] : -1);
    else if (event.key === "Home") zoomTo(-1);
    else return;
    event.preventDefault();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "/" && event.target !== $("search")) {
      event.preventDefault();
      $("search").focus();
    } else if (event.key === "Escape" && event.target === $("search")) {
      $("search").value = "";
      $("search").dispatchEvent(new Event("input"));
      scroll.focus();
    }
  });
  canvas.addEventListener("click", (event) => {
    const node = at(event);
    if (node === null) return;
    // A finger has no pointer to hover with: the first touch picks, the second zooms.
    if (event.pointerType === "touch" && node !== picked && node >= 0) {
      picked = node;
      pickedItem = null;
      return reveal();
    }
    zoomTo(node);
  });
  const tip = $("tip");
  canvas.addEventListener("pointermove", (event) => {
    const node = event.pointerType === "touch" ? null : at(event);
    tip.hidden = node === null || node < 0;
    canvas.style.cursor = node === null ? "default" : "pointer";
    if (tip.hidden) return;
    fill(tip, node);
    const size = tip.getBoundingClientRect();
    tip.style.left = Math.max(4, Math.min(event.clientX + 14, innerWidth - size.width - 8)) + "px";
    const below = event.clientY + 18;
    tip.style.top = (below + size.height > innerHeight ? Math.max(4, event.clientY - size.height - 12) : below) + "px";
  });
  canvas.addEventListener("pointerleave", () => { tip.hidden = true; });
  scroll.addEventListener("scroll", draw);
  $("reset").addEventListener("click", () => { picked = -1; zoomTo(-1); });
  $("search").addEventListener("input", (event) => {
    words = event.target.value.trim().toLowerCase();
    found();
    rows();
    draw();
  });
  $("mine").addEventListener("change", (event) => { options.mine = event.target.checked; rebuild(); });
  $("waits").addEventListener("change", (event) => {
    options.waits = event.target.value;
    if (moments) moments.recount();
    rebuild();
  });
  $("threads").addEventListener("change", (event) => {
    const value = event.target.value;
    options.threads = value === "merged" || value === "named" ? value : Number(value);
    if (moments) moments.recount();
    rebuild();
  });
  $("order").addEventListener("change", (event) => { isUp = event.target.value === "up"; turn(); });
  for (const button of document.querySelectorAll("th button")) {
    button.addEventListener("click", () => {
      isDown = sort === button.dataset.sort ? !isDown : button.dataset.sort !== "label";
      sort = button.dataset.sort;
      for (const head of document.querySelectorAll("th[aria-sort]")) head.removeAttribute("aria-sort");
      button.parentElement.setAttribute("aria-sort", isDown ? "descending" : "ascending");
      rows();
    });
  }
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    readColours();
    draw();
    if (moments) moments.draw();
  });
  new ResizeObserver(fit).observe(scroll);

  // What a link asks for: #code=mine, #waits=none, #threads=named, #search=Totals, #order=up, #call=1, joined by &.
  const asked = new URLSearchParams(location.hash.slice(1));
  if (asked.get("code") === "mine") options.mine = $("mine").checked = true;
  for (const name of ["waits", "threads"]) {
    $(name).value = asked.get(name) || $(name).value;
    if (asked.has(name) && $(name).value === asked.get(name)) options[name] = asked.get(name);
    else $(name).value = options[name];
  }
  if (asked.get("order") === "up") {
    isUp = true;
    $("order").value = "up";
  }
  words = (asked.get("search") || "").trim().toLowerCase();
  $("search").value = words;

  readColours();
  // With a heat map or a timeline, the moment that the picture is of is chosen there: #at=2.5-2.6, in seconds.
  const moments = data.heat ? createMoments({ data, model, options, weight, rebuild, asked: asked.get("at") }) : null;
  if (data.slow) createSlow({ data, model, options, rebuild, asked: asked.get("call") });
  rebuild();
  // Nothing but idle threads is better than nothing.
  if (calls.all === 0 && calls.hidden > 0 && options.waits === "idle" && !asked.has("waits")) {
    options.waits = $("waits").value = "all";
    rebuild();
  }
})();

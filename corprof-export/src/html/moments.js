"use strict";
// The moments of the profile: how much of it each cell of time has. A range of cells chooses what the flame graph is of.
// What they look like is told by createDrawing, in html/heat.js or html/timeline.js.

// Reads the stacks and the entries of cells, which corprof-export/src/heat.rs packs in columns of numbers.
async function unpackMoments(data) {
  const heat = data.heat;
  const packed = Uint8Array.from(atob(heat.packed), (letter) => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  delete heat.packed;
  let at = 0;
  const number = () => {
    let value = 0, scale = 1, byte;
    do {
      byte = bytes[at++];
      value += (byte & 127) * scale;
      scale *= 128;
    } while (byte > 127);
    return value;
  };
  const column = (Kind, count) => {
    const numbers = new Kind(count);
    for (let index = 0; index < count; index++) numbers[index] = number();
    return numbers;
  };
  const callers = column(Int32Array, number());
  data.stacks = { caller: callers.map((distance, stack) => stack - distance), frame: column(Int32Array, number()) };
  // The stacks that were seen, each with its thread; entries have their places here.
  heat.stacks = column(Int32Array, number()).map((stack) => stack - 1);
  heat.threads = column(Int32Array, number());
  const cells = () => {
    const numbers = column(Uint32Array, number());
    numbers.forEach((distance, index) => { if (index > 0) numbers[index] = numbers[index - 1] + distance; });
    return numbers;
  };
  heat.cells = cells();
  // Where the entries of each cell begin, and of the one after the last.
  heat.starts = new Uint32Array(heat.cells.length + 1);
  heat.cells.forEach((_, index) => { heat.starts[index + 1] = heat.starts[index] + number(); });
  heat.ranks = new Uint32Array(number());
  heat.ranks.forEach((_, entry, ranks) => { ranks[entry] = bytes[at++]; });
  heat.ranks.forEach((low, entry, ranks) => { ranks[entry] = low + number() * 256; });
  heat.cells.forEach((_, index) => {
    for (let entry = heat.starts[index] + 1; entry < heat.starts[index + 1]; entry++) heat.ranks[entry] += heat.ranks[entry - 1];
  });
  heat.weights = column(Float64Array, heat.ranks.length);
  if (heat.quantum > 1) heat.weights.forEach((weight, entry, weights) => { weights[entry] = weight * heat.quantum; });
  for (const lane of heat.lanes || []) {
    lane.cells = cells();
    lane.weights = column(Float64Array, number());
  }
}

function createMoments({ data, model, options, weight, rebuild, asked }) {
  const heat = data.heat;
  const $ = (id) => document.getElementById(id);
  const scroll = $("moments-scroll"), canvas = $("moments-canvas"), pen = canvas.getContext("2d");
  // The first cell of the data, and the one after the last.
  const begin = heat.first * heat.rows, end = begin + heat.rows * heat.columns;
  // Cells may be drawn together: how many as one, and how many of these are in a column.
  const levels = [[1, heat.rows], ...(heat.levels || [])], MOST_COLUMNS = 1500;
  // All samples of each thread, also while fewer are shown.
  for (const thread of data.threads) thread.whole = { stack: thread.stack, weight: thread.weight };
  // What is drawn: the weight of each cell, the selected cells, from the first to the last (null: all), and the cell of the
  // keyboard.
  const moments = {
    heat, weight, unit: data.about.unit, scroll, canvas, pen, selected: null, cursor: -1,
    isFocused: () => document.activeElement === scroll,
  };
  const columnsOf = ([scale, rows]) => [Math.floor(begin / (scale * rows)), Math.ceil(end / (scale * rows))];
  // Draws cells of a level: all, or as many as there is room for around a cell of the data.
  function useLevel(level, middle) {
    const [scale, rows] = levels[level];
    let [from, to] = columnsOf(levels[level]);
    if (heat.levels && to - from > MOST_COLUMNS) {
      const left = Math.floor(middle / (scale * rows)) - MOST_COLUMNS / 2;
      from = Math.max(from, Math.min(to - MOST_COLUMNS, left));
      to = from + MOST_COLUMNS;
    }
    const columns = to - from, count = columns * rows;
    Object.assign(moments, { level, scale, rows, columns, count, first: from * rows, cell: heat.cell * scale });
    moments.sums = new Float64Array(count);
  }
  const overview = Math.max(0, levels.findIndex((level) => {
    const [from, to] = columnsOf(level);
    return to - from <= MOST_COLUMNS;
  }));
  useLevel(overview, begin);
  // The weight of all cells, drawn or not.
  let total = 0;
  // The first cells of the range of the keyboard, and of the drag.
  let anchor = -1, dragged = -1;

  const seconds = (cell) => (moments.first + cell) * moments.cell;
  const hasHours = end * heat.cell > 3600;
  const two = (value) => String(value).padStart(2, "0");
  // A moment, with as many parts as cells need.
  moments.moment = (at, isShort) => {
    const hundredths = Math.round(at * 100), whole = Math.floor(hundredths / 100);
    const [hours, minutes] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60];
    const part = isShort || moments.cell >= 1 ? "" : "." + two(hundredths % 100);
    return (hasHours ? hours + ":" + two(minutes) : minutes) + ":" + two(whole % 60) + part;
  };
  const range = (from, to) => `${moments.moment(seconds(from))} to ${moments.moment(seconds(to + 1))}`;
  // The name of a length of time.
  moments.span = (length) => {
    const [value, unit] = length < 1 ? [length * 1000, "ms"] : length < 60 ? [length, "s"] : [length / 60, "min"];
    return Number(value.toFixed(2)) + " " + unit;
  };

  // Counts what is not hidden by the choices of the page.
  function recount() {
    const isHidden = Array.from(heat.stacks, (stack, place) => model.isHidden(stack, options) ||
      (typeof options.threads === "number" && heat.threads[place] !== options.threads));
    moments.sums.fill(0);
    total = 0;
    heat.cells.forEach((cell, index) => {
      let sum = 0;
      for (let entry = heat.starts[index]; entry < heat.starts[index + 1]; entry++) {
        if (!isHidden[heat.ranks[entry]]) sum += heat.weights[entry];
      }
      total += sum;
      const place = Math.floor(cell / moments.scale) - moments.first;
      if (place >= 0 && place < moments.count) moments.sums[place] += sum;
    });
    drawing.recounted();
    drawing.draw();
    words();
  }

  // Gives the canvas a size, and the pen its scale.
  moments.resize = (width, height) => {
    const ratio = Math.min(window.devicePixelRatio || 1, 16000 / width);
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.width = width + "px";
    canvas.style.height = height + "px";
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  };
  moments.colour = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();

  // Words about a range, or else about what is selected.
  function words(from, to) {
    const isAll = from === undefined && !moments.selected;
    const [left, right] = from === undefined ? moments.selected || [0, moments.count - 1] : [from, to];
    let sum = 0;
    for (let cell = left; cell <= right; cell++) sum += moments.sums[cell];
    const parts = [weight(isAll ? total : sum), ...drawing.facts(left, right)].join(" · ");
    $("moments-words").textContent = (isAll ? "All the time" : range(left, right)) + ": " + parts + (isAll ? ". " + drawing.hint : "");
  }

  // Has the flame graph be of a range of cells; of all without one.
  function select(next, isFirst) {
    moments.selected = next;
    $("moments-all").disabled = !next;
    const shown = next ? samplesOf(...inData(next)) : data.threads.map((thread) => thread.whole);
    data.threads.forEach((thread, number) => Object.assign(thread, shown[number]));
    drawing.draw();
    words();
    if (!isFirst) rebuild();
  }
  // The cells of the data that are drawn as these.
  const inData = ([from, to]) =>
    [(moments.first + from) * moments.scale, (moments.first + to + 1) * moments.scale - 1];
  // The cells that are drawn for these of the data; null if these are elsewhere.
  function drawnAs([from, to]) {
    const place = (cell) => Math.floor(cell / moments.scale) - moments.first;
    const [left, right] = [place(from), place(to)];
    return right < 0 || left >= moments.count ? null : [Math.max(0, left), Math.min(moments.count - 1, right)];
  }
  // Draws shorter or longer cells around what is selected, or else in the middle of the window.
  function changeLevel(level) {
    if (!levels[level] || level > overview) return;
    const window = drawing.inWindow();
    const chosen = moments.selected && inData(moments.selected), seen = inData([window, window]);
    const middle = chosen ? Math.floor((chosen[0] + chosen[1]) / 2) : seen[0];
    useLevel(level, middle);
    moments.cursor = anchor = -1;
    moments.selected = chosen && drawnAs(chosen);
    recount();
    showLevel();
    select(moments.selected);
    drawing.reveal(drawnAs([middle, middle])[0], true);
  }
  function showLevel() {
    for (const [id, isAtEnd] of [["moments-in", moments.level === 0], ["moments-out", moments.level === overview]]) {
      $(id).hidden = overview === 0;
      $(id).disabled = isAtEnd;
    }
  }
  // The samples of each thread in a range of cells of the data.
  function samplesOf(from, to) {
    const sums = new Float64Array(heat.stacks.length);
    heat.cells.forEach((cell, index) => {
      if (cell < from || cell > to) return;
      for (let entry = heat.starts[index]; entry < heat.starts[index + 1]; entry++) sums[heat.ranks[entry]] += heat.weights[entry];
    });
    const shown = data.threads.map(() => ({ stack: [], weight: [] }));
    sums.forEach((sum, place) => {
      const thread = shown[heat.threads[place]];
      if (sum === 0 || !thread) return;
      thread.stack.push(heat.stacks[place]);
      thread.weight.push(sum);
    });
    return shown;
  }
  // The cells between two, with those that are drawn as one with them.
  function between(one, other) {
    const [a, b] = [drawing.around(one), drawing.around(other)];
    return [Math.min(a[0], b[0]), Math.max(a[1], b[1])];
  }

  // The pointer.
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0 || !drawing.isOn(event)) return;
    dragged = moments.cursor = anchor = drawing.cellAt(event);
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    const cell = drawing.cellAt(event), cells = between(dragged >= 0 ? dragged : cell, cell);
    if (dragged >= 0) {
      moments.selected = cells;
      drawing.draw();
    }
    words(...cells);
  });
  canvas.addEventListener("pointerup", (event) => {
    if (dragged < 0) return;
    const cells = between(dragged, drawing.cellAt(event));
    dragged = -1;
    select(cells);
  });
  canvas.addEventListener("pointercancel", () => { dragged = -1; select(null); });
  canvas.addEventListener("pointerleave", () => { if (dragged < 0) words(); });
  $("moments-all").addEventListener("click", () => { select(null); scroll.focus(); });
  $("moments-in").addEventListener("click", () => changeLevel(moments.level - 1));
  $("moments-out").addEventListener("click", () => changeLevel(moments.level + 1));

  // The keyboard.
  scroll.addEventListener("keydown", (event) => {
    const steps = drawing.steps();
    if (event.key in steps || event.key === "Home" || event.key === "End") {
      const next = moments.cursor + steps[event.key];
      if (event.key === "Home") moments.cursor = 0;
      else if (event.key === "End") moments.cursor = moments.count - 1;
      else if (moments.cursor < 0) moments.cursor = moments.selected ? moments.selected[0] : 0;
      else if (next >= 0 && next < moments.count) moments.cursor = next;
      if (!event.shiftKey || anchor < 0) anchor = moments.cursor;
      if (event.shiftKey) moments.selected = between(anchor, moments.cursor);
      drawing.draw();
      words(...between(anchor, moments.cursor));
      drawing.reveal(moments.cursor);
    } else if (event.key === "Enter" && moments.cursor >= 0) select(between(anchor, moments.cursor));
    else if (event.key === "Escape") select(null);
    else if (event.key === "+") changeLevel(moments.level - 1);
    else if (event.key === "-") changeLevel(moments.level + 1);
    else return;
    event.preventDefault();
  });

  const drawing = createDrawing(moments);
  $("moments").setAttribute("aria-label", drawing.title);
  scroll.setAttribute("aria-roledescription", drawing.title.toLowerCase());
  $("moments-keys").textContent = drawing.keys;
  scroll.addEventListener("focus", drawing.draw);
  scroll.addEventListener("blur", drawing.draw);
  new ResizeObserver(drawing.draw).observe(scroll);

  // What a link asks for: the cells from a moment to before another, in the longest cells that begin and end with it.
  const wanted = /^([\d.]+)-([\d.]+)$/.exec(asked || "");
  const cellsBefore = (text, round) => round(Number(text) / heat.cell + (round === Math.floor ? 1e-6 : -1e-6));
  const from = wanted ? Math.max(begin, cellsBefore(wanted[1], Math.floor)) : begin;
  const to = wanted ? Math.min(end - 1, Math.max(from, cellsBefore(wanted[2], Math.ceil) - 1)) : begin;
  const isWithin = Boolean(wanted) && from < end;
  if (isWithin && overview > 0) {
    let level = overview;
    while (level > 0 && (from % levels[level][0] !== 0 || (to + 1) % levels[level][0] !== 0)) level--;
    useLevel(level, Math.floor((from + to) / 2));
  }
  recount();
  showLevel();
  const selected = isWithin ? drawnAs([from, to]) : null;
  select(selected, true);
  if (selected && overview > 0) drawing.reveal(selected[0], true);
  return { recount, draw: drawing.draw };
}
if (typeof module !== "undefined") module.exports = { createMoments, unpackMoments };

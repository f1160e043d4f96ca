"use strict";
// The heat map above the flame graph: when samples were. A cell, or a range of them, chooses what the flame graph is of.

// Reads the stacks and the entries of the map, which corprof-export/src/heat.rs packs in columns of numbers.
async function unpackHeat(data) {
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
  heat.stacks = column(Int32Array, number()).map((stack) => stack - 1);
  heat.cells = column(Uint32Array, number());
  heat.cells.forEach((distance, index, cells) => { if (index > 0) cells[index] = cells[index - 1] + distance; });
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
}

function createHeat({ data, model, options, weight, rebuild, asked }) {
  const heat = data.heat, { rows, columns } = heat;
  const LEVELS = 5, AXIS = 18, LEAST_HEIGHT = 180;
  const $ = (id) => document.getElementById(id);
  const scroll = $("heat-scroll"), canvas = $("heat-canvas"), pen = canvas.getContext("2d");
  const first = heat.first * rows, count = rows * columns;
  const tall = Math.max(3, Math.floor(LEAST_HEIGHT / rows));
  let wide = 3;
  // The weight of each cell that is shown, and what the deepest colour stands for.
  let sums = new Float64Array(count), top = 1;
  // The selected cells, from the first to the last (null: all), the cell of the keyboard, and the drag's first one.
  let selected = null, cursor = -1, anchor = -1, dragged = -1;

  const seconds = (cell) => (first + cell) * heat.cell;
  const hasHours = seconds(count) > 3600;
  const two = (value) => String(value).padStart(2, "0");
  // A moment, with as many parts as cells need.
  function moment(at, isShort) {
    const hundredths = Math.round(at * 100), whole = Math.floor(hundredths / 100);
    const [hours, minutes] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60];
    const part = isShort || heat.cell >= 1 ? "" : "." + two(hundredths % 100);
    return (hasHours ? hours + ":" + two(minutes) : minutes) + ":" + two(whole % 60) + part;
  }
  const range = (from, to) => `${moment(seconds(from))} to ${moment(seconds(to + 1))}`;

  function recount() {
    const isHidden = Array.from(heat.stacks, (stack) => model.isHidden(stack, options));
    sums.fill(0);
    heat.cells.forEach((cell, index) => {
      let sum = 0;
      for (let entry = heat.starts[index]; entry < heat.starts[index + 1]; entry++) {
        if (!isHidden[heat.ranks[entry]]) sum += heat.weights[entry];
      }
      if (cell >= first && cell - first < count) sums[cell - first] = sum;
    });
    // A few cells with more than all others do not make these pale.
    const some = sums.filter((sum) => sum > 0).sort();
    top = some.length > 0 ? some[Math.min(some.length - 1, Math.floor(some.length * 0.99))] : 1;
    legend();
    draw();
    words();
  }
  const level = (sum) => (sum > 0 ? Math.min(LEVELS, Math.ceil(sum / top * LEVELS)) : 0);

  function legend() {
    const entry = (name, words) => {
      const element = document.createElement("span"), dot = document.createElement("i");
      dot.className = "dot";
      dot.style.setProperty("--kind", `var(--heat${name})`);
      element.append(dot, words);
      return element;
    };
    const entries = [entry(0, "none")];
    // Of samples there are whole ones only.
    const isWhole = data.about.unit === "samples";
    let last = 0;
    for (let step = 1; step <= LEVELS; step++) {
      const most = isWhole ? Math.floor(top * step / LEVELS) : top * step / LEVELS;
      if (isWhole && most <= last) continue;
      entries.push(entry(step, step === LEVELS ? `more than ${weight(last)}` : `to ${weight(most)}`));
      last = most;
    }
    const unit = heat.cell < 1 ? heat.cell * 1000 + " ms" : heat.cell < 60 ? heat.cell + " s" : heat.cell / 60 + " min";
    const column = heat.cell * rows;
    const name = column === 1 ? "second" : column === 60 ? "minute" : column === 3600 ? "hour" : "day";
    const about = document.createElement("span");
    about.textContent = `A column is a ${name}, from top to bottom; a cell ${unit}.`;
    $("heat-legend").replaceChildren(about, ...entries);
  }

  function draw() {
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue("--" + name).trim();
    const colours = Array.from({ length: LEVELS + 1 }, (_, step) => colour("heat" + step));
    wide = Math.max(2, Math.min(24, Math.floor(scroll.clientWidth / columns)));
    const width = wide * columns, height = tall * rows + AXIS, ratio = Math.min(window.devicePixelRatio || 1, 16000 / width);
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.width = width + "px";
    canvas.style.height = height + "px";
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.fillStyle = colours[0];
    pen.fillRect(0, 0, width, tall * rows);
    const gapX = wide > 3 ? 1 : 0, gapY = tall > 3 ? 1 : 0;
    sums.forEach((sum, cell) => {
      if (sum === 0) return;
      pen.fillStyle = colours[level(sum)];
      pen.fillRect(Math.floor(cell / rows) * wide, cell % rows * tall, wide - gapX, tall - gapY);
    });
    axis(colour("quiet"), width);
    if (selected) outline(selected, colour("accent"));
    if (cursor >= 0 && document.activeElement === scroll) outline([cursor, cursor], colour("ink"));
  }
  // Times below the columns, no two of which touch.
  function axis(ink, width) {
    const STEPS = [1, 2, 5, 10, 15, 20, 30, 60, 120, 180, 240, 300, 600, 1200];
    const least = Math.ceil(64 / wide), step = STEPS.find((step) => step >= least) || least;
    pen.fillStyle = ink;
    pen.font = "12px system-ui, sans-serif";
    pen.textBaseline = "bottom";
    for (let column = Math.ceil(heat.first / step) * step; column < heat.first + columns; column += step) {
      const x = (column - heat.first) * wide, text = moment(column * rows * heat.cell, true);
      if (x > 0 && x + pen.measureText(text).width > width) continue;
      pen.fillRect(x, tall * rows, 1, 4);
      pen.fillText(text, x + 3, tall * rows + AXIS);
    }
  }
  // A line around cells: of each column those between the first and the last.
  function outline([from, to], ink) {
    const [left, right] = [Math.floor(from / rows), Math.floor(to / rows)];
    const [above, below] = [from % rows * tall, (to % rows + 1) * tall], height = rows * tall;
    pen.beginPath();
    if (left === right) {
      pen.rect(left * wide, above, wide, below - above);
    } else {
      pen.moveTo(left * wide, above);
      for (const [x, y] of [[left + 1, above], [left + 1, 0], [right + 1, 0], [right + 1, below], [right, below],
        [right, height], [left, height]]) pen.lineTo(x * wide, y);
      pen.closePath();
    }
    pen.lineWidth = 2;
    pen.strokeStyle = ink;
    pen.stroke();
  }

  // Words about a range, or else about what is selected.
  function words(from, to) {
    const [begin, end] = from === undefined ? selected || [0, count - 1] : [from, to];
    let sum = 0;
    for (let cell = begin; cell <= end; cell++) sum += sums[cell];
    const isAll = from === undefined && !selected;
    $("heat-words").textContent = (isAll ? "All the time" : range(begin, end)) + `: ${weight(sum)}` +
      (isAll ? ". Click a cell, or drag over a range, for its flame graph. Arrow keys, Shift and Enter work as well." : "");
  }

  // Has the flame graph be of a range of cells; of all without one.
  function select(next, isFirst) {
    selected = next;
    $("heat-all").disabled = !selected;
    const thread = data.threads[0];
    if (thread) {
      const [from, to] = selected ? [first + selected[0], first + selected[1]] : [0, Infinity];
      const sums = new Float64Array(heat.stacks.length);
      heat.cells.forEach((cell, index) => {
        if (cell < from || cell > to) return;
        for (let entry = heat.starts[index]; entry < heat.starts[index + 1]; entry++) sums[heat.ranks[entry]] += heat.weights[entry];
      });
      thread.stack = [];
      thread.weight = [];
      sums.forEach((sum, rank) => {
        if (sum === 0) return;
        thread.stack.push(heat.stacks[rank]);
        thread.weight.push(sum);
      });
    }
    draw();
    words();
    if (!isFirst) rebuild();
  }
  const ordered = (one, other) => [Math.min(one, other), Math.max(one, other)];

  // The pointer.
  function at(event) {
    const place = canvas.getBoundingClientRect();
    const column = Math.floor((event.clientX - place.left) / wide), row = Math.floor((event.clientY - place.top) / tall);
    return Math.max(0, Math.min(columns - 1, column)) * rows + Math.max(0, Math.min(rows - 1, row));
  }
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0 || event.offsetY >= rows * tall) return;
    dragged = cursor = anchor = at(event);
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    const cell = at(event);
    if (dragged >= 0) {
      selected = ordered(dragged, cell);
      draw();
    }
    const [from, to] = dragged >= 0 ? selected : [cell, cell];
    words(from, to);
  });
  canvas.addEventListener("pointerup", (event) => {
    if (dragged < 0) return;
    const range = ordered(dragged, at(event));
    dragged = -1;
    select(range);
  });
  canvas.addEventListener("pointercancel", () => { dragged = -1; select(null); });
  canvas.addEventListener("pointerleave", () => { if (dragged < 0) words(); });
  $("heat-all").addEventListener("click", () => { select(null); scroll.focus(); });

  // The keyboard.
  scroll.addEventListener("keydown", (event) => {
    const steps = { ArrowUp: -1, ArrowDown: 1, ArrowLeft: -rows, ArrowRight: rows };
    if (event.key in steps || event.key === "Home" || event.key === "End") {
      const step = steps[event.key];
      if (event.key === "Home") cursor = 0;
      else if (event.key === "End") cursor = count - 1;
      else if (cursor < 0) cursor = selected ? selected[0] : 0;
      else if (cursor + step >= 0 && cursor + step < count) cursor += step;
      if (!event.shiftKey || anchor < 0) anchor = cursor;
      if (event.shiftKey) selected = ordered(anchor, cursor);
      draw();
      words(...ordered(anchor, cursor));
      const x = Math.floor(cursor / rows) * wide;
      if (x < scroll.scrollLeft) scroll.scrollLeft = x;
      if (x + wide > scroll.scrollLeft + scroll.clientWidth) scroll.scrollLeft = x + wide - scroll.clientWidth;
    } else if (event.key === "Enter" && cursor >= 0) select(ordered(anchor, cursor));
    else if (event.key === "Escape") select(null);
    else return;
    event.preventDefault();
  });
  scroll.addEventListener("focus", draw);
  scroll.addEventListener("blur", draw);
  new ResizeObserver(draw).observe(scroll);

  // What a link asks for: the cells from a moment to before another.
  const wanted = /^([\d.]+)-([\d.]+)$/.exec(asked || "");
  const cellOf = (text) => Math.floor(Number(text) / heat.cell + 1e-6) - first;
  const begin = wanted ? Math.max(0, cellOf(wanted[1])) : 0;
  const end = wanted ? Math.min(count - 1, Math.max(begin, Math.ceil(Number(wanted[2]) / heat.cell - 1e-6) - 1 - first)) : 0;
  recount();
  select(wanted && begin < count ? [begin, end] : null, true);
  return { recount, draw };
}
if (typeof module !== "undefined") module.exports = { createHeat, unpackHeat };

"use strict";
// The timeline above the flame graph: samples, and below them lanes of what the runtime did, such as collections. Each
// is drawn as bars, of as many cells as a bar needs to be seen.
function createDrawing(moments) {
  const { heat, first, count, sums, weight, scroll, canvas, pen } = moments;
  const HEAD = 17, TALL = 44, LOW = 20, GAP = 5, AXIS = 18, LEAST_BAR = 3, MOST_BAR = 12;
  // What each line has in each cell, and in the cells before.
  const lanes = [{ title: heat.title, tall: TALL, colour: "heat3", words: weight, weights: sums }];
  const short = (nanoseconds) => (nanoseconds < 1e6 ? (nanoseconds / 1e3).toFixed(0) + " µs" : nanoseconds < 1e9
    ? (nanoseconds / 1e6).toFixed(nanoseconds < 1e7 ? 1 : 0) + " ms" : (nanoseconds / 1e9).toFixed(2) + " s");
  for (const lane of heat.lanes || []) {
    const weights = new Float64Array(count);
    lane.cells.forEach((cell, index) => {
      if (cell >= first && cell - first < count) weights[cell - first] += lane.weights[index];
    });
    const words = lane.isTime ? short : (value) => value.toLocaleString("en");
    lanes.push({ title: lane.title, tall: LOW, colour: "accent", words, weights });
  }
  const height = lanes.reduce((sum, lane) => sum + HEAD + lane.tall + GAP, 0);
  // The cells of a bar, and how many bars there are.
  let cells = 1, bars = count, wide = LEAST_BAR;
  const around = (cell) => {
    const from = Math.floor(cell / cells) * cells;
    return [from, Math.min(count, from + cells) - 1];
  };
  const sumOf = (weights, from, to) => {
    let sum = 0;
    for (let cell = from; cell <= to; cell++) sum += weights[cell];
    return sum;
  };

  function draw() {
    const width = Math.max(60, scroll.clientWidth), { selected, cursor, colour } = moments;
    cells = Math.ceil(count / Math.floor(width / LEAST_BAR));
    bars = Math.ceil(count / cells);
    wide = Math.min(MOST_BAR, width / bars);
    moments.resize(width, height + AXIS);
    pen.fillStyle = colour("paper");
    pen.fillRect(0, 0, width, height + AXIS);
    pen.font = "12px system-ui, sans-serif";
    const x = (cell) => cell / cells * wide;
    if (selected) {
      pen.fillStyle = colour("chosen");
      pen.fillRect(x(selected[0]), 0, x(selected[1] + 1) - x(selected[0]), height);
    }
    let y = 0;
    for (const lane of lanes) {
      line(lane, y, colour);
      y += HEAD + lane.tall + GAP;
    }
    axis(colour("quiet"), width);
    pen.fillStyle = colour("accent");
    if (selected) for (const at of [x(selected[0]), x(selected[1] + 1) - 1]) pen.fillRect(at, 0, 1, height);
    if (cursor < 0 || !moments.isFocused()) return;
    const [from, to] = around(cursor);
    pen.strokeStyle = colour("ink");
    pen.lineWidth = 1;
    pen.strokeRect(x(from) + 0.5, 0.5, Math.max(1, x(to + 1) - x(from) - 1), height - 1);
  }
  // The bars of a line, the highest of which fills it, and above them what that is.
  function line(lane, y, colour) {
    const values = Array.from({ length: bars }, (_, bar) => sumOf(lane.weights, bar * cells, Math.min(count, (bar + 1) * cells) - 1));
    const top = Math.max(...values), floor = y + HEAD + lane.tall;
    pen.fillStyle = colour("quiet");
    pen.textBaseline = "alphabetic";
    const most = top > 0 ? `, at most ${lane.words(top)} in ${moments.span(cells * heat.cell)}` : "";
    pen.fillText(lane.title + most, 2, y + HEAD - 4);
    pen.fillStyle = colour("lane");
    pen.fillRect(0, floor, bars * wide, 1);
    pen.fillStyle = colour(lane.colour);
    values.forEach((value, bar) => {
      if (value === 0) return;
      const tall = Math.max(1.5, value / top * lane.tall);
      pen.fillRect(bar * wide, floor - tall, Math.max(1, wide - (wide > 2.5 ? 0.7 : 0)), tall);
    });
  }
  // Times below, no two of which touch.
  function axis(ink, width) {
    const STEPS = [0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400];
    const each = wide / cells / heat.cell, begin = first * heat.cell, end = (first + count) * heat.cell;
    const step = STEPS.find((step) => step * each >= 70) || STEPS[STEPS.length - 1];
    pen.fillStyle = ink;
    pen.textBaseline = "bottom";
    for (let index = Math.ceil(begin / step - 1e-9); index * step < end; index++) {
      const at = (index * step - begin) * each, text = moments.moment(index * step, step >= 1);
      if (at > 0 && at + pen.measureText(text).width + 3 > width) continue;
      pen.fillRect(at, height, 1, 4);
      pen.fillText(text, at + 3, height + AXIS);
    }
  }
  const cellAt = (event) => {
    const bar = Math.floor((event.clientX - canvas.getBoundingClientRect().left) / wide);
    return Math.min(count - 1, Math.max(0, Math.min(bars - 1, bar)) * cells);
  };
  return {
    title: "Timeline", draw, cellAt, around, recounted: () => {}, reveal: () => {},
    hint: "Click a bar, or drag over a range, for its flame graph. Arrow keys, Shift and Enter work as well.",
    keys: "Arrow keys move between bars, with shift they extend the range, Enter shows the flame graph of it, Escape that of all the time.",
    isOn: (event) => event.offsetY < height,
    steps: () => ({ ArrowLeft: -cells, ArrowRight: cells, PageUp: -10 * cells, PageDown: 10 * cells }),
    facts: (from, to) => lanes.slice(1).map((lane) => `${lane.title} ${lane.words(sumOf(lane.weights, from, to))}`),
  };
}

"use strict";
// The heat map above the flame graph: a column of cells for each second, minute or hour, whose colours say how much they
// have.
function createDrawing(moments) {
  const { weight, scroll, canvas, pen } = moments;
  const LEVELS = 5, AXIS = 18, LEAST_HEIGHT = 180;
  const height = () => Math.max(3, Math.floor(LEAST_HEIGHT / moments.rows));
  // The width of a column, and what the deepest colour stands for.
  let wide = 3, top = 1;

  function recounted() {
    // A few cells with more than all others do not make these pale.
    const some = moments.sums.filter((sum) => sum > 0).sort();
    top = some.length > 0 ? some[Math.min(some.length - 1, Math.floor(some.length * 0.99))] : 1;
    legend();
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
    const isWhole = moments.unit === "samples";
    let last = 0;
    for (let step = 1; step <= LEVELS; step++) {
      const most = isWhole ? Math.floor(top * step / LEVELS) : top * step / LEVELS;
      if (isWhole && most <= last) continue;
      const rest = isWhole ? `${weight(last + 1)} or more` : `more than ${weight(last)}`;
      entries.push(entry(step, step < LEVELS ? `to ${weight(most)}` : rest));
      last = most;
    }
    const column = moments.cell * moments.rows;
    const name = column === 1 ? "second" : column === 60 ? "minute" : column === 3600 ? "hour" : "day";
    const about = document.createElement("span");
    about.textContent = `A column is a ${name}, from top to bottom; a cell ${moments.span(moments.cell)}.`;
    document.getElementById("moments-legend").replaceChildren(about, ...entries);
  }

  function draw() {
    const { selected, cursor, colour, rows, columns, sums } = moments, tall = height();
    const colours = Array.from({ length: LEVELS + 1 }, (_, step) => colour("heat" + step));
    wide = Math.max(2, Math.min(24, Math.floor(scroll.clientWidth / columns)));
    const width = wide * columns;
    moments.resize(width, tall * rows + AXIS);
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
    if (cursor >= 0 && moments.isFocused()) outline([cursor, cursor], colour("ink"));
  }
  // Times below the columns, no two of which touch.
  function axis(ink, width) {
    const { first, rows, columns, cell } = moments, firstColumn = first / rows, tall = height();
    const STEPS = [1, 2, 5, 10, 15, 20, 30, 60, 120, 180, 240, 300, 600, 1200];
    const least = Math.ceil(64 / wide), step = STEPS.find((step) => step >= least) || least;
    pen.fillStyle = ink;
    pen.font = "12px system-ui, sans-serif";
    pen.textBaseline = "bottom";
    for (let column = Math.ceil(firstColumn / step) * step; column < firstColumn + columns; column += step) {
      const x = (column - firstColumn) * wide, text = moments.moment(column * rows * cell, true);
      if (x > 0 && x + pen.measureText(text).width > width) continue;
      pen.fillRect(x, tall * rows, 1, 4);
      pen.fillText(text, x + 3, tall * rows + AXIS);
    }
  }
  // A line around cells: of each column those between the first and the last.
  function outline([from, to], ink) {
    const { rows } = moments, tall = height(), bottom = rows * tall;
    const [left, right] = [Math.floor(from / rows), Math.floor(to / rows)];
    const [above, below] = [from % rows * tall, (to % rows + 1) * tall];
    pen.beginPath();
    if (left === right) {
      pen.rect(left * wide, above, wide, below - above);
    } else {
      pen.moveTo(left * wide, above);
      for (const [x, y] of [[left + 1, above], [left + 1, 0], [right + 1, 0], [right + 1, below], [right, below],
        [right, bottom], [left, bottom]]) pen.lineTo(x * wide, y);
      pen.closePath();
    }
    pen.lineWidth = 2;
    pen.strokeStyle = ink;
    pen.stroke();
  }

  // The cell of a pointer.
  function cellAt(event) {
    const place = canvas.getBoundingClientRect(), { rows, columns } = moments;
    const column = Math.floor((event.clientX - place.left) / wide), row = Math.floor((event.clientY - place.top) / height());
    return Math.max(0, Math.min(columns - 1, column)) * rows + Math.max(0, Math.min(rows - 1, row));
  }
  // The cell in the middle of the window.
  function inWindow() {
    const x = Math.min(scroll.scrollLeft + scroll.clientWidth / 2, moments.columns * wide / 2 + scroll.scrollLeft);
    return Math.min(moments.columns - 1, Math.floor(x / wide)) * moments.rows;
  }
  // Has a cell be seen, in the middle if that is wanted.
  function reveal(cell, isCentred) {
    const x = Math.floor(cell / moments.rows) * wide;
    if (isCentred) scroll.scrollLeft = x - scroll.clientWidth / 2;
    if (x < scroll.scrollLeft) scroll.scrollLeft = x;
    if (x + wide > scroll.scrollLeft + scroll.clientWidth) scroll.scrollLeft = x + wide - scroll.clientWidth;
  }
  return {
    title: "Heat map", recounted, draw, cellAt, reveal, inWindow,
    hint: "Click a cell, or drag over a range, for its flame graph. Arrow keys, Shift and Enter work as well.",
    keys: "Arrow keys move between cells, with shift they extend the range, Enter shows the flame graph of it, Escape that of all the time. Plus and minus change the length of cells.",
    isOn: (event) => event.offsetY < moments.rows * height(),
    around: (cell) => [cell, cell],
    steps: () => ({ ArrowUp: -1, ArrowDown: 1, ArrowLeft: -moments.rows, ArrowRight: moments.rows }),
    facts: () => [],
  };
}

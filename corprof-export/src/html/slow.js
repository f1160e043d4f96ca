"use strict";
// The table of slow calls above the flame graph. A row chooses the call that the flame graph is of.
function createSlow({ data, model, options, rebuild, asked }) {
  const { summary, columns, calls } = data.slow;
  const make = (tag, text) => Object.assign(document.createElement(tag), { textContent: text });
  const rows = [];
  document.getElementById("slow-summary").textContent = model.visible(summary);

  function select(call) {
    options.call = call;
    rows.forEach((row, index) => row.setAttribute("aria-selected", String(index - 1 === call)));
  }
  // A row with number `call`; -1 is that of the whole profile.
  function addRow(body, call, cells, last) {
    const row = make("tr", "");
    row.append(...cells.map((cell) => make("td", cell)), last);
    row.tabIndex = 0;
    const choose = () => {
      select(call);
      rebuild();
    };
    row.addEventListener("click", choose);
    row.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      choose();
    });
    rows.push(row);
    body.append(row);
  }

  const table = make("table", ""), head = make("tr", ""), top = make("thead", ""), body = make("tbody", "");
  head.append(...columns.map((column) => make("th", column)), make("th", "call"));
  top.append(head);
  if (calls.length > 0) addRow(body, -1, columns.map(() => ""), make("td", "all samples of the profile"));
  calls.forEach((call, index) => {
    const last = make("td", call.call);
    last.title = call.method;
    if (call.mostly) last.append(Object.assign(make("div", call.mostly), { className: "mostly" }));
    addRow(body, index, call.cells, last);
  });
  table.append(top, body);
  if (calls.length > 0) document.getElementById("slow-rows").append(table);
  // #call=1: the slowest one.
  const number = Number(asked) - 1;
  select(number >= 0 && number < calls.length ? number : -1);
}

"use strict";
// What the page shows, without a word of how it is drawn: trees of calls and tables of methods.
// It runs in Node as well, where corprof's tests compare it with what the other formats say.
function createModel(data) {
  const { frames, stacks, threads } = data;
  const USER = 0, NATIVE = 2, WAIT = 3;
  // What stands for no frame of the profile. Threads are -10, -11, ….
  const LONGEST_NAME = 2000, NO_FRAMES = -1, OTHER_CODE = -2, FIRST_THREAD = -10;
  const text = (number) => (number < 0 ? "" : data.texts[number]);
  const hidden = /[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff\ufffe\uffff]/g;
  const visible = (words) => words.replace(hidden, "\ufffd");
  const shown = (column) => column.map((number) => visible(text(number)));
  const labels = shown(frames.label), briefs = shown(frames.brief), methods = shown(frames.method);

  // Of each stack: whether the user's code is in it, whether a root for waits is above it, and whether that is so or its
  // innermost managed frame waits.
  const hasMine = [], isUnderWaits = [], isWaiting = [];
  stacks.frame.forEach((frame, stack) => {
    const caller = stacks.caller[stack], kind = frames.kind[frame];
    hasMine.push(kind === USER || (caller >= 0 && hasMine[caller]));
    isUnderWaits.push(caller < 0 ? kind === WAIT : isUnderWaits[caller]);
    isWaiting.push(kind === WAIT || isUnderWaits[stack] || (kind === NATIVE && caller >= 0 && isWaiting[caller]));
  });

  const threadName = (thread) => visible(thread.title);
  // Pool workers differ by a number only.
  const groupName = (thread) => {
    const name = threadName(thread);
    return thread.isNamed ? name.replace(/[\s#_-]*\d+$/, "") || name : /\d$/.test(name) ? "threads without a name" : name;
  };

  // A tree of calls. options: mine (fold frameworks), waits ("idle" leaves out threads that only wait and have no code of
  // the user's, "none" whatever waits, "all" nothing), threads ("merged", "named", or the number of one).
  function build(options) {
    const view = { item: [], caller: [], depth: [], total: [], own: [], children: [], left: [], rows: [], all: 0, hidden: 0 };
    const known = new Map();
    const names = [];
    const width = frames.label.length + threads.length + 64;
    const child = (caller, item) => {
      const key = (caller + 1) * width * 2 + item + width;
      let node = known.get(key);
      if (node === undefined) {
        node = view.item.length;
        known.set(key, node);
        view.item.push(item);
        view.caller.push(caller);
        view.depth.push(caller < 0 ? 0 : view.depth[caller] + 1);
        view.total.push(0);
        view.own.push(0);
      }
      return node;
    };
    const labelOf = (node) => (view.item[node] >= 0 ? labels[view.item[node]] : "");

    // Where a stack is: its node, the innermost one of the user's, and whether there is one.
    const place = (root, places, stack) => {
      const missing = [];
      let at = stack;
      for (; at >= 0 && !places.has(at); at = stacks.caller[at]) missing.push(at);
      let known = at >= 0 ? places.get(at) : { node: root, mine: root, any: false };
      for (const next of missing.reverse()) {
        const frame = stacks.frame[next], isMine = frames.kind[frame] === USER;
        let node, mine = known.mine;
        if (!options.mine) {
          node = child(known.node, frame);
        } else if (isMine) {
          const isKickoff = known.any && labels[frame] === labelOf(known.mine) + " (async)";
          node = mine = isKickoff ? known.mine : child(known.mine, frame);
        } else if (!known.any) {
          node = child(root, OTHER_CODE);
        } else {
          node = known.node === known.mine ? child(known.mine, frame) : known.node;
        }
        known = { node, mine: isMine ? node : mine, any: known.any || isMine };
        places.set(next, known);
      }
      return known.node;
    };

    const groups = new Map();
    threads.forEach((thread, number) => {
      if (typeof options.threads === "number" && options.threads !== number) return;
      const name = options.threads === "named" ? groupName(thread) : "";
      if (!groups.has(name)) groups.set(name, { places: new Map(), number: groups.size });
      const group = groups.get(name);
      thread.stack.forEach((stack, index) => {
        const weight = thread.weight[index];
        const isHidden = stack >= 0 && isWaiting[stack] &&
          (options.waits === "none" || (options.waits === "idle" && !hasMine[stack]));
        if (isHidden) {
          view.hidden += weight;
          return;
        }
        let root = -1;
        if (options.threads === "named") {
          root = child(-1, FIRST_THREAD - group.number);
          names[group.number] = name;
        }
        const node = stack < 0 ? child(root, NO_FRAMES) : place(root, group.places, stack);
        view.own[node] += weight;
        view.total[node] += weight;
        view.all += weight;
      });
    });

    const count = view.item.length;
    view.children = Array.from({ length: count }, () => []);
    const roots = [];
    for (let node = count - 1; node >= 0; node--) {
      const caller = view.caller[node];
      if (caller >= 0) view.total[caller] += view.total[node];
    }
    for (let node = 0; node < count; node++) {
      // What only led to code of the user's, and is folded, weighs nothing.
      if (view.total[node] > 0) (view.caller[node] < 0 ? roots : view.children[view.caller[node]]).push(node);
    }
    view.label = (node) => {
      const item = view.item[node];
      if (item >= 0) return labels[item];
      if (item === NO_FRAMES) return "[no frames]";
      return item === OTHER_CODE ? "[no code of yours]" : names[FIRST_THREAD - item];
    };
    // From the longest to the shortest.
    view.labels = (node) => {
      const item = view.item[node];
      return item >= 0 ? [labels[item], briefs[item], methods[item]] : [view.label(node)];
    };
    view.kind = (node) => (view.item[node] >= 0 ? frames.kind[view.item[node]] : -1);
    const isOther = (node) => view.item[node] === OTHER_CODE;
    const byWeight = (one, other) => isOther(one) - isOther(other) || view.total[other] - view.total[one] || (view.label(one) < view.label(other) ? -1 : 1);
    const lay = (nodes, start) => {
      nodes.sort(byWeight);
      for (const node of nodes) {
        view.left[node] = start;
        start += view.total[node];
      }
    };
    lay(roots, 0);
    view.roots = roots;
    // Level by level, so that each row is in order from left to right.
    for (let row = roots; row.length > 0; ) {
      view.rows.push(row);
      const next = [];
      for (const node of row) {
        lay(view.children[node], view.left[node]);
        for (const callee of view.children[node]) next.push(callee);
      }
      row = next;
    }
    return view;
  }

  // A row for each method below a node (-1: everywhere). A method that calls itself is counted once.
  function table(view, root) {
    const rows = new Map(), open = new Map();
    const todo = (root < 0 ? view.roots : [root]).map((node) => [node, true]);
    while (todo.length > 0) {
      const [node, isEntry] = todo.pop();
      const item = view.item[node];
      const key = item >= 0 ? frames.name[item] : item;
      if (!isEntry) {
        open.set(key, open.get(key) - 1);
        continue;
      }
      const depth = open.get(key) || 0;
      open.set(key, depth + 1);
      if (item > FIRST_THREAD) {
        if (!rows.has(key)) rows.set(key, { key, item, label: view.label(node), brief: view.labels(node)[1], kind: view.kind(node), own: 0, total: 0 });
        const row = rows.get(key);
        row.own += view.own[node];
        if (depth === 0) row.total += view.total[node];
      }
      todo.push([node, false]);
      for (const callee of view.children[node]) todo.push([callee, true]);
    }
    return [...rows.values()];
  }

  // What is known of a frame beside its label.
  function describe(item) {
    if (item < 0) return { name: "", module: "", source: "" };
    const file = text(frames.file[item]), line = frames.line[item];
    return {
      name: visible(text(frames.name[item]).slice(0, LONGEST_NAME)),
      module: visible(text(frames.module[item])),
      source: visible(file) + (file && line > 0 ? ":" + line : ""),
    };
  }

  return {
    build, table, describe, visible, threadName,
    hasWaits: frames.kind.includes(WAIT), hasThreads: threads.length > 1,
    matches: (item, words) => item >= 0 && (labels[item] + "\n" + text(frames.name[item])).toLowerCase().includes(words),
  };
}
if (typeof module !== "undefined") module.exports = createModel;

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
  // Frameworks make methods that call the user's code, which may be inlined into them.
  const hasMine = [], isForMine = [], isUnderWaits = [], isWaiting = [];
  stacks.frame.forEach((frame, stack) => {
    const caller = stacks.caller[stack], kind = frames.kind[frame];
    hasMine.push(kind === USER || (caller >= 0 && hasMine[caller]));
    isForMine.push(hasMine[stack] || labels[frame].endsWith(" (dynamic)") || (caller >= 0 && isForMine[caller]));
    isUnderWaits.push(caller < 0 ? kind === WAIT : isUnderWaits[caller]);
    isWaiting.push(kind === WAIT || isUnderWaits[stack] || (kind === NATIVE && caller >= 0 && isWaiting[caller]));
  });

  // Whether what is asked for leaves out the samples of a stack.
  const isHidden = (stack, options) => stack >= 0 && isWaiting[stack] &&
    (options.waits === "none" || (options.waits === "idle" && !isForMine[stack]));

  const threadName = (thread) => visible(thread.title);
  // Pool workers differ by a number only.
  const groupName = (thread) => {
    const name = threadName(thread);
    return thread.isNamed ? name.replace(/[\s#_-]*\d+$/, "") || name : /\d$/.test(name) ? "threads without a name" : name;
  };

  // A tree of calls. options: mine (fold frameworks), waits ("idle" leaves out threads that only wait and have no code of
  // the user's, "none" whatever waits, "all" nothing), threads ("merged", "named", or the number of one), call (the number
  // of a slow call, for its samples only).
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
    // A slow call, or all threads.
    const isCall = options.call >= 0, sources = isCall ? [data.slow.calls[options.call]] : threads;
    sources.forEach((thread, number) => {
      if (!isCall && typeof options.threads === "number" && options.threads !== number) return;
      const name = options.threads === "named" && !isCall ? groupName(thread) : "";
      if (!groups.has(name)) groups.set(name, { places: new Map(), number: groups.size });
      const group = groups.get(name);
      thread.stack.forEach((stack, index) => {
        const weight = thread.weight[index];
        if (isHidden(stack, options)) {
          view.hidden += weight;
          return;
        }
        let root = -1;
        if (options.threads === "named" && !isCall) {
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
    // What stands for something else than a frame has one name only.
    nameNodes(view, (item) => {
      if (item === NO_FRAMES) return "[no frames]";
      return item === OTHER_CODE ? "[no code of yours]" : names[FIRST_THREAD - item];
    });
    view.roots = ordered(view, roots);
    for (let node = 0; node < count; node++) view.children[node] = ordered(view, view.children[node]);
    lay(view, -1);
    // Callers have smaller numbers than what they call.
    for (let node = 0; node < count; node++) lay(view, node);
    view.rows = rowsOf(view);
    return view;
  }

  const keyOf = (item) => (item >= 0 ? frames.name[item] : item);

  // Adds the names of nodes to a view.
  function nameNodes(view, nameOf) {
    view.nameOf = nameOf;
    view.label = (node) => (view.item[node] >= 0 ? labels[view.item[node]] : nameOf(view.item[node]));
    // From the longest to the shortest.
    view.labels = (node) => {
      const item = view.item[node];
      return item >= 0 ? [labels[item], briefs[item], methods[item]] : [nameOf(item)];
    };
    view.kind = (node) => (view.item[node] >= 0 ? frames.kind[view.item[node]] : -1);
    view.key = (node) => keyOf(view.item[node]);
  }
  // The widest first, and last what has no code of the user's.
  function ordered(view, nodes) {
    if (nodes.length < 2) return nodes;
    const isOther = (node) => view.item[node] === OTHER_CODE;
    return nodes.sort((one, other) => isOther(one) - isOther(other) || view.total[other] - view.total[one] ||
      (view.label(one) < view.label(other) ? -1 : 1));
  }
  // Puts the nodes that are next to `node` side by side (-1: the roots).
  function lay(view, node) {
    let start = node < 0 ? 0 : view.left[node];
    for (const next of node < 0 ? view.roots : view.children[node]) {
      view.left[next] = start;
      start += view.total[next];
    }
  }
  // Level by level, each in order from left to right.
  function rowsOf(view) {
    const rows = [];
    for (let row = view.roots; row.length > 0; ) {
      rows.push(row);
      const next = [];
      for (const node of row) for (const below of view.children[node]) next.push(below);
      row = next;
    }
    return rows;
  }

  // The calls of a view bottom-up: a root for each method that samples were in, below it its callers, and so on. All of
  // that would be many times as large as the calls, so `reveal` adds what is wide enough to be seen.
  const SEEN = 1 / 4000;
  function invert(calls) {
    const view = {
      calls, item: [], caller: [], depth: [], total: [], own: [], children: [], left: [], rows: [], roots: [],
      all: calls.all, hidden: calls.hidden,
    };
    nameNodes(view, calls.nameOf);
    // The calls that a node stands for, each with the weight of the samples below it that belong to the root; null once
    // the node's callers have been added.
    const weights = view.weights = [];
    const group = (below, parts) => {
      const known = new Map(), added = [];
      for (const [call, weight] of parts) {
        const item = calls.item[call];
        let node = known.get(item);
        if (node === undefined) {
          node = view.item.length;
          known.set(item, node);
          added.push(node);
          view.item.push(item);
          view.caller.push(below);
          view.depth.push(below < 0 ? 0 : view.depth[below] + 1);
          view.total.push(0);
          view.own.push(0);
          view.children.push([]);
          weights.push(new Map());
        }
        view.total[node] += weight;
        weights[node].set(call, (weights[node].get(call) || 0) + weight);
      }
      return ordered(view, added);
    };
    view.reveal = (root) => {
      const least = (root < 0 ? view.all : view.total[root]) * SEEN;
      const todo = root < 0 ? view.roots.slice() : [root];
      while (todo.length > 0) {
        const node = todo.pop();
        if (view.total[node] < least) continue;
        if (weights[node] !== null) {
          const parts = [...weights[node]].map(([call, weight]) => [calls.caller[call], weight]);
          weights[node] = null;
          view.children[node] = group(node, parts.filter(([call]) => call >= 0));
          lay(view, node);
        }
        for (const caller of view.children[node]) todo.push(caller);
      }
      view.rows = rowsOf(view);
    };
    const leaves = calls.own.map((own, call) => [call, own]).filter(([, own]) => own > 0);
    view.roots = group(-1, leaves);
    for (const root of view.roots) view.own[root] = view.total[root];
    lay(view, -1);
    view.reveal(-1);
    return view;
  }

  // What a table says of a node; nothing of -1.
  const about = (view, node) => (node < 0 ? { item: -1, label: "", brief: "", kind: -1 }
    : { item: view.item[node], label: view.label(node), brief: view.labels(node)[1], kind: view.kind(node) });

  // The nodes of a method.
  function nodesOf(view, key) {
    if (view.byKey === undefined) {
      view.byKey = new Map();
      for (let node = 0; node < view.item.length; node++) {
        if (view.total[node] === 0) continue;
        const nodes = view.byKey.get(view.key(node));
        if (nodes === undefined) view.byKey.set(view.key(node), [node]); else nodes.push(node);
      }
    }
    return view.byKey.get(key) || [];
  }

  // Who calls a method directly, and what it calls directly, below a node (-1: everywhere). A row's weight is that of the
  // samples with such a call in their stack, each counted once however often the call is there.
  function around(view, root, key) {
    const callers = new Map(), callees = new Map();
    const add = (rows, node, weight) => {
      const key = node < 0 ? null : view.key(node);
      if (!rows.has(key)) rows.set(key, { ...about(view, node), key, weight: 0 });
      rows.get(key).weight += weight;
    };
    // Whether one of the calls that led to a node is from `caller` to `callee`; that of the root counts for its callers.
    const isBelowCall = (node, caller, callee, isOfCaller) => {
      for (let at = node; at >= 0 && (at !== root || isOfCaller); at = view.caller[at]) {
        if (view.key(at) === callee && view.caller[at] >= 0 && view.key(view.caller[at]) === caller) return true;
        if (at === root) break;
      }
      return false;
    };
    let label = "", own = 0, total = 0;
    for (const node of nodesOf(view, key)) {
      label = label || view.label(node);
      let isWithin = root < 0, isOutermost = true;
      for (let at = node; at >= 0; at = view.caller[at]) {
        if (at !== node && view.key(at) === key) isOutermost = false;
        if (at === root) {
          isWithin = true;
          break;
        }
      }
      if (!isWithin) continue;
      own += view.own[node];
      if (isOutermost) total += view.total[node];
      const caller = view.caller[node];
      if (caller < 0) add(callers, -1, view.total[node]);
      else if (isOutermost || !isBelowCall(caller, view.key(caller), key, true)) add(callers, caller, view.total[node]);
      for (const callee of view.children[node]) {
        const isAgain = !isOutermost && isBelowCall(node, key, view.key(callee), false);
        if (!isAgain) add(callees, callee, view.total[callee]);
      }
    }
    const sorted = (rows) => [...rows.values()].sort((one, other) => other.weight - one.weight || (one.label < other.label ? -1 : 1));
    return { label, own, total, callers: sorted(callers), callees: sorted(callees) };
  }

  // The weight of the samples that have a method with these words in their stack: those of a node (-1: of all), and the
  // others.
  function found(view, root, words) {
    const calls = view.calls || view;
    const isFound = (tree, node) => matches(tree.item[node], words);
    // Whether a call or one above it matches.
    const isBelow = [];
    let all = 0;
    for (let call = 0; call < calls.item.length; call++) {
      const caller = calls.caller[call];
      isBelow.push((caller >= 0 && isBelow[caller]) || isFound(calls, call));
      if (isBelow[call]) all += calls.own[call];
    }
    if (root < 0) return { inside: all, outside: 0 };
    let inside = 0;
    for (let node = view.caller[root]; node >= 0; node = view.caller[node]) {
      if (isFound(view, node)) inside = view.total[root];
    }
    const todo = inside > 0 ? [] : [root];
    while (todo.length > 0) {
      const node = todo.pop();
      if (isFound(view, node)) inside += view.total[node];
      else if (!view.weights || view.weights[node] === null) for (const next of view.children[node]) todo.push(next);
      else for (const [call, weight] of view.weights[node]) inside += isBelow[call] ? weight : 0;
    }
    return { inside, outside: all - inside };
  }

  // A row for each method below a node (-1: everywhere). A method that calls itself is counted once.
  function table(view, root) {
    const rows = new Map(), open = new Map();
    const todo = (root < 0 ? view.roots : [root]).map((node) => [node, true]);
    while (todo.length > 0) {
      const [node, isEntry] = todo.pop();
      const item = view.item[node], key = keyOf(item);
      if (!isEntry) {
        open.set(key, open.get(key) - 1);
        continue;
      }
      const depth = open.get(key) || 0;
      open.set(key, depth + 1);
      if (item > FIRST_THREAD) {
        if (!rows.has(key)) rows.set(key, { ...about(view, node), key, own: 0, total: 0 });
        const row = rows.get(key);
        row.own += view.own[node];
        if (depth === 0) row.total += view.total[node];
      }
      todo.push([node, false]);
      for (const callee of view.children[node]) todo.push([callee, true]);
    }
    return [...rows.values()];
  }

  // The lines of a method, by what ran at them, of the whole profile: `own` and `total` are the weights of the method,
  // also where no line is known.
  function hotLines(key) {
    const places = new Map();
    const { frame, file, line } = data.lines;
    frame.forEach((number, index) => {
      if (frames.name[number] !== key) return;
      const place = text(file[index]) + ":" + line[index];
      if (!places.has(place)) places.set(place, { place: visible(place), own: 0, total: 0 });
      const row = places.get(place);
      row.own += data.lines.own[index];
      row.total += data.lines.total[index];
    });
    if (places.size === 0) return { rows: [], own: 0, total: 0 };
    const isOn = [];
    stacks.frame.forEach((number, stack) => {
      const caller = stacks.caller[stack];
      isOn.push(frames.name[number] === key || (caller >= 0 && isOn[caller]));
    });
    let own = 0, total = 0;
    for (const thread of threads) {
      // Also while a moment of it is shown.
      const { stack: all, weight } = thread.whole || thread;
      all.forEach((stack, index) => {
        if (stack < 0 || !isOn[stack]) return;
        total += weight[index];
        if (frames.name[stacks.frame[stack]] === key) own += weight[index];
      });
    }
    const rows = [...places.values()];
    rows.sort((one, other) => other.own - one.own || other.total - one.total || (one.place < other.place ? -1 : 1));
    return { rows, own, total };
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

  const matches = (item, words) => item >= 0 && (labels[item] + "\n" + text(frames.name[item])).toLowerCase().includes(words);

  return {
    build, invert, table, around, hotLines, found, isMethod: (key) => key !== null && key > FIRST_THREAD, matches, describe, visible, threadName, isHidden,
    hasWaits: frames.kind.includes(WAIT), hasThreads: threads.length > 1,
  };
}
if (typeof module !== "undefined") module.exports = createModel;

// Holds what the page shows, and builds elements. Every text of a run enters the page as text, never as markup.
let data = null;

// Takes what the page shows from now on.
function use(payload) {
  data = payload;
  data.charts = data.charts || {};
  nameCharts();
}

// Takes another part of it; charts are merged by section.
function merge(part) {
  const { charts, ...rest } = part;
  Object.assign(data, rest);
  if (charts) Object.assign(data.charts, charts);
  nameCharts();
}

// A chart is known by its section and title, also after it was fetched again.
function nameCharts() {
  ranges.clear();
  for (const [place, charts] of Object.entries(data.charts)) {
    const seen = new Map();
    for (const chart of charts) {
      const count = (seen.get(chart.title) || 0) + 1;
      seen.set(chart.title, count);
      chart.key = `${place}/${chart.title}` + (count > 1 ? `#${count}` : "");
    }
  }
}

function el(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "class") node.className = value;
    else if (name === "colour") node.style.setProperty("--c", value);
    else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat()) {
    if (child === undefined || child === null || child === "") continue;
    node.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return node;
}

function button(text, title, action, attributes) {
  return el("button", { type: "button", class: "quiet", title, onclick: action, ...attributes }, text);
}

function table(heads, rows, options) {
  const numeric = (options && options.numeric) || [];
  const cell = (tag, value, column) => el(tag, { class: numeric.includes(column) ? "num" : null }, value);
  return el("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Table" }, el("table", { class: options && options.class },
    el("thead", {}, el("tr", {}, heads.map((head, column) => cell("th", head, column)))),
    el("tbody", {}, rows.map((row) => el("tr", {}, row.map((value, column) => cell("td", value, column)))))));
}

function pairs(rows, head) {
  return el("div", { class: "scroll" }, el("table", { class: "pairs" },
    head ? el("thead", {}, el("tr", {}, head.map((text) => el("th", {}, text)))) : null,
    el("tbody", {}, rows.map((row) => el("tr", { class: row.changed ? "changed" : null }, row.map((value, column) => el("td", {}, column ? value : keyText(value))))))));
}

// A long key is broken between its words, not within one.
function keyText(key) {
  return typeof key !== "string" ? key : key.split(/(?<=[_.\/-])(?=[^_.\/-])/).flatMap((word, place) => (place ? [el("wbr", {}), word] : [word]));
}

function factList(rows) {
  return el("dl", { class: "facts" }, rows.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))));
}

// A section without data says why.
function empty(node, reason) {
  node.append(el("p", { class: "empty" }, reason));
}

function searchable(placeholder, draw) {
  const input = el("input", { class: "search", type: "search", placeholder, "aria-label": placeholder });
  const place = el("div", {});
  const redraw = () => place.replaceChildren(draw(input.value.trim().toLowerCase()));
  input.addEventListener("input", redraw);
  redraw();
  return [el("div", { class: "filters" }, input), place];
}

// Addresses of the server are relative to the page: it may lie behind a proxy.
function apiUrl(path) {
  return (document.body.dataset.base || "") + path;
}

// A folder's name need not be UTF-8: a byte that is none comes as a lone surrogate, and goes back as that byte.
function encoded(text) {
  return Array.from(String(text), (one) => {
    const code = one.codePointAt(0);
    if (code < 0xd800 || code > 0xdfff) return encodeURIComponent(one);
    return code >= 0xdc80 && code <= 0xdcff ? "%" + (code & 0xff).toString(16) : "%EF%BF%BD";
  }).join("");
}

async function getJson(url, options) {
  let answer;
  try {
    answer = await fetch(url, { headers: { accept: "application/json" }, ...options });
  } catch (fault) {
    if (fault.name === "AbortError") throw fault;
    throw Object.assign(new Error("The server of this page does not answer; is otel-train ui still running?"), { status: 0 });
  }
  const content = await answer.json().catch(() => null);
  if (!answer.ok || content === null) {
    const words = content && content.error && content.error.message;
    throw Object.assign(new Error(words || `The server answered ${answer.status}.`), { status: answer.status, position: content && content.error && content.error.position, isUnreadable: Boolean(content && content.error && content.error.unreadable) });
  }
  return content;
}

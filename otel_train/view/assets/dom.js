// Builds elements and texts. Every text of a run enters the page as text, never as markup.
const data = JSON.parse(document.getElementById("data").textContent);

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

// Plotly reads a few tags in its texts; a name of the user is no markup.
function literal(text) {
  return String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
}

function number(value) {
  if (value === null || value === undefined) return "";
  if (typeof value === "string") return value;
  if (Number.isInteger(value) && Math.abs(value) < 1e15) return value.toLocaleString("en-US");
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-4 || size >= 1e9)) return value.toExponential(4).replace(/\.?0+e/, "e");
  return String(Number(value.toPrecision(6)));
}

function duration(seconds) {
  if (seconds === null || seconds === undefined) return "";
  if (seconds < 0) return "-" + duration(-seconds);
  if (seconds < 1e-3) return number(seconds * 1e6) + " µs";
  if (seconds < 1) return Number((seconds * 1000).toPrecision(3)) + " ms";
  if (seconds < 60) return Number(seconds.toPrecision(3)) + " s";
  const whole = Math.round(seconds);
  const two = (n) => String(n).padStart(2, "0");
  if (whole < 3600) return Math.floor(whole / 60) + " min " + two(whole % 60) + " s";
  if (whole < 172800) return Math.floor(whole / 3600) + " h " + two(Math.floor((whole % 3600) / 60)) + " min";
  return Math.floor(whole / 86400) + " d " + Math.floor((whole % 86400) / 3600) + " h";
}

function bytes(count) {
  if (count === null || count === undefined) return "";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (count >= 1023.95 && unit < 4) { count /= 1024; unit += 1; }
  return (unit === 0 ? count : count.toFixed(1)) + " " + units[unit];
}

function table(heads, rows, options) {
  const numeric = (options && options.numeric) || [];
  const cell = (tag, value, column) => el(tag, { class: numeric.includes(column) ? "num" : null }, value);
  return el("div", { class: "scroll" }, el("table", { class: options && options.class },
    el("thead", {}, el("tr", {}, heads.map((head, column) => cell("th", head, column)))),
    el("tbody", {}, rows.map((row) => el("tr", {}, row.map((value, column) => cell("td", value, column)))))));
}

function pairs(rows, head) {
  return el("div", { class: "scroll" }, el("table", { class: "pairs" },
    head ? el("thead", {}, el("tr", {}, head.map((text) => el("th", {}, text)))) : null,
    el("tbody", {}, rows.map((row) => el("tr", { class: row.changed ? "changed" : null }, row.map((value) => el("td", {}, value)))))));
}

function section(id, title, count, lead) {
  const node = el("section", { id, "aria-labelledby": id + "-title" }, el("h2", { id: id + "-title" }, title),
    lead ? el("p", { class: "lead" }, lead) : null);
  document.getElementById("main").append(node);
  document.getElementById("nav").append(el("a", { href: "#" + id, class: count === 0 ? "none" : null }, title,
    count ? el("span", { class: "count" }, number(count)) : null));
  return node;
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

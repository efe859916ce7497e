// Keeps light and dark: the system's, or what the reader chose last, and the colours of charts in both.
const themed = [];

function isDark() {
  const forced = document.documentElement.style.colorScheme;
  return forced ? forced === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

function colour(role) {
  const palette = (data && data.palette) || {};
  const both = palette[role] || palette.value || ["#4b299b", "#b89eff"];
  return both[isDark() ? 1 : 0];
}

function faded(hex, alpha) {
  const part = (at) => parseInt(hex.slice(at, at + 2), 16);
  return `rgba(${part(1)},${part(3)},${part(5)},${alpha})`;
}

function paper() {
  return isDark() ? "#151b23" : "#ffffff";
}

function dot(role, dash) {
  return el("span", { class: "dot", "data-role": role, "data-dash": dash && dash !== "solid" ? dash : null, colour: colour(role) });
}

function onTheme(callback) {
  themed.push(callback);
}

function applyTheme() {
  document.querySelectorAll("[data-role]").forEach((node) => node.style.setProperty("--c", colour(node.dataset.role)));
  for (const callback of themed) callback();
}

// Storage is refused in some frames and private windows; the choice then lasts as long as the page.
function remembered(key, value) {
  try {
    if (value !== undefined) localStorage.setItem(key, value);
    return localStorage.getItem(key);
  } catch {
    return null;
  }
}

function switchTheme() {
  const chosen = isDark() ? "light" : "dark";
  document.documentElement.style.colorScheme = chosen;
  remembered("otel-train-theme", chosen);
  applyTheme();
}

function startTheme() {
  const chosen = remembered("otel-train-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.style.colorScheme = chosen;
  const node = document.getElementById("theme");
  if (node) node.addEventListener("click", switchTheme);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", applyTheme);
  shortcut("t", "light or dark", switchTheme);
  onTheme(redrawAll);
}

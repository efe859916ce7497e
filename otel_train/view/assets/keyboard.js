// Answers single keys anywhere on a page, never while the reader types, and lists them in an overlay.
const shortcuts = [];
const NOT_TYPED_IN = new Set(["range", "checkbox", "radio", "button", "submit", "reset", "color", "file"]);

function shortcut(key, text, action) {
  const old = shortcuts.find((known) => known.key === key);
  if (old) Object.assign(old, { text, action }); else shortcuts.push({ key, text, action });
}

function isTyping(node) {
  if (!node || !node.closest) return false;
  if (node.isContentEditable || node.closest("textarea, select")) return true;
  const input = node.closest("input");
  return Boolean(input) && !NOT_TYPED_IN.has(input.type);
}

function startKeyboard() {
  shortcut("?", "this list", showShortcuts);
  shortcut("/", "search", focusSearch);
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && isTyping(event.target) && !event.target.closest("dialog")) { event.target.blur(); return; }
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented || isTyping(event.target)) return;
    const known = shortcuts.find((candidate) => candidate.key === event.key);
    const dialog = document.querySelector("dialog[open]");
    if (!known || (dialog && !(dialog.dataset.keys || "").includes(known.key))) return;
    event.preventDefault();
    known.action(event);
  });
}

function focusSearch() {
  const fields = [...document.querySelectorAll('input[type="search"], [data-search]')].filter((node) => node.offsetParent !== null);
  const seen = fields.filter((node) => { const box = node.getBoundingClientRect(); return box.bottom > 0 && box.top < innerHeight; });
  const field = seen[0] || fields[0];
  if (field) { field.focus(); if (field.select) field.select(); }
}

// The element has focus again that had it before.
function showDialog(dialog) {
  const before = document.activeElement;
  document.body.append(dialog);
  dialog.addEventListener("close", () => {
    dialog.remove();
    if (before && before.isConnected) before.focus({ preventScroll: true });
  });
  dialog.showModal();
}

function showShortcuts() {
  const dialog = el("dialog", { class: "keys", "aria-label": "Keys of this page" },
    el("h2", {}, "Keys"),
    el("dl", {}, [...shortcuts, { key: "Escape", text: "leave a field, close what is open" }].map((known) => el("div", {}, el("dt", {}, el("kbd", {}, known.key)), el("dd", {}, known.text)))),
    button("Close", "Close this list", () => dialog.close(), { autofocus: true }));
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
  showDialog(dialog);
}

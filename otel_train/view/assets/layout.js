// Lays out the sections of a page in their order, with a link to each, and follows the reader through them.
const SECTION_GROUPS = [
  ["", ["overview"]], ["Metrics", ["curves", "summary"]],
  ["Training", ["steps", "model", "data-path", "speed", "ranks", "memory", "samples"]],
  ["Machine", ["system", "gpu", "other"]], ["Course", ["timeline", "logs"]],
  ["Lineage", ["configuration", "environment", "data", "checkpoints", "stages", "attempts", "files", "run-log"]],
];
const SECTION_ORDER = SECTION_GROUPS.flatMap(([, ids]) => ids);

// A second call for the same section empties and fills it again.
function section(id, title, count, lead) {
  let node = document.getElementById(id);
  if (!node) {
    node = el("section", { id, "aria-labelledby": id + "-title" });
    insertInOrder(document.getElementById("main"), node, id, (other) => other.id);
    spy.observe(node);
  }
  node.replaceChildren(el("h2", { id: id + "-title" }, title));
  if (lead) node.append(el("p", { class: "lead" }, lead));
  sectionLink(id, title, count);
  return node;
}

function sectionLink(id, title, count) {
  const nav = document.getElementById("nav");
  if (!nav) return;
  const old = nav.querySelector(`a[href="#${id}"]`);
  const link = el("a", { href: "#" + id, "data-section": id, class: [count === 0 ? "none" : "", old && old.classList.contains("here") ? "here" : ""].join(" ").trim() || null },
    title, count ? el("span", { class: "count" }, number(count)) : null);
  if (old) { old.replaceWith(link); return; }
  const group = SECTION_GROUPS.find(([, ids]) => ids.includes(id));
  if (group && group[0] && ![...nav.querySelectorAll(".group")].some((node) => node.textContent === group[0])) {
    insertInOrder(nav, el("p", { class: "group", "data-section": group[1][0] }, group[0]), group[1][0], (other) => other.dataset.section, true);
  }
  insertInOrder(nav, link, id, (other) => other.dataset.section);
}

// How much there is in a section that is drawn later, or has been drawn before.
function sectionCount(id, count) {
  const link = document.querySelector(`#nav a[href="#${id}"]`);
  if (!link) return;
  link.classList.toggle("none", count === 0);
  const old = link.querySelector(".count");
  if (old) old.remove();
  if (count) link.append(el("span", { class: "count" }, number(count)));
}

function insertInOrder(parent, node, id, idOf, before) {
  const rank = SECTION_ORDER.indexOf(id);
  const next = rank < 0 ? null : [...parent.children].find((other) => {
    const place = SECTION_ORDER.indexOf(idOf(other));
    return place > rank || (before && place === rank);
  });
  parent.insertBefore(node, next || null);
}

const spy = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    if (!entry.isIntersecting) continue;
    for (const link of document.querySelectorAll("#nav a")) {
      const here = link.dataset.section === entry.target.id;
      link.classList.toggle("here", here);
      if (here) link.setAttribute("aria-current", "true"); else link.removeAttribute("aria-current");
    }
  }
}, { rootMargin: "-15% 0px -75% 0px" });

function goTo(id) {
  const node = document.getElementById(id);
  if (!node) return;
  node.scrollIntoView({ block: "start" });
  address.section(id);
}

// Sections above are drawn while one is scrolled to, so the place is looked at again once they have their height.
function goToNode(node, options) {
  node.scrollIntoView({ block: "center", ...options });
  requestAnimationFrame(() => requestAnimationFrame(() => node.scrollIntoView({ block: "center", ...options })));
}

function nextSection(by) {
  const sections = [...document.querySelectorAll("main > section")];
  const line = document.querySelector(".bar").getBoundingClientRect().bottom + 24;
  let current = 0;
  sections.forEach((node, index) => { if (node.getBoundingClientRect().top <= line) current = index; });
  const next = sections[Math.min(sections.length - 1, Math.max(0, current + by))];
  if (next) goTo(next.id);
}

function startSections() {
  document.addEventListener("click", (event) => {
    const link = event.target.closest('a[href^="#"]');
    if (!link || event.defaultPrevented || event.ctrlKey || event.metaKey || event.shiftKey) return;
    const id = link.getAttribute("href").slice(1);
    const node = document.getElementById(id);
    if (!node) return;
    event.preventDefault();
    goTo(id);
    if (link.classList.contains("skip")) { node.setAttribute("tabindex", "-1"); node.focus({ preventScroll: true }); }
  });
  shortcut("j", "next section", () => nextSection(1));
  shortcut("k", "section before", () => nextSection(-1));
}

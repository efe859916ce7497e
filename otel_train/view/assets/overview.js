// Writes the top of the page: state and cause first, then health, best values, where time went, and lineage in short.
const NOTICE_WORDS = { bad: "Look here", warn: "Note", info: "Note" };
const topParts = { hero: null, notices: null, tiles: null, more: null };

function overview() {
  const node = section("overview", "Overview");
  node.querySelector("h2").classList.add("visually-hidden");
  for (const part of Object.keys(topParts)) topParts[part] = el("div", { class: "top-" + part });
  node.append(...Object.values(topParts));
  showHero();
  showNotices();
  showTiles();
  showMore();
}

function showHero() {
  const { status } = data;
  // A traceback that the reader has opened stays open.
  const isOpen = Boolean(topParts.hero.querySelector("details[open]"));
  const hero = el("div", { class: "card hero " + status.state }, el("h1", {}, status.headline), status.reason ? el("p", { class: "reason" }, status.reason) : null);
  if (status.exception) {
    hero.append(el("div", { class: "cause" }, el("strong", {}, status.exception.type), el("p", { class: "message" }, status.exception.message),
      status.exception.stacktrace ? el("details", { open: isOpen }, el("summary", {}, "Traceback"), el("pre", {}, status.exception.stacktrace)) : null));
  }
  hero.append(factList(data.facts));
  if (data.tags.length) hero.append(el("div", { class: "tags" }, data.tags.map((tag) => el("span", { class: "tag" }, tag))));
  if (data.notes) hero.append(el("p", { class: "reason" }, data.notes));
  topParts.hero.replaceChildren(hero);
}

function showNotices() {
  // A page that follows the run need not say at what time the run stood so.
  const told = data.notices.filter((notice) => !(notice.still && document.body.dataset.run));
  topParts.notices.replaceChildren(...told.map((notice) => el("p", { class: "notice " + notice.kind, role: "note" },
    el("b", {}, NOTICE_WORDS[notice.kind]), notice.text, notice.step === undefined || notice.step === null ? null : [" ", stepButton(notice.step, `show step ${number(notice.step)}`)])));
}

function showTiles() {
  topParts.tiles.replaceChildren(...(data.tiles.length ? [el("div", { class: "tiles" }, data.tiles.map((tile) => el("div", { class: "card tile" },
    el("div", { class: "name" }, dot(tile.role), tile.name), el("div", { class: "value" + (tile.bad ? " bad" : "") }, tile.value),
    el("div", { class: "sub" }, tile.sub, tile.step === undefined || tile.step === null ? null : [" ", stepButton(tile.step, "show")]))))] : []));
}

// Parts of the page that come later fill this when they come.
function showMore() {
  if (!topParts.more) return;
  const parts = [];
  if (data.time_by_state && Object.keys(data.time_by_state).length) parts.push(timeByState());
  if (data.lineage && data.lineage.length) parts.push(el("div", { class: "card lineage" }, el("h3", {}, "Origin and result"), factList(data.lineage.map(([name, value, place]) => [name, place ? el("a", { href: "#" + place }, value) : value]))));
  topParts.more.replaceChildren(...(parts.length ? [el("div", { class: "two more" }, parts)] : []));
}

function showHead() {
  const text = (id, words) => { const node = document.getElementById(id); if (node) node.textContent = words; };
  text("run-name", data.name);
  text("run-id", data.project + " · " + data.run_id);
  text("footer", data.footer);
  showPill(data.status.state);
}

function showPill(state) {
  const pill = document.getElementById("pill");
  pill.textContent = state;
  pill.className = "pill " + state;
  pill.setAttribute("role", "status");
}

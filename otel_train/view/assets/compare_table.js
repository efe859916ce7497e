// Puts values of runs side by side: runs as columns, or as rows where they are many.
const COMPARE_MOST_COLUMNS = 40;
const COMPARE_MOST_KEYS = 24;
const COMPARE_MOST_ROWS = 300;

// rows: [{key, group, texts: [content for each run], differs, classes: [class for each run]}].
function compareTable(rows, options) {
  return options.isMany ? compareTall(rows, options) : compareWide(rows, options);
}

function compareWide(rows, options) {
  const runs = compareRuns();
  const base = compareBase();
  const head = el("tr", {}, el("th", { scope: "col" }, options.rowHead || ""), runs.map((run, place) => compareHead(run, place === base, options)));
  const body = [];
  let group = "";
  for (const row of rows) {
    if (row.group !== group && row.group) body.push(el("tr", { class: "compare-group" }, el("th", { colspan: runs.length + 1, scope: "colgroup" }, row.group)));
    group = row.group;
    body.push(el("tr", { class: row.differs ? "differs" : null }, el("th", { scope: "row", class: "compare-key", title: row.key }, row.key),
      row.texts.map((text, place) => el("td", { class: [row.classes ? row.classes[place] : "", text === "" ? "none" : ""].join(" ").trim() || null, "data-run": runs[place].id }, text === "" ? "–" : text))));
  }
  return el("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": options.caption },
    el("table", { class: "compare-table" }, el("caption", {}, options.caption), el("thead", {}, head), el("tbody", {}, body)));
}

function compareHead(run, isBase, options) {
  const many = compareRuns().length > 1;
  return el("th", { scope: "col", "data-run": run.id }, el("div", { class: "compare-head" }, compareName(run, { link: true }),
    options.heads ? el("div", { class: "buttons" },
      many ? button(isBase ? "base" : "make base", isBase ? "The others are compared with this run" : `Compare the others with ${run.label}`, () => compareSetBase(run.id), { "aria-pressed": String(isBase), "data-does": "base " + run.id }) : null,
      button("×", `Take ${run.label} out of the comparison`, () => compareChoose(compareIds().filter((id) => id !== run.id)), { "aria-label": `Take ${run.label} out of the comparison` }))
      : isBase && many ? el("span", { class: "compare-base" }, "base") : null));
}

// Of many runs the first are shown, so that their order matters: a click on a head sorts by it.
function compareTall(rows, options) {
  const place = el("div", {});
  const sorted = { key: options.sortKey || "", isDown: Boolean(options.sortDown) };
  const draw = () => place.replaceChildren(...compareTallParts(rows, options, sorted, (key) => {
    sorted.isDown = sorted.key === key && !sorted.isDown;
    sorted.key = key;
    draw();
    place.querySelector("th[aria-sort]:not([aria-sort=none]) button").focus();
  }));
  draw();
  return place;
}

// The places of the runs by the values of a row; runs without one come last either way.
function compareOrder(row, isDown) {
  const runs = compareRuns().map((run, place) => place);
  if (!row || !row.values) return runs;
  const isMissing = (value) => value === null || value === undefined || value === "";
  return runs.sort((a, b) => {
    const [left, right] = [row.values[a], row.values[b]];
    if (isMissing(left) || isMissing(right)) return isMissing(left) - isMissing(right);
    const by = typeof left === "number" && typeof right === "number" ? left - right : String(left).localeCompare(String(right), "en", { numeric: true });
    return isDown ? -by : by;
  });
}

function compareTallParts(rows, options, sorted, sort) {
  const runs = compareRuns();
  const keys = rows.slice(0, COMPARE_MOST_KEYS);
  const order = compareOrder(rows.find((row) => row.key === sorted.key), sorted.isDown);
  const shown = order.slice(0, COMPARE_MOST_ROWS);
  const head = (row) => el("th", { scope: "col", "aria-sort": row.values ? (row.key !== sorted.key ? "none" : sorted.isDown ? "descending" : "ascending") : null },
    row.values ? button(row.key + (row.key !== sorted.key ? "" : sorted.isDown ? " ▼" : " ▲"), `Sort by ${row.key}`, () => sort(row.key)) : row.key);
  const node = el("div", { class: "scroll compare-tall", tabindex: "0", role: "group", "aria-label": options.caption },
    el("table", { class: "compare-table" }, el("caption", {}, options.caption),
      el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "Run"), keys.map(head))),
      el("tbody", {}, shown.map((place) => el("tr", { "data-run": runs[place].id }, el("th", { scope: "row", class: "compare-key" }, compareName(runs[place], { link: true })),
        keys.map((row) => el("td", { class: row.classes ? row.classes[place] || null : null }, row.texts[place] === "" ? "–" : row.texts[place])))))));
  const left = [];
  if (rows.length > keys.length) left.push(`${plural(rows.length - keys.length, "more row", "more rows")} of values`);
  if (runs.length > shown.length) left.push(plural(runs.length - shown.length, "more run"));
  return left.length ? [node, el("p", { class: "lead" }, `Not shown here: ${left.join(" and ")}.`)] : [node];
}

function compareCellText(cell) {
  if (!cell) return "";
  const earlier = cell.earlier && cell.earlier.length
    ? el("span", { class: "place" }, cell.earlier.map(([attempt, text]) => `attempt ${attempt}: ${text}`).join("; ")) : null;
  const main = el("span", { class: "value " + cell.kind, title: compareShortened(cell.text) === cell.text ? null : cell.text }, cell.kind === "missing" ? "not set any more" : compareShortened(cell.text));
  return earlier ? el("div", {}, main, earlier) : main;
}

function compareCellValue(cell) {
  if (!cell) return null;
  return cell.kind === "int" || cell.kind === "float" ? Number(cell.text) : cell.text;
}

// Of a checksum its ends tell enough; the whole stands in the title.
function compareShortened(text) {
  return text.replace(/\b[0-9a-f]{32,}\b/g, (digest) => (digest.length === 40 ? digest.slice(0, 12) : `${digest.slice(0, 10)}…${digest.slice(-6)}`));
}

// A part of the payload as a section: what differs, or all of it.
function compareRows(id, title, part, reason, options) {
  const node = section(id, title, part.differing || (part.total ? null : 0), options && options.lead);
  if (!part.total) { empty(node, reason); return node; }
  const key = id.replace("compare-", "all-");
  const place = el("div", {});
  const box = el("input", { type: "checkbox" });
  box.checked = address.get(key) !== "1";
  const search = el("input", { class: "search", type: "search", placeholder: "Search keys and values", "aria-label": `Search ${title}` });
  const draw = () => {
    const words = search.value.trim().toLowerCase();
    const rows = part.rows.filter((row) => (row.differs || !box.checked) && (!words || compareRowText(row).includes(words)));
    if (!rows.length) { place.replaceChildren(el("p", { class: "empty" }, words ? "Nothing has these words." : compareSame(part))); return; }
    const seen = rows.slice(0, 1000);
    place.replaceChildren(compareTable(seen.map((row) => ({ ...row, texts: row.cells.map(compareCellText), values: row.cells.map(compareCellValue), classes: compareKinds(row) })),
      { caption: title, isMany: compareRuns().length > COMPARE_MOST_COLUMNS }));
    if (rows.length > seen.length) place.append(el("p", { class: "lead" }, `${plural(rows.length - seen.length, "more row")}: search for them.`));
  };
  box.addEventListener("change", () => { address.set({ [key]: box.checked ? null : "1" }); draw(); });
  search.addEventListener("input", draw);
  draw();
  const count = `${number(part.differing)} of ${number(part.total)} differ`;
  node.append(el("div", { class: "card" }, el("div", { class: "filters" }, el("label", { class: "compare-only" }, box, "only differences"), search, el("span", { class: "found" }, count)), place));
  return node;
}

function compareSame(part) {
  if (compareRuns().length < 2) return "Nothing to compare with: this is one run.";
  return part.total === 1 ? "There is one value, and it is the same in these runs." : `All ${number(part.total)} are the same in these runs.`;
}

function compareRowText(row) {
  return [row.group, row.key, ...row.cells.map((cell) => (cell ? cell.text : ""))].join(" ").toLowerCase();
}

// Where values of one row are of several kinds, the kind is told beside the value.
function compareKinds(row) {
  // Whole numbers and others are told apart by their spelling: 1 and 1.0.
  const kindOf = (cell) => (cell.kind === "int" || cell.kind === "float" ? "number" : cell.kind);
  const kinds = new Set(row.cells.filter((cell) => cell && cell.kind !== "missing").map(kindOf));
  return row.cells.map((cell) => (kinds.size > 1 && cell && cell.kind !== "missing" ? "kind-" + kindOf(cell) : ""));
}

const COMPARE_VALUES = { best: "Best", last: "Last", min: "Minimum", max: "Maximum" };

function compareResults() {
  const rows = compare.payload.results.rows;
  const node = section("compare-results", "Results", rows.length, "★ is the best run by the metric's direction. Differences are to the base.");
  if (!rows.length) { empty(node, "No metric was logged by these runs."); return; }
  const wanted = Object.hasOwn(COMPARE_VALUES, address.get("value") || "") ? address.get("value") : "best";
  const choice = el("div", { class: "segments", role: "group", "aria-label": "Which value" }, Object.entries(COMPARE_VALUES).map(([value, words]) =>
    el("button", { type: "button", "aria-pressed": String(value === wanted), "data-value": value, title: `${words} values`, onclick: () => { address.set({ value: value === "best" ? null : value }); compareKeepingFocus("compare-results", compareResults); } }, words)));
  const base = compareBase();
  const made = rows.map((row) => ({ key: row.key + (row.unit ? ` (${row.unit})` : ""), group: "", differs: false,
    values: row.cells.map((cell) => (cell ? cell[wanted === "best" && !row.goal ? "last" : wanted] : null)),
    texts: row.cells.map((cell, place) => compareResultCell(row, cell, row.cells[base], wanted, place === base, row.winners.includes(place))),
    classes: row.cells.map((cell, place) => "num" + (row.winners.includes(place) && compareIsJudged(row, wanted) ? " winner" : "")) }));
  node.append(el("div", { class: "card" }, el("div", { class: "filters" }, choice, rows.some((row) => !row.goal) && wanted === "best" ? el("span", { class: "found" }, "last, where a metric has no direction") : null),
    compareTable(made, { caption: `Results: ${COMPARE_VALUES[wanted].toLowerCase()} values`, rowHead: "Metric", isMany: compareRuns().length > COMPARE_MOST_COLUMNS,
      sortKey: made[0].key, sortDown: rows[0].goal === "max" })));
}

// The star is for the best value, so it stands where that value does.
function compareIsJudged(row, wanted) {
  return wanted === "best" || wanted === row.goal;
}

function compareResultCell(row, cell, baseCell, wanted, isBase, isWinner) {
  if (!cell) return "";
  const which = wanted === "best" && !row.goal ? "last" : wanted;
  const value = cell[which];
  if (value === null || value === undefined) return cell.bad ? el("div", {}, "no finite value") : "";
  const parts = [el("span", { class: "value" + (typeof value === "string" ? " bad" : "") }, (isWinner && compareIsJudged(row, wanted) ? "★ " : "") + number(value))];
  const against = isBase || !baseCell ? null : compareAgainst(value, baseCell[which]);
  if (against) parts.push(el("span", { class: "place" }, against));
  if (cell[which + "_at"]) parts.push(el("span", { class: "place" }, cell[which + "_at"]));
  if (cell.bad) parts.push(el("span", { class: "place bad" }, `${number(cell.bad)} not finite`));
  return el("div", {}, parts);
}

function compareAgainst(value, base) {
  if (typeof value !== "number" || typeof base !== "number") return "";
  const away = value - base;
  if (away === 0) return "as the base";
  const sign = away > 0 ? "+" : "−";
  const share = base === 0 ? "" : ` (${sign}${number(Number((100 * Math.abs(away / base)).toPrecision(3)))} %)`;
  return sign + number(Number(Math.abs(away).toPrecision(4))) + share;
}

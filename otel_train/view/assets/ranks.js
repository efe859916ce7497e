// Draws many ranks as what they have in common: a band from lowest to highest, the median, and the ranks at its edges.
const MANY_RANKS = 9;

function rankOf(line) {
  if (line.rank !== undefined && line.rank !== null) return line.rank;
  const found = /(?:^| · )rank (\d+)$/.exec(line.label);
  return found ? Number(found[1]) : null;
}

function withoutRank(label) {
  return label.replace(/(?:^| · )rank \d+$/, "");
}

function hasManyRanks(chart) {
  if (chart.manyRanks === undefined) chart.manyRanks = new Set(chart.lines.map(rankOf).filter((rank) => rank !== null)).size >= MANY_RANKS;
  return chart.manyRanks;
}

// The lines of each kind, by what they are called beside their rank; lines without a rank stay as they are.
function rankGroups(chart) {
  const groups = new Map();
  chart.lines.forEach((line, index) => {
    if (rankOf(line) === null || line.replaced) return;
    const name = withoutRank(line.label);
    if (!groups.has(name)) groups.set(name, []);
    groups.get(name).push({ line, index });
  });
  return groups;
}

function meanOf(values) {
  let sum = 0;
  let count = 0;
  for (const value of values) if (value !== null) { sum += value; count += 1; }
  return count ? sum / count : null;
}

// The ranks whose means are the highest and the lowest of their kind.
function edgesOf(members) {
  const known = members.map((member) => ({ ...member, mean: meanOf(member.line.y) })).filter((member) => member.mean !== null);
  known.sort((a, b) => a.mean - b.mean || rankOf(a.line) - rankOf(b.line));
  return known.length ? { low: known[0], high: known[known.length - 1] } : null;
}

const RANK_COLUMNS = 400;

// One line of all ranks: at each place the median, and as its range the lowest and highest of them.
function envelope(name, members, axis) {
  const places = members.flatMap(({ line }) => line.x[axis] || []).filter((x) => x !== null);
  if (!places.length) return null;
  const distinct = [...new Set(places)].sort((a, b) => a - b);
  const from = distinct[0];
  const width = (distinct[distinct.length - 1] - from) / RANK_COLUMNS || 1;
  const isExact = distinct.length <= RANK_COLUMNS;
  const columns = new Map();
  for (const { line } of members) {
    (line.x[axis] || []).forEach((x, index) => {
      if (x === null || line.y[index] === null) return;
      const key = isExact ? x : from + (Math.min(RANK_COLUMNS - 1, Math.floor((x - from) / width)) + 0.5) * width;
      if (!columns.has(key)) columns.set(key, []);
      const column = columns.get(key);
      column.push(line.y[index]);
      if (line.low && line.low[index] !== null) column.push(line.low[index], line.high[index]);
    });
  }
  const x = [...columns.keys()].sort((a, b) => a - b);
  const sorted = x.map((place) => columns.get(place).sort((a, b) => a - b));
  const middle = (values) => (values.length % 2 ? values[(values.length - 1) / 2] : (values[values.length / 2 - 1] + values[values.length / 2]) / 2);
  return { label: (name ? name + ": " : "") + `median of ${members.length} ranks`, role: members[0].line.role, x: { [axis]: x }, y: sorted.map(middle),
    low: sorted.map((values) => values[0]), high: sorted.map((values) => values[values.length - 1]), envelope: true };
}

// What is drawn of a chart's lines.
function chosenLines(place, axis) {
  const { chart } = place;
  if (!hasManyRanks(chart)) return chart.lines.map((line, index) => ({ line, index }));
  const result = chart.lines.flatMap((line, index) => (rankOf(line) === null ? [{ line, index }] : []));
  const several = rankGroups(chart).size > 1;
  let number = 0;
  for (const [name, members] of rankGroups(chart)) {
    const whole = envelope(name, members, axis);
    if (!whole) continue;
    const role = several ? `series-${number % 8}` : "series-0";
    result.push({ line: { ...whole, role }, index: 0 });
    const edges = edgesOf(members);
    if (edges && !several) {
      result.push({ line: { ...edges.high.line, label: `rank ${rankOf(edges.high.line)}: highest mean`, role: "series-1", faint: false }, index: 3 });
      result.push({ line: { ...edges.low.line, label: `rank ${rankOf(edges.low.line)}: lowest mean`, role: "series-2", faint: false }, index: 4 });
    }
    for (const { line } of members) {
      if (!place.ranks || !place.ranks.has(rankOf(line))) continue;
      const at = [...place.ranks].indexOf(rankOf(line));
      result.push({ line: { ...line, role: `series-${(at + 3) % 8}`, faint: false }, index: at + 3 });
    }
    number += 1;
  }
  return result;
}

function rankChips(place) {
  const { chart } = place;
  const axis = axisOf(chart);
  const chips = chosenLines(place, axis).map(({ line, index }) => lineChip(place, line, index));
  const ranks = [...new Set(chart.lines.map(rankOf).filter((rank) => rank !== null))].sort((a, b) => a - b);
  const toggle = (rank) => el("button", { type: "button", class: "rank", "aria-pressed": String(Boolean(place.ranks && place.ranks.has(rank))), "aria-label": `rank ${rank}`,
    onclick: () => {
      place.ranks = place.ranks || new Set();
      if (!place.ranks.delete(rank)) place.ranks.add(rank);
      const isOpen = place.chips.querySelector("details").open;
      place.chips.replaceChildren(...rankChips(place));
      place.chips.querySelector("details").open = isOpen;
      const again = place.chips.querySelector(`[aria-label="rank ${rank}"]`);
      if (again) again.focus();
      redraw(place);
    } }, String(rank));
  return [...chips, el("details", { class: "choose" }, el("summary", {}, "choose ranks"), el("div", { class: "ranks" }, ranks.map(toggle)))];
}

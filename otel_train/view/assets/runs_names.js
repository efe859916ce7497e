// What is known of the runs' columns and values: names and values for the filter line, and what a row of an answer is.
// `known` holds the columns, the ids of those shown, and the rows of the newest answer.
function runsNames(known) {
  function names() {
    const metrics = known.columns.filter((column) => column.group === "metric" && column.part === "last").map((column) => column.id);
    const bare = metrics.filter((id) => id.includes("/")).map((id) => id.slice(id.indexOf("/") + 1));
    const others = known.columns.filter((column) => column.group !== "metric").map((column) => column.id);
    const best = known.columns.filter((column) => column.group === "metric" && column.part === "best").map((column) => column.id);
    return [...new Set([...others.filter((id) => !id.startsWith("config.")), ...bare, ...metrics, ...others.filter((id) => id.startsWith("config.")), ...best])];
  }

  function values(name) {
    const of = name === "tag" ? "tags" : name;
    if (of === "state") return RUNS_STATES;
    const found = new Set();
    for (const row of known.rows) {
      const value = Object.hasOwn(row, of) ? row[of] : Object.hasOwn(row.values, of) ? row.values[of] : null;
      for (const one of Array.isArray(value) ? value : [value]) if (one !== undefined && one !== null && one !== "" && typeof one !== "number") found.add(String(one));
      if (found.size > 200) break;
    }
    return [...found].sort();
  }

  function sample(kind) {
    if (kind === "number") {
      const metric = known.columns.find((column) => column.group === "metric" && column.part === "last");
      return metric ? metric.id : null;
    }
    for (const id of known.shown || []) {
      const row = id.startsWith("config.") && known.rows.find((candidate) => candidate.values[id] !== undefined);
      if (row) return { name: id, value: row.values[id] };
    }
    return null;
  }

  return { names, values, sample };
}

// Ids in a list for the server: one that holds a comma, or begins as a direction does, stands in backquotes.
function runsIdList(ids) {
  return ids.map((id) => (/,|^-|^\s|\s$/.test(id) ? "`" + id + "`" : id)).join(",");
}

function runsColumn(column) {
  const part = column.group === "metric" ? column.stat || "last" : "";
  const key = column.of || column.id;
  return { ...column, part, key, goal: column.goal, title: column.title || column.id };
}

// A key of the configuration that holds nothing but numbers is shown and sorted as numbers are; large ones come as texts.
function runsKind(column, rows) {
  if (column.kind !== "value") return column;
  const values = rows.map((row) => row.values[column.id]).filter((value) => value !== undefined);
  const isNumber = (value) => typeof value === "number" || (typeof value === "string" && /^-?\d{16,}$/.test(value));
  return { ...column, kind: values.length && values.every(isNumber) ? "number" : "text" };
}

function runsRow(row, receivedMs) {
  const values = { ...row.values };
  return { ...row, values, receivedMs, createdMs: row.created_s ? row.created_s * 1000 : 0, key: JSON.stringify([row.state, row.reason, row.problem, row.duration_s, row.name, row.values]) };
}

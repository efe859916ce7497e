// The filter line of the runs table: known names while typing, and what is wrong marked at its place.
const RUNS_MOST_OFFERED = 12;
const RUNS_JOINTS = /^(?:and|or|not|in|null|true|false)$/i;
const RUNS_COMPARISONS = ["=", "!=", "<", "<=", ">", ">=", "~"];

// What may stand at the end of the text before the caret: `from` is where the word begun there starts.
function runsOffers(before, known) {
  const word = /(?:"[^"]*|`[^`]*|[^\s()=!<>~,"`]*)$/.exec(before)[0];
  const from = before.length - word.length;
  const rest = before.slice(0, from).trimEnd();
  const bare = word.replace(/^["`]/, "").toLowerCase();
  const compared = /([^\s()=!<>~,"`]+|`[^`]*`)\s*(?:!=|<=|>=|==|=|<|>|~)$/.exec(rest) || /([^\s()=!<>~,"`]+|`[^`]*`)\s+(?:not\s+)?in\s*\((?:[^()]*,)?$/i.exec(rest);
  if (compared) {
    const name = compared[1].replace(/^`|`$/g, "");
    return { from, kind: "value", words: runsPicked(known.values(name), bare) };
  }
  const last = /([^\s()=!<>~,"`]+|`[^`]*`)$/.exec(rest);
  const begins = !rest || /(?:^|[\s(])(?:and|or|not)$/i.test(rest) || rest.endsWith("(");
  if (begins) return { from, kind: "name", words: runsPicked(known.names(), bare) };
  if (last && !word && known.names().includes(last[1].replace(/^`|`$/g, ""))) return { from, kind: "comparison", words: RUNS_COMPARISONS };
  return { from, kind: "joint", words: word ? ["and", "or"].filter((joint) => joint.startsWith(bare) && joint !== bare) : [] };
}

function runsPicked(words, typed) {
  const starts = words.filter((word) => word.toLowerCase().startsWith(typed) && word.toLowerCase() !== typed);
  const holds = typed ? words.filter((word) => word.toLowerCase().indexOf(typed) > 0) : [];
  return [...starts, ...holds].slice(0, RUNS_MOST_OFFERED);
}

// A name or a value as the filter language reads it: odd names stand in backquotes, odd values in quotes.
function runsNameQuoted(name) {
  return /^[A-Za-z_][\w./]*$/.test(name) && !RUNS_JOINTS.test(name) ? name : "`" + name + "`";
}

function runsValueQuoted(value) {
  return /^[A-Za-z_][\w.-]*$/.test(value) && !RUNS_JOINTS.test(value) || (value !== "" && Number.isFinite(Number(value))) ? value : '"' + value.replace(/\\/g, "\\\\").replace(/"/g, '\\"') + '"';
}

function runsFilterLine(known, apply) {
  const input = el("input", { type: "text", class: "search runs-filter", id: "runs-filter", "data-search": "yes", spellcheck: "false", autocomplete: "off",
    placeholder: "Filter: loss < 0.2 and state = failed", "aria-label": "Filter", role: "combobox", "aria-autocomplete": "list",
    "aria-expanded": "false", "aria-controls": "runs-offers", "aria-describedby": "runs-fault" });
  const list = el("ul", { class: "runs-offers", id: "runs-offers", role: "listbox", "aria-label": "Names and values", hidden: true });
  const fault = el("p", { class: "runs-fault", id: "runs-fault", role: "status" });
  const state = { offers: null, chosen: -1, timer: 0, applied: "", finished: true };

  function close() {
    state.offers = null;
    state.chosen = -1;
    list.hidden = true;
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
  }

  function offer() {
    const offers = runsOffers(input.value.slice(0, input.selectionStart), known);
    if (!offers.words.length) { close(); return; }
    state.offers = offers;
    state.chosen = -1;
    list.replaceChildren(...offers.words.map((word, place) => el("li", { role: "option", id: "runs-offer-" + place, "aria-selected": "false",
      onmousedown: (event) => { event.preventDefault(); take(place); } }, word)));
    list.hidden = false;
    input.setAttribute("aria-expanded", "true");
  }

  function choose(by) {
    const count = state.offers.words.length;
    state.chosen = (state.chosen + by + count + (state.chosen < 0 && by < 0 ? 1 : 0)) % count;
    [...list.children].forEach((item, place) => item.setAttribute("aria-selected", String(place === state.chosen)));
    list.children[state.chosen].scrollIntoView({ block: "nearest" });
    input.setAttribute("aria-activedescendant", "runs-offer-" + state.chosen);
  }

  function take(place) {
    const { from, words, kind } = state.offers;
    const end = input.selectionStart;
    const word = (kind === "name" ? runsNameQuoted(words[place]) : kind === "value" ? runsValueQuoted(words[place]) : words[place]) + " ";
    input.value = input.value.slice(0, from) + word + input.value.slice(end).replace(/^\s+/, "");
    input.setSelectionRange(from + word.length, from + word.length);
    close();
    changed(true);
  }

  function changed(more) {
    clearTimeout(state.timer);
    state.finished = false;
    state.timer = setTimeout(send, 300);
    if (more) offer();
  }

  function finish() {
    state.finished = true;
    if (state.withheld) tell(state.withheld);
    send();
  }

  function send() {
    clearTimeout(state.timer);
    const text = input.value.trim();
    if (text === state.applied) return;
    state.applied = text;
    apply(text);
  }

  input.addEventListener("input", () => changed(true));
  input.addEventListener("click", offer);
  input.addEventListener("blur", () => { close(); finish(); });
  input.addEventListener("keydown", (event) => {
    if (event.isComposing) return;
    const open = state.offers !== null;
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      if (!open) offer();
      if (state.offers) choose(event.key === "ArrowDown" ? 1 : -1);
    } else if (event.key === "Tab" && open && state.chosen >= 0) take(state.chosen);
    else if (event.key === "Enter" && open && state.chosen >= 0) take(state.chosen);
    else if (event.key === "Enter") { close(); finish(); }
    else if (event.key === "Escape" && open) close();
    else if (event.key === "Escape") { input.blur(); return; }
    else return;
    event.preventDefault();
    event.stopPropagation();
  });

  return {
    node: el("div", { class: "runs-line" }, input, list), fault, input,
    set: (text) => { input.value = text; state.applied = text; close(); },
    use: (text) => { input.value = text; input.focus(); close(); finish(); },
    tell,
  };

  // `error` has a message, and position and length in characters of what could not be read.
  function tell(error) {
    const letters = Array.from(state.applied);
    // What is wrong at the end may only not be finished yet.
    const unfinished = error && !state.finished && document.activeElement === input && error.position + error.length >= letters.length;
    state.withheld = unfinished ? error : null;
    input.setAttribute("aria-invalid", String(Boolean(error) && !unfinished));
    if (!error || unfinished) { fault.replaceChildren(); return; }
    const from = Math.min(error.position, letters.length);
    const until = from + Math.max(1, error.length);
    fault.replaceChildren(...[el("code", { class: "runs-marked" }, letters.slice(0, from).join(""),
      el("mark", { "data-position": String(from) }, letters.slice(from, until).join("") || "…"), letters.slice(until).join("")),
      el("span", { class: "message" }, error.message), error.still ? el("span", { class: "still" }, ` Still shown: ${error.still}`) : null].filter(Boolean));
  }
}

function runsExamples(known, use) {
  const metric = known.sample("number");
  const config = known.sample("config");
  const texts = [
    ["state = failed", "runs that failed"],
    ["state in (killed, lost)", "runs that were killed, or that nobody has heard of"],
    ...(metric ? [[`${runsNameQuoted(metric)} < 0.2 and state = finished`, "a result and how it ended"]] : []),
    ...(config ? [[`${runsNameQuoted(config.name)} = ${runsValueQuoted(runsValueText(config.value))}`, "a value of the configuration"]] : []),
    ["duration > 2h or step > 10000", "long ones"],
    ["started > 7d", "begun in the last seven days"],
  ];
  return el("details", { class: "runs-examples" }, el("summary", {}, "Examples"),
    el("p", { class: "lead" }, "Compare a name with a value by =, !=, <, <=, >, >=, ~ (contains) or in (a, b); join with and, or, not and brackets. A metric's name is its last value; best. min. max. before it choose another. Names with spaces stand in `backquotes`. A run without the value never matches."),
    el("ul", {}, texts.map(([text, what]) => el("li", {}, el("button", { type: "button", class: "quiet", onclick: () => use(text) }, el("code", {}, text)), " ", what))));
}

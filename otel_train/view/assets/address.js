// Keeps every choice of view in the page's address: in its query on a server, behind the # in a file.
const address = (() => {
  const inFile = !location.protocol.startsWith("http");
  const listeners = [];
  let state = read();
  let writing = null;

  function read() {
    const [name, query] = inFile ? location.hash.slice(1).split(/\?(.*)/s) : [location.hash.slice(1), location.search.slice(1)];
    return { section: decoded(name), params: new URLSearchParams(query || "") };
  }

  function decoded(text) {
    try { return decodeURIComponent(text); } catch { return text; }
  }

  function write(push) {
    clearTimeout(writing);
    writing = null;
    const query = state.params.toString();
    const hash = encodeURIComponent(state.section);
    const target = inFile ? "#" + hash + (query ? "?" + query : "") : location.pathname + (query ? "?" + query : "") + (hash ? "#" + hash : "");
    // Refused in a frame whose contents have no address, and when asked too often: the state then lives here alone.
    try { history[push ? "pushState" : "replaceState"]({ ours: true }, "", target); } catch { /* said above */ }
  }

  // A slider changes the address many times a second, of which browsers allow few.
  function later() {
    if (writing === null) writing = setTimeout(() => write(false), 120);
  }

  function changed() {
    clearTimeout(writing);
    writing = null;
    state = read();
    // An address that was typed has no state of ours; to one that is gone back to the browser itself scrolls.
    for (const listener of listeners) listener(!(history.state && history.state.ours));
  }

  addEventListener("popstate", changed);

  return {
    get: (key) => state.params.get(key),
    set(changes, options) {
      const before = state.params.toString();
      for (const [key, value] of Object.entries(changes)) {
        if (value === null || value === undefined || value === "" || value === false) state.params.delete(key);
        else state.params.set(key, String(value));
      }
      if (state.params.toString() === before) return;
      if (!options || !options.push) { later(); return; }
      // What is on its way belongs to the place that is left.
      const after = new URLSearchParams(state.params);
      if (writing !== null) { state.params = new URLSearchParams(before); write(false); }
      state.params = after;
      write(true);
    },
    list: (key) => (state.params.get(key) || "").split(",").filter(Boolean).map(decoded),
    // The address encodes by itself; only what would part the list is encoded before. Older addresses have all of it twice.
    joined: (values) => values.map((value) => String(value).replace(/[%,]/g, encodeURIComponent)).join(","),
    setList(key, values) {
      this.set({ [key]: this.joined(values) });
    },
    section(id) {
      if (id !== undefined && id !== state.section) { state.section = id; later(); }
      return state.section;
    },
    onChange(callback) { listeners.push(callback); },
  };
})();

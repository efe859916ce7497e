// Hears from the server that runs have changed; a page that is left or not seen gives its connection back.
const RUNS_AGAIN_MS = 3000;

// `on.changed()`: there is something new; `on.lost()`: the server does not answer; `on.found()`: it does (again).
function runsLive(base, known, on) {
  let events = null;

  function listen() {
    if (events) return;
    events = new EventSource(base + "api/runs/events?revision=" + encodeURIComponent(known.revision));
    events.addEventListener("changed", (event) => {
      let revision = null;
      try { revision = JSON.parse(event.data).revision; } catch (fault) { /* then it is asked for */ }
      if (revision === null || revision !== known.revision) on.changed();
    });
    events.addEventListener("open", on.found);
    // The server has as many listeners as a browser lets one host have.
    events.addEventListener("rest", () => { if (document.hidden) rest(); });
    events.addEventListener("error", () => {
      on.lost();
      if (events && events.readyState === EventSource.CLOSED) { rest(); setTimeout(listen, RUNS_AGAIN_MS); }
    });
  }

  function rest() {
    if (events) events.close();
    events = null;
  }

  addEventListener("pagehide", rest);
  document.addEventListener("visibilitychange", () => { if (!document.hidden) listen(); });
  // A page that is come back to is brought up to date.
  addEventListener("pageshow", (event) => { if (event.persisted) { on.changed(); listen(); } });
  return { listen };
}

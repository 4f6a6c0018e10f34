// Asks for the job's part of the page anew when an event of the job arrives, at most every 700 ms, and again where the
// service had no time to render it since that event.
"use strict";
document.addEventListener("DOMContentLoaded", () => {
  const now = document.getElementById("now"), link = document.getElementById("link");
  let due = null, last = 0, newest = 0;
  function refresh() {
    if (due !== null) return;
    due = setTimeout(() => { due = null; last = Date.now(); htmx.trigger(now, "refresh"); }, Math.max(0, last + 700 - Date.now()));
  }
  function shown() { return Number(document.getElementById("series").dataset.newest); }
  now.addEventListener("htmx:afterSwap", () => { if (shown() < newest) refresh(); });
  function follow() {
    const source = new EventSource(`/v1/jobs/${now.dataset.job}/events?after=${shown()}`);
    const heard = (event) => { newest = Math.max(newest, Number(event.lastEventId)); refresh(); };
    for (const kind of now.dataset.kinds.split(" ")) source.addEventListener(kind, heard);
    source.onopen = () => { link.textContent = "live"; };
    source.onerror = () => {
      refresh();
      if (document.getElementById("series").dataset.over) { source.close(); link.textContent = "ended"; return; }
      if (source.readyState !== EventSource.CLOSED) { link.textContent = "connecting again …"; return; }
      link.textContent = "asked every 5 s";
      setTimeout(follow, 5000);
    };
    addEventListener("pagehide", () => source.close(), { once: true });
  }
  follow();
});

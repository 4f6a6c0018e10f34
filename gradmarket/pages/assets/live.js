// Shows the job's part of the page whenever the service sends it, and asks for it where no stream is to be had.
"use strict";
document.addEventListener("DOMContentLoaded", () => {
  const now = document.getElementById("now"), link = document.getElementById("link");
  function follow() {
    const source = new EventSource(`${BASE}/page/jobs/${now.dataset.job}`);
    source.addEventListener("part", (event) => htmx.swap(now, event.data, { swapStyle: "innerHTML" }));
    source.onopen = () => { link.textContent = "live"; };
    source.onerror = () => {
      if (document.getElementById("series").dataset.over) { source.close(); link.textContent = "ended"; return; }
      if (source.readyState !== EventSource.CLOSED) { link.textContent = "connecting again …"; return; }
      link.textContent = "asked every 5 s";
      htmx.trigger(now, "refresh");
      setTimeout(follow, 5000);
    };
    addEventListener("pagehide", () => source.close(), { once: true });
  }
  follow();
});

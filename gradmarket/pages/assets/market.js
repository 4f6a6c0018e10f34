// Searches jobs while the viewer types, and keeps the search in the page's address.
"use strict";
document.addEventListener("DOMContentLoaded", () => {
  const form = document.getElementById("find"), now = document.getElementById("now"), whose = document.getElementById("whose");
  const refresh = () => htmx.trigger(now, "refresh");
  let due = null;
  function ask() { whose.hidden = !form.mine.checked || hasToken(); }
  form.addEventListener("input", () => {
    form.page.value = 1;
    const looked = [...new FormData(form)].filter(([name, value]) => value && name !== "page");
    history.replaceState(null, "", `${BASE}/${looked.length ? `?${new URLSearchParams(looked)}` : ""}`);
    ask();
    clearTimeout(due);
    due = setTimeout(refresh, 300);
  });
  form.addEventListener("submit", (event) => event.preventDefault());
  document.body.addEventListener("token", () => { if (form.mine.checked) { ask(); refresh(); } });
  ask();
});

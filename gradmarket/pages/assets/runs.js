// Opens the runs that the form names: a policy of the pages has forms sent by scripts alone.
"use strict";
document.addEventListener("DOMContentLoaded", () => {
  const form = document.getElementById("which");
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const tag = form.tag.value.trim(), ids = form.job.value.split(/[\s,]+/).filter(Boolean);
    const asked = tag ? [["tag", tag]] : ids.map((id) => ["job", id]);
    location.assign(`${BASE}/runs?${new URLSearchParams(asked)}`);
  });
});

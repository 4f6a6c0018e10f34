// Keeps the form and the job file in step, asks for the plan, and posts the job with the viewer's token.
"use strict";
document.addEventListener("DOMContentLoaded", () => {
  const form = document.getElementById("job"), file = document.getElementById("file"), plan = document.getElementById("plan");
  const said = document.getElementById("posted"), inputs = [...form.querySelectorAll("[data-path]")];
  let due = null;

  function value(input) {
    if (input.dataset.kind === "text") return input.value;
    try { return JSON.parse(input.value); } catch { return input.value; }
  }
  function read() {
    const job = {};
    for (const input of inputs) {
      if (input.value.trim() === "") continue;
      const path = input.dataset.path.split("."), leaf = path.pop();
      let part = job;
      for (const name of path) part = typeof part[name] === "object" ? part[name] : (part[name] = {});
      part[leaf] = value(input);
    }
    return job;
  }
  function fill(job) {
    for (const input of inputs) {
      const found = input.dataset.path.split(".").reduce((part, name) => part?.[name], job);
      input.value = found === undefined || found === null ? "" : typeof found === "string" ? found : JSON.stringify(found);
    }
  }
  function job() { return JSON.parse(file.value); }
  function posted() { return Amounts.inJob(job(), form.dataset.symbol, Number(form.dataset.decimals)); }
  async function estimate() {
    let body;
    try { job(); } catch (error) { plan.textContent = `The job file is not JSON: ${error.message}`; return; }
    try { body = JSON.stringify(posted()); } catch (error) { plan.textContent = error.message; return; }
    if (!hasToken()) { plan.textContent = "Enter your API token below to see what the job costs."; return; }
    const answer = await fetch(`${BASE}/page/plan`, { method: "POST", headers: { ...Token.headers(), "Content-Type": "application/json" }, body });
    if (answer.ok) plan.innerHTML = await answer.text();
    else plan.textContent = `The service answers ${answer.status}.`;
  }
  function later() { clearTimeout(due); due = setTimeout(estimate, 300); }

  form.addEventListener("input", () => { file.value = JSON.stringify(read(), null, 2); later(); });
  form.addEventListener("submit", (event) => event.preventDefault());
  file.addEventListener("input", () => { try { fill(job()); } catch { /* said beside the plan */ } later(); });
  document.getElementById("post").addEventListener("click", async () => {
    said.textContent = "…";
    try {
      const told = await ask("POST", "/v1/jobs", posted());
      location.assign(`${BASE}/jobs/${told.id}`);
    } catch (error) { said.textContent = error.message; }
  });
  document.body.addEventListener("token", later);
  fill(job());
  estimate();
});

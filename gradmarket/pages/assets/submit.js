// Keeps the form and the job file in step, asks for the plan, and posts the job with the viewer's token.
"use strict";
document.addEventListener("DOMContentLoaded", () => {
  const form = document.getElementById("job"), file = document.getElementById("file"), plan = document.getElementById("plan");
  const said = document.getElementById("posted"), inputs = [...form.querySelectorAll("[data-path]")];
  let due = null;

  function value(input) {
    if (input.dataset.kind === "text" && !/^\s*[[{]/.test(input.value)) return input.value;
    try { return JSON.parse(input.value); } catch { return input.value; }
  }
  // Fields of the file that the form lacks are kept.
  function write(job, [name, ...rest], given) {
    if (!rest.length) { if (given === undefined) delete job[name]; else job[name] = given; return; }
    const inner = job[name] && typeof job[name] === "object" ? job[name] : {};
    write(inner, rest, given);
    if (Object.keys(inner).length) job[name] = inner; else if (job[name] === inner) delete job[name];
  }
  function take(input) {
    let known = {};
    try { known = job(); } catch { /* the file is no JSON: the form begins it anew */ }
    write(known, input.dataset.path.split("."), input.value.trim() === "" ? undefined : value(input));
    file.value = JSON.stringify(known, null, 2);
  }
  function fill(job) {
    for (const input of inputs) {
      const found = input.dataset.path.split(".").reduce((part, name) => part?.[name], job);
      input.value = found === undefined || found === null ? "" : typeof found === "string" ? found : JSON.stringify(found);
      if (input.value) input.closest("details")?.setAttribute("open", "");
    }
  }
  function job() { return JSON.parse(file.value); }
  // Marks the fields that the plan finds wrong: the field itself, or the group that it would stand in.
  function mark() {
    const faults = [...plan.querySelectorAll("[data-fault]")].map((line) => line.dataset.fault);
    for (const input of inputs) {
      const wrong = faults.some((path) => path === input.dataset.path || path.startsWith(`${input.dataset.path}.`));
      if (wrong) input.setAttribute("aria-invalid", "true"); else input.removeAttribute("aria-invalid");
      if (wrong) input.closest("details")?.setAttribute("open", "");
    }
  }
  async function estimate() {
    try { job(); } catch (error) { plan.textContent = `The job file is not JSON: ${error.message}`; return; }
    if (!hasToken()) { plan.textContent = "Enter your API token to see what the job costs."; return; }
    const headers = { ...Token.headers(), "Content-Type": "application/json" };
    const answer = await fetch(`${BASE}/page/plan`, { method: "POST", headers, body: file.value });
    if (answer.ok) plan.innerHTML = await answer.text();
    else if (answer.status === 401) plan.textContent = "The API token is unknown to this service: enter another.";
    else plan.textContent = (await answer.json().catch(() => ({}))).detail || `The service answers ${answer.status}.`;
    mark();
  }
  function later() { clearTimeout(due); due = setTimeout(estimate, 300); }

  form.addEventListener("input", (event) => { take(event.target); later(); });
  form.addEventListener("submit", (event) => event.preventDefault());
  file.addEventListener("input", () => { try { fill(job()); } catch { /* said beside the plan */ } later(); });
  document.getElementById("post").addEventListener("click", async () => {
    said.textContent = "…";
    try {
      const told = await ask("POST", "/v1/jobs", job());
      location.assign(`${BASE}/jobs/${told.id}`);
    } catch (error) { said.textContent = error.message; }
  });
  let known = Token.get();
  document.body.addEventListener("token", () => { if (Token.get() !== known) { known = Token.get(); later(); } });
  fill(job());
  estimate();
});

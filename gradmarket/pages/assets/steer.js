// Pauses, resumes, cancels and funds a job with the viewer's token, and downloads its model; a wallet in the browser
// signs where its money is used. The page's part names the steps that the job can take now, the one that mends it first.
"use strict";
document.addEventListener("DOMContentLoaded", () => {
  const steer = document.getElementById("steer"), said = document.getElementById("steered");

  async function fund(written) {
    const { job, symbol, decimals } = steer.dataset;
    const amount = written ? Amounts.smallest(written, symbol, Number(decimals)) : null;
    let told = await ask("POST", `/v1/jobs/${job}/fund`, { amount });
    if (!told.to_sign.length) return amount ? "The service's own key pays." : "Nothing is to be signed.";
    // the next call to sign depends on the last: after a job is opened, the service is allowed to pay from it
    for (const sent = new Set(); ;) {
      const left = told.to_sign.filter((one) => !sent.has(one.to + one.data));
      if (!left.length) return "Sent. It counts once the chain has confirmed it.";
      await Wallet.send(left, (text) => { said.textContent = text; });
      for (const one of left) sent.add(one.to + one.data);
      told = await ask("POST", `/v1/jobs/${job}/fund`, { amount: null });
    }
  }

  async function download(round = "") {
    const path = `/v1/jobs/${steer.dataset.job}/parameters${round && `?round=${round}`}`, answer = await fetch(BASE + path, { headers: Token.headers() });
    if (!answer.ok) throw new Error((await answer.json().catch(() => ({}))).detail || `The service answers ${answer.status}.`);
    const link = document.createElement("a"), url = URL.createObjectURL(await answer.blob());
    Object.assign(link, { href: url, download: `${steer.dataset.job}${round && `-${round}`}.safetensors` }).click();
    URL.revokeObjectURL(url);
    return `Saved as ${link.download}.`;
  }

  function show() {
    const series = document.getElementById("series").dataset, steps = series.steps.split(" ");
    for (const part of steer.querySelectorAll("[data-act]")) {
      part.hidden = !steps.includes(part.dataset.act);
      part.classList.toggle("main", part.localName === "button" && part.dataset.act === series.main);
    }
    document.getElementById("nothing").hidden = !series.over;
  }

  async function act(name) {
    if (name === "download") return download();
    if (name === "best") return download(document.getElementById("series").dataset.best);
    if (name === "fund") return fund(steer.querySelector("[name=amount]").value.trim());
    const told = await ask("POST", `/v1/jobs/${steer.dataset.job}/${name}`);
    return `The job is ${told.state.replace("_", " ")}.`;
  }

  for (const button of steer.querySelectorAll("button[data-act]")) {
    button.addEventListener("click", async () => {
      if (button.dataset.sure && !confirm(button.dataset.sure)) return;
      said.textContent = "…";
      try { said.textContent = await act(button.dataset.act); } catch (error) { said.textContent = error.message; }
      htmx.trigger(document.getElementById("now"), "refresh");
    });
  }
  const labels = document.getElementById("labels");
  labels.addEventListener("submit", async (event) => {
    event.preventDefault();
    const wanted = { tags: labels.tags.value.split(/[\s,]+/).filter(Boolean), note: labels.note.value };
    try {
      await ask("PATCH", `/v1/jobs/${steer.dataset.job}`, wanted);
      said.textContent = "Saved.";
    } catch (error) { said.textContent = error.message; }
    htmx.trigger(document.getElementById("now"), "refresh");
  });
  document.addEventListener("htmx:afterSwap", show);
  show();
});

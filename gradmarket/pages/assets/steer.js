// Pauses, resumes, cancels and funds a job with the viewer's token; a wallet in the browser signs where its money is used.
"use strict";
document.addEventListener("DOMContentLoaded", () => {
  const steer = document.getElementById("steer"), said = document.getElementById("steered");

  async function fund(written) {
    const { job, symbol, decimals } = steer.dataset;
    const amount = written ? Amounts.smallest(written, symbol, Number(decimals)) : null;
    let told = await ask("POST", `/v1/jobs/${job}/fund`, { amount });
    if (!told.to_sign.length) return amount ? "The service's own key pays." : "Nothing is to be signed.";
    // what is to be signed next depends on what was: after a job is opened, the service is allowed to pay from it
    for (const sent = new Set(); ;) {
      const left = told.to_sign.filter((one) => !sent.has(one.to + one.data));
      if (!left.length) return "Sent. It counts once the chain has confirmed it.";
      await Wallet.send(left, (text) => { said.textContent = text; });
      for (const one of left) sent.add(one.to + one.data);
      told = await ask("POST", `/v1/jobs/${job}/fund`, { amount: null });
    }
  }

  async function act(name) {
    if (name === "fund") return fund(steer.querySelector("[name=amount]").value.trim());
    const told = await ask("POST", `/v1/jobs/${steer.dataset.job}/${name}`);
    return `The job is ${told.state.replace("_", " ")}.`;
  }

  for (const button of steer.querySelectorAll("[data-act]")) {
    button.addEventListener("click", async () => {
      if (button.dataset.sure && !confirm(button.dataset.sure)) return;
      said.textContent = "…";
      try { said.textContent = await act(button.dataset.act); } catch (error) { said.textContent = error.message; }
      htmx.trigger(document.getElementById("now"), "refresh");
    });
  }
});

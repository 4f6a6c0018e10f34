// Pauses, resumes, cancels and funds a job with the viewer's token; a wallet in the browser signs where its money is used.
"use strict";
document.addEventListener("DOMContentLoaded", () => {
  const steer = document.getElementById("steer"), said = document.getElementById("steered");

  async function signed(transactions) {
    if (!transactions.length) return "The service's own key pays.";
    if (!window.ethereum) return `Sign these ${transactions.length} transactions with the owner's wallet: none is in this browser.`;
    await window.ethereum.request({ method: "eth_requestAccounts" });
    for (const one of transactions) {
      const { from, to, data, value } = one;
      const quantity = `0x${BigInt(value).toString(16)}`;
      await window.ethereum.request({ method: "eth_sendTransaction", params: [{ from, to, data, value: quantity }] });
    }
    return "Sent. It counts once the chain has confirmed it.";
  }

  async function act(name) {
    const amount = steer.querySelector("[name=amount]").value.trim();
    const told = await ask("POST", `/v1/jobs/${steer.dataset.job}/${name}`, name === "fund" ? { amount } : undefined);
    return name === "fund" ? signed(told.to_sign) : `The job is ${told.state.replace("_", " ")}.`;
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

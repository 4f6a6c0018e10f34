// The API token that the viewer entered: kept for this tab, sent with requests to this service alone.
"use strict";
const BASE = document.documentElement.dataset.base;  // the path in the service's address
const Token = {
  get() { return sessionStorage.getItem("token") || ""; },
  headers() { return Token.get() ? { Authorization: `Bearer ${Token.get()}` } : {}; },
};
// `#token=…` in an address brings a token here; a browser never sends that part. It replaces none that was entered.
(() => {
  const brought = new URLSearchParams(location.hash.slice(1)).get("token");
  if (!brought) return;
  if (!Token.get()) sessionStorage.setItem("token", brought);
  history.replaceState(null, "", location.pathname + location.search);
})();
function hasToken() { return Token.get() !== ""; }

// Asks the API and returns its answer; throws an Error with the service's own words.
async function ask(method, path, body) {
  const headers = { ...Token.headers(), ...(body === undefined ? {} : { "Content-Type": "application/json" }) };
  const answer = await fetch(BASE + path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
  const told = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(told.detail || `the service answers ${answer.status}`);
  return told;
}

document.addEventListener("htmx:configRequest", (event) => Object.assign(event.detail.headers, Token.headers()));
document.addEventListener("htmx:responseError", (event) => {
  let told = {};
  try { told = JSON.parse(event.detail.xhr.responseText); } catch { /* not JSON: the status says enough */ }
  const line = event.detail.target.querySelector("[role=status]");
  if (line) line.textContent = told.detail || `The service answers ${event.detail.xhr.status}.`;
});
document.addEventListener("DOMContentLoaded", () => {
  for (const form of document.querySelectorAll("[data-token-form]")) {
    form.token.value = Token.get();
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      sessionStorage.setItem("token", form.token.value.trim());
      document.body.dispatchEvent(new CustomEvent("token"));
    });
  }
  const again = () => { if (hasToken() && !document.hidden) document.body.dispatchEvent(new CustomEvent("token")); };
  setTimeout(again);
  setInterval(again, 5000);
});

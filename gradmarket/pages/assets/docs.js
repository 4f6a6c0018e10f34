// The API's description, drawn from /openapi.json by the vendored Swagger UI: nothing is loaded from elsewhere.
addEventListener("DOMContentLoaded", () => {
  const url = document.documentElement.dataset.base + "/openapi.json";
  SwaggerUIBundle({ url, dom_id: "#main", deepLinking: true, validatorUrl: null, docExpansion: "none" });
});

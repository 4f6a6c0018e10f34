// The API's description, drawn from /openapi.json by the vendored Swagger UI: nothing is loaded from elsewhere.
addEventListener("DOMContentLoaded", () => {
  SwaggerUIBundle({ url: "/openapi.json", dom_id: "#main", deepLinking: true, validatorUrl: null, docExpansion: "none" });
});

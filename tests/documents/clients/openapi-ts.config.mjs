// What openapi-ts makes, and of what: see tests/documents/install.py.
export default {
  input: "openapi.yaml",
  output: { path: "generated", module: { extension: ".ts" } },
  plugins: ["@hey-api/client-fetch", "@hey-api/typescript", "@hey-api/sdk"],
};

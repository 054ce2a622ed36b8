// Whether ajv takes each message of a file of JSON lines: prints a JSON array of booleans.
import { readFileSync } from "node:fs";
import Ajv from "ajv/dist/2020.js";

const [schema, messages] = process.argv.slice(2).map((path) => readFileSync(path, "utf8"));
const ajv = new Ajv({ strict: true, strictTypes: false, strictRequired: false, allowUnionTypes: true });
const validate = ajv.compile(JSON.parse(schema));
const lines = messages.split("\n").filter((line) => line !== "");
console.log(JSON.stringify(lines.map((line) => validate(JSON.parse(line)))));

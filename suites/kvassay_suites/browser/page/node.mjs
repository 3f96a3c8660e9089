// Node's side: node node.mjs SERVER HOST_FOLDER MODULE_FOLDER
import { pathToFileURL } from "node:url";
import { serve } from "./session.mjs";

const [server, host, modules] = process.argv.slice(2);
const base = (path) => pathToFileURL(`${path}/`);
await serve(server, await import(new URL("kvassay.mjs", base(host))), base(modules), `Node ${process.version}`);

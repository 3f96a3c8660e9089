// The page: a panel that runs the suites, and one that holds a session.

import { AssayPanel } from "./ui/assay.mjs";
import { SessionPanel } from "./ui/session.mjs";

const base = new URL("./", import.meta.url);
new AssayPanel(base);
await new SessionPanel(base).open();

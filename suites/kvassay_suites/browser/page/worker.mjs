// The browser's side: everything runs in a worker, as it would in an application.
import { serve } from "./session.mjs";

const base = new URL(".", self.location).href;
try {
  await serve(base, await import("../host/kvassay.mjs"), `${base}../modules/`, navigator.userAgent);
  postMessage("done");
} catch (error) {
  postMessage(`failed: ${error.stack}`);
}

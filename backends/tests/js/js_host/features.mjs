// Prints what this engine has, for the tests of the flags it is started with.
import { host } from "./support.mjs";

console.log(JSON.stringify(host.features()));

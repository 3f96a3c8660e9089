// Errors of this page beyond those of the host.

/** A model file that cannot be used: the message says what and where. */
export class ModelError extends Error {
  name = "ModelError";
}

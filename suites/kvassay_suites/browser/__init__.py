"""Browser: the WebAssembly modules inside real JavaScript engines."""

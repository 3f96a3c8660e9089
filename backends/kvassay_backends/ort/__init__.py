"""Backend `ort`: caches in uint8 tensors, updated in place by custom operators of ONNX Runtime.

The operators are in the native library; docs/onnxruntime.md says how a graph of one's own uses
them.
"""

from .provider import OrtBackendProvider

backend = OrtBackendProvider("ort")

__all__ = ["OrtBackendProvider", "backend"]

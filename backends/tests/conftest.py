"""What all tests of the backends share."""

from unrequired import nothing_required

__all__ = ["nothing_required"]

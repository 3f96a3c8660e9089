"""Profiles: what the caches of one model store, fitted to it by `kvassay fit`, in one JSON file."""

from .files import find, read_profile, shipped, write_profile
from .profile import DECIDES, FORMAT, ModelIdentity, Profile, Promise

__all__ = [
    "DECIDES",
    "FORMAT",
    "ModelIdentity",
    "Profile",
    "Promise",
    "find",
    "read_profile",
    "shipped",
    "write_profile",
]

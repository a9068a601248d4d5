"""The library in this process, and its functions (core/gpucache.h) through ctypes."""
import ctypes
import os
import typing

_PACKAGE = os.path.dirname(os.path.abspath(__file__))
PACKAGED = os.path.join(_PACKAGE, "lib", "libgpucache.so")
TOOL = os.path.join(_PACKAGE, "bin", "gpucache")
ALL_DEVICES = -1
_NO_LIMIT = 2**64 - 1

# struct gpucache_statistics, behind struct_bytes.
_FIGURES = ("total_bytes limit_bytes requested_bytes requested_peak_bytes allocated_bytes allocated_peak_bytes reserved_bytes "
            "reserved_peak_bytes pending_bytes pending_peak_bytes idle_bytes elastic_bytes metadata_bytes alloc_count free_count "
            "hit_count miss_count oom_count retry_count trim_count fence_count invalid_free_count").split()

Statistics = typing.NamedTuple("Statistics", [(name, int) for name in _FIGURES])
Statistics.__doc__ = "Figures of one device; limit_bytes is None where there is no limit. core/gpucache.h explains each."


class _Statistics(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ["struct_bytes", *_FIGURES]]


class _Symbol(ctypes.Structure):  # Dl_info
    _fields_ = [("path", ctypes.c_char_p), ("base", ctypes.c_void_p), ("name", ctypes.c_char_p), ("address", ctypes.c_void_p)]


class Error(RuntimeError):
    """A function of the library failed; `status` is its gpucache_status."""

    def __init__(self, status, text):
        super().__init__(text)
        self.status = status


_loaded = None


def loaded():
    """The library as a ctypes.CDLL: that of the preload, or else the package's own, which is loaded now."""
    global _loaded  # pylint: disable=global-statement
    if _loaded is None:
        process = ctypes.CDLL(None)
        _loaded = process if hasattr(process, "gpucache_api_version") else ctypes.CDLL(PACKAGED)
        _loaded.gpucache_status_text.restype = ctypes.c_char_p
        _loaded.gpucache_version.restype = ctypes.c_char_p
    return _loaded


def address(name):
    """Where the function `name` of the library is, as an integer."""
    return ctypes.cast(getattr(loaded(), name), ctypes.c_void_p).value


def path():
    """The file of the library that is in this process, or that would be loaded."""
    found = _Symbol()
    process = ctypes.CDLL(None)
    if not process.dladdr(ctypes.c_void_p(address("gpucache_version")), ctypes.byref(found)) or not found.path:
        return PACKAGED
    return os.fsdecode(found.path)


def is_preloaded():
    """Whether the program's own CUDA calls pass through the library."""
    return hasattr(ctypes.CDLL(None), "gpucache_api_version")


def _check(status):
    if status:
        raise Error(status, loaded().gpucache_status_text(status).decode())


def version():
    """The library's version."""
    return loaded().gpucache_version().decode()


def statistics(device=0):
    """Statistics of a device that this process has used."""
    figures = _Statistics(struct_bytes=ctypes.sizeof(_Statistics))
    _check(loaded().gpucache_get_statistics(ctypes.c_int(device), ctypes.byref(figures)))
    values = {name: getattr(figures, name) for name in _FIGURES}
    if values["limit_bytes"] == _NO_LIMIT:
        values["limit_bytes"] = None
    return Statistics(**values)


def reset_peaks(device=0):
    """Every peak of the device becomes the current value."""
    _check(loaded().gpucache_reset_peaks(ctypes.c_int(device)))


def set_limit(limit_bytes, device=0):
    """Sets the hard limit of this process on the device, at once; None: no limit."""
    _check(loaded().gpucache_set_limit(ctypes.c_int(device), ctypes.c_uint64(_NO_LIMIT if limit_bytes is None else limit_bytes)))


def empty_cache(device=ALL_DEVICES):
    """Releases idle memory to the driver; the number of bytes."""
    given = ctypes.c_uint64()
    _check(loaded().gpucache_empty_cache(ctypes.c_int(device), ctypes.byref(given)))
    return given.value


def trim(keep_bytes, device=ALL_DEVICES):
    """Releases idle memory until at most `keep_bytes` of it remain; the number of bytes released."""
    given = ctypes.c_uint64()
    _check(loaded().gpucache_trim(ctypes.c_int(device), ctypes.c_uint64(keep_bytes), ctypes.byref(given)))
    return given.value


def available(device=0):
    """The bytes that could be allocated now: room in the limit and on the device, the idle cache included."""
    fits, room = ctypes.c_int(), ctypes.c_uint64()
    _check(loaded().gpucache_would_fit(ctypes.c_int(device), ctypes.c_uint64(1), ctypes.byref(fits), ctypes.byref(room)))
    return room.value

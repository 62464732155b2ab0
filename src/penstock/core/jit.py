"""Compile kernels, and keep what was compiled where only the same sources find it again."""

import ctypes
import functools
import hashlib
import os
from collections.abc import Callable, Iterator
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, TypeVar

import numba
import numpy as np
from llvmlite import ir
from numba import _dynfunc, types
from numba.core import caching
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler
from numba.extending import intrinsic
from numba.extending import overload as numba_overload
from numba.np import arrayobj

OURS = "_ZN8penstock"  # how the names of compiled functions of this package begin

_wrapped = arrayobj.fix_integer_index


def _never_negative(context: Any, builder: Any, kind: Any, index: Any, size: Any) -> Any:
    """Take an index as it is where the function being compiled is one of ours: none of them counts from the end.

    Numba has no option for it. To look at the sign of every index costs a kernel a tenth of its speed.
    """
    if not builder.function.name.startswith(OURS):
        return _wrapped(context, builder, kind, index, size)
    return context.cast(builder, index, kind, types.intp if kind.signed else types.uintp)


arrayobj.fix_integer_index = _never_negative

wide: Any = np.int64  # makes a 64-bit number of a narrower one, in a kernel and out of it
F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T", bound=type[Any])

SOURCES = ("core", "policies", "optimum")


@functools.cache
def cache_folder() -> Path:
    """Name the folder of compiled kernels after every source that can end up in one.

    Numba looks only at the file a kernel is defined in: without this, an edited policy or helper would go on
    running its old machine code.
    """
    digest = hashlib.sha256(repr((numba.__version__, numba.config.BOUNDSCHECK)).encode())
    for room in SOURCES:
        for text in _sources(resources.files("penstock") / room):
            digest.update(text)
    home = os.environ.get("PENSTOCK_CACHE_DIR") or Path.home() / ".cache" / "penstock"
    return Path(home) / digest.hexdigest()[:16]


def _sources(folder: Traversable) -> Iterator[bytes]:
    """Return all Python files below a folder, which may be in an archive."""
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.is_dir():
            yield from _sources(entry)
        elif entry.name.endswith(".py"):
            yield entry.read_bytes()


class Archived(caching.UserProvidedCacheLocator):  # type: ignore[misc]
    """Keep kernels whose source is in an archive, such as Spark hands to workers: Numba wants a file for each.

    What Numba has for archives keeps them by the archive's path, which is another one in every application.
    """

    def __init__(self, function: Any, path: str) -> None:
        super().__init__(function, path)
        self._cache_path = str(cache_folder() / function.__module__)

    def get_source_stamp(self) -> str:
        """Return the same always: the folder is named after the sources."""
        return ""

    @classmethod
    def from_function(cls, function: Any, path: str) -> "Archived | None":
        """Return where a function is kept, if it is one of ours in an archive."""
        if Path(path).exists() or not function.__module__.startswith("penstock."):
            return None
        found = cls(function, path)
        found.ensure_cache_path()
        return found


caching.CacheImpl._locator_classes.insert(0, Archived)  # noqa: SLF001 - there is no other way to add one


class Bare(JITCodeLibrary):  # type: ignore[misc]
    """The code of a part as it was written down: what it is copied into is made faster as a whole, and machine code.

    Numba would do both for every part by itself and then throw them away, which takes almost half of the time.
    """

    def __init__(self, codegen: Any, name: str) -> None:
        super().__init__(codegen, name)
        self.needed: dict[Any, None] = {}  # in this order

    def add_linking_library(self, library: Any) -> None:
        """Remember what must be linked into every entry point that has this part."""
        self.needed.update(dict.fromkeys(_with_needed(library)))

    def finalize(self) -> None:
        """Call it finished."""
        self._finalized = True

    def _get_module_for_linking(self) -> Any:
        """Return all of it: LLVM would leave out what nobody has asked for yet."""
        return self._final_module


def _with_needed(library: Any) -> tuple[Any, ...]:
    return (library, *getattr(library, "needed", ()))


class Whole(JITCodeLibrary):  # type: ignore[misc]
    """The code of an entry point: its parts, and theirs, are linked into it once each."""

    def add_linking_library(self, library: Any) -> None:
        """Take a library in, and what it needs."""
        for needed in _with_needed(library):
            super().add_linking_library(needed)

    def finalize(self) -> None:
        """Link parts before what they need of Numba's own, which is left out unless somebody has asked for it."""
        self._linking_libraries.sort(key=lambda library: not isinstance(library, Bare))
        super().finalize()

    def _optimize_final_module(self) -> None:
        """Make it faster as a whole, looking for counts of references to leave out within single blocks only.

        Kernels borrow their arrays, which counts nothing. To follow the few counts that are left, at the beginning
        and the end, through every way there is takes longer than all the rest.
        """
        parts = {
            function.name
            for library in self._linking_libraries
            if isinstance(library, Bare)
            for function in library.get_defined_functions()
        }
        for function in self._final_module.functions:
            if function.name in parts:
                function.linkage = "internal"  # nobody else calls it
        before = numba.config.LLVM_REFPRUNE_FLAGS
        numba.config.LLVM_REFPRUNE_FLAGS = "per_bb"
        try:
            super()._optimize_final_module()
        finally:
            numba.config.LLVM_REFPRUNE_FLAGS = before


class Entries(Compiler):  # type: ignore[misc]
    """Compile an entry point."""

    library = Whole

    def compile_extra(self, function: Any) -> Any:
        """Compile a function into a library of this kind."""
        codegen = self.state.targetctx.codegen()
        self.state.library = self.library(codegen, function.__qualname__)
        self.state.library.enable_object_caching()
        return super().compile_extra(function)


class Parts(Entries):
    """Compile a function that only compiled functions call."""

    library = Bare

    def compile_extra(self, function: Any) -> Any:
        """Compile a function of which nothing can be run yet."""
        self.state.targetctx.get_executable = _named  # of this copy of it
        found = super().compile_extra(function)
        if getattr(function, "apart", False):
            for compiled in self.state.library.get_defined_functions():
                compiled.add_function_attribute("noinline")
        return found


def _named(library: Any, description: Any, environment: Any) -> Any:
    """Return what Numba knows a compiled function by."""
    name = description.qualname.split(".")[-1]
    return _dynfunc.make_function(description.lookup_module(), name, "", 0, environment, (library,))


def kernel(function: F) -> F:
    """Compile an entry point, called from Python; its machine code is kept between processes."""
    before = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = str(cache_folder())  # read by Numba while it decorates
    try:
        compiled: F = numba.njit(cache=True, nogil=True, pipeline_class=Entries)(function)
    finally:
        numba.config.CACHE_DIR = before
    return compiled


INSIDE = {"nogil": True, "no_cpython_wrapper": True, "no_cfunc_wrapper": True, "pipeline_class": Parts}


def _inside(function: F, **options: bool) -> F:
    """Compile a function for kernels to call; a call from Python makes an entry point of it, then."""
    if numba.config.DISABLE_JIT:
        return function
    compiled: Any = numba.njit(**INSIDE, **options)(function)
    compiled._insert = lambda *_: None  # noqa: SLF001 - Numba would look here for something to run
    compiled._compile_for_args = uncached(function)._compile_for_args  # type: ignore[attr-defined]  # noqa: SLF001
    found: F = compiled
    return found


def part(function: F) -> F:
    """Compile a small helper: it is copied into its callers and never kept by itself."""
    return _inside(function, forceinline=True)


def overload(function: Callable[..., Any]) -> Callable[[F], F]:
    """Say what a kernel runs when it calls a plain function, by the types of its arguments.

    Copied into the caller like a ``part``: passing tuples of arrays to a call costs more than most calls do.
    """
    options = {"forceinline": True, **INSIDE}
    bound: Callable[[F], F] = numba_overload(function, strict=False, jit_options=options)
    return bound


def outlined(function: F) -> F:
    """Compile a helper that is too large to be copied into every caller.

    It should begin by borrowing its arrays, as a kernel does.
    """
    return _inside(function)


def apart(function: F) -> F:
    """Compile a helper that is never copied into a caller: its loop has the registers to itself."""
    function.apart = True  # type: ignore[attr-defined]
    return _inside(function, forceinline=False)


def uncached(entry: F) -> F:
    """Make the twin of a kernel for policies from outside the package.

    A kept kernel remembers the types it was compiled for; a plug-in that is later uninstalled would leave an
    index behind that no process can read any more.
    """
    compiled: F = numba.njit(nogil=True, pipeline_class=Entries)(getattr(entry, "py_func", entry))
    return compiled


@intrinsic  # type: ignore[untyped-decorator]
def _fetch_line(typing_context: Any, pointer: Any) -> Any:  # noqa: ARG001 - the signature is Numba's
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
        address = builder.inttoptr(arguments[0], ir.IntType(8).as_pointer())
        word = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [ir.IntType(8).as_pointer(), word, word, word])
        fetch = builder.module.declare_intrinsic("llvm.prefetch", [ir.IntType(8).as_pointer()], kind)
        builder.call(fetch, [address, word(0), word(3), word(1)])
        return context.get_dummy_value()

    return types.void(types.uintp), generate


def prefetch(array: Any, index: int) -> None:
    """Ask for the row ``array[index]`` before it is needed; says nothing and changes nothing."""


@overload(prefetch)
def _prefetch(array: Any, index: Any) -> Any:  # noqa: ARG001 - the signature must match
    def ask(array: Any, index: int) -> None:
        _fetch_line(types.uintp(array.ctypes.data + index * array.strides[0]))

    return ask


@intrinsic  # type: ignore[untyped-decorator]
def _load(typing_context: Any, address: Any, like: Any) -> Any:  # noqa: ARG001 - the signature is Numba's
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = context.get_data_type(signature.return_type)
        return builder.load(builder.inttoptr(arguments[0], kind.as_pointer()))

    return like.dtype(types.intp, like), generate


def peek(address: int, like: Any) -> Any:
    """Return the number at an address in memory, of the type of the items of `like`."""
    return np.frombuffer(ctypes.string_at(int(address), like.itemsize), like.dtype)[0]


@overload(peek)
def _peek(address: Any, like: Any) -> Any:  # noqa: ARG001 - the signature must match
    def look(address: int, like: Any) -> Any:
        return _load(address, like)

    return look


@intrinsic  # type: ignore[untyped-decorator]
def _bits(typing_context: Any, number: Any) -> Any:  # noqa: ARG001 - the signature is Numba's
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
        return builder.bitcast(arguments[0], ir.IntType(64))

    return types.int64(types.float64), generate


def rank(number: float) -> int:
    """Return a whole number that is larger for a larger number, of those that are not negative: its bits.

    Whole numbers are compared in a quarter of the time.
    """
    return int(np.float64(number).view(np.int64))


@overload(rank)
def _rank(number: Any) -> Any:  # noqa: ARG001 - the signature must match
    def look(number: float) -> Any:
        return _bits(number)

    return look


@intrinsic  # type: ignore[untyped-decorator]
def _zeros(typing_context: Any, word: Any) -> Any:  # noqa: ARG001 - the signature is Numba's
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
        return builder.ctlz(arguments[0], ir.IntType(1)(0))

    return types.int64(types.uint64), generate


def zeros(word: Any) -> int:
    """Return how many zeros the 64 bits of a word begin with."""
    return 64 - int(word).bit_length()


@overload(zeros)
def _leading(word: Any) -> Any:  # noqa: ARG001 - the signature must match
    def look(word: Any) -> Any:
        return _zeros(word)

    return look


def columns(**fields: int) -> Callable[[T], T]:
    """Say how many columns arrays in a NamedTuple have: the compiler knows it where they are borrowed.

    Indices are then shifted and not multiplied. The arrays must be contiguous and have just so many.
    """

    def mark(kind: T) -> T:
        kind.columns = fields
        return kind

    return mark


def _without_owner(context: Any, builder: Any, kind: Any, value: Any, width: int = 0) -> Any:
    if isinstance(kind, types.Array):
        array = context.make_array(kind)(context, builder, value=value)
        array.meminfo = array.meminfo.type(None)
        array.parent = array.parent.type(None)
        if kind.layout == "C" and kind.ndim > 0:
            word = array.itemsize.type
            size = context.get_abi_sizeof(context.get_data_type(kind.dtype))
            last = kind.ndim - 1
            array.itemsize = word(size)
            array.strides = builder.insert_value(array.strides, word(size), last)
            if width:
                array.shape = builder.insert_value(array.shape, word(width), last)
                array.strides = builder.insert_value(array.strides, word(size * width), last - 1)
        return array._getvalue()  # noqa: SLF001 - the name is llvmlite's own convention
    if isinstance(kind, types.BaseTuple):
        named = isinstance(kind, types.BaseNamedTuple)
        widths = getattr(kind.instance_class, "columns", {}) if named else {}
        names = kind.fields if named else ("",) * len(kind.types)
        for i, (name, member) in enumerate(zip(names, kind.types, strict=True)):
            inner = builder.extract_value(value, i)
            inner = _without_owner(context, builder, member, inner, widths.get(name, 0))
            value = builder.insert_value(value, inner, i)
    return value


@intrinsic  # type: ignore[untyped-decorator]
def _borrow(typing_context: Any, value: Any) -> Any:  # noqa: ARG001 - the signature is Numba's
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _without_owner(context, builder, signature.args[0], arguments[0])

    return value(value), generate


def borrowed(value: Any) -> Any:
    """Return the same arrays, not counting who uses them: the caller of a kernel keeps them alive.

    Counting references (atomically, at every helper that takes a tuple of arrays) costs a kernel nine tenths of
    its speed.
    """
    return value


@overload(borrowed)
def _borrowed(value: Any) -> Any:  # noqa: ARG001 - the signature must match
    def borrow(value: Any) -> Any:
        return _borrow(value)

    return borrow

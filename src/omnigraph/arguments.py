"""Check the arguments of public calls: every one has the shape that its annotation says, or the call is refused.

`checked` goes around a public function. For each parameter the text of its annotation chooses a shape from `SHAPES`;
an annotation without a shape fails when the module is loaded, so that no new parameter goes unchecked. A shape returns
the value as the function takes it (numpy's numbers as Python's, any collection of names as a list) or raises
UsageError, which names the argument.

| annotation      | accepted                                                | refused, among others                   |
|-----------------|---------------------------------------------------------|-----------------------------------------|
| `str`           | text that is valid Unicode                              | bytes, numbers, lone surrogates         |
| `int`           | whole numbers, also numpy's                             | bool, float, text                       |
| `float`         | numbers, also numpy's                                   | bool, NaN, inf, text                    |
| `bool`          | True and False, also numpy's                            | 0 and 1, text                           |
| `Sequence[str]` | lists, tuples, sets, Arrow and numpy arrays of texts    | a text, bytes, mappings, generators     |
| `Mapping[…]`    | mappings whose keys are texts                           | a text, lists of pairs                  |

What a value means (does the type exist? is the limit above 0?) is checked where it is used.
"""

from __future__ import annotations

import inspect
import math
import numbers
import os
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import date
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from omnigraph.errors import UsageError

P = ParamSpec("P")
R = TypeVar("R")
Shape = Callable[[str, Any], Any]
"""From an argument's name and value to the value as it is used; UsageError for one of another shape."""


def _refused(name: str, what: str, value: Any) -> UsageError:
    return UsageError(detail=f"{name} is {what}, not {_described(value)}.")


def _described(value: Any) -> str:
    if value is None:
        return "None"
    if isinstance(value, str):
        return f"the text {value[:40]!a}"
    if isinstance(value, bool | int | float):
        return repr(value)
    return f"a {type(value).__name__}"


# ---- shapes ----------------------------------------------------------------------------------------------------------


def text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise _refused(name, "a text", value)
    try:
        value.encode()
    except UnicodeEncodeError:
        raise _refused(name, "a text of valid Unicode", value) from None
    return value


def flag(name: str, value: Any) -> bool:
    if isinstance(value, bool) or getattr(getattr(value, "dtype", None), "kind", "") == "b":
        return bool(value)
    raise _refused(name, "True or False", value)


def whole(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise _refused(name, "a whole number", value)
    return int(value)


def number(name: str, value: Any) -> int | float:
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or not math.isfinite(value):
        raise _refused(name, "a number", value)
    return int(value) if isinstance(value, numbers.Integral) else float(value)


def path(name: str, value: Any) -> Any:
    if isinstance(value, os.PathLike):
        text(name, os.fspath(value))
        return value
    if not isinstance(value, str):
        raise _refused(name, "a text or a path", value)
    return text(name, value)


def names(name: str, value: Any) -> list[str]:
    """A collection of texts. A text is none, although Python could go through its characters."""
    if hasattr(value, "to_pylist"):
        value = value.to_pylist()
    elif hasattr(value, "tolist") and getattr(value, "ndim", 1) == 1:
        value = value.tolist()
    if not isinstance(value, Collection) or isinstance(value, str | bytes | bytearray | memoryview | Mapping):
        raise _refused(name, "a list of texts", value)
    return [text(f"{name}[{i}]", one) for i, one in enumerate(value)]


def rows(name: str, value: Any) -> Any:
    """Rows of one type: mappings in a sequence, or an Arrow table, which are gone through more than once."""
    if hasattr(value, "column_names") or hasattr(value, "schema"):
        return value
    if not isinstance(value, Sequence) or isinstance(value, str | bytes | bytearray | memoryview):
        raise _refused(name, "a list of rows or an Arrow table", value)
    for i, row in enumerate(value):
        if not isinstance(row, Mapping):
            raise _refused(f"{name}[{i}]", "a mapping from properties to values", row)
    return value


def mapping(name: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise _refused(name, "a mapping", value)
    for key in value:
        text(f"a key of {name}", key)
    return value


def mapping_of(shape: Shape) -> Shape:
    def check(name: str, value: Any) -> dict[str, Any]:
        return {key: shape(f"{name}[{key!r}]", one) for key, one in mapping(name, value).items()}

    return check


def moment(name: str, value: Any) -> Any:
    if isinstance(value, date):
        return value
    if not isinstance(value, str):
        raise _refused(name, "a datetime, a date or a text", value)
    return text(name, value)


def callback(name: str, value: Any) -> Any:
    if not callable(value):
        raise _refused(name, "a function", value)
    return value


def either(what: str, *shapes: Shape) -> Shape:
    """The first shape that takes the value."""

    def check(name: str, value: Any) -> Any:
        for shape in shapes:
            try:
                return shape(name, value)
            except UsageError:
                continue
        raise _refused(name, what, value)

    return check


def optional(shape: Shape) -> Shape:
    return lambda name, value: None if value is None else shape(name, value)


def having(*attributes: str) -> Shape:
    """An object of ours, known by what it can do, without importing where it is made."""

    def check(name: str, value: Any) -> Any:
        if not all(hasattr(value, attribute) for attribute in attributes):
            raise _refused(name, f"an object with {' and '.join(attributes)}", value)
        return value

    return check


def anything(name: str, value: Any) -> Any:
    """What the function itself judges."""
    return value


def source(name: str, value: Any) -> Any:
    """Inputs of a load: a path, an open file, an iterable of bytes, or several of them."""
    if isinstance(value, list | tuple):
        return [one if isinstance(one, bytes) else _one_source(f"{name}[{i}]", one) for i, one in enumerate(value)]
    return _one_source(name, value)


def _one_source(name: str, value: Any) -> Any:
    if isinstance(value, str | os.PathLike):
        return path(name, value)
    is_stream = hasattr(value, "read") or hasattr(value, "__next__")
    if not is_stream and (
        isinstance(value, bytes | bytearray | memoryview | Mapping) or not hasattr(value, "__iter__")
    ):
        raise _refused(name, "a path, an open file or an iterable of bytes", value)
    return value


def _table(name: str, value: Any) -> Any:
    """A table of a load: a path, a TableSource, an Arrow table or a DataFrame."""
    if isinstance(value, str | os.PathLike):
        return path(name, value)
    return having("schema")(name, value) if not hasattr(value, "from_column") else value


_plan = either("a plan or its JSON", mapping, having("to_json"))
_saved_plan = either("a plan, its JSON or its path", path, mapping, having("to_json"))
_policy = either("a policy, its content or its path", path, mapping, having("__dataclass_fields__"))

SHAPES: dict[str, Shape] = {
    "str": text,
    "bool": flag,
    "int": whole,
    "float": number,
    "str | float": either("a number of seconds or a duration as 7d", number, text),
    "Address": path,
    "str | os.PathLike[str]": path,
    "AsOf": moment,
    "Sequence[str]": names,
    "Mapping[str, Any]": mapping,
    "Mapping[str, object]": mapping,
    "Mapping[str, str]": mapping_of(text),
    "Mapping[str, Rows]": mapping_of(rows),
    "Mapping[str, Sequence[str]]": mapping_of(names),
    "Mapping[str, Table]": mapping_of(_table),
    "Where": either("a filter text or a mapping", text, mapping),
    "Source | Sequence[Source]": source,
    "Callable[[bytes], Any] | Address": either("a function or a path", path, callback),
    "Observer": callback,
    "Session": having("dataSource", "read"),
    "Watcher": having("stage", "advance"),
    "Event": having("is_set", "wait"),
    "Format": text,
    "CleanupResult | Mapping[str, Any] | str | os.PathLike[str]": _saved_plan,
    "OptimizePlan | Mapping[str, Any]": _plan,
    "Policy | Mapping[str, Any] | str | os.PathLike[str]": _policy,
    "MaintainPolicy | Mapping[str, Any] | str | os.PathLike[str]": _policy,
    "Iterable[EntityType]": anything,
    "Any": anything,
}
WRITE_OPTIONS = {
    "branch": "str",
    "actor": "str | None",
    "if_commit": "str | None",
    "operation_id": "str | None",
}
"""What functions take as `**options`."""
READ_OPTIONS = {
    "columns": "Sequence[str] | None",
    "where": "Where | None",
    "branch": "str",
    "commit": "str | None",
    "as_of": "AsOf | None",
    "limit": "int | None",
}
"""What they take as `Unpack[ReadOptions]`."""


def shape_of(annotation: str) -> Shape:
    """The shape that an annotation says. AssertionError for one that no shape is known for."""
    if annotation.startswith("Literal["):
        return optional(text) if annotation.endswith("| None") else text
    if annotation in SHAPES:
        return SHAPES[annotation]
    stem = annotation.removesuffix(" | None")
    assert stem != annotation, f"{annotation} has no shape in omnigraph.arguments"
    return optional(shape_of(stem))


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """The function, with every argument checked before it runs."""
    positional: list[str] = []
    shapes: dict[str, Shape] = {}
    by_keyword: set[str] = set()
    takes_any = False
    for parameter in inspect.signature(function).parameters.values():
        annotation = str(parameter.annotation)
        if parameter.kind is parameter.VAR_KEYWORD:
            known = READ_OPTIONS if annotation == "Unpack[ReadOptions]" else WRITE_OPTIONS
            takes_any = parameter.name == "values"
            for name, text_of_it in known.items() if not takes_any else ():
                shapes.setdefault(name, shape_of(text_of_it))
                by_keyword.add(name)
            continue
        if parameter.kind is not parameter.KEYWORD_ONLY:
            positional.append(parameter.name)
        if parameter.kind is not parameter.POSITIONAL_ONLY:
            by_keyword.add(parameter.name)
        if parameter.name != "self":
            shapes[parameter.name] = shape_of(annotation)

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        values = list(args)
        for i, name in enumerate(positional[: len(values)]):
            if name in shapes:
                values[i] = shapes[name](name, values[i])
        for name, value in kwargs.items():
            if name in by_keyword and name in shapes:
                kwargs[name] = shapes[name](name, value)
            elif not takes_any:
                known = ", ".join(sorted(by_keyword - {"self"}))
                raise UsageError(detail=f"{function.__name__} has no option {name!r}; it has {known}.")
        return function(*values, **kwargs)  # type: ignore[arg-type]

    return call


def renamed(**names: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Accept former names of keyword arguments, each with a DeprecationWarning: `renamed(former="current")`."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            for former in [name for name in kwargs if name in names]:
                current = names[former]
                if current in kwargs:
                    raise UsageError(detail=f"{former} is the former name of {current}; use {current} alone.")
                message = f"{function.__name__}({former}=…) is deprecated; use {current}="
                warnings.warn(message, DeprecationWarning, stacklevel=2)
                kwargs[current] = kwargs.pop(former)
            return function(*args, **kwargs)

        return call

    return decorate

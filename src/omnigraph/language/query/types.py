"""Types of expressions: those of properties, and those that exist only while a query runs."""

from __future__ import annotations

from dataclasses import dataclass, replace

from omnigraph.language.schema.model import INTEGERS, NUMBERS, PropertyType

# `kind` in the JSON of lint, for every kind that a column of a result can have.
KINDS = {
    "String": "string",
    "Enum": "string",
    "Bool": "bool",
    "I32": "int",
    "U32": "int",
    "I64": "bigint",
    "U64": "bigint",
    "F32": "float",
    "F64": "float",
    "Date": "date",
    "DateTime": "datetime",
    "Blob": "blob",
    "Vector": "vector",
    "List": "list",
    "Node": "object",
}


@dataclass(frozen=True, slots=True)
class Type:
    """`kind` is a scalar of the schema language, or

    | kind             | is                                                                                       |
    |------------------|------------------------------------------------------------------------------------------|
    | `Enum`           | text, one of `values`                                                                    |
    | `Vector`         | `dimension` floats                                                                       |
    | `List`           | of `item`, which is a scalar and never null; None for the empty list                     |
    | `Duration`       | a span of time in milliseconds; only inside of expressions                               |
    | `Null`           | the literal `null`                                                                       |
    | `Node`, `Edge`   | a bound entity, as a value: its identity in comparisons and counts, an object in results |
    | `Path`           | what `path $p =` binds; only inside of `length` and `nodes`                              |
    """

    kind: str
    nullable: bool = False
    item: str | None = None
    values: tuple[str, ...] = ()
    dimension: int | None = None

    def __str__(self) -> str:
        if self.kind == "List":
            text = f"[{self.item or ''}]"
        elif self.kind == "Vector":
            text = f"Vector({self.dimension})"
        elif self.kind == "Enum":
            text = f"enum({', '.join(self.values)})"
        else:
            text = self.kind
        return f"{text}?" if self.nullable else text

    @property
    def is_number(self) -> bool:
        return self.kind in NUMBERS

    @property
    def is_integer(self) -> bool:
        return self.kind in INTEGERS

    @property
    def is_text(self) -> bool:
        return self.kind in ("String", "Enum")

    @property
    def is_time(self) -> bool:
        return self.kind in ("Date", "DateTime")

    @property
    def is_ordered(self) -> bool:
        return self.kind in (*NUMBERS, "String", "Enum", "Bool", "Date", "DateTime", "Duration")

    def null(self, nullable: bool = True) -> Type:
        return self if self.nullable == nullable else replace(self, nullable=nullable)


BOOL, STRING, I64, F64 = Type("Bool"), Type("String"), Type("I64"), Type("F64")
DATE, DATETIME, DURATION, NULL = Type("Date"), Type("DateTime"), Type("Duration"), Type("Null", nullable=True)
NODE, EDGE, PATH = Type("Node"), Type("Edge"), Type("Path")


def of_property(p: PropertyType, nullable: bool) -> Type:
    return Type(p.kind, nullable, p.item, p.values, p.dimension)


def comparable(a: Type, b: Type) -> bool:
    """Whether values of the two types can be compared, with any operator. Numbers of all widths can; null with
    everything.
    """
    if "Null" in (a.kind, b.kind):
        return True
    if a.is_number or b.is_number:
        return a.is_number and b.is_number
    if a.is_text or b.is_text:
        return a.is_text and b.is_text
    return a.kind == b.kind and a.is_ordered


def assignable(value: Type, target: Type) -> bool:
    """Whether a value of the type can be stored in a property. Whether a number fits is checked when its value is
    known.
    """
    if value.kind == "Null":
        return True
    if target.is_integer:
        return value.is_integer
    if target.is_number:
        return value.is_number
    if target.is_text:
        return value.is_text
    if target.kind == "List":
        return value.kind == "List" and (value.item is None or assignable(Type(value.item), Type(target.item or "")))
    if target.kind == "Vector":
        if value.kind == "List":
            return value.item is None or Type(value.item).is_number
        return value.kind == "Vector" and value.dimension == target.dimension
    return value.kind == target.kind


def common(a: Type, b: Type) -> Type | None:
    """The type that holds values of both types, or None: for `coalesce` and the items of a list."""
    nullable = a.nullable or b.nullable
    if a.kind == "Null" or b.kind == "Null":
        return (b if a.kind == "Null" else a).null()
    if a == b or a.null() == b.null():
        return a.null(nullable)
    if a.kind == b.kind == "List" and None in (a.item, b.item):
        return (a if b.item is None else b).null(nullable)
    if a.is_integer and b.is_integer:
        return Type("I64", nullable)
    if a.is_number and b.is_number:
        return Type("F64", nullable)
    if a.is_text and b.is_text:
        return Type("String", nullable)
    return None


def describe(t: Type) -> str:
    """The type with its article, for messages."""
    shown = str(t.null(False))
    if t.kind == "Null":
        return "null"
    return f"{'an' if shown[0] in 'IEFe' else 'a'} {shown}"


def counted(count: int, word: str) -> str:
    """`1 number`, `2 numbers`."""
    return f"{count} {word}" if count == 1 else f"{count} {word}s"

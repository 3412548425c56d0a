"""Demangle the name of a kernel into C++: scopes, template arguments, parameters, spelt as c++filt does.

Source: Itanium C++ ABI, 5.1 (external names), which nvcc and clang follow. Constructs that hardly occur in names of
kernels (most expressions, decltype) are not read; if they are in the parameters, those are left out. Names are
untrusted: each substitution can double the text, so the text written for one name is limited.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from typing import NamedTuple

LONGEST_MANGLED, MOST_LETTERS, DEEPEST = 1 << 15, 1 << 20, 60
"""Most letters of a mangled name, most letters written for one name, and the deepest nesting of its parts."""
_BUILT_IN = {
    "v": "void", "w": "wchar_t", "b": "bool", "c": "char", "a": "signed char", "h": "unsigned char", "s": "short",
    "t": "unsigned short", "i": "int", "j": "unsigned int", "l": "long", "m": "unsigned long", "x": "long long",
    "y": "unsigned long long", "n": "__int128", "o": "unsigned __int128", "f": "float", "d": "double",
    "e": "long double", "g": "__float128", "z": "...", "Dn": "decltype(nullptr)", "Di": "char32_t", "Ds": "char16_t",
    "Du": "char8_t", "Da": "auto", "DF16_": "_Float16", "DF16b": "std::bfloat16_t",
}  # fmt: skip
_STANDARD = {
    "St": "std", "Sa": "std::allocator", "Sb": "std::basic_string", "Ss": "std::string", "Si": "std::istream",
    "So": "std::ostream", "Sd": "std::iostream",
}  # fmt: skip
_OPERATORS = {
    "cl": "()", "ix": "[]", "pl": "+", "mi": "-", "ml": "*", "dv": "/", "eq": "==", "ne": "!=", "lt": "<", "gt": ">",
    "aS": "=", "ls": "<<", "rs": ">>", "pL": "+=", "mI": "-=", "mL": "*=", "nw": " new", "dl": " delete",
}  # fmt: skip
_SUFFIXES = {"int": "", "unsigned int": "u", "long": "l", "unsigned long": "ul", "long long": "ll",
             "unsigned long long": "ull"}  # fmt: skip
_POINTERS = {"P": "*", "R": "&", "O": "&&"}
_QUALIFIERS = {"K": " const", "V": " volatile", "r": " __restrict__"}
_UNNAMED = re.compile(r"_GLOBAL_[._$]N")


class _Unread(ValueError):
    """The mangled name has a construct that is not read, or is no mangled name."""


class _Type(NamedTuple):
    """A type as the text left and right of a declared name; `pack` are the types of a template parameter pack."""

    left: str
    right: str = ""
    pack: tuple[_Type, ...] | None = None

    def __str__(self) -> str:
        return ", ".join(map(str, self.pack)) if self.pack is not None else self.left + self.right


@lru_cache(maxsize=1 << 14)
def demangled(mangled: str) -> str | None:
    """The demangled name, as `void at::native::copy<float, 4>(float*)`; None if not mangled, or not readable.

    A kernel returns void, however its type is spelt; only mangled names of templates have a result type.
    """
    if not mangled.startswith("_Z") or len(mangled) > LONGEST_MANGLED:
        return None
    for read in (_Reader.encoding, _Reader.name):
        with suppress(ValueError, IndexError, RecursionError):  # also numbers without end, and packs in packs
            reader = _Reader(mangled)
            name = read(reader)
            return f"void {name}" if reader.is_template or name.endswith(">") else name
    return None


class _Reader:
    """Reads a mangled name from its beginning. `text[at]` is the next letter, and `seen` are the substitutions."""

    def __init__(self, text: str) -> None:
        self.text, self.at, self.left, self.depth = text + "\0", 2, MOST_LETTERS, 0
        self.seen: list[_Type | int] = []
        self.arguments: list[_Type] = []
        self.resolved, self.again = 0, False
        self.of_lambda, self.member, self.is_template = False, "", False

    # ------------------------------------------------------------------------------------------------------- letters

    def take(self, *texts: str) -> str:
        """Skip the first of these texts that comes next, and return it; "" if none does."""
        found = next((one for one in texts if self.text.startswith(one, self.at)), "")
        self.at += len(found)
        return found

    def need(self, text: str) -> None:
        if not self.take(text):
            raise _Unread

    def number(self, pattern: str = r"[0-9]+") -> str:
        found = re.compile(pattern).match(self.text, self.at)
        self.at = found.end() if found else self.at
        return found[0] if found else ""

    def index(self) -> int:
        """A number in base 36 before an underscore; without digits it is 0."""
        digits = self.number("[0-9A-Z]+")
        self.need("_")
        return int(digits, 36) + 1 if digits else 0

    def until_end(self, read: Callable[[], _Type]) -> list[_Type]:
        found = []
        while not self.take("E"):
            found.append(read())
        return found

    def kept(self, one: _Type, begin: int | None = None) -> _Type:
        """Store a part as the next substitution, and return it.

        Later references get the part, or with `begin` read the text again from there. Raises `_Unread` if too much was
        written.
        """
        self.left -= len(str(one)) + 1
        if self.left < 0:
            raise _Unread
        if not self.again:
            self.seen.append(one if begin is None else begin)
        return one

    # --------------------------------------------------------------------------------------------------------- names

    def encoding(self) -> str:
        """A function with its parameters, without its result type."""
        before, self.arguments = self.arguments, []
        name, member = self.name(), self.member
        if self.text[self.at] in "E\0":
            self.arguments = before
            return name
        is_template = name.endswith(">")
        if is_template:  # only templates say their result
            self.type()
        parameters = []
        while self.text[self.at] not in "E\0":
            parameters.append(self.type())
        self.arguments, self.is_template = before, is_template
        return f"{name}({_listed(parameters)}){member}"

    def name(self) -> str:
        """A qualified name; the qualifiers of a member function are left in `member`."""
        self.member = ""
        if self.take("N"):
            return self.nested()
        if self.take("Z"):
            return self.local()
        if self.is_reference():
            base = str(self.substitution())
        else:
            base = ("std::" if self.take("St") else "") + self.unqualified("")
            if self.text[self.at] == "I":
                self.kept(_Type(base))
        return base + self.template(of_function=True) if self.text[self.at] == "I" else base

    def nested(self) -> str:
        member = ""
        while qualifier := self.take(*_QUALIFIERS):
            member = _QUALIFIERS[qualifier] + member
        self.take("R", "O")
        path = ""
        while not self.take("E"):
            letter = self.text[self.at]
            if letter == "S":
                path = "std" if self.take("St") else str(self.substitution())
                continue
            if letter == "I" and path:
                path += self.template(of_function=True)
            elif letter == "T":
                path = str(self.parameter())
            else:
                name = self.unqualified(path)
                path = f"{path}::{name}" if path else name
            if self.text[self.at] != "E":
                self.kept(_Type(path))
        self.member = member
        return path

    def local(self) -> str:
        """A name inside of a function."""
        function = self.encoding()
        self.need("E")
        if self.take("s"):
            name = "string literal"
        else:
            if self.take("d"):
                self.number()
                self.need("_")
            name = self.name()
        if self.take("__"):
            self.number()
            self.need("_")
        elif self.take("_"):
            self.number("[0-9]")
        return f"{function}::{name}"

    def unqualified(self, path: str) -> str:
        self.take("L")
        if length := self.number():
            begin, self.at = self.at, self.at + int(length)
            name = self.text[begin : self.at]
            if self.at >= len(self.text) or not name:
                raise _Unread
            name = "(anonymous namespace)" if _UNNAMED.match(name) else name
        elif self.take("Ul"):
            name = self.closure()
        elif self.take("Ut"):
            name = f"{{unnamed type#{self.ordinal()}}}"
        elif self.take("C1", "C2", "C3"):
            name = _last_name(path)
        elif self.take("D0", "D1", "D2"):
            name = f"~{_last_name(path)}"
        elif self.take("cv"):
            name = f"operator {self.type()}"
        elif symbol := self.take(*_OPERATORS):
            name = f"operator{_OPERATORS[symbol]}"
        else:
            raise _Unread
        while self.take("B"):
            name += f"[abi:{self.unqualified('')}]"
        return name

    def closure(self) -> str:
        before, self.of_lambda = self.of_lambda, True
        parameters = self.until_end(self.type)
        self.of_lambda = before
        return f"{{lambda({_listed(parameters)})#{self.ordinal()}}}"

    def ordinal(self) -> int:
        digits = self.number()
        self.need("_")
        return int(digits) + 2 if digits else 1

    def template(self, *, of_function: bool = False) -> str:
        """Template arguments in angle brackets; a function's own are kept, as its parameters refer to them."""
        self.need("I")
        member = self.member
        arguments = self.until_end(self.argument)
        self.member = member
        if of_function:
            self.arguments = arguments
        inside = ", ".join(text for text in map(str, arguments) if text)
        return f"<{inside} >" if inside.endswith(">") else f"<{inside}>"

    def argument(self) -> _Type:
        if self.take("L"):
            return self.literal()
        if self.take("J"):
            return _Type("", "", tuple(self.until_end(self.argument)))
        if self.take("X"):
            if self.text[self.at] == "T":
                found = self.parameter()
                self.need("E")
                return found
            self.need("adL_Z")
            function = self.encoding()
            self.need("EE")
            return _Type(f"&{function.partition('(')[0]}" if function.count("(") == 1 else f"&({function})")
        return self.type()

    def literal(self) -> _Type:
        if self.take("_Z"):
            function = self.encoding()
            self.need("E")
            return _Type(function)
        kind = str(self.type())
        value = self.number("n?[0-9a-f]*").replace("n", "-")
        self.need("E")
        if kind == "bool" and value in ("0", "1"):
            return _Type(("false", "true")[int(value)])
        if kind in _SUFFIXES:
            return _Type(value + _SUFFIXES[kind])
        return _Type(f"({kind})[{value}]" if kind in ("float", "double") else f"({kind}){value}")

    # --------------------------------------------------------------------------------------------------------- types

    def type(self) -> _Type:
        if built_in := self.take(*_BUILT_IN):
            return _Type(_BUILT_IN[built_in])
        self.depth += 1
        if self.depth > DEEPEST:
            raise _Unread
        begin, resolved = self.at, self.resolved
        found, is_new = self.named_type() if self.is_reference() else (self.compound_type(), True)
        self.depth -= 1
        if is_new:
            self.kept(found, begin if self.resolved > resolved else None)
        return found

    def is_reference(self) -> bool:
        """True if a template parameter or a substitution comes next."""
        letter = self.text[self.at]
        return letter == "T" or (letter == "S" and self.text[self.at + 1] != "t")

    def compound_type(self) -> _Type:
        if pointer := self.take(*_POINTERS):
            return _pointer(self.type(), _POINTERS[pointer])
        if self.text[self.at] in _QUALIFIERS:
            words = ""
            while qualifier := self.take(*_QUALIFIERS):
                words = _QUALIFIERS[qualifier] + words
            one = self.type()
            return _Type(one.left + words, one.right)
        if self.take("F"):
            return self.function()
        if self.take("A"):
            length = self.number()
            self.need("_")
            one = self.type()
            return _Type(one.left, f" [{length}]{one.right.removeprefix(' ')}")
        if self.take("M"):
            owner, one = self.type(), self.type()
            if one.right.startswith("("):
                return _Type(f"{one.left}({owner}::*", f"){one.right}")
            return _Type(f"{one.left} {owner}::*", one.right)
        if self.take("Dv"):
            length = self.number()
            self.need("_")
            return _Type(f"{self.type()} __vector({length})")
        if self.take("Dp"):
            return self.expansion()
        if self.take("u"):
            return _Type(self.unqualified(""))
        return _Type(self.scoped_name())

    def named_type(self) -> tuple[_Type, bool]:
        """A template parameter or a substitution, and whether it makes a new substitution."""
        begin, resolved = self.at, self.resolved
        is_parameter = self.text[self.at] == "T"
        found = self.parameter() if is_parameter else self.substitution()
        if self.text[self.at] != "I":
            return found, is_parameter
        if is_parameter:
            self.kept(found, begin if self.resolved > resolved else None)
        return _Type(str(found) + self.template()), True

    def scoped_name(self) -> str:
        """The name of a class; its template arguments do not replace those of the function."""
        arguments, member = self.arguments, self.member
        name = self.name()
        self.arguments, self.member = arguments, member
        return name

    def function(self) -> _Type:
        self.take("Y")
        result, parameters = self.type(), list[_Type]()
        while self.text[self.at] != "E":
            if self.take("RE", "OE"):
                self.at -= 1
                break
            parameters.append(self.type())
        self.need("E")
        return _Type(f"{result.left} ", f"({_listed(parameters)}){result.right}")

    def parameter(self) -> _Type:
        """The argument of a template parameter; in a lambda, which has no arguments, "auto:" and its number."""
        self.need("T")
        at = self.index()
        self.resolved += 1
        if self.of_lambda:
            return _Type(f"auto:{at + 1}")
        if at >= len(self.arguments):
            raise _Unread
        return self.arguments[at]

    def substitution(self) -> _Type:
        if known := self.take(*_STANDARD):
            return _Type(_STANDARD[known])
        self.need("S")
        at = self.index()
        if at >= len(self.seen):
            raise _Unread
        found = self.seen[at]
        return found if isinstance(found, _Type) else self.read_again(found)

    def read_again(self, begin: int) -> _Type:
        """Read a type at `begin` again: its template parameters now mean arguments of another function."""
        before = self.at, self.again
        self.at, self.again = begin, True
        found = self.type()
        self.at, self.again = before
        return found

    def expansion(self) -> _Type:
        """The pattern of a pack expansion; only the plain pack is read. Raises `_Unread` for others."""
        found = self.type()
        if found.pack is None:
            raise _Unread
        return found


def _listed(parameters: list[_Type]) -> str:
    words = ", ".join(text for text in map(str, parameters) if text)
    return "" if words == "void" else words


def _pointer(one: _Type, mark: str) -> _Type:
    """A pointer or reference to a type: for functions and arrays in brackets; "& &&" collapses into "&"."""
    if one.right.startswith(("(", " [")):
        return _Type(f"{one.left}{'' if one.left.endswith(' ') else ' '}({mark}", f"){one.right}")
    if mark != "*" and one.left.endswith("&"):
        return one if mark == "&&" else _Type(one.left.rstrip("&") + "&", one.right)
    return _Type(one.left + mark, one.right)


def _last_name(path: str) -> str:
    """The last name of a path without template arguments, which is how constructors and destructors are called."""
    depth = 0
    for place in range(len(path) - 1, 0, -1):
        depth += {">": 1, "<": -1}.get(path[place], 0)
        if depth == 0 and path[place - 1 : place + 1] == "::":
            path = path[place + 1 :]
            break
    return path.partition("<")[0]

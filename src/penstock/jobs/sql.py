"""Find in a SQL expression what is no arithmetic on a row; it is cut into words as Spark's own parser cuts it."""

import re
from collections.abc import Sequence

TOKEN = re.compile(
    r"""
      (?P<text>[rR]'[^']*' | [rR]"[^"]*" | '(?:[^'\\]|\\.)*' | "(?:[^"\\]|\\.)*")
    | (?P<name>`[^`]*`)
    | (?P<odd>\w+[rR](?=['"]) | -- | /\* | :// | [;$\\'"`])  # also where another reader may see a text begin
    | (?P<word>\w+)
    | (?P<sign>\S)
    """,
    re.VERBOSE | re.DOTALL,
)
VARIABLE = "${"  # Spark puts in what the environment has before it reads anything, in texts too
PROTOBUF = {"FROM_PROTOBUF", "TO_PROTOBUF"}  # they load a class of Java by its name
CALLS = {"REFLECT", "TRY_REFLECT", "JAVA_METHOD"} | PROTOBUF  # functions that call methods of Java
TYPED = {"FROM_JSON": 1, "FROM_CSV": 1, "FROM_XML": 1, "VARIANT_GET": 2, "TRY_VARIANT_GET": 2}  # where a type is
JSON = "{"  # a type in JSON may name a module of Python or a class of Java, which would be loaded
NEVER = CALLS | {"SELECT", "USING", "UNION", "INTERSECT", "MINUS", "OVER"}
OPENING = {"FROM", "TABLE", "VALUES", "WITH"}  # a query begins with one of these, or with SELECT


def foreign(words: str) -> str | None:
    """Return the first part that calls Java, begins a query, names a function by a text, or is no part of SQL.

    Texts may hold anything but variables, and in back-quotes any word is a name. Types are single texts, not in JSON.

    Parameters:
        words: the expression.
    """
    if VARIABLE in words:
        return VARIABLE
    before = quoted = ""
    tokens = [*TOKEN.finditer(words)]
    for at, found in enumerate(tokens):
        kind, part = found.lastgroup, found[0]
        word = part.upper()  # as Spark does: some letters beyond A to Z become such
        if kind == "odd":
            return part
        if kind == "word" and _queries(word, before):
            return part
        if part == "(" and (before == "IDENTIFIER" or quoted in CALLS):
            return (quoted or before).lower()
        if part == "(" and _computes(quoted or before, tokens[at:]):
            return f"{(quoted or before).lower()} with a type that is no text such as 'a int, b string'"
        before = word if kind in {"word", "sign"} else ""
        quoted = word[1:-1] if kind in {"name", "text"} else ""
    return None


def _queries(word: str, before: str) -> bool:
    """Say whether a word, in capitals, is one of a query or of a call into Java, after what is before it."""
    if word == "EXCEPT":
        return before != "*"  # all columns but some
    return word in NEVER or (word in OPENING and before == "(")


def _computes(function: str, call: Sequence[re.Match[str]]) -> bool:
    """Say whether a function, in capitals, is given a type that is in JSON, or that has to be worked out.

    Parameters:
        function: its name.
        call: what is behind it, from the opening parenthesis on.
    """
    if function not in TYPED:
        return False
    arguments: list[list[re.Match[str]]] = [[]]
    depth = 0
    for each in call:
        depth += (each[0] in {"(", "["}) - (each[0] in {")", "]"})
        if depth == 0:
            break
        if depth == 1 and each[0] == ",":
            arguments.append([])
        elif each is not call[0]:
            arguments[-1].append(each)
    if len(arguments) <= TYPED[function]:
        return False
    first, *more = arguments[TYPED[function]] or call[:1]
    return bool(more) or first.lastgroup != "text" or JSON in first[0] or "\\" in first[0]

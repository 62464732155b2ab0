"""Find in a SQL expression what is no arithmetic on a row; it is cut into words as Spark's own parser cuts it."""

import re

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
CALLS = {"REFLECT", "TRY_REFLECT", "JAVA_METHOD"}  # functions that call methods of Java
NEVER = CALLS | {"SELECT", "USING", "UNION", "INTERSECT", "MINUS"}
OPENING = {"FROM", "TABLE", "VALUES", "WITH"}  # a query begins with one of these, or with SELECT


def foreign(words: str) -> str | None:
    """Return the first part that calls Java, begins a query, names a function by a text, or is no part of SQL.

    Texts may hold anything but variables, and in back-quotes any word is a name.

    Parameters:
        words: the expression.
    """
    if VARIABLE in words:
        return VARIABLE
    before = quoted = ""
    for found in TOKEN.finditer(words):
        kind, part = found.lastgroup, found[0]
        word = part.upper()  # as Spark does: some letters beyond A to Z become such
        if kind == "odd":
            return part
        if kind == "word" and _queries(word, before):
            return part
        if part == "(" and (before == "IDENTIFIER" or quoted in CALLS):
            return (quoted or before).lower()
        before = word if kind in {"word", "sign"} else ""
        quoted = word[1:-1] if kind in {"name", "text"} else ""
    return None


def _queries(word: str, before: str) -> bool:
    """Say whether a word, in capitals, is one of a query or of a call into Java, after what is before it."""
    if word == "EXCEPT":
        return before != "*"  # all columns but some
    return word in NEVER or (word in OPENING and before == "(")

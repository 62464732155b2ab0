"""Undo encodings whose rows Arrow cannot take one by one: views of strings and bytes, and runs of equal values."""

import numpy as np
import pyarrow as pa

from penstock.errors import SchemaError

CODED = {  # types that are decoded, and those that may hold such
    pa.string_view().id,
    pa.binary_view().id,
    pa.run_end_encoded(pa.int32(), pa.int8()).id,
    pa.dictionary(pa.int32(), pa.int8()).id,
    pa.struct([]).id,
    pa.list_(pa.int8()).id,
    pa.large_list(pa.int8()).id,
}


def decoded_type(kind: pa.DataType) -> pa.DataType:  # noqa: PLR0911 - one rule a line
    """Return the type that values have once they are decoded; views become large: they may hold more than 2 GiB."""
    if pa.types.is_run_end_encoded(kind):
        return decoded_type(kind.value_type)
    if pa.types.is_string_view(kind):
        return pa.large_string()
    if pa.types.is_binary_view(kind):
        return pa.large_binary()
    if pa.types.is_dictionary(kind):
        return pa.dictionary(kind.index_type, decoded_type(kind.value_type), kind.ordered)
    if pa.types.is_struct(kind):
        return pa.struct([_decoded_field(field) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(_decoded_field(kind.value_field))
    if pa.types.is_large_list(kind):
        return pa.large_list(_decoded_field(kind.value_field))
    return kind


def decoded_schema(schema: pa.Schema) -> pa.Schema:
    """Return the columns that rows have once they are decoded; those of ``decoded``."""
    return pa.schema([_decoded_field(field) for field in schema], schema.metadata)


def decoded(table: pa.Table, name: str) -> pa.Table:
    """Return rows without such encodings; `name` is what their stream is called. O(bytes of the columns decoded).

    Raises:
        SchemaError: if values inside a nested column cannot be decoded.
    """
    if not any(kind.id in CODED for kind in table.schema.types):
        return table
    for at, field in enumerate(table.schema):
        kind = decoded_type(field.type)
        if kind != field.type:
            try:
                chunks = [_decoded(chunk, kind) for chunk in table.column(at).chunks]
            except pa.ArrowNotImplementedError as error:
                got = f"column {field.name} of {field.type}"
                raise SchemaError(name, got, "runs inside it must be decoded before") from error
            table = table.set_column(at, field.with_type(kind), pa.chunked_array(chunks, kind))
    return table


def _decoded_field(field: pa.Field) -> pa.Field:
    return field.with_type(decoded_type(field.type))


def _decoded(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_run_end_encoded(array.type):
        ends = np.clip(array.run_ends.to_numpy().astype(np.int64) - array.offset, 0, len(array))
        places = np.repeat(np.arange(ends.size), np.diff(ends, prepend=0))
        return _decoded(array.values, kind).take(pa.array(places))
    if pa.types.is_dictionary(array.type):
        return pa.DictionaryArray.from_arrays(
            array.indices, _decoded(array.dictionary, kind.value_type), ordered=kind.ordered
        )
    return array.cast(kind)

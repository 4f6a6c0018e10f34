"""The element types and memory formats of documents. No torch."""

from typing import Final

INPUT_DTYPES: Final = {"float32": 4, "int64": 8, "int32": 4, "uint8": 1, "bool": 1}
"""The element types of inputs, which are sent over the network, and the bytes of one element."""

DTYPES: Final = {**INPUT_DTYPES, "bfloat16": 2, "float16": 2, "float64": 8, "int16": 2, "int8": 1}
"""The element types of values."""

MEMORY_FORMATS: Final = ("contiguous_format", "preserve_format", "channels_last", "channels_last_3d")

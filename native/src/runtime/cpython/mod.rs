//! CPython 3.8 to 3.14, from outside.

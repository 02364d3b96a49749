"""The input of a bulk load: cut into pieces, unpacked, read, typed, staged."""

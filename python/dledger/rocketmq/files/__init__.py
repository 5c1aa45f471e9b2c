"""A store's files, to be read, on a local disk or on any file system of fsspec."""

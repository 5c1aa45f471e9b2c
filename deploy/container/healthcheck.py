"""Exit code 0: the node of this container takes a connection; by the node's own settings."""

import os
import socket
from pathlib import Path

from dledger.config.layers import FILE_VARIABLE, Layers
from dledger.net.connections.tls import client_context

TIMEOUT_S = 2

layers = Layers()
layers.add_environment(os.environ)
if file := os.environ.get(FILE_VARIABLE):
    layers.add_file(Path(file))
_, node, _ = layers.configs()
context = client_context(node.tls)
with socket.create_connection((node.host, node.port), TIMEOUT_S) as sock:
    if context is not None:
        context.wrap_socket(sock, server_hostname=node.host).close()

"""Connections: TLS, the handshake, frames in and out, requests and answers."""

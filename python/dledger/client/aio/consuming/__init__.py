"""The work of a consumer on an event loop, for both shells."""

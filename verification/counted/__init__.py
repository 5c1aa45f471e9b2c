"""Real nodes under ``dledger bench``, over a disk that counts: is anything called durable that no
sync covers?"""

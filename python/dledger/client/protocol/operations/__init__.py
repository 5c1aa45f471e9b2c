"""Operations of both clients, each declared once, as a generator, and their names as methods."""

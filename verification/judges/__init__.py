"""A second judge of histories that is not ours: Porcupine (github.com/anishathalye/porcupine),
asked by a small Go program in porcupine/."""

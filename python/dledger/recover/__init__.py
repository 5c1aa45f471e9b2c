"""Going on with the disk of one member where the others are gone for ever: what it has
(`survivor`), whether the others are really gone (`others`), and the new group (`new_group`)."""

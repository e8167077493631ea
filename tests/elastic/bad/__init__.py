"""Scripts and surroundings that are wrong, as users write and meet them: what each is told, in one
sentence, and that nothing hangs, is lost in silence, or is eaten worker by worker."""

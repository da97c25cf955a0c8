"""What must be true between passes: one check for each IR, cheap enough to run after every pass.

Each raises CompileError that says what is wrong, shows the place, and says what to do.
"""

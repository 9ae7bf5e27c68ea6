from tests.stacks import every_stack, stack

__all__ = ["every_stack", "stack"]

from tests.stacks import quick_stack, stack

__all__ = ["quick_stack", "stack"]

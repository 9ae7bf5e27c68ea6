from tests.stacks import quick_stack, stack, tuned_stack

__all__ = ["quick_stack", "stack", "tuned_stack"]

"""One line for each check, and the count at the end. Every peer's script reports through this."""

import sys
import time
import traceback

passed = 0
failed = 0


def check(what):
    """Decorator: runs the function now. `ok` with what it returns, `FAIL` with why it raised."""

    def run(function):
        global passed, failed
        start = time.monotonic()
        try:
            detail = function()
        except Exception as error:  # a peer may fail in any way: all of them are the result
            failed += 1
            where = [f for f in traceback.extract_tb(error.__traceback__) if f.name != "expect"][-1]
            reason = " ".join(str(error).split())[:400]
            print(f"FAIL {what}: {type(error).__name__}: {reason} ({where.name}:{where.lineno})")
        else:
            passed += 1
            seconds = time.monotonic() - start
            print(f"ok   {what}" + (f": {detail}" if detail else "") + (f" ({seconds:.0f} s)" if seconds > 2 else ""))
        return function

    return run


def expect(condition, message):
    """An assertion that `python -O` keeps."""
    if not condition:
        raise AssertionError(message)


def finish():
    """Prints the count; exits with 1 if anything failed, or if nothing was checked at all."""
    print(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed or not passed else 0)

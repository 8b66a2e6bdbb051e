"""Runs the tests of a Python module: unittests.py MODULE [PART OF A NAME TO LEAVE OUT ...]

Standard output ends with a line for each test that did not pass, and how many were started.
"""

import sys
import unittest


class Told(unittest.TextTestResult):
    """Counts the tests that were started."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.started = set()

    def startTest(self, test):
        self.started.add(test.id())
        super().startTest(test)


def tests(suite):
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from tests(test)
        else:
            yield test


def main():
    module, *left_out = sys.argv[1:]
    found = tests(unittest.defaultTestLoader.loadTestsFromName(module))
    wanted = [test for test in found if not any(part in test.id() for part in left_out)]
    runner = unittest.TextTestRunner(verbosity=2, resultclass=Told)
    result = runner.run(unittest.TestSuite(wanted))
    print()
    for test, _ in result.failures + result.errors:
        print("suite: failed", test.id())
    for test in result.unexpectedSuccesses:
        print("suite: failed", test.id())
    for test, _ in result.skipped:
        print("suite: skipped", test.id())
    print("suite: started", len(result.started), flush=True)


# Tests that start Python anew import this file.
if __name__ == "__main__":
    main()

"""A terminal for tests: a program on a pseudo-terminal, and the screen that its output makes.

Knows what the terminal library sends for xterm and its kin, and refuses the rest, so that a sequence nobody
thought of fails the test.
"""
import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time
import unicodedata

PATIENCE = 60  # seconds for what is sure to come, on a machine that is busy with other things
CSI = re.compile(r"\x1b\[([?>]?)([0-9;]*)([@-~])")
ESCAPE = re.compile(r"\x1b(?:[()][0B]|[=>78M])")


def width(character):
    """Columns a character takes."""
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


class Screen:
    """Cells, cursor, and the modes that matter: the second screen, the cursor's visibility, colours seen."""

    def __init__(self, columns, lines):
        self.columns, self.lines = columns, lines
        self.cells = [[" "] * columns for _ in range(lines)]
        self.x = self.y = 0
        self.saved = 0, 0
        self.top, self.bottom = 0, lines - 1
        self.is_second = False
        self.is_hidden = False
        self.colors = 0
        self.last = " "
        self.unknown = []

    def resize(self, columns, lines):
        """As xterm does: the upper left corner stays."""
        self.cells = [(row + [" "] * columns)[:columns] for row in self.cells[:lines]]
        self.cells += [[" "] * columns for _ in range(lines - len(self.cells))]
        self.columns, self.lines = columns, lines
        self.top, self.bottom = 0, lines - 1
        self.x, self.y = min(self.x, columns - 1), min(self.y, lines - 1)

    def text(self):
        """The lines, blanks at their ends removed."""
        return ["".join(cell for cell in row if cell is not None).rstrip() for row in self.cells]

    def feed(self, text):
        """Takes output; returns what is left of an unfinished sequence."""
        at = 0
        while at < len(text):
            if text[at] != "\x1b":
                self.put(text[at])
                at += 1
                continue
            match = CSI.match(text, at) or ESCAPE.match(text, at)
            if match is None:
                if len(text) - at < 24:
                    return text[at:]
                self.unknown.append(text[at:at + 8])
                at += 1
                continue
            if match.re is CSI:
                self.control(*match.groups())
            elif match.group() == "\x1bM":
                self.scroll(-1) if self.y == self.top else self.move(0, -1)
            elif match.group() == "\x1b7":
                self.saved = self.x, self.y
            elif match.group() == "\x1b8":
                self.x, self.y = self.saved
            at = match.end()
        return ""

    def put(self, character):
        """One character at the cursor."""
        if character == "\r":
            self.x = 0
        elif character == "\n":
            self.line_feed()
        elif character == "\b":
            self.x = max(self.x - 1, 0)
        elif character == "\x0f":
            pass
        elif character < " ":
            self.unknown.append(character)
        elif width(character) == 0:
            self.cells[self.y][max(self.x - 1, 0)] += character
        else:
            if self.x + width(character) > self.columns:
                self.x = 0
                self.line_feed()
            self.cells[self.y][self.x] = character
            if width(character) == 2 and self.x + 1 < self.columns:
                self.cells[self.y][self.x + 1] = None
            self.x += width(character)
            self.last = character

    def line_feed(self):
        """Down, or everything up."""
        if self.y == self.bottom:
            self.scroll(1)
        else:
            self.move(0, 1)

    def scroll(self, lines):
        """The region up, or down for a negative number."""
        for _ in range(abs(lines)):
            blank = [" "] * self.columns
            if lines > 0:
                self.cells.insert(self.bottom + 1, blank)
                del self.cells[self.top]
            else:
                del self.cells[self.bottom]
                self.cells.insert(self.top, blank)

    def move(self, columns, lines):
        """The cursor, as far as the screen goes."""
        self.x = max(0, min(self.x + columns, self.columns - 1))
        self.y = max(0, min(self.y + lines, self.lines - 1))

    def control(self, private, parameters, final):
        """One control sequence."""
        numbers = [int(number or 0) for number in parameters.split(";")]
        first = numbers[0] or 1
        row = self.cells[self.y]
        if private:
            self.set_mode(numbers, final)
        elif final in "Hf":
            self.y = min(first, self.lines) - 1
            self.x = min((numbers[1] if len(numbers) > 1 else 1) or 1, self.columns) - 1
        elif final in "ABCDGd":
            moves = {"A": (0, -first), "B": (0, first), "C": (first, 0), "D": (-first, 0),
                     "G": (first - 1 - self.x, 0), "d": (0, first - 1 - self.y)}
            self.move(*moves[final])
        elif final in "ST":
            self.scroll(first if final == "S" else -first)
        elif final == "r":
            self.top = first - 1
            self.bottom = min((numbers[1] if len(numbers) > 1 else 0) or self.lines, self.lines) - 1
            self.x = self.y = 0
        elif final == "J":
            start = 0 if numbers[0] == 2 else self.y * self.columns + self.x
            end = self.y * self.columns + self.x + 1 if numbers[0] == 1 else self.lines * self.columns
            for cell in range(0 if numbers[0] == 1 else start, end):
                self.cells[cell // self.columns][cell % self.columns] = " "
        elif final == "K":
            span = {0: range(min(self.x, self.columns), self.columns), 1: range(0, self.x + 1), 2: range(self.columns)}
            for x in span[numbers[0]]:
                row[min(x, self.columns - 1)] = " "
        elif final == "X":
            for x in range(self.x, min(self.x + first, self.columns)):
                row[x] = " "
        elif final == "P":
            del row[self.x:self.x + first]
            row += [" "] * (self.columns - len(row))
        elif final == "@":
            row[self.x:self.x] = [" "] * first
            del row[self.columns:]
        elif final == "b":
            for _ in range(first):
                self.put(self.last)
        elif final in "LM":
            top, self.top = self.top, self.y
            self.scroll(first if final == "M" else -first)
            self.top = top
        elif final == "m":
            self.colors += sum(30 <= number <= 37 or 90 <= number <= 97 for number in numbers)
        elif final not in "tlh":
            self.unknown.append(final)

    def set_mode(self, numbers, final):
        """Private modes."""
        if 1049 in numbers:
            self.is_second = final == "h"
        if 25 in numbers:
            self.is_hidden = final == "l"


class Session:
    """A program on a pseudo-terminal of its own."""

    def __init__(self, command, environment, columns=80, lines=24, null_input=False):
        self.screen = Screen(columns, lines)
        self.output = b""
        self.pending = ""
        # The other end is kept open, so that the settings can still be read when the program has gone.
        self.master, self.slave = pty.openpty()
        self.before = termios.tcgetattr(self.slave)
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.pid = os.fork()
        if self.pid == 0:
            os.setsid()
            fcntl.ioctl(self.slave, termios.TIOCSCTTY, 0)
            for fd in (0, 1, 2):
                os.dup2(self.slave, fd)
            if null_input:
                os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
            os.closerange(3, 64)
            for number in (signal.SIGINT, signal.SIGQUIT):  # a shell's background job ignores them
                signal.signal(number, signal.SIG_DFL)
            os.execve(command[0], command, environment)

    def read(self, seconds=0.0, until=None):
        """Reads for so long, or until the screen is as wanted; returns whether it is."""
        end = time.monotonic() + seconds
        while True:
            if until is not None and until(self.screen):
                return True
            left = end - time.monotonic()
            ready, _, _ = select.select([self.master], [], [], max(min(left, 0.02), 0))
            if not ready:
                if left > 0:
                    continue
                return until is None
            try:
                data = os.read(self.master, 65536)
            except OSError:
                return until is None
            self.output += data
            self.pending = self.screen.feed(self.pending + data.decode("utf-8", "replace"))

    def see(self, until):
        """Waits until the screen is as wanted; False if that does not come."""
        return self.read(PATIENCE, until)

    def type(self, keys):
        """Presses keys."""
        os.write(self.master, keys.encode())

    def resize(self, columns, lines):
        """Another size, sent to the program as a window manager would."""
        self.screen.resize(columns, lines)
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def kill(self, number):
        """Sends a signal."""
        os.kill(self.pid, number)

    def end(self, seconds=PATIENCE):
        """Waits for the end: the exit status, minus the signal's number, or None if it does not end."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.read(0.02)
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid != 0:
                self.read(0.05)
                return os.waitstatus_to_exitcode(status)
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        return None

    def is_restored(self):
        """Settings as before, the first screen, the cursor visible."""
        return (termios.tcgetattr(self.slave) == self.before and not self.screen.is_second
                and not self.screen.is_hidden)

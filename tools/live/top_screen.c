/* The live screen: a line of counts, the table, a line of keys; fewer lines on a low terminal.
 *
 * Signals that end the tool are blocked except while it waits, so the terminal is never left half-
 * drawn: the handler records the signal, the loop ends, endwin restores the terminal. Untrusted
 * text reaches the terminal only through top_text, which escapes it. */
#define _GNU_SOURCE
#include "tools/live/top_screen.h"
#include "core/base/clock.h"
#include "tools/live/top_text.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <curses.h>

#define INTERVAL_LEAST_MS 100
#define INTERVAL_MOST_MS 60000
#define KEY_ESCAPE 27
#define KEY_REDRAW ('L' & 0x1f)
#define KEY_INTERRUPT ('C' & 0x1f)

enum pair { PAIR_NONE, PAIR_SUM, PAIR_NEAR, PAIR_OVER };

struct screen {
    struct top_reader *reader;
    struct top_order *order;
    unsigned interval_ms;
    struct top_view view;
    struct top_history history;
    const char *why; /* reason why there is no view; NULL: there is one */
    size_t *rows;
    size_t row_count;
    size_t first_row; /* on the screen */
    uint64_t marked;  /* key of the subject that actions are for; 0: none */
    const char *said; /* about the last action, until the next key; NULL: nothing */
    bool is_frozen;
    bool shows_keys;
    bool has_colors;
    bool quits;
};

/* The last signal; 0: none. */
static volatile sig_atomic_t ending_signal;

static void record_signal(int number)
{
    ending_signal = number;
}

static const int ending_signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
#define ENDING_COUNT (sizeof(ending_signals) / sizeof(ending_signals[0]))

/* ---- reading ---- */

static void sort_rows(struct screen *screen)
{
    free(screen->rows);
    screen->row_count = 0;
    screen->rows = top_view_sort(&screen->view, screen->order, &screen->row_count);
}

static void read_view(struct screen *screen)
{
    struct top_view view;
    const char *why = NULL;
    top_view_init(&view);
    if (screen->reader->read(screen->reader, &view, &why) != GC_OK) {
        top_view_fini(&view);
        screen->why = why;
        return;
    }
    screen->why = NULL;
    top_view_fini(&screen->view);
    screen->view = view;
    top_history_add(&screen->history, &screen->view);
    sort_rows(screen);
}

/* ---- drawing ---- */

static void draw_text(int line, const char *text)
{
    char shown[TOP_LINE_BYTES];
    const unsigned width = COLS < TOP_WIDTH_MAX ? (unsigned)COLS : TOP_WIDTH_MAX;
    columns_fit(text, width, columns_is_utf8(), shown, sizeof(shown));
    mvaddstr(line, 0, shown);
}

static attr_t row_look(const struct screen *screen, const struct top_account *account)
{
    const struct top_subject *subject = &screen->view.subjects[account->subject];
    const struct gc_ledger_figures *figures = &account->figures;
    const bool has_limit = figures->limit != TOP_NO_LIMIT && figures->limit > 0;
    attr_t look = A_NORMAL;
    if (subject->kind == TOP_DEVICE || subject->kind == TOP_GROUP)
        look = A_BOLD | (screen->has_colors ? (attr_t)COLOR_PAIR(PAIR_SUM) : 0);
    if (subject->state != TOP_RUNNING ||
        (subject->takes_turns && subject->turn.state == GC_TURN_AWAY))
        look |= A_DIM;
    if (screen->has_colors && has_limit && figures->reserved > figures->limit)
        look = (look & ~(attr_t)A_COLOR) | (attr_t)COLOR_PAIR(PAIR_OVER);
    else if (screen->has_colors && has_limit &&
             figures->reserved - figures->idle > figures->limit / 10 * 9 &&
             figures->reserved >= figures->idle)
        look = (look & ~(attr_t)A_COLOR) | (attr_t)COLOR_PAIR(PAIR_NEAR);
    return look;
}

static void draw_row(const struct screen *screen, const struct top_layout *layout, int line,
                     size_t row)
{
    char text[TOP_LINE_BYTES];
    const size_t index = screen->rows[row];
    const struct top_account *account = &screen->view.accounts[index];
    top_text_row(layout, &screen->view, index,
                 top_history_find(&screen->history, &screen->view, index), text);
    attr_t look = row_look(screen, account);
    if (screen->marked != 0 && screen->view.subjects[account->subject].key == screen->marked)
        look |= A_REVERSE;
    attron(look);
    mvaddstr(line, 0, text);
    attroff(look);
}

static void draw_status(const struct screen *screen)
{
    char counts[96];
    char text[256];
    top_text_counts(&screen->view, counts, sizeof(counts));
    if (screen->why != NULL)
        snprintf(text, sizeof(text), "gpucache top: %s", screen->why);
    else
        snprintf(text, sizeof(text), "gpucache top: %s; by %s%s; %s%u.%us", counts,
                 top_sort_word(screen->order->sort), screen->order->reverse ? " reversed" : "",
                 screen->is_frozen ? "frozen, " : "", screen->interval_ms / 1000,
                 screen->interval_ms % 1000 / 100);
    draw_text(0, text);
}

static void draw_keys(void)
{
    static const char *const lines[] = {
        "q, Ctrl-C            quit",
        "arrows, page keys    move; Home and End too",
        "< >                  sort by the previous, the next column",
        "R                    reverse the order",
        "t                    tenants on and off",
        "d                    show one device after the other, then all",
        "+ -                  refresh more often, less often",
        "space                freeze, resume",
        "Tab                  mark the next process that takes turns, then none",
        "k                    keep the marked one's memory on the device (pin), or not",
        "e                    send the marked one's memory to host memory (evict)",
        "Ctrl-L               redraw the screen",
        "",
        "LIVE requested, not freed; RESVD reserved from the driver; IDLE cached part of it;",
        "SWAP in host memory until the next turn; WAIT waits for its turn so long;",
        "HIT% requests served from the cache; S: P paused, T stopped by a signal, W waits",
        "for its memory, A its memory is away, L leaves, ! pinned.",
        "Sizes in powers of 1024.",
    };
    int line = 0;
    draw_text(line++, "gpucache top: keys; any key returns");
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]) && line < LINES; i++)
        draw_text(line++, lines[i]);
    for (int i = 0; i < TOP_SORT_COUNT && line < LINES; i++) {
        char text[64];
        snprintf(text, sizeof(text), "%c                    sort by %s",
                 top_sort_key((enum top_sort)i), top_sort_word((enum top_sort)i));
        draw_text(line++, text);
    }
}

/* Lines for rows: all but the counts, the head, and the keys if they fit. */
static size_t page_lines(void)
{
    const int lines = LINES - 2 - (LINES >= 6);
    return lines > 0 ? (size_t)lines : 0;
}

static void draw(struct screen *screen)
{
    char text[TOP_LINE_BYTES];
    struct top_layout layout;
    const size_t page = page_lines();
    const size_t last = screen->row_count > page ? screen->row_count - page : 0;
    if (screen->first_row > last)
        screen->first_row = last;
    erase();
    if (screen->shows_keys) {
        draw_keys();
        refresh();
        return;
    }
    draw_status(screen);
    top_layout_init(&layout, &screen->view, (unsigned)COLS, columns_is_utf8());
    if (LINES >= 2) {
        top_text_head(&layout, text);
        attron(A_REVERSE);
        mvhline(1, 0, ' ', COLS);
        mvaddstr(1, 0, text);
        attroff(A_REVERSE);
    }
    for (size_t i = 0;
         i < page && screen->first_row + i < screen->row_count && screen->rows != NULL; i++)
        draw_row(screen, &layout, 2 + (int)i, screen->first_row + i);
    if (LINES >= 6 && screen->said != NULL)
        draw_text(LINES - 1, screen->said);
    else if (LINES >= 6)
        draw_text(LINES - 1,
                  "q quit  ? keys  < > sort  R reverse  t tenants  d device  space freeze");
    refresh();
}

/* ---- keys ---- */

static void scroll_by(struct screen *screen, long rows)
{
    if (rows < 0 && (size_t)-rows > screen->first_row)
        screen->first_row = 0;
    else
        screen->first_row += (size_t)rows;
}

static void change_interval(struct screen *screen, bool longer)
{
    unsigned ms = longer ? screen->interval_ms * 2 : screen->interval_ms / 2;
    ms = ms < INTERVAL_LEAST_MS ? INTERVAL_LEAST_MS : ms;
    screen->interval_ms = ms > INTERVAL_MOST_MS ? INTERVAL_MOST_MS : ms;
}

static void next_device(struct screen *screen)
{
    size_t *device = &screen->order->device;
    *device = *device == TOP_NONE ? 0 : *device + 1;
    if (*device >= screen->view.device_count)
        *device = TOP_NONE;
}

static bool press_sort(struct screen *screen, int key)
{
    struct top_order *order = screen->order;
    if (key == '<' || key == '>') {
        const unsigned step = key == '>' ? 1 : TOP_SORT_COUNT - 1;
        order->sort = (enum top_sort)(((unsigned)order->sort + step) % TOP_SORT_COUNT);
        return true;
    }
    for (int i = 0; i < TOP_SORT_COUNT; i++) {
        if (key == top_sort_key((enum top_sort)i)) {
            order->sort = (enum top_sort)i;
            return true;
        }
    }
    return false;
}

static void press_move(struct screen *screen, int key)
{
    const long page = page_lines() > 1 ? (long)page_lines() - 1 : 1;
    if (key == KEY_UP)
        scroll_by(screen, -1);
    else if (key == KEY_DOWN)
        scroll_by(screen, 1);
    else if (key == KEY_PPAGE)
        scroll_by(screen, -page);
    else if (key == KEY_NPAGE)
        scroll_by(screen, page);
    else if (key == KEY_HOME)
        screen->first_row = 0;
    else if (key == KEY_END)
        screen->first_row = screen->row_count;
}

/* The row's subject, where it is a process that takes turns. */
static const struct top_subject *turn_subject(const struct screen *screen, size_t row)
{
    const struct top_account *account = &screen->view.accounts[screen->rows[row]];
    const struct top_subject *subject = &screen->view.subjects[account->subject];
    return subject->takes_turns ? subject : NULL;
}

/* Marks the first row after the marked one; none after the last one. */
static void mark_next(struct screen *screen)
{
    const uint64_t before = screen->marked;
    bool is_behind = before == 0;
    screen->marked = 0;
    for (size_t i = 0; i < screen->row_count && screen->marked == 0; i++) {
        const struct top_subject *subject = turn_subject(screen, i);
        if (subject == NULL)
            continue;
        if (subject->key == before)
            is_behind = true;
        else if (is_behind)
            screen->marked = subject->key;
    }
    screen->said = screen->marked != 0 ? "marked: k pin, or not any more  e evict  Tab the next one"
                                       : "no process is marked";
}

static void act_on_marked(struct screen *screen, enum top_action action)
{
    screen->said = "no process is marked: Tab marks one that takes turns";
    for (size_t i = 0; i < screen->row_count && screen->marked != 0; i++) {
        const struct top_subject *subject = turn_subject(screen, i);
        if (subject == NULL || subject->key != screen->marked)
            continue;
        screen->said = screen->reader->act != NULL
                           ? screen->reader->act(screen->reader, subject, action)
                           : "it cannot be done from here";
        return;
    }
}

/* Escape alone leaves the list of keys. Otherwise Escape begins a key that curses does not know;
 * the key's other bytes are dropped. */
static void press_escape(struct screen *screen)
{
    while (getch() != ERR)
        continue;
    screen->shows_keys = false;
}

static void press(struct screen *screen, int key)
{
    screen->said = NULL;
    if (key == KEY_ESCAPE)
        press_escape(screen);
    else if (key == 'q' || key == 'Q' || key == KEY_INTERRUPT)
        screen->quits = true;
    else if (key == KEY_RESIZE || key == KEY_REDRAW)
        clearok(stdscr, TRUE);
    else if (screen->shows_keys || key == '?')
        screen->shows_keys = !screen->shows_keys;
    else if (key == 'R')
        screen->order->reverse = !screen->order->reverse;
    else if (key == 't')
        screen->order->hide_tenants = !screen->order->hide_tenants;
    else if (key == 'd')
        next_device(screen);
    else if (key == '+' || key == '-')
        change_interval(screen, key == '-');
    else if (key == ' ')
        screen->is_frozen = !screen->is_frozen;
    else if (key == '\t')
        mark_next(screen);
    else if (key == 'k' || key == 'e')
        act_on_marked(screen, key == 'k' ? TOP_PIN : TOP_EVICT);
    else if (!press_sort(screen, key))
        press_move(screen, key);
}

/* ---- the loop ---- */

/* Waits for a key, a signal, or the time `until`. False if the terminal is closed. */
static bool wait_for_input(const sigset_t *unblocked, bool has_keys, int64_t until)
{
    int64_t left = until - gc_clock_ms();
    left = left > 0 ? left : 0;
    const struct timespec wait = {.tv_sec = left / 1000, .tv_nsec = left % 1000 * 1000000};
    /* Without keys only the closing of the terminal matters, which poll always reports. */
    struct pollfd input = {.fd = has_keys ? STDIN_FILENO : STDOUT_FILENO,
                           .events = has_keys ? POLLIN : 0};
    const int count = ppoll(&input, 1, &wait, unblocked);
    if (count < 0 && errno != EINTR)
        return false;
    return count <= 0 || (input.revents & (POLLHUP | POLLERR | POLLNVAL)) == 0;
}

static void loop(struct screen *screen, const sigset_t *unblocked)
{
    const bool has_keys = isatty(STDIN_FILENO) == 1;
    int64_t next = gc_clock_ms();
    while (!screen->quits && ending_signal == 0) {
        if (gc_clock_ms() >= next) {
            if (!screen->is_frozen)
                read_view(screen);
            next = gc_clock_ms() + screen->interval_ms;
        }
        draw(screen);
        if (!wait_for_input(unblocked, has_keys, next))
            return;
        bool pressed = false;
        for (int key = getch(); key != ERR && !screen->quits; key = getch()) {
            press(screen, key);
            pressed = true;
        }
        if (pressed)
            sort_rows(screen);
    }
}

static void set_up(struct screen *screen)
{
    cbreak();
    noecho();
    nonl();
    keypad(stdscr, TRUE);
    nodelay(stdscr, TRUE);
    set_escdelay(25);
    leaveok(stdscr, TRUE);
    curs_set(0);
    const char *no_color = getenv("NO_COLOR");
    screen->has_colors = (no_color == NULL || no_color[0] == '\0') && has_colors() &&
                         start_color() == OK && use_default_colors() == OK;
    if (screen->has_colors) {
        init_pair(PAIR_SUM, COLOR_CYAN, -1);
        init_pair(PAIR_NEAR, COLOR_YELLOW, -1);
        init_pair(PAIR_OVER, COLOR_RED, -1);
    }
}

enum top_screen_end top_screen_run(struct top_reader *reader, struct top_order *order,
                                   unsigned interval_ms, int *signal_number)
{
    struct screen screen = {.reader = reader, .order = order, .interval_ms = interval_ms};
    struct sigaction note = {.sa_handler = record_signal};
    sigset_t blocked, unblocked;
    if (!top_terminal_can_show())
        return TOP_SCREEN_NO_TERMINAL;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGWINCH);
    for (size_t i = 0; i < ENDING_COUNT; i++)
        sigaddset(&blocked, ending_signals[i]);
    pthread_sigmask(SIG_BLOCK, &blocked, &unblocked);
    for (size_t i = 0; i < ENDING_COUNT; i++)
        sigaction(ending_signals[i], &note, NULL);
    use_tioctl(TRUE);
    SCREEN *terminal = newterm(NULL, stdout, stdin);
    if (terminal != NULL) {
        top_view_init(&screen.view);
        set_up(&screen);
        loop(&screen, &unblocked);
        endwin();
        delscreen(terminal);
        top_view_fini(&screen.view);
        top_history_fini(&screen.history);
        free(screen.rows);
    }
    for (size_t i = 0; i < ENDING_COUNT; i++)
        signal(ending_signals[i], SIG_DFL);
    *signal_number = ending_signal;
    pthread_sigmask(SIG_SETMASK, &unblocked, NULL);
    if (terminal == NULL)
        return TOP_SCREEN_NO_TERMINAL;
    return *signal_number != 0 && *signal_number != SIGINT ? TOP_SCREEN_SIGNAL : TOP_SCREEN_QUIT;
}

/* The live screen: a line of counts, the table, a line of keys; fewer lines on a low terminal.
 *
 * Signals that end the tool are blocked except while it waits, so the terminal is never left half-
 * drawn: the handler records the signal, the loop ends, endwin restores the terminal. Untrusted
 * text reaches the terminal only through top_text, which escapes it. */
#define _GNU_SOURCE
#include "tools/live/top_screen.h"
#include "core/base/clock.h"
#include "tools/live/top_look.h"
#include "tools/live/top_prompt.h"
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

/* The question in the last line. */
enum question { ASKS_NOTHING, ASKS_FILTER, ASKS_LIMIT, ASKS_LOWER_LIMIT, ASKS_PAUSE };

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
    enum question question;
    struct top_prompt prompt;
    struct gc_size_spec limit;     /* the one to confirm */
    char filter[TOP_PROMPT_BYTES]; /* "": all rows */
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

static bool is_marked_shown(const struct screen *screen)
{
    for (size_t i = 0; screen->rows != NULL && i < screen->row_count; i++) {
        const struct top_account *account = &screen->view.accounts[screen->rows[i]];
        if (screen->view.subjects[account->subject].key == screen->marked)
            return true;
    }
    return false;
}

static void sort_rows(struct screen *screen)
{
    free(screen->rows);
    screen->row_count = 0;
    screen->rows = top_view_sort(&screen->view, screen->order, &screen->row_count);
    const char *filter = screen->question == ASKS_FILTER ? screen->prompt.text : screen->filter;
    if (screen->rows != NULL && filter[0] != '\0')
        screen->row_count =
            top_prompt_filter(&screen->view, filter, screen->rows, screen->row_count);
    if (!is_marked_shown(screen))
        screen->marked = 0; /* no key acts on a process that is not on the screen */
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

/* Without colours trouble is bold, and a row that stands still dim. */
static attr_t row_look(const struct screen *screen, const struct top_account *account)
{
    const struct top_subject *subject = &screen->view.subjects[account->subject];
    const enum top_look trouble = top_look_of(subject, &account->figures);
    attr_t look = A_NORMAL;
    if (subject->kind == TOP_DEVICE || subject->kind == TOP_GROUP || trouble == TOP_LOOK_OVER ||
        (trouble == TOP_LOOK_WAITS && !screen->has_colors))
        look |= A_BOLD;
    if (trouble == TOP_LOOK_STILL && !screen->has_colors)
        look |= A_DIM;
    return look | (screen->has_colors ? (attr_t)COLOR_PAIR(trouble) : 0);
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
    char filter[TOP_PROMPT_BYTES + 16] = "";
    char text[256 + TOP_PROMPT_BYTES];
    top_text_counts(&screen->view, counts, sizeof(counts));
    if (screen->filter[0] != '\0')
        snprintf(filter, sizeof(filter), "; only %s", screen->filter);
    if (screen->why != NULL)
        snprintf(text, sizeof(text), "gpucache top: %s", screen->why);
    else
        snprintf(text, sizeof(text), "gpucache top: %s%s; by %s%s; %s%u.%us", counts, filter,
                 top_sort_word(screen->order->sort), screen->order->reverse ? " reversed" : "",
                 screen->is_frozen ? "frozen, " : "", screen->interval_ms / 1000,
                 screen->interval_ms % 1000 / 100);
    draw_text(0, text);
}

static void draw_keys(void)
{
    static const char *const lines[] = {
#define TOP_KEY(keys, text) keys, text,
#define TOP_HINT(text) text, NULL,
#include "tools/live/top_keys.def"
#undef TOP_KEY
#undef TOP_HINT
    };
    int line = 0;
    draw_text(line++, "gpucache top: keys; any key returns");
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]) && line < LINES; i += 2) {
        char text[TOP_WIDTH_MAX];
        snprintf(text, sizeof(text), lines[i + 1] != NULL ? "%-21s%s" : "%s%s", lines[i],
                 lines[i + 1] != NULL ? lines[i + 1] : "");
        draw_text(line++, text);
    }
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

static const struct top_subject *marked_subject(const struct screen *screen)
{
    for (size_t i = 0; i < screen->view.subject_count && screen->marked != 0; i++)
        if (screen->view.subjects[i].key == screen->marked &&
            screen->view.subjects[i].kind == TOP_PROCESS)
            return &screen->view.subjects[i];
    return NULL;
}

/* The question, what was said, or the keys. */
static void draw_last_line(const struct screen *screen)
{
    char text[3 * TOP_NAME_BYTES + 160];
    char who[TOP_NAME_BYTES + 32] = "the process, which has ended";
    const struct top_subject *subject = marked_subject(screen);
    if (subject != NULL)
        snprintf(who, sizeof(who), "%d %s", subject->pid, subject->name);
    if (screen->question == ASKS_FILTER)
        snprintf(text, sizeof(text), "filter: %s_", screen->prompt.text);
    else if (screen->question == ASKS_LIMIT)
        snprintf(text, sizeof(text), "%s%slimit of %s (8GiB, 50%%, none): %s_",
                 screen->said != NULL ? screen->said : "", screen->said != NULL ? "; " : "", who,
                 screen->prompt.text);
    else if (screen->question == ASKS_LOWER_LIMIT)
        snprintf(text, sizeof(text),
                 "%s is below the live memory of %s: its requests will be refused. y: limit it",
                 screen->prompt.text, who);
    else if (screen->question == ASKS_PAUSE)
        snprintf(text, sizeof(text), "pause %s? Its work stops until it is let go on. y: pause it",
                 who);
    else
        snprintf(text, sizeof(text), "%s",
                 screen->said != NULL ? screen->said
                                      : "q quit  ? keys  / filter  Tab mark  < > sort  R reverse  "
                                        "T tenants  d device  space freeze");
    draw_text(LINES - 1, text);
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
    if (LINES >= 6 || screen->question != ASKS_NOTHING)
        draw_last_line(screen);
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

static const struct top_subject *row_subject(const struct screen *screen, size_t row)
{
    return &screen->view.subjects[screen->view.accounts[screen->rows[row]].subject];
}

/* The first row of a process: one on several devices has a row for each. */
static bool begins_process(const struct screen *screen, size_t row)
{
    const struct top_subject *subject = row_subject(screen, row);
    for (size_t i = 0; i < row; i++)
        if (row_subject(screen, i) == subject)
            return false;
    return subject->kind == TOP_PROCESS;
}

/* Marks the first process after the marked one, or before it; none at the end. */
static void mark_next(struct screen *screen, bool is_back)
{
    const size_t page = page_lines();
    size_t last = SIZE_MAX, found = SIZE_MAX;
    bool is_behind = screen->marked == 0;
    for (size_t i = 0; i < screen->row_count && found == SIZE_MAX; i++) {
        const size_t row = is_back ? screen->row_count - 1 - i : i;
        if (!begins_process(screen, row))
            continue;
        last = row;
        if (is_behind)
            found = row;
        is_behind = is_behind || row_subject(screen, row)->key == screen->marked;
    }
    /* A marked process that is not listed any more. */
    if (found == SIZE_MAX && !is_behind)
        found = last;
    screen->marked = found != SIZE_MAX ? row_subject(screen, found)->key : 0;
    screen->said = "no process is marked";
    if (found == SIZE_MAX)
        return;
    screen->said = row_subject(screen, found)->takes_turns
                       ? "marked: k pin, or not any more  e evict  l limit  t trim  p pause"
                       : "marked: l limit  t trim  p pause, or go on  Tab the next one";
    if (found < screen->first_row)
        screen->first_row = found;
    else if (page > 0 && found >= screen->first_row + page)
        screen->first_row = found - page + 1;
}

static void act_on_marked(struct screen *screen, enum top_action action)
{
    const struct top_subject *subject = marked_subject(screen);
    if (subject == NULL)
        screen->said = "no process is marked: Tab marks one";
    else if ((action == TOP_PIN || action == TOP_EVICT) && !subject->takes_turns)
        screen->said = "it takes no turns: GPUCACHE_OVERCOMMIT=swap";
    else if (screen->reader->act == NULL)
        screen->said = "it cannot be done from here";
    else
        screen->said = screen->reader->act(screen->reader, subject, action, &screen->limit);
}

/* ---- questions ---- */

static void ask(struct screen *screen, enum question question)
{
    if (question != ASKS_FILTER && marked_subject(screen) == NULL) {
        screen->said = "no process is marked: Tab marks one";
        return;
    }
    screen->question = question;
    screen->prompt = (struct top_prompt){.used = 0};
}

/* Whether the limit is below the live memory of the marked process on a device. */
static bool is_below_live(const struct screen *screen)
{
    const struct top_subject *subject = marked_subject(screen);
    for (size_t i = 0; i < screen->view.account_count && subject != NULL; i++) {
        const struct top_account *account = &screen->view.accounts[i];
        if (&screen->view.subjects[account->subject] != subject || account->device == TOP_NONE)
            continue;
        const uint64_t total = screen->view.devices[account->device].total_bytes;
        if (gc_size_spec_resolve(&screen->limit, 0, NULL, total) < account->figures.requested)
            return true;
    }
    return false;
}

static void take_limit(struct screen *screen)
{
    screen->limit = (struct gc_size_spec){.count = 0};
    if (strcmp(screen->prompt.text, "none") != 0 &&
        gc_size_spec_parse(screen->prompt.text, false, &screen->limit) != GC_OK) {
        screen->said = "not a size";
        return;
    }
    screen->question = is_below_live(screen) ? ASKS_LOWER_LIMIT : ASKS_NOTHING;
    if (screen->question == ASKS_NOTHING)
        act_on_marked(screen, TOP_LIMIT);
}

/* A key while a question stands. */
static void answer(struct screen *screen, int key)
{
    const enum question question = screen->question;
    if (question == ASKS_LOWER_LIMIT || question == ASKS_PAUSE) {
        screen->question = ASKS_NOTHING;
        if (key == 'y' || key == 'Y')
            act_on_marked(screen, question == ASKS_PAUSE ? TOP_PAUSE : TOP_LIMIT);
        else
            screen->said = "nothing was done";
        return;
    }
    const int byte = key == KEY_BACKSPACE || key == KEY_DC ? '\b' : key == KEY_ENTER ? '\r' : key;
    const enum top_prompt_state state = top_prompt_press(&screen->prompt, byte);
    if (state == TOP_PROMPT_OPEN)
        return;
    if (state == TOP_PROMPT_DONE && question == ASKS_LIMIT) {
        take_limit(screen);
        return;
    }
    screen->question = ASKS_NOTHING;
    if (question == ASKS_FILTER)
        snprintf(screen->filter, sizeof(screen->filter), "%s",
                 state == TOP_PROMPT_DONE ? screen->prompt.text : "");
    if (state == TOP_PROMPT_LEFT)
        while (getch() != ERR)
            continue;
}

/* p: asks before it pauses. */
static void pause_or_resume(struct screen *screen)
{
    const struct top_subject *subject = marked_subject(screen);
    if (subject != NULL && subject->state == TOP_PAUSED)
        act_on_marked(screen, TOP_PAUSE);
    else
        ask(screen, ASKS_PAUSE);
}

/* Escape alone leaves the list of keys and ends the filter. Otherwise Escape begins a key that
 * curses does not know; the key's other bytes are dropped. */
static void press_escape(struct screen *screen)
{
    while (getch() != ERR)
        continue;
    screen->shows_keys = false;
    screen->filter[0] = '\0';
}

static void press(struct screen *screen, int key)
{
    screen->said = NULL;
    const bool is_asked = screen->question != ASKS_NOTHING;
    if (key == KEY_INTERRUPT || (!is_asked && (key == 'q' || key == 'Q')))
        screen->quits = true;
    else if (is_asked && key != KEY_RESIZE)
        answer(screen, key);
    else if (key == KEY_ESCAPE)
        press_escape(screen);
    else if (key == KEY_RESIZE || key == KEY_REDRAW)
        clearok(stdscr, TRUE);
    else if (screen->shows_keys || key == '?')
        screen->shows_keys = !screen->shows_keys;
    else if (key == 'R')
        screen->order->reverse = !screen->order->reverse;
    else if (key == 'T')
        screen->order->hide_tenants = !screen->order->hide_tenants;
    else if (key == 'd')
        next_device(screen);
    else if (key == '+' || key == '-')
        change_interval(screen, key == '-');
    else if (key == ' ')
        screen->is_frozen = !screen->is_frozen;
    else if (key == '\t' || key == KEY_BTAB)
        mark_next(screen, key == KEY_BTAB);
    else if (key == '/')
        ask(screen, ASKS_FILTER);
    else if (key == 'l')
        ask(screen, ASKS_LIMIT);
    else if (key == 'p')
        pause_or_resume(screen);
    else if (key == 't')
        act_on_marked(screen, TOP_TRIM);
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
        init_pair(TOP_LOOK_SUM, COLOR_CYAN, -1);
        init_pair(TOP_LOOK_NEAR, COLOR_YELLOW, -1);
        init_pair(TOP_LOOK_OVER, COLOR_RED, -1);
        init_pair(TOP_LOOK_WAITS, COLOR_MAGENTA, -1);
        init_pair(TOP_LOOK_STILL, COLOR_BLUE, -1);
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

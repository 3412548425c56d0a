/* The two loops over every byte of a big report: which lines are rows, and what their cells are.

   They decide nothing else. `_rows.pyi` says what each takes and gives; whatever is unusual is given back as it is, to
   the readers in Python, which also stand in where this file was not compiled. A report may be anyone's: nothing is read
   at or behind the end of its block, and nothing is written whose room was not counted before.
*/

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

typedef struct {
    const char *begin;
    const char *end; /* behind the last character */
} Text;

static Py_ssize_t length(Text text) { return text.end - text.begin; }

static bool same(Text one, Text other)
{
    return length(one) == length(other) && memcmp(one.begin, other.begin, length(one)) == 0;
}

static bool begins_with(Text text, Text beginning)
{
    return length(text) >= length(beginning) && memcmp(text.begin, beginning.begin, length(beginning)) == 0;
}

static bool ends_with(Text text, Text ending)
{
    return length(text) >= length(ending) && memcmp(text.end - length(ending), ending.begin, length(ending)) == 0;
}

static bool is_digit(char letter) { return letter >= '0' && letter <= '9'; }

/* The first such letter from `at` on; NULL where there is none. */
static const char *next(char letter, const char *at, const char *end)
{
    return at == end ? NULL : memchr(at, letter, end - at);
}

static Text text_of(const Py_buffer *buffer)
{
    return (Text){buffer->buf, (const char *)buffer->buf + buffer->len};
}

static Text text_in(PyObject *bytes)
{
    return (Text){PyBytes_AS_STRING(bytes), PyBytes_AS_STRING(bytes) + PyBytes_GET_SIZE(bytes)};
}

/* ---------------------------------------------------------------------------------------------------- dictionaries */

/* A text that was met, and the one that followed it last: the texts of rows come in cycles. */
typedef struct {
    Text text;
    uint64_t hash;
    int32_t successor;
} Word;

/* Distinct texts, in the order they were met. */
typedef struct {
    Word *words;
    int32_t count;
    int32_t latest;
    int32_t *slots; /* words by their hashes, -1 for none: at least twice as many as there are words */
    uint32_t mask;
} Dictionary;

#define FIRST_SLOTS 64
#define MOST_PROBES 128 /* of texts that were made to collide there may be so many: a slower reader is proof to them */

static uint64_t hash_of(Text text)
{
    uint64_t hash = 0x9e3779b97f4a7c15u ^ (uint64_t)length(text), part;
    const char *at = text.begin;
    for (; text.end - at >= 8; at += 8) {
        memcpy(&part, at, 8);
        hash = (hash ^ part) * 0xff51afd7ed558ccdu;
        hash ^= hash >> 32;
    }
    part = 0;
    memcpy(&part, at, text.end - at);
    hash = (hash ^ part) * 0xff51afd7ed558ccdu;
    return hash ^ hash >> 32;
}

/* Twice as many slots, or the first ones; false where there is no memory for them. */
static bool grow(Dictionary *dictionary)
{
    const uint32_t size = dictionary->slots == NULL ? FIRST_SLOTS : 2 * (dictionary->mask + 1);
    Word *words = PyMem_RawRealloc(dictionary->words, size / 2 * sizeof *words);
    if (words == NULL)
        return false;
    dictionary->words = words;
    int32_t *slots = PyMem_RawMalloc(size * sizeof *slots);
    if (slots == NULL)
        return false;
    memset(slots, -1, size * sizeof *slots);
    for (int32_t code = 0; code < dictionary->count; code++) {
        uint32_t at = (uint32_t)words[code].hash & (size - 1);
        while (slots[at] >= 0)
            at = (at + 1) & (size - 1);
        slots[at] = code;
    }
    PyMem_RawFree(dictionary->slots);
    dictionary->slots = slots;
    dictionary->mask = size - 1;
    return true;
}

static bool any(Text Py_UNUSED(text)) { return true; }

static bool none(Text Py_UNUSED(text)) { return false; }

/* The code of a text, which is put to the others if it is new and `may_be_new`; -1 where it is not among them. */
static int32_t code_of(Dictionary *dictionary, Text text, bool (*may_be_new)(Text))
{
    if ((dictionary->slots == NULL || 2 * (uint32_t)dictionary->count >= dictionary->mask) && !grow(dictionary))
        return -1;
    const uint64_t hash = hash_of(text);
    uint32_t at = (uint32_t)hash & dictionary->mask;
    for (int probe = 0; probe < MOST_PROBES; probe++, at = (at + 1) & dictionary->mask) {
        int32_t code = dictionary->slots[at];
        if (code >= 0 && !(dictionary->words[code].hash == hash && same(dictionary->words[code].text, text)))
            continue;
        if (code < 0) {
            if (!may_be_new(text))
                return -1;
            code = dictionary->slots[at] = dictionary->count++;
            dictionary->words[code] = (Word){text, hash, code};
        }
        dictionary->words[dictionary->latest].successor = code;
        return dictionary->latest = code;
    }
    return -1;
}

/* The text that is expected next, if it stands at `at` with a quote behind it: its code, else -1. */
static int32_t expected_at(Dictionary *dictionary, const char *at, const char *end)
{
    if (dictionary->count == 0)
        return -1;
    const int32_t code = dictionary->words[dictionary->latest].successor;
    const Text expected = dictionary->words[code].text;
    if (end - at <= length(expected) || at[length(expected)] != '"' || !begins_with((Text){at, end}, expected))
        return -1;
    return dictionary->latest = code;
}

static void forget(Dictionary *dictionary)
{
    PyMem_RawFree(dictionary->words);
    PyMem_RawFree(dictionary->slots);
}

/* --------------------------------------------------------------------------------------------------------- lines */

/* Behind the cell in quotes that begins at `at`, and the comma that follows it; NULL where there is no such cell. */
static const char *behind_cell(const char *at, const char *end, bool digits)
{
    if (at == end || *at != '"')
        return NULL;
    const char *close = next('"', at + 1, end);
    if (close == NULL || end - close < 2 || close[1] != ',')
        return NULL;
    if (digits) {
        if (close == at + 1)
            return NULL;
        for (const char *letter = at + 1; letter < close; letter++)
            if (!is_digit(*letter))
                return NULL;
    }
    return close + 2;
}

/* What the rows of a launch begin with: two cells of digits, its ids, and so many others. Empty where a line begins
   otherwise. */
static Text identity_of(Text line, int others)
{
    const char *at = behind_cell(line.begin, line.end, true);
    if (at != NULL)
        at = behind_cell(at, line.end, true);
    for (int cell = 0; at != NULL && cell < others; cell++)
        at = behind_cell(at, line.end, false);
    return (Text){line.begin, at == NULL ? line.begin : at};
}

/* A launch, by what its rows begin with; another line; the known header, behind which no launch goes on. */
typedef enum { LAUNCH, OTHER, HEADER } What;

typedef struct {
    What what;
    Text text;
    Py_ssize_t line;  /* how many lines stand before it */
    Py_ssize_t tails; /* how many bytes of tails */
} Event;

/* A line of the current launch with a known tail, and how many events were before it. */
typedef struct {
    int32_t code, events;
} Known;

typedef struct {
    Text prefix; /* what the rows of the current launch begin with */
    Text ending, other_ending; /* what rows end with */
    Text header;
    int others;
    Dictionary *known; /* tails */
    char *tails;
    Py_ssize_t written;
    Event *events;
    Known *tails_known;
    int count, count_known, most;
    Py_ssize_t lines;
} Recognised;

static const char LINE_ENDS[] = "\n\n";
static const Text NOWHERE = {LINE_ENDS, LINE_ENDS + 2}; /* no line is or begins so */

static bool ends_a_row(const Recognised *found, Text text)
{
    return ends_with(text, found->ending) || ends_with(text, found->other_ending);
}

static void note(Recognised *found, What what, Text text)
{
    found->events[found->count++] = (Event){what, text, found->lines, found->written};
}

/* Take in a line that begins like the current launch, and is no row of it. */
static void take_odd(Recognised *found, Text line, Text tail)
{
    const int32_t code = code_of(found->known, tail, none);
    if (code < 0)
        note(found, OTHER, line);
    else
        found->tails_known[found->count_known++] = (Known){code, found->count};
}

/* Take in the lines from `at` on; where the first one begins that was not. */
static const char *take_lines(Recognised *found, const char *at, const char *end)
{
    while (found->count + found->count_known < found->most) {
        const char *line_end = next('\n', at, end);
        if (line_end == NULL)
            break;
        const Text line = {at, line_end + 1};
        Text tail = line;
        bool is_row = false;
        if (begins_with(line, found->prefix)) {
            tail.begin += length(found->prefix);
            is_row = ends_a_row(found, tail);
            if (!is_row)
                take_odd(found, line, tail);
        } else {
            const Text identity = ends_a_row(found, line) ? identity_of(line, found->others) : (Text){at, at};
            tail.begin = identity.end;
            is_row = length(identity) > 0 && ends_a_row(found, tail);
            if (is_row) {
                note(found, LAUNCH, found->prefix = identity);
            } else if (same(line, found->header)) {
                note(found, HEADER, line);
                found->prefix = NOWHERE;
            } else {
                note(found, OTHER, line);
            }
        }
        if (is_row) {
            memcpy(found->tails + found->written, tail.begin, length(tail));
            found->written += length(tail);
        }
        found->lines++;
        at = line.end;
    }
    return at;
}

/* Recognises lines, among them those whose tails it was told. */
typedef struct {
    PyObject_HEAD
    Dictionary known;
    PyObject *kept; /* a list of known tails */
    PyObject *header; /* bytes, or NULL */
    bool busy;      /* another thread is in the middle of it */
} Recogniser;

static PyObject *event_of(const Event *event, const char *block)
{
    return Py_BuildValue("(iy#nnn)", event->what, event->text.begin, length(event->text), event->text.end - block,
                         event->line, event->tails);
}

static PyObject *events_of(const Recognised *found, const char *block)
{
    PyObject *list = PyList_New(found->count);
    for (int at = 0; list != NULL && at < found->count; at++) {
        PyObject *event = event_of(&found->events[at], block);
        if (event == NULL)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, at, event);
    }
    return list;
}

static bool is_free(const Recogniser *self)
{
    if (self->busy)
        PyErr_SetString(PyExc_RuntimeError, "another thread uses this recogniser");
    return !self->busy;
}

static PyObject *recognise(Recogniser *self, PyObject *arguments)
{
    Py_buffer block, prefix, ending, other_ending, tails;
    Py_ssize_t start;
    Recognised found = {.count = 0, .known = &self->known};
    if (!is_free(self) || !PyArg_ParseTuple(arguments, "y*ny*y*y*iiw*:recognise", &block, &start, &prefix, &ending,
                                            &other_ending, &found.others, &found.most, &tails))
        return NULL;
    PyObject *result = NULL;
    if (start < 0 || start > block.len || tails.len < block.len - start || found.most < 1 || ending.len < 1 ||
        other_ending.len < 1) {
        PyErr_SetString(PyExc_ValueError, "tails need as much room as the block, and rows have an end");
    } else if ((found.events = PyMem_New(Event, found.most)) == NULL ||
               (found.tails_known = PyMem_New(Known, found.most)) == NULL) {
        PyErr_NoMemory();
    } else {
        const Text text = text_of(&block);
        const char *at;
        found.prefix = text_of(&prefix);
        found.ending = text_of(&ending);
        found.other_ending = text_of(&other_ending);
        found.header = self->header == NULL ? NOWHERE : text_in(self->header);
        found.tails = tails.buf;
        self->busy = true;
        Py_BEGIN_ALLOW_THREADS
        at = take_lines(&found, text.begin + start, text.end);
        Py_END_ALLOW_THREADS
        self->busy = false;
        PyObject *events = events_of(&found, text.begin);
        if (events != NULL)
            result = Py_BuildValue("(nnnNy#)", at - text.begin, found.lines, found.written, events, found.tails_known,
                                   found.count_known * (Py_ssize_t)sizeof *found.tails_known);
    }
    PyMem_Free(found.events);
    PyMem_Free(found.tails_known);
    PyBuffer_Release(&block);
    PyBuffer_Release(&prefix);
    PyBuffer_Release(&ending);
    PyBuffer_Release(&other_ending);
    PyBuffer_Release(&tails);
    return result;
}

static PyObject *keep(Recogniser *self, PyObject *tail)
{
    if (!is_free(self))
        return NULL;
    if (!PyBytes_Check(tail))
        return PyErr_Format(PyExc_TypeError, "a tail is bytes");
    const Py_ssize_t kept = PyList_GET_SIZE(self->kept);
    const Text text = text_in(tail);
    if (PyList_Append(self->kept, tail) < 0)
        return NULL;
    const int32_t code = code_of(&self->known, text, any);
    if (code != kept && PyList_SetSlice(self->kept, kept, kept + 1, NULL) < 0) /* it was known, or there is no room */
        return NULL;
    return PyLong_FromLong(code);
}

static PyObject *keep_header(Recogniser *self, PyObject *line)
{
    if (!is_free(self))
        return NULL;
    if (!PyBytes_Check(line))
        return PyErr_Format(PyExc_TypeError, "a header is bytes");
    Py_XSETREF(self->header, Py_NewRef(line));
    Py_RETURN_NONE;
}

static PyObject *new_recogniser(PyTypeObject *type, PyObject *arguments, PyObject *Py_UNUSED(keywords))
{
    if (!PyArg_ParseTuple(arguments, ":Recogniser"))
        return NULL;
    Recogniser *self = (Recogniser *)type->tp_alloc(type, 0);
    if (self != NULL && (self->kept = PyList_New(0)) == NULL)
        Py_CLEAR(self);
    return (PyObject *)self;
}

static void end_recogniser(Recogniser *self)
{
    PyTypeObject *type = Py_TYPE(self);
    forget(&self->known);
    Py_XDECREF(self->kept);
    Py_XDECREF(self->header);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyMethodDef methods_of_recognisers[] = {
    {"recognise", (PyCFunction)recognise, METH_VARARGS, "See _rows.pyi."},
    {"keep", (PyCFunction)keep, METH_O, "See _rows.pyi."},
    {"keep_header", (PyCFunction)keep_header, METH_O, "See _rows.pyi."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots_of_recognisers[] = {
    {Py_tp_new, new_recogniser},
    {Py_tp_dealloc, end_recogniser},
    {Py_tp_methods, methods_of_recognisers},
    {0, NULL},
};

static PyType_Spec recognisers = {
    "ncu_parsers._rows.Recogniser", sizeof(Recogniser), 0, Py_TPFLAGS_DEFAULT, slots_of_recognisers};

/* Whether a cell may hold a text: no line ends, no zeros, and nothing that stands for bytes that were none of UTF-8. */
static bool is_plain(Text text)
{
    for (const char *at = text.begin; at < text.end; at++)
        if (*at == '\n' || *at == '\r' || *at == '\0' || (text.end - at > 2 && memcmp(at, "\xef\xbf\xbd", 3) == 0))
            return false;
    return true;
}

/* --------------------------------------------------------------------------------------------------------- numbers */

typedef enum { NO_VOTE, OWN_VOTE, AMBIGUOUS } Vote; /* what a number says about the locale it is written in */

typedef struct {
    char point, group;
} Locale;

typedef struct {
    const char *begin, *end;
    uint64_t digits; /* without the point */
    int count;       /* of digits */
    int groups, decimals;
} Printed;

#define MOST_DIGITS 19 /* so many never overflow 64 bits */

static void take_digits(Printed *number, const char *end)
{
    for (; number->end < end && is_digit(*number->end); number->end++, number->count++)
        if (number->count < MOST_DIGITS)
            number->digits = number->digits * 10 + (uint64_t)(*number->end - '0');
}

/* Digits, in groups of three or not, and decimals or none, up to a quote; `end` is NULL where another text stands. */
static Printed printed_at(const char *at, const char *end, Locale locale)
{
    const Printed none = {.end = NULL};
    Printed number = {.begin = at, .end = at};
    take_digits(&number, end);
    if (number.count == 0)
        return none;
    if (number.end < end && *number.end == locale.group && (number.count > 3 || *at == '0'))
        return none;
    while (number.end < end && *number.end == locale.group) {
        const int before = number.count;
        number.end++;
        take_digits(&number, end);
        number.groups++;
        if (number.count - before != 3)
            return none;
    }
    if (number.end < end && *number.end == locale.point) {
        const int before = number.count;
        number.end++;
        take_digits(&number, end);
        number.decimals = number.count - before;
        if (number.decimals == 0)
            return none;
    }
    return number.end < end && *number.end == '"' ? number : none;
}

/* As `units.vote` has it: a mark before exactly three digits, and behind one to three, may group thousands. */
static Vote vote_of(const Printed *number)
{
    const bool pointed = number->decimals > 0;
    if (number->groups == 0 && !pointed)
        return NO_VOTE;
    if (number->groups > 1 || (number->groups == 1 && pointed))
        return OWN_VOTE;
    const bool may_group = pointed && number->decimals == 3 && number->count <= 6 && *number->begin != '0';
    return number->groups == 1 || may_group ? AMBIGUOUS : OWN_VOTE;
}

static const double POWERS[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,
                                1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19};

/* The nearest double, or false where it takes more care: digits of up to 53 bits and powers of ten up to the 22nd are
   exact, so their quotient is rounded once (W. D. Clinger, How to read floating point numbers accurately, 1990). */
static bool value_of(const Printed *number, double *value)
{
    uint64_t digits = number->digits;
    int decimals = number->decimals;
    if (number->count > MOST_DIGITS)
        return false;
    while (digits > 1ull << 53) {
        if (decimals == 0 || digits % 10 != 0)
            return false;
        digits /= 10;
        decimals--;
    }
    *value = (double)digits / POWERS[decimals];
    return true;
}

static bool whole_of(Text text, int64_t *value)
{
    if (length(text) < 1 || length(text) >= MOST_DIGITS)
        return false;
    *value = 0;
    for (const char *at = text.begin; at < text.end; at++) {
        if (!is_digit(*at))
            return false;
        *value = *value * 10 + (*at - '0');
    }
    return true;
}

/* Three numbers as in "(16, 16, 1)". */
static bool shape_of(Text text, int32_t *shape)
{
    static const char *const before[] = {"(", ", ", ", "};
    const char *at = text.begin;
    for (int side = 0; side < 3; side++) {
        const Text mark = {before[side], before[side] + strlen(before[side])};
        if (!begins_with((Text){at, text.end}, mark))
            return false;
        const char *end = at += length(mark);
        while (end < text.end && is_digit(*end))
            end++;
        int64_t number;
        if (!whole_of((Text){at, end}, &number) || number > INT32_MAX)
            return false;
        shape[side] = (int32_t)number;
        at = end;
    }
    return text.end - at == 1 && *at == ')';
}

/* ----------------------------------------------------------------------------------------------------------- cells */

enum { TEXTS = 't', NUMBERS = 'n', WHOLE = 'i', SHAPES = 's' }; /* kinds of columns */

typedef struct {
    char kind;
    void *cells; /* an item a row: int32_t codes, double, int64_t, three int32_t */
    char *votes; /* of numbers */
    Dictionary dictionary; /* of texts */
} Column;

/* A cell of a column of numbers that is no simple number, or one that takes more care. */
typedef struct {
    Text text;
    int column;
    Py_ssize_t row;
    bool is_number;
} Odd;

typedef struct {
    Column *columns;
    int width;
    Py_ssize_t rows;
    Locale locale;
    Odd *odd;
    Py_ssize_t odd_count, odd_room;
} Table;

static size_t cell_size(char kind)
{
    switch (kind) {
    case TEXTS:
        return sizeof(int32_t);
    case SHAPES:
        return 3 * sizeof(int32_t);
    case NUMBERS:
    case WHOLE:
        return sizeof(double);
    default:
        return 0;
    }
}

static bool keep_odd(Table *table, Odd odd)
{
    if (table->odd_count == table->odd_room) {
        const Py_ssize_t room = table->odd_room ? 2 * table->odd_room : 64;
        Odd *more = PyMem_RawRealloc(table->odd, room * sizeof *more);
        if (more == NULL)
            return false;
        table->odd = more;
        table->odd_room = room;
    }
    table->odd[table->odd_count++] = odd;
    return true;
}

/* The end of the number that begins at `at`; NULL where a line is no row. */
static const char *take_number(Table *table, int at_column, Py_ssize_t row, const char *at, const char *end)
{
    Column *column = &table->columns[at_column];
    double *value = (double *)column->cells + row;
    const Printed number = printed_at(at, end, table->locale);
    column->votes[row] = (char)(number.end == NULL ? NO_VOTE : vote_of(&number));
    if (number.end != NULL && value_of(&number, value))
        return number.end;
    *value = Py_NAN;
    const char *close = number.end == NULL ? next('"', at, end) : number.end;
    if (close == NULL || !is_plain((Text){at, close}))
        return NULL;
    return keep_odd(table, (Odd){{at, close}, at_column, row, number.end != NULL}) ? close : NULL;
}

/* The quote behind the cell whose text begins at `at`; NULL where a line is no row. */
static const char *take_cell(Table *table, int at_column, Py_ssize_t row, const char *at, const char *end)
{
    Column *column = &table->columns[at_column];
    if (column->kind == NUMBERS)
        return take_number(table, at_column, row, at, end);
    int32_t *code = (int32_t *)column->cells + row;
    if (column->kind == TEXTS && (*code = expected_at(&column->dictionary, at, end)) >= 0)
        return at + length(column->dictionary.words[*code].text);
    const char *close = next('"', at, end);
    if (close == NULL)
        return NULL;
    const Text text = {at, close};
    bool taken;
    if (column->kind == TEXTS)
        taken = (*code = code_of(&column->dictionary, text, is_plain)) >= 0;
    else if (column->kind == WHOLE)
        taken = whole_of(text, (int64_t *)column->cells + row);
    else
        taken = shape_of(text, (int32_t *)column->cells + 3 * row);
    return taken ? close : NULL;
}

/* Every line of a block as cells in quotes, behind which one of `endings` stands; false where a line is no such row. */
static bool take_rows(Table *table, Text block, bool commas_behind)
{
    const char *at = block.begin, *end = block.end;
    for (Py_ssize_t row = 0; row < table->rows; row++) {
        for (int column = 0; column < table->width; column++) {
            if (column > 0 && (at == end || *at++ != ','))
                return false;
            if (at == end || *at++ != '"')
                return false;
            at = take_cell(table, column, row, at, end);
            if (at == NULL)
                return false;
            at++;
        }
        if (commas_behind && at < end && *at == ',')
            at++;
        if (at < end && *at == '\r')
            at++;
        if (at == end || *at++ != '\n')
            return false;
    }
    return at == end;
}

static Py_ssize_t lines_of(Text block)
{
    Py_ssize_t lines = 0;
    for (const char *at = block.begin; (at = next('\n', at, block.end)) != NULL; at++)
        lines++;
    return lines;
}

static PyObject *words_of(const Dictionary *dictionary)
{
    PyObject *list = PyList_New(dictionary->count);
    for (int32_t at = 0; list != NULL && at < dictionary->count; at++) {
        const Text text = dictionary->words[at].text;
        PyObject *word = PyUnicode_DecodeUTF8(text.begin, length(text), NULL);
        if (word == NULL)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, at, word);
    }
    return list;
}

static PyObject *odd_of(const Table *table)
{
    PyObject *list = PyList_New(table->odd_count);
    for (Py_ssize_t at = 0; list != NULL && at < table->odd_count; at++) {
        const Odd *odd = &table->odd[at];
        PyObject *said = Py_BuildValue("(ins#O)", odd->column, odd->row, odd->text.begin, length(odd->text),
                                       odd->is_number ? Py_True : Py_False);
        if (said == NULL)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, at, said);
    }
    return list;
}

/* A bytearray of so many items, which `cells` is set to. */
static PyObject *room_for(Py_ssize_t items, size_t size, void **cells)
{
    PyObject *room = PyByteArray_FromStringAndSize(NULL, items * (Py_ssize_t)size);
    if (room != NULL)
        *cells = PyByteArray_AS_STRING(room);
    return room;
}

/* For each column its cells, votes and distinct texts; NULL without memory. */
static PyObject *columns_of(Table *table, const char *kinds)
{
    PyObject *list = PyList_New(table->width);
    for (int at = 0; list != NULL && at < table->width; at++) {
        Column *column = &table->columns[at];
        column->kind = kinds[at];
        void *votes = NULL;
        PyObject *cells = room_for(table->rows, cell_size(kinds[at]), &column->cells);
        PyObject *marks = room_for(kinds[at] == NUMBERS ? table->rows : 0, 1, &votes);
        PyObject *said = cells && marks ? Py_BuildValue("[OO]", cells, marks) : NULL;
        column->votes = votes;
        Py_XDECREF(cells);
        Py_XDECREF(marks);
        if (said == NULL)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, at, said);
    }
    return list;
}

/* Put the distinct texts behind what `columns_of` made; false with an exception. */
static bool add_words(const Table *table, PyObject *list)
{
    for (int at = 0; at < table->width; at++) {
        PyObject *words = words_of(&table->columns[at].dictionary);
        const bool added = words != NULL && PyList_Append(PyList_GET_ITEM(list, at), words) == 0;
        Py_XDECREF(words);
        if (!added)
            return false;
    }
    return true;
}

static bool known_kinds(const char *kinds, Py_ssize_t width)
{
    for (Py_ssize_t at = 0; at < width; at++)
        if (cell_size(kinds[at]) == 0)
            return false;
    return width > 0 && width <= INT16_MAX;
}

static PyObject *read_rows(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    Py_buffer block;
    const char *kinds;
    Py_ssize_t width;
    int point, commas_behind;
    if (!PyArg_ParseTuple(arguments, "y*s#Cp:read_rows", &block, &kinds, &width, &point, &commas_behind))
        return NULL;
    const Text text = text_of(&block);
    Table table = {.rows = lines_of(text), .locale = {(char)point, point == '.' ? ',' : '.'}};
    PyObject *columns = NULL, *result = NULL;
    if (!known_kinds(kinds, width)) {
        PyErr_SetString(PyExc_ValueError, "columns are of the kinds t, n, i and s");
    } else if ((table.columns = PyMem_Calloc(width, sizeof(Column))) == NULL) {
        PyErr_NoMemory();
    } else {
        table.width = (int)width;
        columns = columns_of(&table, kinds);
    }
    if (columns != NULL) {
        bool are_rows;
        Py_BEGIN_ALLOW_THREADS
        are_rows = take_rows(&table, text, commas_behind);
        Py_END_ALLOW_THREADS
        if (!are_rows)
            result = Py_NewRef(Py_None);
        else if (add_words(&table, columns))
            result = Py_BuildValue("(nON)", table.rows, columns, odd_of(&table));
    }
    for (int at = 0; at < table.width; at++)
        forget(&table.columns[at].dictionary);
    PyMem_Free(table.columns);
    PyMem_RawFree(table.odd);
    Py_XDECREF(columns);
    PyBuffer_Release(&block);
    return result;
}

static int add_recognisers(PyObject *module)
{
    PyObject *type = PyType_FromModuleAndSpec(module, &recognisers, NULL);
    const int added = type == NULL ? -1 : PyModule_AddType(module, (PyTypeObject *)type);
    Py_XDECREF(type);
    return added;
}

static PyMethodDef functions[] = {
    {"read_rows", read_rows, METH_VARARGS, "See _rows.pyi."},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {{Py_mod_exec, add_recognisers}, {0, NULL}};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, .m_name = "ncu_parsers._rows", .m_size = 0,
                                        .m_methods = functions, .m_slots = slots};

PyMODINIT_FUNC PyInit__rows(void) { return PyModuleDef_Init(&definition); }

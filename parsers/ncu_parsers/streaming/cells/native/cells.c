/* The loop over the cells of rows: numbers, whole numbers, shapes and texts, column by column. See `_rows.pyi`. */

#include "loops.h"

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

PyObject *read_rows(PyObject *Py_UNUSED(module), PyObject *arguments)
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

/* The loop over every byte of a CSV page: which lines are plain rows, and what their cells hold, column by column.

   It decides nothing else: any other line is given back as it is, to the page that judges it in Python. `_rows.pyi` says
   what it takes and returns. A report may be anyone's: nothing is read at or behind the end of its block, and nothing is
   written whose room was not counted before.
*/

#include "texts.h"

static bool holds(Text text, const char *words)
{
    const Text wanted = {words, words + strlen(words)};
    for (const char *at = text.begin; (at = next(*words, at, text.end)) != NULL; at++)
        if (begins_with((Text){at, text.end}, wanted))
            return true;
    return false;
}

/* Whether a line may be the header of a page: see `csv_pages.open_page`. */
static bool may_be_header(Text line)
{
    return (holds(line, "Kernel Name") || holds(line, "Function Name")) && (holds(line, "Metric Name") || holds(line, "ID"));
}

/* Whether a cell of this text may be taken without asking Python: no line end, no zero, nothing that stands for bytes
   that were no UTF-8, and no title that a header must have. */
static bool is_plain(Text text)
{
    for (const char *at = text.begin; at < text.end; at++)
        if (*at == '\n' || *at == '\r' || *at == '\0' || (text.end - at > 2 && memcmp(at, "\xef\xbf\xbd", 3) == 0))
            return false;
    return !holds(text, "Metric Name") && !(length(text) < 8 && holds(text, "ID"));
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
    if (length(text) < 1 || length(text) >= MOST_DIGITS || (length(text) > 1 && *text.begin == '0'))
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
    void *cells; /* an item per row: int32_t codes, double, int64_t, three int32_t */
    char *votes; /* of numbers */
    Dictionary dictionary; /* of texts */
} Column;

/* A cell of a column of numbers that is no simple number, or one that takes more care. */
typedef struct {
    Text text;
    int column;
    Py_ssize_t row;
    bool is_number;
} NonNumeric;

/* A line that is no plain row, and how many rows are before it. */
typedef struct {
    Py_ssize_t row;
    Text line;
} OtherLine;

/* An array that grows. */
typedef struct {
    char *items;
    Py_ssize_t count, room;
} Array;

typedef struct {
    Column *columns;
    int width;    /* of the header */
    int required; /* a row may end behind so many cells */
    int leading;  /* so many cells are often those of the row before */
    int label;    /* a row with nothing in this column must be longer than required; -1 for none */
    Locale locale;
    int64_t *begins; /* of each row in the block */
    Py_ssize_t rows;
    Array non_numeric, others;
} Page;

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

static bool append(Array *array, const void *item, size_t size)
{
    if (array->count == array->room) {
        const Py_ssize_t room = array->room ? 2 * array->room : 64;
        char *more = PyMem_RawRealloc(array->items, room * size);
        if (more == NULL)
            return false;
        array->items = more;
        array->room = room;
    }
    memcpy(array->items + array->count++ * size, item, size);
    return true;
}

/* The quote that closes the text beginning at `at`; a quote inside a text is written twice. NULL where there is none. */
static const char *closing_quote(const char *at, const char *end)
{
    for (at = next('"', at, end); at != NULL && end - at > 1 && at[1] == '"'; at = next('"', at + 2, end))
        ;
    return at;
}

/* The end of the number that begins at `at`; NULL where the line is no plain row. */
static const char *take_number(Page *page, int at_column, const char *at, const char *end)
{
    Column *column = &page->columns[at_column];
    double *value = (double *)column->cells + page->rows;
    const Printed number = printed_at(at, end, page->locale);
    column->votes[page->rows] = (char)(number.end == NULL ? NO_VOTE : vote_of(&number));
    if (number.end != NULL && value_of(&number, value))
        return number.end;
    *value = Py_NAN;
    const char *close = number.end == NULL ? closing_quote(at, end) : number.end;
    if (close == NULL || !is_plain((Text){at, close}))
        return NULL;
    const NonNumeric cell = {{at, close}, at_column, page->rows, number.end != NULL};
    return append(&page->non_numeric, &cell, sizeof cell) ? close : NULL;
}

/* The quote behind the cell whose text begins at `at`; NULL where the line is no plain row. */
static const char *take_cell(Page *page, int at_column, const char *at, const char *end)
{
    Column *column = &page->columns[at_column];
    if (column->kind == NUMBERS)
        return take_number(page, at_column, at, end);
    int32_t *code = (int32_t *)column->cells + page->rows;
    if (column->kind == TEXTS && (*code = expected_at(&column->dictionary, at, end)) >= 0)
        return at + length(column->dictionary.words[*code].text);
    const char *close = closing_quote(at, end);
    if (close == NULL)
        return NULL;
    const Text text = {at, close};
    bool taken;
    if (column->kind == TEXTS)
        taken = (*code = code_of(&column->dictionary, text, is_plain)) >= 0;
    else if (column->kind == WHOLE)
        taken = whole_of(text, (int64_t *)column->cells + page->rows);
    else
        taken = shape_of(text, (int32_t *)column->cells + 3 * page->rows);
    return taken ? close : NULL;
}

/* Give the first `page->leading` cells of a row the values that the row before has. */
static void copy_leading(Page *page)
{
    for (int column = 0; column < page->leading; column++) {
        const size_t size = cell_size(page->columns[column].kind);
        char *cell = (char *)page->columns[column].cells + page->rows * size;
        memcpy(cell, cell - size, size);
    }
}

/* The cells of the line at `at`, all in quotes, as the next row; where the line ends, or NULL if it is no plain row.
   `leading` is the text of the leading cells in the row before, and becomes that of this row. */
static const char *take_row(Page *page, Text *leading, const char *at, const char *end)
{
    const char *begin = at;
    int column = 0;
    if (page->rows > 0 && page->leading > 0 && begins_with((Text){at, end}, *leading)) {
        copy_leading(page);
        at += length(*leading);
        column = page->leading;
    }
    const bool is_repeated = column > 0;
    for (; column < page->width; column++) {
        if (column > 0 && (at == end || *at != ',')) {
            if (column < page->required)
                return NULL;
            break;
        }
        at += column > 0;
        if (column >= page->required && at < end && *at != '"') { /* a comma behind the last cell */
            at--;
            break;
        }
        if (at == end || *at++ != '"')
            return NULL;
        at = take_cell(page, column, at, end);
        if (at == NULL)
            return NULL;
        at++;
        if (column + 1 == page->leading && !is_repeated)
            *leading = (Text){begin, at};
    }
    const int cells = column;
    for (; column < page->width; column++)
        ((int32_t *)page->columns[column].cells)[page->rows] = -1;
    if (page->label >= 0 && cells <= page->required) {
        const Column *labels = &page->columns[page->label];
        const int32_t code = ((int32_t *)labels->cells)[page->rows];
        if (length(labels->dictionary.words[code].text) == 0)
            return NULL;
    }
    if (at < end && *at == ',')
        at++;
    if (at < end && *at == '\r')
        at++;
    return at < end && *at == '\n' ? at + 1 : NULL;
}

/* Take the lines of a block up to its end, or behind the first that may be a header; where that is, NULL without memory.
   A line without a line end is never a row. */
static const char *take_lines(Page *page, Text block)
{
    const char *at = block.begin;
    Text leading = {at, at};
    while (at < block.end) {
        const Py_ssize_t non_numeric = page->non_numeric.count;
        Text row_leading = leading;
        const char *after = take_row(page, &row_leading, at, block.end);
        if (after != NULL) {
            leading = row_leading;
            page->begins[page->rows++] = at - block.begin;
            at = after;
            continue;
        }
        page->non_numeric.count = non_numeric;
        after = next('\n', at, block.end);
        after = after == NULL ? block.end : after + 1;
        const OtherLine other = {page->rows, {at, after}};
        if (!append(&page->others, &other, sizeof other))
            return NULL;
        at = after;
        if (may_be_header(other.line))
            break;
    }
    return at;
}

/* --------------------------------------------------------------------------------------------------------- results */

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

/* Put `item` at a place of a list, whose reference it takes over; clears the list and returns false where it is NULL. */
static bool put(PyObject **list, Py_ssize_t at, PyObject *item)
{
    if (item == NULL)
        Py_CLEAR(*list);
    else
        PyList_SET_ITEM(*list, at, item);
    return item != NULL;
}

static PyObject *non_numeric_of(const Page *page)
{
    const NonNumeric *cells = (const NonNumeric *)page->non_numeric.items;
    PyObject *list = PyList_New(page->non_numeric.count);
    for (Py_ssize_t at = 0; list != NULL && at < page->non_numeric.count; at++)
        put(&list, at, Py_BuildValue("(ins#O)", cells[at].column, cells[at].row, cells[at].text.begin,
                                     length(cells[at].text), cells[at].is_number ? Py_True : Py_False));
    return list;
}

static PyObject *others_of(const Page *page, const char *begin)
{
    const OtherLine *lines = (const OtherLine *)page->others.items;
    PyObject *list = PyList_New(page->others.count);
    for (Py_ssize_t at = 0; list != NULL && at < page->others.count; at++)
        put(&list, at, Py_BuildValue("(nnn)", lines[at].row, lines[at].line.begin - begin, lines[at].line.end - begin));
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

/* For each column its cells and votes; NULL without memory. */
static PyObject *columns_of(Page *page, const char *kinds, Py_ssize_t rows)
{
    PyObject *list = PyList_New(page->width);
    for (int at = 0; list != NULL && at < page->width; at++) {
        Column *column = &page->columns[at];
        column->kind = kinds[at];
        void *votes = NULL;
        PyObject *cells = room_for(rows, cell_size(kinds[at]), &column->cells);
        PyObject *marks = room_for(kinds[at] == NUMBERS ? rows : 0, 1, &votes);
        put(&list, at, cells && marks ? Py_BuildValue("[OO]", cells, marks) : NULL);
        column->votes = votes;
        Py_XDECREF(cells);
        Py_XDECREF(marks);
    }
    return list;
}

/* Put the distinct texts behind what `columns_of` made; false with an exception. */
static bool add_words(const Page *page, PyObject *list)
{
    for (int at = 0; at < page->width; at++) {
        PyObject *words = words_of(&page->columns[at].dictionary);
        const bool added = words != NULL && PyList_Append(PyList_GET_ITEM(list, at), words) == 0;
        Py_XDECREF(words);
        if (!added)
            return false;
    }
    return true;
}

static bool is_layout(const Page *page, const char *kinds, Py_ssize_t width)
{
    if (width < 1 || width > INT16_MAX || page->required < 1 || page->required > width || page->leading < 0 ||
        page->leading > page->required || page->label >= page->required)
        return false;
    for (Py_ssize_t at = 0; at < width; at++)
        if (cell_size(kinds[at]) == 0 || (at >= page->required && kinds[at] != TEXTS))
            return false;
    return page->label < 0 || kinds[page->label] == TEXTS;
}

static PyObject *read_rows(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    Py_buffer buffer;
    const char *kinds;
    Py_ssize_t start, width;
    int point;
    Page page = {.rows = 0};
    if (!PyArg_ParseTuple(arguments, "y*ns#iiiC:read_rows", &buffer, &start, &kinds, &width, &page.required,
                          &page.leading, &page.label, &point))
        return NULL;
    const Text whole = text_of(&buffer);
    PyObject *columns = NULL, *begins = NULL, *result = NULL;
    page.locale = (Locale){(char)point, point == '.' ? ',' : '.'};
    if (!is_layout(&page, kinds, width) || start < 0 || start > length(whole)) {
        PyErr_SetString(PyExc_ValueError, "columns are of the kinds t, n, i and s, and those a row may lack are texts");
    } else if ((page.columns = PyMem_Calloc(width, sizeof(Column))) == NULL) {
        PyErr_NoMemory();
    } else {
        const Text block = {whole.begin + start, whole.end};
        const Py_ssize_t most = lines_of(block) + 1; /* a last line without its end is tried as a row, too */
        void *places = NULL;
        page.width = (int)width;
        columns = columns_of(&page, kinds, most);
        begins = room_for(most, sizeof(int64_t), &places);
        page.begins = places;
        if (columns != NULL && begins != NULL) {
            const char *end;
            Py_BEGIN_ALLOW_THREADS
            end = take_lines(&page, block);
            Py_END_ALLOW_THREADS
            if (end == NULL)
                PyErr_NoMemory();
            else if (add_words(&page, columns))
                result = Py_BuildValue("(nnOONN)", end - whole.begin, page.rows, begins, columns, non_numeric_of(&page),
                                       others_of(&page, whole.begin));
        }
    }
    for (int at = 0; at < page.width; at++)
        forget(&page.columns[at].dictionary);
    PyMem_Free(page.columns);
    PyMem_RawFree(page.non_numeric.items);
    PyMem_RawFree(page.others.items);
    Py_XDECREF(columns);
    Py_XDECREF(begins);
    PyBuffer_Release(&buffer);
    return result;
}

static PyMethodDef functions[] = {
    {"read_rows", read_rows, METH_VARARGS, "See _rows.pyi."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, .m_name = "ncu_parsers.streaming.cells._rows", .m_size = 0,
                                        .m_methods = functions};

PyMODINIT_FUNC PyInit__rows(void) { return PyModuleDef_Init(&definition); }

/* The loop over the lines of long pages: which are rows of a launch, and which are not. See `_rows.pyi`. */

#include "loops.h"

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

static bool any(Text Py_UNUSED(text)) { return true; }

static bool none(Text Py_UNUSED(text)) { return false; }

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
    "ncu_parsers.streaming.cells._rows.Recogniser", sizeof(Recogniser), 0, Py_TPFLAGS_DEFAULT, slots_of_recognisers};

int add_recognisers(PyObject *module)
{
    PyObject *type = PyType_FromModuleAndSpec(module, &recognisers, NULL);
    const int added = type == NULL ? -1 : PyModule_AddType(module, (PyTypeObject *)type);
    Py_XDECREF(type);
    return added;
}

/* The module `ncu_parsers.streaming.cells._rows`. */

#include "loops.h"

static PyMethodDef functions[] = {
    {"read_rows", read_rows, METH_VARARGS, "See _rows.pyi."},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {{Py_mod_exec, add_recognisers}, {0, NULL}};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, .m_name = "ncu_parsers.streaming.cells._rows", .m_size = 0,
                                        .m_methods = functions, .m_slots = slots};

PyMODINIT_FUNC PyInit__rows(void) { return PyModuleDef_Init(&definition); }

/* The two loops over every byte of a big report: which lines are rows, and what their cells are.

   They decide nothing else. `_rows.pyi` says what each takes and gives; whatever is unusual is given back as it is, to
   the readers in Python, which also stand in where these files were not compiled. A report may be anyone's: nothing is
   read at or behind the end of its block, and nothing is written whose room was not counted before.
*/

#pragma once

#include "texts.h"

/* Add the class of what recognises lines to a module; -1 with an exception. */
int add_recognisers(PyObject *module);

PyObject *read_rows(PyObject *module, PyObject *arguments);

"""The columns of the table of launches, kernel names, and Parquet files with both."""

from __future__ import annotations

import math
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ncu_launch.errors import NcuBenchError
from ncu_launch.files.atomic_files import replacing_output
from ncu_parsers.parquet.reader import read_launches, spans_of_ids
from ncu_parsers.parquet.writer import write_table
from ncu_parsers.schema import arrays, tables
from ncu_parsers.schema.tables import COLUMNS, SCHEMA_VERSION, concatenated, with_metadata

from tests.support.launches import launch, metric, sass, table

OURS = {"schema_version": SCHEMA_VERSION, "reports": [], "notes": []}


def test_every_table_has_every_column_of_the_contract_first_and_in_order() -> None:
    names = table(launch(metrics={"zz__z.sum": metric(1.0), "aa__a.sum": metric(1.0)}, ns=5)).column_names
    assert names[: len(COLUMNS)] == [column.name for column in COLUMNS]
    assert names[len(COLUMNS) :] == ["aa__a.sum", "gpu__time_duration.sum", "zz__z.sum"]


def test_every_column_of_the_contract_has_unit_meaning_and_null() -> None:
    for column in COLUMNS:
        assert column.meaning
        assert column.null
        assert column.unit or not pa.types.is_float64(column.type)


def test_a_column_is_there_also_where_its_name_is_given_twice() -> None:
    twice = pa.table([pa.array([1.0]), pa.array([2.0]), pa.array([3.0])], names=["a", "a", "b"])
    assert [tables.has_column(twice, name) for name in ("a", "b", "c")] == [True, True, False]
    assert np.isnan(tables.floats(twice, "c")).tolist() == [True]
    with pytest.raises(KeyError):
        tables.floats(twice, "a")


def test_a_metric_keeps_its_unit_section_and_label_in_the_fields_metadata() -> None:
    made = table(launch(metrics={"gpu__time_duration.sum": metric(5.0, "ns")}))
    assert tables.field_entries(made.schema.field("gpu__time_duration.sum"))["unit"] == "ns"
    assert tables.field_entries(made.schema.field("duration_ns"))["unit"] == "ns"


def test_text_among_numbers_is_dropped_and_a_column_of_texts_kept() -> None:
    made = table(
        launch("a", {"m__x": metric(1.0), "w": metric("Yes")}), launch("b", {"m__x": metric("odd"), "w": metric("No")})
    )
    assert made.column("m__x").to_pylist() == [1.0, None]
    assert made.column("w").to_pylist() == ["Yes", "No"]


@pytest.mark.parametrize(
    ("name", "short"),
    [
        (
            "void at::native::vectorized_elementwise_kernel<4, at::F<float>, std::array<char *, 2>>(int, T2, T3)",
            "vectorized_elementwise_kernel",
        ),
        ("enable_if<!T7, void>::type kernel<int, float>(T13)", "kernel"),
        ("void cutlass::Kernel2<cutlass_80_tensorop>(T1::Params)", "Kernel2"),
        ("sigma_gpp_gpu_29", "sigma_gpp_gpu_29"),
        ("julia__5_6739(CuKernelContext, CuDeviceArray<Int4x8, (int)1, (int)1>, Int4x8)", "julia__5_6739"),
        ("<unnamed>::gemm_naive_kernel(const float *)", "gemm_naive_kernel"),
        ("(anonymous namespace)::scan(int)", "scan"),
        ("void f(int)::[lambda() (instance 1)]::operator ()() const", "f"),
        ("void thrust::detail::operator<<(int)", "operator"),
        ("const float *ns::get(void)", "get"),
        ("", ""),
        ("(", "("),
        ("range", "range"),
        ("[CUDA memcpy Device-to-Device]", "[CUDA memcpy Device-to-Device]"),
        ("Memcpy HtoD (Pinned -> Device)", "Memcpy HtoD (Pinned -> Device)"),
        ("Memset (Device)", "Memset (Device)"),
    ],
)
def test_the_short_name_is_the_function_without_namespaces_templates_and_parameters(name: str, short: str) -> None:
    assert tables.short_name(name) == short


@given(st.text(max_size=80))
def test_no_name_makes_the_shortening_fail(name: str) -> None:
    assert isinstance(tables.short_name(name), str)


@given(st.lists(st.one_of(st.none(), st.floats(allow_nan=False)), max_size=40), st.integers(0, 5))
def test_numbers_go_to_arrow_and_back_with_null_for_nan(numbers: list[float | None], offset: int) -> None:
    values = np.array([math.nan if number is None else number for number in numbers])
    array = arrays.floats(values)
    assert array.to_pylist() == numbers
    sliced = pa.table({"x": pa.chunked_array([array, array])}).slice(offset)
    back = tables.floats(sliced, "x")
    np.testing.assert_array_equal(back, np.concatenate([values, values])[offset:])


@pytest.mark.parametrize("kind", [pa.string(), pa.dictionary(pa.int32(), pa.string())])
def test_texts_are_numbers_where_they_say_one_and_else_unknown(kind: pa.DataType) -> None:
    """A metric of which every value was text stays a column of texts, and no command fails on it."""
    texts = pa.chunked_array([["1.5", "foo bar", None], ["2"]]).cast(kind)
    values = tables.floats(pa.table({"x": texts}), "x").tolist()
    assert [None if math.isnan(value) else value for value in values] == [1.5, None, None, 2.0]


def test_texts_become_codes_across_chunks_with_different_dictionaries() -> None:
    chunks = [pa.array(["a", "b", None]).dictionary_encode(), pa.array(["c", "a"]).dictionary_encode()]
    numbers, texts = tables.codes(pa.table({"x": pa.chunked_array(chunks)}), "x")
    assert [texts[number] for number in numbers] == ["a", "b", None, "c", "a"]
    numbers, texts = tables.codes(pa.table({"x": pa.chunked_array(chunks)}).slice(2, 2), "x")
    assert [texts[number] for number in numbers] == [None, "c"]


def test_a_column_a_table_lacks_is_unknown_everywhere() -> None:
    empty = pa.table({"x": [1, 2]})
    assert np.isnan(tables.floats(empty, "y")).all()
    assert tables.words(empty, "y") == [None, None]


class TestParquet:
    def test_only_the_wanted_columns_are_read(self, tmp_path: Path) -> None:
        write_table(with_metadata(table(launch(ns=5)), OURS), tmp_path / "l.parquet")
        assert read_launches(tmp_path / "l.parquet", ["flops", "kernel_name", "none"]).column_names == [
            "flops",
            "kernel_name",
        ]

    def test_names_are_dictionaries_ids_and_times_delta_encoded_and_all_columns_zstd(self, tmp_path: Path) -> None:
        launches = table(launch(metrics=sass(ffma=1), ns=5))
        launches = launches.append_column("start_ns", pa.array([7])).append_column("end_ns", pa.array([7.5]))
        write_table(with_metadata(launches, OURS), tmp_path / "l.parquet")
        group = pq.ParquetFile(tmp_path / "l.parquet").metadata.row_group(0)
        columns = {group.column(index).path_in_schema: group.column(index) for index in range(group.num_columns)}
        assert {column.compression for column in columns.values()} == {"ZSTD"}
        assert any("DICTIONARY" in encoding for encoding in columns["kernel_name"].encodings)
        for name in ("duration_ns", "end_ns"):
            assert "BYTE_STREAM_SPLIT" in columns[name].encodings
        for name in ("launch_id", "start_ns"):
            assert "DELTA_BINARY_PACKED" in columns[name].encodings

    def test_a_write_that_fails_leaves_the_old_file_and_no_other(self, tmp_path: Path) -> None:
        path = tmp_path / "l.parquet"
        path.write_text("old")
        with pytest.raises(KeyboardInterrupt), replacing_output(path) as temporary:
            temporary.write_text("half")
            raise KeyboardInterrupt
        assert [file.name for file in tmp_path.iterdir()] == ["l.parquet"]
        assert path.read_text() == "old"

    def test_a_folder_in_its_place_is_an_error_with_advice(self, tmp_path: Path) -> None:
        (tmp_path / "l.parquet").mkdir()
        with pytest.raises(NcuBenchError, match=r"it is no regular file\. Name a file"):
            write_table(table(launch(ns=5)), tmp_path / "l.parquet")

    def test_a_folder_that_does_not_exist_is_an_error_with_advice(self, tmp_path: Path) -> None:
        with pytest.raises(NcuBenchError, match="mkdir -p"):
            write_table(table(launch(ns=5)), tmp_path / "no" / "l.parquet")

    def test_a_newer_schema_is_refused_with_advice(self, tmp_path: Path) -> None:
        newer = with_metadata(table(launch(ns=5)), {**OURS, "schema_version": SCHEMA_VERSION + 1})
        write_table(newer, tmp_path / "l.parquet")
        with pytest.raises(NcuBenchError, match="Update ncu-bench"):
            read_launches(tmp_path / "l.parquet")

    def test_parquet_of_another_program_is_refused_with_advice(self, tmp_path: Path) -> None:
        pq.write_table(pa.table({"x": [1]}), tmp_path / "other.parquet")
        with pytest.raises(NcuBenchError, match="not one of ncu-bench"):
            read_launches(tmp_path / "other.parquet")

    def test_a_cut_file_is_refused_with_advice(self, tmp_path: Path) -> None:
        path = tmp_path / "l.parquet"
        write_table(with_metadata(table(launch(ns=5)), OURS), path)
        path.write_bytes(path.read_bytes()[:-50])
        with pytest.raises(NcuBenchError, match="cut or damaged"):
            read_launches(path)

    @given(
        st.lists(
            st.tuples(
                st.one_of(st.none(), st.integers(0, 3), st.just(2**62)), st.one_of(st.none(), st.integers(0, 2**62))
            ),
            min_size=1,
        )
    )
    def test_spans_of_ids_are_those_of_each_process(self, numbers: list[tuple[int | None, int | None]]) -> None:
        made = table(*(launch(process_id=process, launch_id=0) for process, _ in numbers))
        ids = arrays.integers([number for _, number in numbers], pa.int64())
        made = made.set_column(made.column_names.index("launch_id"), made.schema.field("launch_id"), ids)
        known: dict[int | None, list[int]] = {}
        for process, number in numbers:
            if number is not None:
                known.setdefault(process, []).append(number)
        with TemporaryDirectory() as folder:
            write_table(with_metadata(made, OURS), Path(folder) / "launches.parquet")
            found = spans_of_ids(Path(folder) / "launches.parquet")
        assert found == {process: (min(numbered), max(numbered)) for process, numbered in known.items()}


class TestArrays:
    @given(st.lists(st.one_of(st.none(), st.text()), max_size=20))
    def test_texts_and_dictionaries_hold_any_text(self, values: list[str | None]) -> None:
        expected = [None if value is None else value.encode("utf-8", "replace").decode() for value in values]
        assert arrays.texts(values).to_pylist() == expected
        assert arrays.dictionary(values).to_pylist() == expected
        arrays.texts(values).validate(full=True)

    @given(st.lists(st.one_of(st.none(), st.integers(-(2**31), 2**31 - 1)), max_size=20))
    def test_integers_keep_their_nulls(self, values: list[int | None]) -> None:
        assert arrays.integers(values, pa.int32()).to_pylist() == values
        assert arrays.integers(values, pa.int64()).to_pylist() == values

    @given(st.lists(st.one_of(st.none(), st.lists(st.text(max_size=3), max_size=3)), max_size=9))
    def test_lists_of_text_keep_empty_apart_from_null(self, values: list[list[str] | None]) -> None:
        made = arrays.text_lists(values)
        made.validate(full=True)
        assert made.to_pylist() == values

    def test_shapes_and_structs_keep_their_nulls(self) -> None:
        assert arrays.integer_lists([(1, 2, 3), None]).to_pylist() == [[1, 2, 3], None]
        kind = pa.list_(pa.struct([("a", pa.string()), ("b", pa.string())]))
        rules = [[{"a": "x", "b": "y"}], None, []]
        made = arrays.struct_lists(rules, kind)
        made.validate(full=True)
        assert made.to_pylist() == rules
        assert arrays.booleans([True, False, True]).to_pylist() == [True, False, True]


def test_numbers_of_two_types_in_one_column_stay_numbers() -> None:
    whole = pa.table({"bytes": pa.array([1, None], pa.int64())})
    decimal = pa.table({"bytes": pa.array([2.5], pa.float64())})
    joined = concatenated([whole, decimal])
    assert joined.column("bytes").type == pa.float64()
    assert joined.column("bytes").to_pylist() == [1.0, None, 2.5]


def test_numbers_in_one_table_and_texts_in_another_become_text() -> None:
    joined = concatenated([pa.table({"m": [1.5]}), pa.table({"m": ["CachePreferNone"]})])
    assert joined.column("m").to_pylist() == ["1.5", "CachePreferNone"]


@given(values=st.lists(st.sampled_from([None, "a", "b", "a c"]), min_size=1), picks=st.lists(st.integers(-1, 9)))
def test_texts_by_their_places_are_the_dictionary_of_the_texts(values: list[str | None], picks: list[int]) -> None:
    codes = np.array([min(pick, len(values) - 1) for pick in picks], np.int32)
    found = arrays.recoded(codes, values)
    expected = arrays.dictionary([None if code < 0 else values[code] for code in codes.tolist()])
    assert found.to_pylist() == expected.to_pylist()
    assert found.dictionary.to_pylist() == expected.dictionary.to_pylist()


@pytest.mark.parametrize("kind", [pa.int32(), pa.int64()])
def test_negative_places_are_null_numbers(kind: pa.DataType) -> None:
    assert arrays.wholes(np.array([3, -1, 0]), kind).to_pylist() == [3, None, 0]
    assert arrays.wholes(np.array([], np.int64), kind).to_pylist() == []

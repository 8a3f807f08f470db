"""Rows with missing values and text: codes of categories for LightGBM, with levels remembered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from sklearn.utils.validation import check_array, check_X_y

from bagwise import _check
from bagwise.encoding import MOST_LEVELS, Encoder
from bagwise.estimators.contract import TakesBags
from bagwise.tables import is_number, is_text

FloatArray: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True)
class Categories(Encoder):
    """Which columns a model takes, and the levels of those that are categories.

    Attributes
    ----------
    columns : dict of str to None or tuple of str
        For each column its levels, or None when it is a number.

    Notes
    -----
    Guarantees: a category becomes one column, the place of its level in the order of the alphabet;
    NaN where it is missing, and where its level was not seen. Numbers may be missing too.

    Examples
    --------
    >>> table = pa.table({"age": [31, None], "town": ["b", "a"]})
    >>> found = Categories.of_table(table, [])
    >>> found.names, found.encode(table).tolist()
    (('age', 'town'), [[31.0, 1.0], [nan, 0.0]])
    """

    @classmethod
    def of_table(cls, table: pa.Table, named: Sequence[str]) -> Categories:
        """Those of columns of text and of pandas' categories, and of others that are ``named``."""
        columns: dict[str, tuple[str, ...] | None] = {}
        for name, values in zip(table.column_names, table.columns, strict=True):
            columns[name] = None
            if name in named or is_category(values.type):
                levels = pc.unique(_text(values)).drop_null().to_pylist()
                if len(levels) > MOST_LEVELS:
                    rule, got = f"of at most {MOST_LEVELS} levels", f"more in column {name!r}"
                    _check.refuse("categories", rule, got, "Leave it out: it tells rows apart")
                columns[name] = tuple(sorted(levels))
            elif not is_number(values.type):
                got = f"{values.type} in column {name!r}"
                _check.refuse("features", "numbers, text or categories", got, "Convert or drop it")
        return cls(columns)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(self.columns)

    @property
    def places(self) -> list[int]:
        """Which columns are categories."""
        return [i for i, levels in enumerate(self.columns.values()) if levels is not None]

    def encode(self, table: pa.Table, unknown: str = "ignore") -> FloatArray:
        """Rows as numbers and codes, shape (n_rows, n_columns)."""
        out = np.empty((table.num_rows, len(self.columns)))
        for i, (name, levels) in enumerate(self.columns.items()):
            if name not in table.column_names:
                _check.refuse("features", "columns of the table", f"no {name!r}", "Add it")
            values = table[name]
            if levels is not None:
                codes = pc.index_in(_text(values), pa.array(levels, pa.large_string()))
                if unknown == "refuse" and codes.null_count > values.null_count:
                    strange = values.filter(pc.and_(pc.is_null(codes), pc.is_valid(values)))
                    got = f"{strange[0].as_py()!r} in column {name!r}"
                    remedy = "Go on without it with --unknown ignore"
                    _check.refuse("features", "of levels that were seen in training", got, remedy)
                values = codes
            elif not is_number(values.type):
                got = str(values.type)
                _check.refuse("features", f"numbers in column {name!r}", got, "Convert it")
            out[:, i] = values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
        return out

    def rows(self, table: pa.Table, unknown: str = "refuse") -> Any:
        """The same; slices of rows give blocks of it."""
        return self.encode(table, unknown)

    def encode_frame(self, frame: Any) -> FloatArray:
        """A data frame as numbers and codes."""
        return self.encode(table_of(frame))


def table_of(X: Any) -> pa.Table:
    """A data frame, or the columns x0, x1, … of an array, where NaN is missing."""
    if isinstance(X, np.ndarray):
        return pa.table({f"x{i}": pa.array(x, from_pandas=True) for i, x in enumerate(X.T)})
    names = list(getattr(X, "column_names", None) or X.columns)
    try:
        table = pa.table(X)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        got = str(error.args[-1])
        _check.refuse("X", "a table whose columns hold one kind of value", got, "Convert it")
    # Of pandas, an index would come as one more column.
    return table.select(range(len(names))).rename_columns([str(name) for name in names])


def is_category(kind: pa.DataType) -> bool:
    """Whether a column is of text, or of pandas' or Arrow's own categories."""
    return is_text(kind) or pa.types.is_dictionary(kind)


def _text(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Levels as text, whatever they are."""
    text = pa.large_string()
    packed = pa.types.is_dictionary(values.type)
    kind = values.type.value_type if packed else values.type
    if pa.types.is_nested(kind) or isinstance(kind, pa.BaseExtensionType):
        rule = "of levels that are text, numbers or dates"
        _check.refuse("categories", rule, f"levels of {kind}", "Make them text")
    if not packed:
        return values.cast(text)
    # Levels first: Arrow takes no places of polars' own kind of text.
    parts = [part.dictionary.cast(text).take(part.indices) for part in values.chunks]
    return pa.chunked_array(parts, text)


def check_categorical_features(wanted: Any) -> None:
    """Refuse one name where a list of them is meant."""
    if isinstance(wanted, str) and wanted != "auto":
        got = f"categorical_features={wanted!r}"
        rule = "'auto', None, or names or places of columns"
        _check.refuse("categorical_features", rule, got, "Put one name in a list")


def refuse_named_categories(wanted: Any) -> None:
    """Of a Release or a table in files, text is what is a category."""
    if wanted is None or not isinstance(wanted, str):
        got = f"categorical_features={wanted!r}"
        remedy = "Fit on release.training_set(), or write such columns as text"
        _check.refuse("categorical_features", "'auto' for a Release or a table", got, remedy)


class TakesCategories(TakesBags):
    """Rows with missing values, and data frames with columns of text."""

    _accept_sparse: ClassVar[str | bool] = "csr"
    _finite: ClassVar[bool | str] = "allow-nan"

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        tags.input_tags.allow_nan = tags.input_tags.categorical = True
        tags.input_tags.sparse = bool(self._accept_sparse)
        return tags

    def _validate_features(self, X: Any, reset: bool, y: Any = "no_validation") -> Any:
        """X (and y) as numbers; what is a category as its code."""
        if reset:
            self._learn_categories(X)
        encoder: Categories | None = getattr(self, "encoder_", None)
        is_frame = hasattr(X, "__arrow_c_stream__")
        if encoder is None or not is_frame:
            if encoder is not None and not reset and hasattr(self, "feature_names_in_"):
                remedy = "Pass the columns of training, for some are categories"
                _check.refuse("X", "a data frame", "an array", remedy)
            found = super()._validate_features(X, reset, y)
            if encoder is None:
                return found
            alone = isinstance(y, str)
            codes = encoder.encode(table_of(found if alone else found[0]))
            return codes if alone else (codes, found[1])
        rows = encoder.encode_frame(X)
        if reset:
            self.feature_names_in_ = np.array(encoder.names, dtype=object)
            self.n_features_in_ = len(encoder.names)
        if isinstance(y, str):
            return check_array(rows, ensure_all_finite="allow-nan")
        return check_X_y(rows, y, ensure_all_finite="allow-nan", y_numeric=self._y_numeric)

    def _learn_categories(self, X: Any) -> None:
        """Which columns are categories, and their levels."""
        self.__dict__.pop("encoder_", None)
        wanted: Any = self.categorical_features  # type: ignore[attr-defined]
        is_frame = hasattr(X, "__arrow_c_stream__")
        if wanted is None or (isinstance(wanted, str) and not is_frame):
            return
        table = table_of(X if is_frame else check_array(X, ensure_all_finite="allow-nan"))
        if isinstance(wanted, str):
            if not any(map(is_category, table.schema.types)):
                return
            wanted = ()
        named = []
        for item in wanted:
            known = table.column_names
            if isinstance(item, str) and item in known and is_frame:
                named.append(item)
            elif isinstance(item, int | np.integer) and -len(known) <= item < len(known):
                named.append(known[item])
            else:
                remedy = "Or 'auto', for columns of text and of pandas' categories"
                _check.refuse(
                    "categorical_features", "names or places of columns", repr(item), remedy
                )
        self.__dict__.pop("feature_names_in_", None)
        self.encoder_ = Categories.of_table(table, named)

"""Finds samples, labels and class names in the data sets, loaders and bunches of other libraries, by their shape."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from otel_train.lineage.array_hashing import is_array, is_tensor, mapping_checksum, table_columns, value_checksum

# Where data sets keep their samples and labels: torchvision, scikit-learn, and what people write after them.
_DATA_NAMES = ("data", "features", "samples", "imgs", "images")
_LABEL_NAMES = ("targets", "labels", "target", "label", "y")


def unwrapped(data: Any) -> Any:
    """Return the data set that a loader loads."""
    if hasattr(data, "dataset") and (hasattr(data, "batch_size") or hasattr(data, "sampler")):
        return data.dataset
    return data


def loader_sampling(loader: Any) -> str:
    """Return how a loader draws its samples, in words."""
    text = type(getattr(loader, "sampler", None)).__name__
    batch = getattr(loader, "batch_size", None)
    if batch:
        text += f", batches of {batch}"
    return text + (", last incomplete batch left out" if getattr(loader, "drop_last", False) else "")


def is_bunch(data: Any) -> bool:
    """Tell scikit-learn's Bunch, a mapping that is one data set, from a mapping of splits."""
    return isinstance(data, Mapping) and hasattr(data, "data") and (hasattr(data, "target") or hasattr(data, "targets"))


def is_plain_mapping(data: Any) -> bool:
    """Tell a mapping of names to parts."""
    return isinstance(data, Mapping) and not is_bunch(data)


def first_data(data: Any) -> Any:
    """Return where a data set keeps its samples, None where that is not known."""
    if (
        is_tensor(data)
        or is_array(data)
        or isinstance(data, (list, tuple, str, range))
        or table_columns(data) is not None
    ):
        return None
    tensors = getattr(data, "tensors", None)
    if isinstance(tensors, (list, tuple)) and tensors:
        return tensors[0]
    for name in _DATA_NAMES:
        kept = getattr(data, name, None)
        if is_tensor(kept) or is_array(kept) or isinstance(kept, (list, tuple)) or hasattr(kept, "indptr"):
            return kept
    return None


def own_labels(data: Any) -> tuple[Any, str]:
    """Return the labels that a data set carries, and the name they go by; (None, "") where it has none."""
    if (
        is_tensor(data)
        or is_array(data)
        or table_columns(data) is not None
        or isinstance(data, (list, tuple, str, range))
    ):
        return None, ""
    if hasattr(data, "dataset") and hasattr(data, "indices"):
        labels, where = own_labels(unwrapped(data.dataset))
        if labels is None:
            return None, ""
        indices = data.indices
        if is_tensor(labels) or is_array(labels):
            return labels[indices if is_tensor(indices) or is_array(indices) else list(indices)], where
        return [labels[int(index)] for index in indices], where
    tensors = getattr(data, "tensors", None)
    if isinstance(tensors, (list, tuple)) and len(tensors) > 1:
        last = tensors[-1]
        return (last, f"tensors[{len(tensors) - 1}]") if getattr(last, "ndim", 0) == 1 else (None, "")
    for name in _LABEL_NAMES:
        kept = getattr(data, name, None)
        if is_tensor(kept) or is_array(kept) or isinstance(kept, (list, tuple)) or hasattr(kept, "to_numpy"):
            return kept, name
    return None, ""


def own_classes(data: Any) -> Any:
    """Return the names of the classes that a data set carries."""
    if hasattr(data, "dataset") and hasattr(data, "indices"):
        return own_classes(unwrapped(data.dataset))
    for name in ("classes", "target_names"):
        names = getattr(data, name, None)
        if isinstance(names, (list, tuple)) or is_array(names):
            return names
    return None


def contents_checksum(data: Any) -> dict[str, Any] | None:
    """Return the checksum of data whose contents lie in arrays, tables or lists, None where they do not."""
    if isinstance(getattr(data, "_fingerprint", None), str):
        value = data._fingerprint
        how = "the fingerprint that the data set's library keeps of its contents and transformations"
        return {"algorithm": "fingerprint", "value": value, "bytes_read": 0, "whole": False, "how": how, "size": 0}
    tensors = getattr(data, "tensors", None)
    if isinstance(tensors, (list, tuple)) and tensors and all(is_tensor(tensor) for tensor in tensors):
        named = {str(index): tensor for index, tensor in enumerate(tensors)}
        return mapping_checksum(named, f"its {len(tensors)} tensors").to_dict()
    if hasattr(data, "dataset") and hasattr(data, "indices"):
        inner = contents_checksum(unwrapped(data.dataset))
        if inner is None:
            return None
        chosen = mapping_checksum(
            {"whole": inner["value"], "indices": data.indices}, "the whole data set and the indices"
        )
        read = inner["bytes_read"] + chosen.bytes_read
        return chosen.to_dict() | {"whole": inner["whole"] and chosen.whole, "bytes_read": read, "size": inner["size"]}
    contents = first_data(data)
    if contents is not None and not is_tensor(data) and not is_array(data) and table_columns(data) is None:
        kept = {"data": contents}
        labels, where = own_labels(data)
        if labels is not None:
            kept["labels"] = labels
        how = "its " + (f"data and {where}" if where else "data")
        return mapping_checksum(kept, how).to_dict()
    if is_tensor(data) or is_array(data) or table_columns(data) is not None or isinstance(data, (list, tuple, range)):
        return value_checksum(data).to_dict()
    if hasattr(data, "indptr") or hasattr(data, "to_numpy"):
        return value_checksum(data).to_dict()
    return None

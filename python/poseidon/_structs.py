# SPDX-License-Identifier: Apache-2.0
"""The structures of include/psd/psd.h, as ctypes knows them: for the package, and for tests that use libpsd
without it. A test compares them with what a C compiler says. This file imports nothing of the package."""

from __future__ import annotations

from ctypes import POINTER, Structure, c_char, c_char_p, c_double, c_int, c_int32, c_size_t, c_uint32, c_uint64, c_void_p

DIMS_MAX = 8


class OpenArgs(Structure):
    _fields_ = [("struct_size", c_size_t), ("master_address", c_char_p), ("rank", c_char_p),
                ("open_timeout_ms", c_uint32), ("op_timeout_ms", c_uint32),
                ("secret_file", c_char_p)]


class RuleArgs(Structure):
    _fields_ = [("struct_size", c_size_t), ("rule", c_int), ("learning_rate", c_double), ("momentum", c_double),
                ("beta1", c_double), ("beta2", c_double), ("epsilon", c_double), ("l1", c_double),
                ("l2", c_double), ("ftrl_beta", c_double), ("weight_decay", c_double),
                ("clip_value", c_double), ("schedule", c_int), ("warmup", c_uint64),
                ("period", c_uint64), ("decay", c_double), ("floor", c_double)]


class TableArgs(Structure):
    _fields_ = [("struct_size", c_size_t), ("name", c_char_p), ("dtype", c_int),
                ("dims", c_uint32), ("shape", c_uint64 * DIMS_MAX), ("use", c_int),
                ("reduce", c_int), ("rule", POINTER(RuleArgs)), ("staleness", c_uint32),
                ("backup_workers", c_uint32), ("nan_policy", c_int), ("init", c_int),
                ("init_value", c_double), ("seed", c_uint64), ("values", c_void_p),
                ("priority", c_int32)]


class Transfer(Structure):
    _fields_ = [("struct_size", c_size_t), ("step", c_uint64), ("gradient", c_void_p),
                ("values", c_void_p), ("first", c_uint64), ("count", c_uint64),
                ("priority", c_int32), ("timeout_ms", c_uint32), ("flags", c_uint32),
                ("done", c_void_p), ("user", c_void_p)]


class SparseArgs(Structure):
    _fields_ = [("struct_size", c_size_t), ("name", c_char_p), ("dtype", c_int),
                ("width", c_uint32), ("use", c_int), ("reduce", c_int), ("rule", POINTER(RuleArgs)),
                ("staleness", c_uint32), ("backup_workers", c_uint32), ("nan_policy", c_int),
                ("init", c_int), ("init_value", c_double), ("seed", c_uint64),
                ("priority", c_int32), ("admit_after", c_uint32), ("admit_window", c_uint32),
                ("admit_share", c_double), ("capacity_rows", c_uint64), ("full", c_int),
                ("idle_steps", c_uint32), ("norm_min", c_double), ("sweep_every", c_uint32),
                ("row_wise", c_int32), ("group_lasso", c_double)]


class Rows(Structure):
    _fields_ = [("struct_size", c_size_t), ("step", c_uint64), ("push_count", c_uint64),
                ("push_ids", c_void_p), ("gradients", c_void_p), ("lookup_count", c_uint64),
                ("lookup_ids", c_void_p), ("values", c_void_p), ("priority", c_int32),
                ("timeout_ms", c_uint32), ("done", c_void_p), ("user", c_void_p)]


class ErrorText(Structure):
    _fields_ = [("status", c_int), ("text", c_char * 508)]


class NodeInfo(Structure):
    _fields_ = [("role", c_int), ("rank", c_uint32), ("state", c_int), ("incarnation", c_uint32),
                ("step", c_uint64), ("steps_per_s", c_double), ("value", c_double),
                ("value_name", c_char * 32), ("address", c_char * 72)]


class MembersInfo(Structure):
    _fields_ = [("struct_size", c_size_t), ("version", c_uint64), ("since", c_uint64), ("count", c_uint32),
                ("index", c_uint32)]


class ReaderOpenArgs(Structure):
    _fields_ = [("struct_size", c_size_t), ("master_address", c_char_p), ("key_file", c_char_p), ("timeout_ms", c_uint32)]


class ReaderTable(Structure):
    _fields_ = [("struct_size", c_size_t), ("number", c_uint32), ("dtype", c_uint32), ("width", c_uint32),
                ("dims", c_uint32), ("shape", c_uint64 * DIMS_MAX), ("count", c_uint64)]


class ReaderArgs(Structure):
    _fields_ = [("struct_size", c_size_t), ("table", c_uint32), ("count", c_uint32), ("ids", c_void_p),
                ("values", c_void_p), ("steps", c_void_p), ("timeout_ms", c_uint32)]


class ReaderAnswer(Structure):
    _fields_ = [("struct_size", c_size_t), ("step", c_uint64), ("newest", c_uint64), ("age_us", c_uint64)]


STRUCTS: dict[str, type[Structure]] = {
    "psd_open_args": OpenArgs, "psd_rule_args": RuleArgs, "psd_table_args": TableArgs,
    "psd_transfer": Transfer, "psd_sparse_args": SparseArgs, "psd_rows": Rows, "psd_error": ErrorText, "psd_node": NodeInfo,
    "psd_members": MembersInfo, "psd_reader_open_args": ReaderOpenArgs, "psd_reader_table": ReaderTable,
    "psd_reader_args": ReaderArgs, "psd_reader_answer": ReaderAnswer}

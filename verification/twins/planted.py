"""Bugs to plant in the source of the extension: what stands there, and what is put in its place."""

from __future__ import annotations

PLANTED: dict[str, tuple[str, str]] = {
    "crc-of-whole-words-alone": (
        "for (; size; at++, size--) crc = crc >> 8",
        "for (; size > 1; at++, size--) crc = crc >> 8",
    ),
    "crc-without-its-seed": (
        "crc = ~crc;\n#ifdef FOLDS\n    if",
        "crc = ~0u;\n#ifdef FOLDS\n    if",
    ),
    "chain-with-itself": (
        "(uint64_t)pos + (uint64_t)at, 0, crc",
        "(uint64_t)pos + (uint64_t)at, chain, crc",
    ),
    "stamp-over-the-end": ("|| at + size + BLANK > room", "|| at + size > room"),
    "stamp-large-bodies": ("if (views[taken].len >= largest", "if (views[taken].len > largest"),
    "run-over-two-terms": (
        "found[4] = {(int64_t)big64(head + 8), (int64_t)big64(head + 16)",
        "found[4] = {(int64_t)big64(head + 8), 0 * (int64_t)big64(head + 16)",
    ),
    "run-over-padding": (
        "due[3] = (int64_t)((uint64_t)found[3] + (uint64_t)size);",
        "due[3] = found[3];",
    ),
    "sizes-not-compared": ("if (stated != size || body != size - HEADER)", "if (stated != size)"),
    "chain-not-compared": (
        "!= stated && (chain || stated || body)) break;",
        "!= stated && stated) break;",
    ),
    "unverified-bodies-refused": ("if ((chain || body) && crc32_of", "if (crc32_of"),
    "bodies-not-compared": (
        "crc32_of(header + HEADER, size, 0) != body) break;",
        "crc32_of(header + HEADER, size, 0) != body && size > 64) break;",
    ),
    "prefix-in-part": (
        "memcmp(body, prefix.buf, (size_t)prefix.len)",
        "memcmp(body, prefix.buf, 1)",
    ),
    "unit-of-another-entry": (
        "put64(at + 16, (uint64_t)index + (uint64_t)i), put64(at + 24, (uint64_t)term);",
        "put64(at + 16, (uint64_t)index), put64(at + 24, (uint64_t)term);",
    ),
    "batches-of-a-producer": ("&& !big64(body + 40);", ";"),
    "batches-of-a-schema": ("*count && !big32(body + 20)", "*count"),
    "batches-of-no-record": ("return *count && ", "return "),
    "batches-of-two-partitions": ("memcmp(body, same, 16)", "memcmp(body, same, 12)"),
    "one-batch-is-a-run": ("PyList_Size(list) > 1", "PyList_Size(list) > 0"),
    "offsets-twice": (
        "base = (int64_t)((uint64_t)base + records)",
        "base = (int64_t)((uint64_t)base + 1)",
    ),
    "time-goes-back": ("if (last > newest) newest = last;", "newest = last;"),
    "row-without-its-number": (
        "crc32_of(at, (size_t)size, (uint32_t)(uint64_t)number)",
        "crc32_of(at, (size_t)size, 0)",
    ),
    "answer-to-another": (
        "put32(at + ANSWER_ID, (uint32_t)id[i]);",
        "put32(at + ANSWER_ID, (uint32_t)id[0]);",
    ),
    "frame-crc-not-compared": ("!= big32(frame + CHECKED)) break;", "== 1) break;"),
    "frame-of-another-header": (
        "memcmp(frame + PREFIX, before + PREFIX, (size_t)header)",
        "memcmp(frame + PREFIX, before + PREFIX, 1)",
    ),
    "frame-of-another-kind": (
        "|| memcmp(frame, before, 8) ||",
        "|| memcmp(frame, before, 4) ||",
    ),
    "frame-of-any-size": ("|| payload >= largest ||", "||"),
    "frame-header-of-any-size": ("if (header > largest_header ||", "if ("),
    "frame-of-another-version": ('memcmp(frame, "DL\\1", 4)', 'memcmp(frame, "DL", 2)'),
    "frame-with-reserved-bits": ("|| frame[6] || frame[7]) break;", ") break;"),
    "key-by-whole-words-alone": (
        "if (size) {\n        for (uint32_t i = 0; i < size; i++) hash",
        "if (size) {\n        for (uint32_t i = 1; i < size; i++) hash",
    ),
    "key-with-its-sign": ("return (hash ^ hash >> 15) & INT32_MAX;", "return hash ^ hash >> 15;"),
    "key-longer-than-its-bytes": ("end > data->len) return 0;", "end > data->len + 1) return 0;"),
    "keyless-rows-by-their-bytes": ("int has_key = !valid->len ||", "int has_key = 1 ||"),
    "keyless-rows-of-another-slice": (
        "[(first + i) / 8] >> (first + i) % 8",
        "[i / 8] >> i % 8",
    ),
    "rows-in-reverse": (
        "memcpy(out + 4 * (size_t)next[chosen[i]]++, &row, 4);",
        "row = (uint32_t)(rows - 1 - i), memcpy(out + 4 * (size_t)next[chosen[row]]++, &row, 4);",
    ),
    "spread-row-twice": ("row >= rows || places[row] >= 0) return -1;", "row >= rows) return -1;"),
    "spread-value-outside": (
        "|| end < start || end > data->len ||",
        "|| end < start || end > data->len + 1 ||",
    ),
    "spread-into-less-room": (
        "starts.buf, room.len) != room.len) {",
        "starts.buf, room.len) > room.len) {",
    ),
    "spread-of-another-slice": (
        "start = number_at(&offsets, first + row), end = number_at(&offsets, first + row + 1);",
        "start = number_at(&offsets, row), end = number_at(&offsets, row + 1);",
    ),
    "fetched-offsets-left-out": ("sound ? base != position :", "sound ? base < position :"),
    "fetched-records-twice": ("|| base + count <= position) break;", ") break;"),
    "fetched-crc-not-compared": ("crc32_of(body, (size_t)there, 0) != crc :", "there != size :"),
    "fetched-unverified-of-a-run": (": gap != 0;", ": 0;"),
    "fetched-without-its-gap": ("body += before, rest -= before;", ""),
    "run-of-no-records": ("if (next <= base || records", "if (next < base || records"),
    "run-of-another-term": ("put64(out + 28, (uint64_t)term);", "put64(out + 28, 1);"),
    "run-of-another-size": ("size += bytes;", "size = bytes;"),
    "stretch-without-its-gap": ("at += (uint64_t)(gap + size);", "at += (uint64_t)size;"),
    "stretch-of-both-kinds": ("int single = big32(row + 8) == 1;", "int single = 1;"),
    "one-record-of-two": ("&& big64(body + 16) == one", ""),
    "one-record-of-any-kind": ("fits = (kind == kinds[2 * is_keyed] ||", "fits = (1 ||"),
    "one-record-with-a-rest": ("return room == (value + 7) / 8 * 8;", "return room >= value;"),
    "one-record-from-elsewhere": (
        "if (room < padded + 8 || of_little32(at + padded)) return 0;",
        "if (room < padded + 8) return 0;",
    ),
    "one-record-of-any-size": ("&& size <= largest &&", "&&"),
    "one-record-of-another-time": (
        "time = (int64_t)big64(body + 24)",
        "time = (int64_t)big64(body + 32)",
    ),
    "one-record-of-the-first-sizes": (
        "if (pairs->pair[at] == pair) break;",
        "if (pairs->pair[at] >> 32 == pair >> 32) break;",
    ),
    "heads-in-part": (
        "(bytes_at)heads.buf + kind * width, (size_t)width);",
        "(bytes_at)heads.buf + kind * width, (size_t)width / 2);",
    ),
    "heads-of-the-first": ("(bytes_at)heads.buf + kind * width", "(bytes_at)heads.buf"),
    "values-of-the-first": (
        "memcpy(out + offset, (bytes_at)data.buf + start, (size_t)size);",
        "memcpy(out + offset, (bytes_at)data.buf, (size_t)size);",
    ),
    "text-by-whole-words-alone": (
        "for (; at < behind; at++) found |= *at;",
        "",
    ),
    "text-offsets-fall-back": ("falls |= next < before;", "falls |= 0;"),
    "text-before-its-bytes": ("sound = sound && start >= 0;", ""),
    "text-behind-its-bytes": ("sound = sound && end <= data.len;", ""),
    "text-of-another-slice": ("(bytes_at)offsets.buf + first * width,", "(bytes_at)offsets.buf,"),
}

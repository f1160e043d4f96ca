"""Prints an OTLP request with profiles as JSON, read by the OpenTelemetry project's declarations; checks its tables' rules."""

import json
import sys

from opentelemetry.proto.collector.profiles.v1development import profiles_service_pb2

request = profiles_service_pb2.ExportProfilesServiceRequest.FromString(sys.stdin.buffer.read())
assert request.SerializeToString(deterministic=True)
tables = request.dictionary
for name in ("mapping", "location", "function", "link", "attribute", "stack"):
    table = getattr(tables, name + "_table")
    assert table and not table[0].ByteSize(), name + "_table[0] is not none"
assert tables.string_table[0] == ""
assert len(set(tables.string_table)) == len(tables.string_table)


def value(any_value):
    return getattr(any_value, any_value.WhichOneof("value"))


def text(index):
    return tables.string_table[index]


def attributes(indices):
    return {text(a.key_strindex): value(a.value) for a in (tables.attribute_table[i] for i in indices)}


def frame(index):
    location = tables.location_table[index]
    (line,) = location.lines
    function = tables.function_table[line.function_index]
    return {
        "name": text(function.name_strindex),
        "file": text(function.filename_strindex),
        "line": line.line,
        "module": text(tables.mapping_table[location.mapping_index].filename_strindex),
        **attributes(location.attribute_indices),
    }


def profile(given):
    seen = set()
    samples = []
    for sample in given.samples:
        identity = (sample.stack_index, frozenset(sample.attribute_indices))
        assert identity not in seen, "a sample twice"
        seen.add(identity)
        (weight,) = sample.values
        stack = [frame(index) for index in tables.stack_table[sample.stack_index].location_indices]
        samples.append({"stack": stack, "value": weight, **attributes(sample.attribute_indices)})
    kind = [text(given.sample_type.type_strindex), text(given.sample_type.unit_strindex)]
    period = [text(given.period_type.type_strindex), text(given.period_type.unit_strindex), given.period]
    assert len(given.profile_id) == 16
    times = [given.time_unix_nano, given.duration_nano]
    return {"type": kind, "period": period, "times": times, "samples": samples}


(resource,) = request.resource_profiles
(scope,) = resource.scope_profiles
answer = {
    "resource": {a.key: value(a.value) for a in resource.resource.attributes},
    "scope": scope.scope.name,
    "profiles": [profile(given) for given in scope.profiles],
}
print(json.dumps(answer))

#!/usr/bin/env python3
"""Checks manifests of Kubernetes without a cluster: the fields and values of the kinds that the tests' API server does not
know yet, admission policies, against the table below (Kubernetes 1.34's published types); in all manifests, that names which
refer to something exist.

usage: manifests.py FILE...     prints each fault, exit status 1 if there are any. Needs PyYAML.
"""
import re
import sys

import yaml

TEXT, NUMBER, FLAG, ANY = str, int, bool, object


def one_of(*values):
    return ("one", values)


def rows(fields):
    return ("rows", fields)


EXPRESSION = ("expression",)
META = {"name!": TEXT, "labels": ANY, "annotations": ANY}
RULE = {"apiGroups!": rows(TEXT), "apiVersions!": rows(TEXT), "resources!": rows(TEXT), "resourceNames": rows(TEXT),
        "operations!": rows(one_of("CREATE", "UPDATE", "DELETE", "CONNECT", "*")), "scope": one_of("Cluster", "Namespaced", "*")}
MATCH = {"resourceRules": rows(RULE), "excludeResourceRules": rows(RULE), "matchPolicy": one_of("Exact", "Equivalent"),
         "namespaceSelector": ANY, "objectSelector": ANY}
NAMED = rows({"name!": TEXT, "expression!": EXPRESSION})
POLICY = {"failurePolicy": one_of("Fail", "Ignore"), "matchConstraints!": MATCH, "matchConditions": NAMED, "variables": NAMED,
          "paramKind": {"apiVersion!": TEXT, "kind!": TEXT}}
BINDING = {"policyName!": TEXT, "matchResources": MATCH, "paramRef": ANY}
KINDS = {
    ("admissionregistration.k8s.io/v1beta1", "MutatingAdmissionPolicy"): {
        **POLICY, "reinvocationPolicy!": one_of("Never", "IfNeeded"),
        "mutations!": rows({"patchType!": one_of("ApplyConfiguration", "JSONPatch"), "applyConfiguration": {"expression!": EXPRESSION},
                            "jsonPatch": {"expression!": EXPRESSION}})},
    ("admissionregistration.k8s.io/v1beta1", "MutatingAdmissionPolicyBinding"): BINDING,
    ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy"): {
        **POLICY, "validations": rows({"expression!": EXPRESSION, "message": TEXT, "messageExpression": EXPRESSION, "reason": TEXT}),
        "auditAnnotations": ANY},
    ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicyBinding"): {
        **BINDING, "validationActions!": rows(one_of("Deny", "Warn", "Audit"))},
}


def check_expression(path, text):
    """Strings end, brackets close in order: the rest needs a compiler of CEL."""
    if not isinstance(text, str) or not text.strip():
        yield f"{path}: an expression is wanted"
        return
    plain = re.sub(r'"(\\.|[^"\\\n])*"', "''", text)
    if '"' in plain:
        yield f"{path}: a string does not end"
    opened = []
    for character in plain:
        if character in "([{":
            opened.append(character)
        elif character in ")]}" and (not opened or opened.pop() + character not in ("()", "[]", "{}")):
            yield f"{path}: {character} closes nothing"
            return
    if opened:
        yield f"{path}: {opened[-1]} is not closed"


def check(path, value, wanted):
    if wanted is ANY:
        return
    if isinstance(wanted, type):
        if type(value) is not wanted:
            yield f"{path}: {value!r} is no {wanted.__name__}"
    elif isinstance(wanted, dict):
        yield from check_fields(path, value, wanted)
    elif wanted[0] == "one":
        if value not in wanted[1]:
            yield f"{path}: {value!r} is none of {', '.join(wanted[1])}"
    elif wanted[0] == "expression":
        yield from check_expression(path, value)
    elif not isinstance(value, list) or not value:
        yield f"{path}: a list is wanted"
    else:
        for index, row in enumerate(value):
            yield from check(f"{path}[{index}]", row, wanted[1])


def check_fields(path, value, fields):
    if not isinstance(value, dict):
        yield f"{path}: fields are wanted"
        return
    known = {name.rstrip("!"): (kind, name.endswith("!")) for name, kind in fields.items()}
    for name in value:
        if name not in known:
            yield f"{path}.{name}: there is no such field; there are {', '.join(sorted(known))}"
    for name, (kind, is_required) in known.items():
        if name in value:
            yield from check(f"{path}.{name}", value[name], kind)
        elif is_required:
            yield f"{path}.{name}: is missing"


def check_mutation(path, document):
    """The field of the patch is that of its type; each variable is defined."""
    for index, mutation in enumerate(document["spec"].get("mutations") or []):
        wanted = {"ApplyConfiguration": "applyConfiguration", "JSONPatch": "jsonPatch"}.get(mutation.get("patchType"))
        if wanted and set(mutation) != {"patchType", wanted}:
            yield f"{path}.spec.mutations[{index}]: {mutation['patchType']} goes with {wanted} alone"
    defined = {row.get("name") for row in document["spec"].get("variables") or []}
    for name in re.findall(r"\bvariables\.(\w+)", yaml.dump(document)):
        if name not in defined:
            yield f"{path}: variables.{name} is not defined"


def check_policies(path, documents):
    names = {(row["kind"], row["metadata"]["name"]) for row in documents}
    for document in documents:
        where = f"{path}: {document['kind']} {document['metadata']['name']}"
        fields = KINDS.get((document["apiVersion"], document["kind"]))
        if fields is None:
            if document["apiVersion"].startswith("admissionregistration.k8s.io/"):
                yield f"{where}: {document['apiVersion']} has no such kind"
            continue
        faults = list(check_fields(where, document, {"apiVersion!": TEXT, "kind!": TEXT, "metadata!": META, "spec!": fields}))
        yield from faults
        if not faults:
            yield from check_mutation(where, document)
        if document["kind"].endswith("Binding") and (document["kind"][:-len("Binding")], document["spec"].get("policyName")) not in names:
            yield f"{where}: there is no policy {document['spec'].get('policyName')}"


def check_pods(path, documents):
    """Each volume that is mounted is there, and the other way round."""
    for document in documents:
        spec = document.get("spec", {})
        spec = spec.get("template", {}).get("spec", spec)
        if "containers" not in spec:
            continue
        volumes = {row["name"] for row in spec.get("volumes", [])}
        mounted = {row["name"] for container in spec["containers"] + spec.get("initContainers", []) for row in container.get("volumeMounts", [])}
        for name in volumes ^ mounted:
            yield f"{path}: {document['kind']} {document['metadata']['name']}: the volume {name} is {'not mounted' if name in volumes else 'not there'}"


def main():
    faults = []
    for path in sys.argv[1:]:
        with open(path, encoding="utf-8") as stream:
            documents = [document for document in yaml.safe_load_all(stream) if document]
        faults += [*check_policies(path, documents), *check_pods(path, documents)]
    print("\n".join(faults) if faults else f"{len(sys.argv) - 1} files: no fault")
    return 1 if faults or len(sys.argv) < 2 else 0


sys.exit(main())

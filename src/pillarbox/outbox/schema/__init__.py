"""The schema of the outbox: create it, extend it, find drift, wall it off."""

from pillarbox.outbox.schema.drift import Finding, check
from pillarbox.outbox.schema.options import SchemaOptions
from pillarbox.outbox.schema.policies import tenant_policies
from pillarbox.outbox.schema.start_up import start_up_check
from pillarbox.outbox.schema.steps import Step, apply, plan, schema_sql

__all__ = [
    "Finding",
    "SchemaOptions",
    "Step",
    "apply",
    "check",
    "plan",
    "schema_sql",
    "start_up_check",
    "tenant_policies",
]

"""The schema of the outbox: create it, extend it, find drift, wall it off."""

from pillarbox.schema.drift import Finding, check
from pillarbox.schema.options import SchemaOptions
from pillarbox.schema.policies import tenant_policies
from pillarbox.schema.start_up import start_up_check
from pillarbox.schema.steps import Step, apply, plan, schema_sql

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

"""The wall between tenants: every tenant sees its own rows."""

from alembic import op

from pillarbox.schema import tenant_policies

APPLICATION_ROLE = "pillarbox_app"
PROJECTOR_ROLE = "pillarbox_projector"


def wall_off(*tables: str, projected: bool = False) -> None:
    """Let the services' role see a tenant's rows; read models are written by the projector's, too."""
    roles = (APPLICATION_ROLE, PROJECTOR_ROLE) if projected else (APPLICATION_ROLE,)
    for table in tables:
        for statement in tenant_policies(
            table, projector_role=PROJECTOR_ROLE if projected else None
        ):
            op.execute(statement)
        for role in roles:
            op.execute(f'GRANT SELECT, INSERT, UPDATE, DELETE ON "{table}" TO {role}')
    op.execute(f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO {APPLICATION_ROLE}")

"""A plain domain object behind a repository, and its read model.

Commands: `RoutePlanRepository` → `RepoAdapter` → `SaBaseRepo`. Queries: `RoutePlanQueryHandler` → `ReadDAO` →
`route_plan_projection`.
"""

"""A plain domain object behind a repository: `RoutePlanRepository` → `RepoAdapter` → `SaBaseRepo`."""

"""One module per suite; each has `async def run(report, rounds)`."""

"""The web process of the order service: `python -m examples.shop.order_service.app.main`."""

from examples.shop.common.web import serve, web_service
from examples.shop.order_service.app.box import box
from examples.shop.order_service.app.routes import commands, queries

app = web_service(box)
app.include_router(commands)
app.include_router(queries)

if __name__ == "__main__":
    serve(app)
